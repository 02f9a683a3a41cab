/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One communicator: where do its members' collectives first differ, and how?
 *
 * Positions are absolute, so only arguments are compared; a member that is merely behind is no
 * difference here (waits.h). The order of calls inside one group means nothing. The members that agree
 * with most others are the reference, and each other member gets the edit that explains it best.
 */
#ifndef NT_ALIGN_H
#define NT_ALIGN_H

#include "analysis/anchors.h"
#include "analysis/identify.h"

enum nt_field {
  NT_FIELD_NONE,
  NT_FIELD_CALL,
  NT_FIELD_COUNT,
  NT_FIELD_DTYPE,
  NT_FIELD_OP,
  NT_FIELD_ROOT,
  NT_FIELD_LIMIT,
};
const char *nt_field_name(enum nt_field field);

struct nt_deviation {
  uint32_t member; /* of the joint */
  struct nt_edit edit;
  uint32_t position; /* of the first edit; earlier than the divergence's where an anchor tells */
  enum nt_anchor anchor; /* that one */
  bool foretold; /* rests on what the reference would have called next by its earlier turns */
};

/* How the members that called the position voted on one field. */
struct nt_vote {
  enum nt_field field; /* NT_FIELD_NONE: they agree on everything */
  bool
      decided; /* one value has more than half of the voters, members without a trace counted against it */
  uint32_t *minority; /* members with another value; all that differ from each other if undecided */
  uint32_t minority_count;
};

struct nt_divergence {
  uint32_t position;  /* 0: none */
  uint32_t from;      /* looked for from this position on: the job went past those in front of it */
  uint32_t later;     /* of one that the job went past: operations behind it that had finished */
  uint32_t reference; /* a member that stands for most */
  bool decided;       /* the reference has more voters than any other value */
  bool witnessed;     /* no votes: ranks of other communicators tell who is right */
  bool disputed;      /* votes say one thing, and the own past of members another */
  bool captured;      /* some captured what others called: later positions do not correspond */
  uint32_t *
      mixed; /* by member, what is the same operation: called by some, launched by others (moved.h); NULL: none */
  bool sure; /* also if all members without a trace were of another mind */
  uint32_t voters;   /* members whose call at the position is known */
  uint32_t agreeing; /* of these, with the reference */
  struct nt_deviation *deviations;
  uint32_t deviation_count;
  /* The first difference lies in calls that are no longer there: between these positions, for
   * this member against the reference. 0 if not so. */
  uint32_t hidden_low, hidden_high, hidden_member;
};

/* Compares all members of a joint. Reorders members' calls inside groups, so that equal ones stand at equal
 * positions. Returns 0 or a negative enum nt_err; free the result either way. */
int nt_align_joint(const struct nt_job *job, struct nt_joint *joint, struct nt_divergence *out);
/* The same from that position on, where it is known that differences in front of it came to nothing. */
int nt_align_from(const struct nt_job *job, struct nt_joint *joint, uint32_t from,
                  struct nt_divergence *out);
/* Finished operations behind a difference that show that it did not stop the job. */
#define NT_PASSED_CALLS 16
/* Sets a difference aside that the job went past (align_past.c): *past becomes the first of them, *now the first that is none, or
 * nothing. Returns 0 or a negative enum nt_err; free both either way. */
int nt_align_go_past(const struct nt_job *job, struct nt_joint *joint, struct nt_divergence *past,
                     struct nt_divergence *now);
/* Other arguments alone: nobody left a call out, made one too many, or another order of them. */
bool nt_divergence_only_changed(const struct nt_divergence *divergence);
void nt_divergence_free(struct nt_divergence *divergence);

/* The running sum behind a position, if the rank still has it. */
bool nt_align_sum(const struct nt_job *job, const struct nt_member *member, uint32_t position,
                  uint64_t *sum);

/* The first field in which the calls at the divergence differ, from `after` on, among the members that
 * have another call in the same place and those that agree. Free vote->minority. */
int nt_align_vote(const struct nt_job *job, const struct nt_joint *joint,
                  const struct nt_divergence *divergence, enum nt_field after,
                  struct nt_vote *vote);

#endif
