/* SPDX-License-Identifier: Apache-2.0 */
/* What align.c and align_sides.c share. */
#ifndef NT_ALIGN_PARTS_H
#define NT_ALIGN_PARTS_H

#include "analysis/align.h"

/* Of the member's call at the position, 0 if it has none. */
static inline uint64_t nt_align_signature(const struct nt_member *member, uint32_t position) {
  if (position < member->first || position > member->called)
    return 0;
  return member->sig[position - member->first];
}

/* What the right ones called at the position, as ranks of other communicators tell of every member; 0 if they do not. They are
 * asked about *parted, from which position on calls of equal arguments were made at different lines; else that one. */
uint64_t nt_align_side_of_witnesses(const struct nt_job *job, const struct nt_joint *joint,
                                    uint32_t position, uint32_t *parted);
/* The same told where the two parted, by their lines: how many calls the member left out there, or made too many. */
void nt_align_tell_parting(const struct nt_job *job, const struct nt_member *reference,
                           const struct nt_member *member, uint32_t parted,
                           struct nt_deviation *deviation);
/* Who made the same calls as another one that deviates, as far as it got, has its story: a host that is held in the first of them
 * has not shown more. */
void nt_align_share_stories(const struct nt_joint *joint, struct nt_divergence *divergence);

#endif
