/* SPDX-License-Identifier: Apache-2.0 */
/* Strongly connected components of the wait-for graph, and which of them nothing leads out of. */
#ifndef NT_KNOTS_H
#define NT_KNOTS_H

#include "analysis/waits.h"

/* Nodes are ranks and stuck operations; edges lead from a rank to what it waits in, and from there to
 * the ranks that did not call. Fills the knot fields of `waits`. Linear, and not recursive. Returns 0
 * or a negative enum nt_err. */
int nt_knots_find(uint32_t rank_count, struct nt_waits *waits);

#endif
