/* SPDX-License-Identifier: Apache-2.0 */
/* What a member would have called next, by the order it followed in earlier turns. */
#ifndef NT_FORETELL_H
#define NT_FORETELL_H

#include "analysis/identify.h"

/* Signatures of the collectives that would follow the member's last one: what followed when it last
 * did what it did now, or the next of a run of evenly growing counts. Returns how many. */
uint32_t nt_foretell(const struct nt_job *job, const struct nt_member *member, uint64_t *out,
                     uint32_t room);

/* The same in front of `position`, but only where the member's calls had gone round in equal turns: two whole ones at
 * least before that point. */
uint32_t nt_foretell_turn(const struct nt_member *member, uint32_t position, uint64_t *out,
                          uint32_t room);

/* End of the earlier stretch that repeats the longest suffix of a sequence, but for that which ends at `other`; 0 if none
 * of `least` or more does. */
uint32_t nt_foretell_repeated(const uint64_t *sequence, uint32_t count, uint32_t least,
                              uint32_t other);

/* Calls that stand for one another in a rank's order (foretell_next.c): all collectives of a joint, or its messages to, or
 * from, one member of it. */
#define NT_KIND_NONE UINT64_MAX
uint64_t nt_kind_collective(uint32_t joint);
uint64_t nt_kind_message(uint32_t joint, bool is_send, int32_t peer);
/* Of a message or a collective up to the cut; NT_KIND_NONE for other calls and void ones. */
uint64_t nt_kind_of_call(const struct nt_job *job, uint32_t rank, const struct nt_model_call *call);

/* Which of the candidate kinds the rank would have called next, judged by its calls before `before_ns` in
 * program order: an index into `candidates`, NT_NONE if its past does not tell. */
uint32_t nt_foretell_kind(const struct nt_job *job, uint32_t rank, int64_t before_ns,
                          const uint64_t *candidates, uint32_t count);

/* Did the rank, since it last called that kind and up to its call at `at_ns`, go past a place in which it had called it at
 * least twice before? The call that it made there instead, by index and counted from 1; 0 if it did not. */
uint32_t nt_foretell_left_out(const struct nt_job *job, uint32_t rank, uint64_t kind,
                              int64_t at_ns);

/* The last such place, among its last calls, that it went past as it never did again: how often it had called the kind by
 * then, and this one. 0 if there is none. Only where its record is whole. */
uint32_t nt_foretell_passed(const struct nt_job *job, uint32_t rank, uint64_t kind);

#endif
