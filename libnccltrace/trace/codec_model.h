/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What encoder and decoder both expect of the next call, from the calls before it in the frame.
 *
 * A training loop repeats itself: the same kinds of call (templates) follow each other, with the same
 * buffers, at nearly the same distances. Everything here must give the same result on both sides and
 * in every release: docs/FORMAT.md writes it down.
 */
#ifndef NT_CODEC_MODEL_H
#define NT_CODEC_MODEL_H

#include "trace/bytes.h"
#include "trace/record.h"

/* What many calls have in common. Compared with memcmp: no padding. */
struct nt_template {
  uint64_t count;
  uint32_t comm, stream;
  int32_t peer;
  uint16_t flags;
  uint8_t fn, dtype, op, result;
  uint8_t in_group;  /* record.group is not 0 */
  uint8_t seq_class; /* enum nt_seq_class: which calls share a sequence */
  uint32_t zero;
};
_Static_assert(sizeof(struct nt_template) == 32, "templates are compared as bytes");

enum nt_seq_class { NT_SEQ_PER_FUNCTION = 0, NT_SEQ_COLLECTIVE = 1, NT_SEQ_PER_PEER = 2 };

/* Columns of records; append-only. A missing column is all zero, an unknown one is skipped. */
enum nt_column {
  NT_COLUMN_TEMPLATE = 1, /* 0 as predicted, else the template's index + 1 */
  NT_COLUMN_GAP = 2,      /* from the end of the thread's call before, in units */
  NT_COLUMN_DURATION = 3,
  NT_COLUMN_SEQ = 4,
  NT_COLUMN_SEND = 5,
  NT_COLUMN_RECV = 6,
  NT_COLUMN_STACK = 7,
  NT_COLUMN_LAUNCH = 8,
  NT_COLUMN_GROUP = 9,
  NT_COLUMN_RECORD_LIMIT = 10,
  /* Columns of templates. */
  NT_COLUMN_T_FN = 33,
  NT_COLUMN_T_DTYPE = 34,
  NT_COLUMN_T_OP = 35,
  NT_COLUMN_T_FLAGS = 36,
  NT_COLUMN_T_RESULT = 37,
  NT_COLUMN_T_COMM = 38,
  NT_COLUMN_T_STREAM = 39,
  NT_COLUMN_T_PEER = 40,
  NT_COLUMN_T_COUNT = 41,
  NT_COLUMN_T_IN_GROUP = 42,
  NT_COLUMN_T_SEQ_CLASS = 43,
  NT_COLUMN_T_LIMIT = 44,
};

#define NT_MODEL_BITS 12
#define NT_MODEL_SLOTS (1u << NT_MODEL_BITS)

/* A running mean in sixteenths. `turn` of another turn than the model's: nothing seen yet. */
struct nt_mean {
  int64_t sum;
  uint64_t turn;
};

struct nt_known {
  uint64_t value;
  uint64_t turn;
};

struct nt_model {
  uint32_t t1, t2, t3; /* templates of the thread's last three calls, index + 1; 0 none */
  uint64_t end;        /* unit in which the thread's last call returned */
  uint64_t send, recv; /* of the thread's last call */
  uint32_t stack, group;
  uint32_t next[NT_MODEL_SLOTS];   /* by (t1, t2, t3): index + 1 */
  uint32_t seq[NT_MODEL_SLOTS];    /* by (communicator, class, peer or function) */
  uint32_t launch[NT_MODEL_SLOTS]; /* by stream */
  uint32_t step[NT_MODEL_SLOTS];   /* by (template, t1): how the group number moves */
  /* What is above is zeroed for a new turn, what is below is forgotten by its number: it is large. */
  uint64_t turn;
  struct nt_mean gap[NT_MODEL_SLOTS];         /* by (template, t1) */
  struct nt_mean duration[NT_MODEL_SLOTS];    /* by (template, t1) */
  struct nt_known send_after[NT_MODEL_SLOTS]; /* by (template, send of the call before) */
  struct nt_known recv_after[NT_MODEL_SLOTS];
  struct nt_known stack_after[NT_MODEL_SLOTS]; /* by (template, stack of the call before) */
  uint64_t *last; /* per template: send, recv, stack of its last call */
  uint32_t templates;
};

/* The fields of one call that are predicted one by one. */
struct nt_call_values {
  uint64_t gap, duration; /* units */
  uint64_t send, recv;
  uint32_t seq, stack, launch, group;
};

/* Forgets everything; the model can then hold `templates` templates. -NT_ERR_MEMORY. */
int nt_model_reset(struct nt_model *model, uint32_t templates);
void nt_model_clear(struct nt_model *model);

/* Another thread's run begins at unit `base`. */
void nt_model_thread(struct nt_model *model, uint64_t base);

/* Index of the template that should come next, or UINT32_MAX. */
uint32_t nt_model_next(const struct nt_model *model);

/* Everything but recv, given the template. */
void nt_model_predict(const struct nt_model *model, uint32_t index, const struct nt_template *what,
                      struct nt_call_values *out);

/* recv, once send is known. */
uint64_t nt_model_predict_recv(const struct nt_model *model, uint32_t index,
                               const struct nt_template *what, uint64_t send);

/* Takes in what the call really was. */
void nt_model_learn(struct nt_model *model, uint32_t index, const struct nt_template *what,
                    const struct nt_call_values *is);

#endif
