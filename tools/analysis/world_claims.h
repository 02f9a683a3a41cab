/* SPDX-License-Identifier: Apache-2.0 */
/* World ranks that cannot be what the processes say. */
#ifndef NT_WORLD_CLAIMS_H
#define NT_WORLD_CLAIMS_H

#include "analysis/model.h"

/* Where processes that stand at different places of one communicator claim the same world rank, all get the rank that they
 * have in the largest such communicator, and a note says so. Of one run, before doubles are dropped. */
int nt_world_claims_settle(struct nt_model *model);

#endif
