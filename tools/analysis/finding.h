/* SPDX-License-Identifier: Apache-2.0 */
/* What the analysis says: findings, each with who, which call, why it is believed and what to do. */
#ifndef NT_FINDING_H
#define NT_FINDING_H

#include "analysis/identify.h"

enum nt_class {
  NT_CLASS_CONSISTENT,
  NT_CLASS_DEAD,
  NT_CLASS_LEFT,
  NT_CLASS_ERROR,
  NT_CLASS_INIT,
  NT_CLASS_MISSING,
  NT_CLASS_EXTRA,
  NT_CLASS_ORDER,
  NT_CLASS_MISMATCH,
  NT_CLASS_P2P,
  NT_CLASS_CYCLE,
  NT_CLASS_TEARDOWN,
  NT_CLASS_GPU,
  NT_CLASS_STALLED,
  NT_CLASS_OUTSIDE,
  NT_CLASS_CONFIG,
  NT_CLASS_SLOW,
  NT_CLASS_UNDECIDED,
  NT_CLASS_LIMIT,
};
const char *nt_class_name(enum nt_class class);

enum nt_confidence { NT_CERTAIN, NT_LIKELY, NT_UNDECIDED };
const char *nt_confidence_name(enum nt_confidence confidence);

struct nt_lines {
  char **line;
  uint32_t count;
};
/* Appends a formatted line; left out when there is no memory. */
void nt_lines_add(struct nt_lines *lines, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void nt_lines_free(struct nt_lines *lines);

struct nt_culprit {
  uint32_t rank;   /* index into the model, NT_NONE without a trace */
  uint32_t thread; /* that all below is said of; 0: whichever did something last */
  int32_t world;
  char *last; /* its last call, NULL if none */
  char *at;   /* where in the program it made that call, NULL if not known */
  char *now;  /* what it does now, as far as can be told; NULL if not */
  const struct nt_model_stack *stack; /* where it is: of a call or of a dump; NULL if not known */
  bool of_last;     /* the stack is of its last call, which has returned: not of where it is */
  bool dumped;      /* `now` is from a dump */
  int64_t since_ns; /* since when it has been as it is, 0 if not known */
};

struct nt_finding {
  enum nt_class class;
  enum nt_confidence confidence;
  uint32_t joint; /* NT_NONE if it concerns none */
  uint8_t fn;
  uint32_t seq;
  const char *field; /* static, or NULL */
  struct nt_rank_set blame, waiting;
  int64_t since_ns;
  bool only_called; /* `waiting` called it; whether they wait is not known */
  uint32_t
      thread;    /* of the process to blame, that which lacks the call; 0: it holds one rank only */
  bool was_done; /* whom it blames had finished its own part of the operation */
  bool acquitted; /* whom it names may well be right: once the summary is said, nobody is blamed */
  bool past;      /* the job went on behind it: it holds nobody up */
  bool open_end;  /* whom it waits for is not known: another finding may be the cause */
  struct nt_culprit *culprits; /* by world rank; as many as are blamed, at most NT_CULPRITS_MAX */
  uint32_t culprit_count;
  struct nt_culprit *stands; /* where nobody is to blame: where ranks are, if they have a stack */
  uint32_t stand_count;
  char *summary;
  struct nt_lines evidence, next;
};
#define NT_CULPRITS_MAX 64

void nt_finding_free(struct nt_finding *finding);
/* Adds a rank of the model (by index) to a set of world ranks; one without a world rank is left out. */
int nt_finding_add(const struct nt_job *job, struct nt_rank_set *set, uint32_t rank);

#endif
