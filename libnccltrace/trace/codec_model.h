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
  uint64_t count; /* 0 where it varies */
  uint32_t comm, stream;
  int32_t peer;
  uint16_t flags;
  uint8_t fn, dtype, op, result;
  uint8_t in_group;  /* record.group is not 0 */
  uint8_t seq_class; /* enum nt_seq_class: which calls share a sequence */
  uint32_t varies;   /* 1: each call has a count of its own */
};
_Static_assert(sizeof(struct nt_template) == 32, "templates are compared as bytes");

enum nt_seq_class { NT_SEQ_PER_FUNCTION = 0, NT_SEQ_COLLECTIVE = 1, NT_SEQ_PER_PEER = 2 };

/* Columns; append-only. A missing column is all zero, an unknown one is skipped. */
enum nt_column {
  /* An entry for each call whose bit in MISSED is set, of RECV and SEND where AGAIN is 0. */
  NT_COLUMN_TEMPLATE = 1, /* 0: the first call of the next template, else its index + 1 */
  NT_COLUMN_SEQ = 4,
  NT_COLUMN_SEND = 5,
  NT_COLUMN_RECV = 6,
  NT_COLUMN_STACK = 7,
  NT_COLUMN_LAUNCH = 8,
  NT_COLUMN_GROUP = 9,
  NT_COLUMN_COUNT = 11,
  NT_COLUMN_SEND_AGAIN = 12, /* which of the recent values it is, from 1; 0: none */
  NT_COLUMN_RECV_AGAIN = 13,
  /* An entry for each call. */
  NT_COLUMN_GAP = 2, /* from the end of the thread's call before, in units */
  NT_COLUMN_DURATION = 3,
  NT_COLUMN_MISSED = 10, /* enum nt_missed */
  NT_COLUMN_RECORD_LIMIT = 14,
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
  NT_COLUMN_T_VARIES = 44,
  NT_COLUMN_T_LIMIT = 45,
};

/* What of a call is not as predicted. */
enum nt_missed {
  NT_MISSED_TEMPLATE = 0x01,
  NT_MISSED_SEQ = 0x02,
  NT_MISSED_SEND = 0x04,
  NT_MISSED_RECV = 0x08,
  NT_MISSED_STACK = 0x10,
  NT_MISSED_LAUNCH = 0x20,
  NT_MISSED_GROUP = 0x40,
  NT_MISSED_COUNT = 0x80,
};

#define NT_MODEL_BITS 12
#define NT_MODEL_SLOTS (1u << NT_MODEL_BITS)
#define NT_MODEL_RECENT 8
#define NT_MODEL_HANDLES 128

/* What followed what: running means in sixteenths and how the group number moves. `turn` of another turn than the model's:
 * nothing seen yet. They lie together: each call needs all of one, which is seldom in a cache. */
struct nt_pair {
  int64_t gap, duration;
  uint32_t turn, step;
};

/* What came last in this place, and how often that was right. */
struct nt_guess {
  uint64_t value;
  uint32_t turn, sure;
};

/* Buffers that a template had: the one before the last, and the latest different ones, newest first. */
struct nt_trail {
  uint64_t before, recent[NT_MODEL_RECENT];
};

/* Values of which the next is often one, newest first. */
struct nt_recent {
  const uint64_t *value;
  unsigned count;
  uint64_t last; /* what any other is told by its difference from */
};

/* Of one template. */
struct nt_kept {
  struct nt_trail send, recv;
  uint64_t count;
  uint32_t stack;
  uint32_t next;        /* the template that came after it last, index + 1 */
  uint32_t seq, launch; /* its slots in the tables of the model, + 1; 0: not looked for yet */
};

struct nt_model {
  uint32_t t1, t2, t3; /* templates of the thread's last three calls, index + 1; 0 none */
  uint64_t end;        /* unit in which the thread's last call returned */
  uint64_t send, recv; /* of the thread's last call */
  uint32_t stack, group;
  uint32_t at;                     /* slot of (t1, t2, t3) */
  uint32_t next[NT_MODEL_SLOTS];   /* by (t1, t2, t3): index + 1 */
  uint32_t seq[NT_MODEL_SLOTS];    /* by (communicator, class, peer or function) */
  uint32_t launch[NT_MODEL_SLOTS]; /* by stream */
  uint64_t
      handles[NT_MODEL_HANDLES]; /* the latest different recvs of calls without a communicator */
  /* What is above is zeroed for a new turn, what is below is forgotten by its number: it is large. */
  uint32_t turn;
  struct nt_pair pairs[NT_MODEL_SLOTS];       /* by (template, t1) */
  struct nt_guess send_own[NT_MODEL_SLOTS];   /* by the template's last two sends */
  struct nt_guess send_after[NT_MODEL_SLOTS]; /* by (template, send of the call before) */
  struct nt_guess recv_own[NT_MODEL_SLOTS];
  struct nt_guess recv_after[NT_MODEL_SLOTS];
  struct nt_guess stack_after[NT_MODEL_SLOTS]; /* by (template, stack of the call before) */
  struct nt_kept *kept;                        /* per template */
  uint32_t templates, room;
};

/* The fields of one call that are predicted one by one. */
struct nt_call_values {
  uint64_t gap, duration; /* units */
  uint64_t count;         /* 0 unless the template's varies */
  uint64_t send, recv;
  uint32_t seq, stack, launch, group;
};

/* What is expected of a call, and the slots that it was taken from. */
struct nt_expected {
  struct nt_call_values call;
  uint32_t pair, seq, launch, send_own, send_after, recv_own, recv_after, stack_after;
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
                      struct nt_expected *out);

/* recv, once send is known. */
void nt_model_predict_recv(const struct nt_model *model, uint32_t index,
                           const struct nt_template *what, uint64_t send, struct nt_expected *out);

/* Which send or recv it may be if it is not the expected one. Events go round among calls of all kinds, buffers do not. */
struct nt_recent nt_model_recent_send(const struct nt_model *model, uint32_t index);
struct nt_recent nt_model_recent_recv(const struct nt_model *model, uint32_t index,
                                      const struct nt_template *what);

/* Takes in what the call really was. */
void nt_model_learn(struct nt_model *model, uint32_t index, const struct nt_template *what,
                    const struct nt_call_values *is, const struct nt_expected *expected);

#endif
