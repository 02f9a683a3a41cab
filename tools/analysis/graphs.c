/* SPDX-License-Identifier: Apache-2.0 */
/* A trace is hostile input: graphs may be put into each other in a circle, so depth and length are bounded. */
#include "analysis/graphs.h"

#include <stdlib.h>

#include "analysis/sequence.h"
#include "nccl/nccl_api.h"
#include "nccl/nccl_types.h"

enum { DEEPEST = 16, LONGEST = 1 << 20 };

bool nt_is_replay(const struct nt_model_call *call) {
  return nt_fn_shape(call->fn) == NT_SHAPE_GRAPH_LAUNCH && call->graph &&
         !(call->flags & (NT_CALL_CAPTURED | NT_CALL_VOID));
}

bool nt_is_replayed(const struct nt_model_call *call) {
  return call->graph && call->view != NT_NONE && !(call->flags & NT_CALL_CAPTURED);
}

/* It puts a graph into another one. */
static bool is_part(const struct nt_model_call *call) {
  enum nt_shape shape = nt_fn_shape(call->fn);
  return shape == NT_SHAPE_GRAPH_LAUNCH || shape == NT_SHAPE_GRAPH_PART ||
         shape == NT_SHAPE_CAPTURE_END;
}

/* Captured messages are void in the model, since they take no place in their queues. */
static bool is_operation(const struct nt_model_call *call) {
  if (call->view == NT_NONE)
    return false;
  if (nt_call_is_message(call))
    return call->result == ncclSuccess || call->result == ncclInProgress;
  return nt_fn_is_collective(call->fn) && nt_call_counts(call);
}

struct key {
  int64_t enter_ns;
  uint32_t graph, call;
};

static int by_graph(const void *a, const void *b) {
  const struct key *x = a, *y = b;
  if (x->graph != y->graph)
    return x->graph < y->graph ? -1 : 1;
  if (x->enter_ns != y->enter_ns)
    return x->enter_ns < y->enter_ns ? -1 : 1;
  return (x->call > y->call) - (x->call < y->call);
}

int nt_graphs_build(const struct nt_model_rank *rank, struct nt_graphs *out) {
  *out = (struct nt_graphs){.rank = rank};
  uint32_t count = 0;
  for (uint32_t i = 0; i < rank->call_count; i++)
    count += (rank->calls[i].flags & NT_CALL_CAPTURED) && rank->calls[i].graph;
  if (!count)
    return 0;
  struct key *keys = malloc(count * sizeof *keys);
  out->calls = malloc(count * sizeof *out->calls);
  if (!keys || !out->calls) {
    free(keys);
    return -NT_ERR_MEMORY;
  }
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if ((call->flags & NT_CALL_CAPTURED) && call->graph && (is_part(call) || is_operation(call)))
      keys[out->count++] = (struct key){call->enter_ns, call->graph, i};
  }
  qsort(keys, out->count, sizeof *keys, by_graph);
  for (uint32_t i = 0; i < out->count; i++)
    out->calls[i] = keys[i].call;
  free(keys);
  return 0;
}

void nt_graphs_free(struct nt_graphs *graphs) {
  free(graphs->calls);
  *graphs = (struct nt_graphs){0};
}

static uint32_t first_of(const struct nt_graphs *graphs, uint32_t graph) {
  uint32_t low = 0, high = graphs->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (graphs->rank->calls[graphs->calls[middle]].graph < graph)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

struct walk {
  const struct nt_graphs *graphs;
  int (*visit)(void *arg, uint32_t call);
  void *arg;
  uint32_t depth, steps;
};

static int walk_graph(struct walk *walk, uint32_t graph) {
  const struct nt_graphs *graphs = walk->graphs;
  int status = 0;
  if (!graph || walk->depth == DEEPEST)
    return 0;
  walk->depth++;
  for (uint32_t i = first_of(graphs, graph); i < graphs->count && !status; i++) {
    const struct nt_model_call *call = &graphs->rank->calls[graphs->calls[i]];
    if (call->graph != graph || walk->steps++ >= LONGEST)
      break;
    if (!is_part(call)) {
      status = walk->visit(walk->arg, graphs->calls[i]);
      continue;
    }
    status = walk_graph(walk, (uint16_t)(call->count >> 32));
    if (!status)
      status = walk_graph(walk, (uint16_t)call->count);
  }
  walk->depth--;
  return status;
}

int nt_graphs_walk(const struct nt_graphs *graphs, uint32_t graph,
                   int (*visit)(void *arg, uint32_t call), void *arg) {
  struct walk walk = {.graphs = graphs, .visit = visit, .arg = arg};
  return walk_graph(&walk, graph);
}
