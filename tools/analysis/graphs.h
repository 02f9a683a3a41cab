/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the captured graphs of a rank hold: its captured calls by graph, in their order, and what was put into a graph in
 * the place where it was.
 */
#ifndef NT_GRAPHS_H
#define NT_GRAPHS_H

#include "analysis/model.h"

struct nt_graphs {
  const struct nt_model_rank *rank;
  uint32_t *calls; /* captured calls: by graph, then by time */
  uint32_t count;
};

/* A launch of a graph, not one that only puts it into another. */
bool nt_is_replay(const struct nt_model_call *call);

/* A message that a launch carries out (replayed.h). */
bool nt_is_replayed(const struct nt_model_call *call);

/* Calls up to the end of the trace. Returns 0 or -NT_ERR_MEMORY; free the result either way. */
int nt_graphs_build(const struct nt_model_rank *rank, struct nt_graphs *out);
void nt_graphs_free(struct nt_graphs *graphs);

/* Calls `visit` for each operation that the graph holds, with its index among the rank's calls, until it returns other
 * than 0. Returns what it returned last. */
int nt_graphs_walk(const struct nt_graphs *graphs, uint32_t graph,
                   int (*visit)(void *arg, uint32_t call), void *arg);

#endif
