/* SPDX-License-Identifier: Apache-2.0 */
/* What other ranks did at a place of the program to which they come as well: a branch that many take is none's mistake. */
#ifndef NT_WITNESSES_H
#define NT_WITNESSES_H

#include "analysis/identify.h"
#include "nccl/nccl_api.h"

struct nt_witnesses {
  uint32_t alike, other; /* ranks that made the same call there, and another one */
  bool one;              /* those others all made the same */
  bool as_before;        /* the rank made such a call when it was there before */
  uint8_t fn;            /* of the call that one of these made; NT_FN_NONE: it ended well there */
  uint32_t at;           /* the line of that call */
};

/* How the other ranks went on from where the rank made that call: from the call in front of it, by line, function, size of
 * the communicator and number. To end well there is to go on as well. Only those count that had made the same last calls,
 * and had gone on as it did when they were there before. Members of `except`, a joint or NT_NONE, are left aside. Only the
 * last few thousand calls of a rank are looked at. */
struct nt_witnesses nt_witnesses_at(const struct nt_job *job, uint32_t rank, uint32_t call,
                                    uint32_t except);
/* The same of those that had made the same last calls, be it in a second turn: as before is then what the rank had called at that
 * line, and had called at the line of one of the others as well. */
struct nt_witnesses nt_witnesses_in_step(const struct nt_job *job, uint32_t rank, uint32_t call,
                                         uint32_t except);
/* Enough to tell: two at least, and more than have no trace. */
bool nt_witnesses_suffice(const struct nt_job *job, uint32_t count);
/* It called as it had before, and all others that were there went on in one other way. How many; 0 if it is not so. */
uint32_t nt_witnesses_against(const struct nt_job *job, uint32_t rank, uint32_t call,
                              uint32_t except);
/* Some of the others went on as the rank did, and with those that have no trace no fewer than otherwise. */
bool nt_witnesses_is_usual(const struct nt_job *job, uint32_t rank, uint32_t call, uint32_t except);
/* No more than half of the members have made call `last`, the others went on elsewhere: where they parted, and those ahead
 * did as they had before, did ranks of other communicators go on as those without it, and none as those with it? How many; 0
 * if it is not so. The call that is then too many goes to *position, as who made it counts. */
uint32_t nt_witnesses_lack(const struct nt_job *job, const struct nt_joint *joint, uint32_t last,
                           uint32_t *position);

/* The member lacks the call `last` that others of the joint have made: where they parted, did at least two ranks of other
 * communicators go on as these, and none as it did? When it did that goes to *at_ns. */
bool nt_witnesses_blame(const struct nt_job *job, const struct nt_joint *joint, uint32_t last,
                        uint32_t member, int64_t *at_ns);

/* Among its last calls, did the rank go on to one that others made there too, but behind a call of that shape which all of
 * them made first? Those count that were in step with it before, if only in the same first turn. `except` is left aside. */
bool nt_witnesses_miss(const struct nt_job *job, uint32_t rank, uint32_t except,
                       enum nt_shape shape);
/* The same of that very call of a collective, by its line. Messages are left aside: they differ by the stage of a pipeline. */
bool nt_witnesses_miss_call(const struct nt_job *job, uint32_t rank,
                            const struct nt_model_call *call);
/* Some made that call there, and none another. */
bool nt_witnesses_vouch(const struct nt_job *job, uint32_t rank, uint32_t call, uint32_t except);

/* What at least two others called next that had made the same last calls as the rank, if it was one thing: line and function. */
bool nt_witnesses_next(const struct nt_job *job, uint32_t rank, uint32_t *at, uint8_t *fn);

#endif
