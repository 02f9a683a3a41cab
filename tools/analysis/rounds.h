/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds: the last operations of a communicator in which all members meet, and when each of them came and went.
 *
 * None of these finishes on any member before all have entered it. Times are each member's own clock.
 */
#ifndef NT_ROUNDS_H
#define NT_ROUNDS_H

#include "analysis/identify.h"

struct nt_meeting {
  int64_t enter_ns;      /* the host called it */
  int64_t from_ns;       /* it came no earlier: the call, or what was seen in front of it */
  int64_t by_ns;         /* it had come by then; INT64_MAX if that is not known */
  int64_t unfinished_ns; /* seen unfinished, 0 if it was not */
  int64_t finished_ns;   /* finished by then; INT64_MAX if that is not known */
  uint32_t took_us;      /* exactly, waiting for others included; 0 if not measured */
};

struct nt_rounds {
  uint32_t *position; /* ascending */
  uint32_t count, members;
  uint8_t fn;            /* of all of them, NT_FN_NONE if they differ */
  struct nt_meeting *at; /* `members` of each round, in the joint's order */
};

/* The last NT_SEEN_KEPT positions if `sampled` is false, else all that have a duration on every member. Only those
 * that all members called alike. Linear in members times positions. Returns 0 or -NT_ERR_MEMORY; free it either way. */
int nt_rounds_find(const struct nt_job *job, const struct nt_joint *joint, bool sampled,
                   struct nt_rounds *out);
void nt_rounds_free(struct nt_rounds *rounds);

static inline const struct nt_meeting *nt_round(const struct nt_rounds *rounds, uint32_t round) {
  return &rounds->at[(size_t)round * rounds->members];
}

#endif
