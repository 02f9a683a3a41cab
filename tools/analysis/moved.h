/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the members of a communicator had moved, in their order: collectives that they called, and those of the graphs that they
 * launched.
 *
 * A captured call takes a place among the calls, though it moves nothing. So where members do not capture alike, or some call
 * what others replay, equal positions are not the same operation. That is told by what they moved, which needs traces with
 * all calls.
 */
#ifndef NT_MOVED_H
#define NT_MOVED_H

#include "analysis/align.h"

/*
 * Follows nt_align_joint. Where members moved the same, but some called what others replayed, that is the difference
 * (divergence->mixed). Where they moved the same, and only captures differ, those of the member with the fewest keep their
 * places, the calls of all members get the positions of that one's, and the difference is taken anew.
 * Returns 0 or -NT_ERR_MEMORY.
 */
int nt_moved_settle(const struct nt_job *job, struct nt_joint *joint,
                    struct nt_divergence *divergence);

#endif
