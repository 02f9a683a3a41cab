/* SPDX-License-Identifier: Apache-2.0 */
/* All ends of messages up to the cut, for p2p.c. */
#ifndef NT_P2P_ENDS_H
#define NT_P2P_ENDS_H

#include "analysis/p2p.h"

/* Sorted by queue, position and direction; linear in the calls. Returns 0 or a negative enum nt_err; *ends is the
 * caller's either way. */
int nt_p2p_list_ends(const struct nt_job *job, struct nt_p2p_end **ends, uint32_t *count);

#endif
