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

/* Which of the candidate joints the rank would have used next, judged by its calls before `before_ns` in
 * program order: an index into `candidates`, NT_NONE if its past does not tell. True in *again, which may be NULL:
 * it had done so before in such a place; false: one turn is all of its past. */
uint32_t nt_foretell_joint(const struct nt_job *job, uint32_t rank, int64_t before_ns,
                           const uint32_t *candidates, uint32_t count, bool *again);

/* End of the earlier stretch that repeats the longest suffix of a sequence; 0 if none of `least` or more does. */
uint32_t nt_foretell_repeated(const uint64_t *sequence, uint32_t count, uint32_t least);

/* What a rank may call next (foretell_next.c). */
struct nt_next {
  uint32_t joint;
  uint8_t fn;   /* NT_FN_Send, NT_FN_Recv, or any collective */
  int32_t peer; /* of a message */
};
/* Which of them the rank would have called next by its earlier turns, messages included: an index, NT_NONE if
 * its past does not tell. */
uint32_t nt_foretell_next(const struct nt_job *job, uint32_t rank, const struct nt_next *candidates,
                          uint32_t count);

#endif
