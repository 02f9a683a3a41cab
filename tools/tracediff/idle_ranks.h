/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks without a trace whose processes can be seen: on this node, with the library, and without a communicator. */
#ifndef NT_IDLE_RANKS_H
#define NT_IDLE_RANKS_H

#include "analysis/model.h"

/* Fills model->idle from /proc, if a rank of the job lives on this node and another has no trace. Returns 0 or -NT_ERR_MEMORY. */
int nt_find_idle_ranks(struct nt_model *model);

#endif
