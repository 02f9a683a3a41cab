/* SPDX-License-Identifier: Apache-2.0 */
/* Running sums in front of the calls that were read. */
#ifndef NT_WINDOW_PARTS_H
#define NT_WINDOW_PARTS_H

#include "analysis/identify.h"

/* Of one communicator of a rank, while its calls are gone through. */
struct nt_window_tail {
  uint64_t sum;                   /* behind `position`, once all later terms are taken away */
  uint32_t position;              /* NT_NONE: not asked for */
  uint32_t group, thread, leader; /* the group of its last call, and where it begins */
};

/* The last position in front of what was read of any member; false if one has not come there. */
bool nt_window_before(const struct nt_joint *joint, uint32_t *position);

/* The sums of a rank behind the positions of `positions` (by joint), by view. */
void nt_window_sums(const struct nt_job *job, uint32_t rank, const uint32_t *positions,
                    struct nt_window_tail *tails);

#endif
