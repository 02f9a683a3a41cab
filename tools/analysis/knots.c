/* SPDX-License-Identifier: Apache-2.0 */
/* Tarjan's algorithm with an explicit stack: chains may be as long as there are ranks. */
#include "analysis/knots.h"

#include <stdlib.h>
#include <string.h>

struct graph {
  uint32_t nodes, ranks;
  uint32_t *start, *edge; /* of node n: edge[start[n]] … edge[start[n + 1] - 1] */
  uint32_t *index, *low, *stack, *path, *next;
  uint32_t *holds; /* by rank: the last operation that was seen to hold it, from 1 */
  bool *on_stack;
};

static void free_graph(struct graph *g) {
  free(g->start);
  free(g->edge);
  free(g->index);
  free(g->low);
  free(g->stack);
  free(g->path);
  free(g->next);
  free(g->on_stack);
  free(g->holds);
}

/* nt_stuck_has_sibling for many laggards of one operation: its held ranks are marked once. */
static void mark_held(struct graph *g, const struct nt_waits *waits, uint32_t item) {
  const struct nt_stuck *stuck = &waits->list[item];
  for (uint32_t j = 0; j < stuck->held_count && stuck->kind != NT_STUCK_DEVICE; j++)
    g->holds[stuck->held[j]] = item + 1;
}

static int build_graph(struct graph *g, uint32_t ranks, const struct nt_waits *waits) {
  uint32_t edges = 0;
  memset(g, 0, sizeof *g);
  g->holds = calloc((size_t)ranks + 1, sizeof *g->holds);
  if (!g->holds)
    return -NT_ERR_MEMORY;
  g->ranks = ranks;
  g->nodes = 2 * ranks + waits->count;
  g->start = calloc((size_t)g->nodes + 2, sizeof *g->start);
  for (uint32_t i = 0; g->start && i < waits->count; i++) {
    const struct nt_stuck *stuck = &waits->list[i];
    uint32_t out = stuck->behind_count;
    mark_held(g, waits, i);
    for (uint32_t j = 0; j < stuck->laggard_count; j++)
      out += g->holds[stuck->laggards[j]] != i + 1;
    for (uint32_t j = 0; j < stuck->held_count && !stuck->excused; j++)
      g->start[stuck->held[j] + 1]++;
    for (uint32_t j = 0; j < stuck->reached_count && !stuck->excused; j++)
      g->start[ranks + stuck->reached[j] + 1]++;
    g->start[2 * ranks + i + 1] = stuck->excused ? 0 : out;
    edges += stuck->held_count + stuck->reached_count + out;
  }
  size_t n = (size_t)g->nodes + 1;
  g->edge = malloc((edges + 1) * sizeof *g->edge);
  g->index = calloc(n, sizeof *g->index);
  g->low = calloc(n, sizeof *g->low);
  g->stack = malloc(n * sizeof *g->stack);
  g->path = malloc(n * sizeof *g->path);
  g->next = malloc(n * sizeof *g->next);
  g->on_stack = calloc(n, sizeof *g->on_stack);
  if (!g->start || !g->edge || !g->index || !g->low || !g->stack || !g->path || !g->next ||
      !g->on_stack)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < g->nodes; i++)
    g->start[i + 1] += g->start[i];
  memcpy(g->next, g->start, n * sizeof *g->next);
  for (uint32_t i = 0; i < waits->count; i++) {
    const struct nt_stuck *stuck = &waits->list[i];
    if (stuck->excused)
      continue;
    mark_held(g, waits, i);
    for (uint32_t j = 0; j < stuck->held_count; j++)
      g->edge[g->next[stuck->held[j]]++] = 2 * ranks + i;
    for (uint32_t j = 0; j < stuck->reached_count; j++)
      g->edge[g->next[ranks + stuck->reached[j]]++] = 2 * ranks + i;
    for (uint32_t j = 0; j < stuck->laggard_count; j++)
      if (g->holds[stuck->laggards[j]] != i + 1)
        g->edge[g->next[2 * ranks + i]++] = stuck->laggards[j];
    for (uint32_t j = 0; j < stuck->behind_count; j++)
      g->edge[g->next[2 * ranks + i]++] = ranks + stuck->behind[j];
  }
  return 0;
}

static void set_knot(struct nt_waits *waits, uint32_t ranks, uint32_t node, uint32_t knot) {
  if (node < 2 * ranks) {
    (node < ranks ? waits->rank_knot : waits->device_knot)[node % ranks] = knot;
    waits->knot_ranks[knot]++;
  } else {
    waits->list[node - 2 * ranks].knot = knot;
    waits->knot_stuck[knot]++;
  }
}

static void search(struct graph *g, uint32_t root, uint32_t *clock, struct nt_waits *waits) {
  uint32_t depth = 0;
  uint32_t stacked = g->next[g->nodes]; /* height of the node stack, kept between roots */
  g->path[depth++] = root;
  while (depth) {
    uint32_t node = g->path[depth - 1];
    if (!g->index[node]) {
      g->index[node] = g->low[node] = ++*clock;
      g->next[node] = g->start[node];
      g->stack[stacked++] = node;
      g->on_stack[node] = true;
    }
    bool descended = false;
    while (g->next[node] < g->start[node + 1] && !descended) {
      uint32_t to = g->edge[g->next[node]++];
      if (!g->index[to]) {
        g->path[depth++] = to;
        descended = true;
      } else if (g->on_stack[to] && g->index[to] < g->low[node]) {
        g->low[node] = g->index[to];
      }
    }
    if (descended)
      continue;
    if (g->low[node] == g->index[node]) {
      uint32_t member, knot = waits->knot_count++;
      do {
        member = g->stack[--stacked];
        g->on_stack[member] = false;
        set_knot(waits, g->ranks, member, knot);
      } while (member != node);
    }
    depth--;
    if (depth && g->low[node] < g->low[g->path[depth - 1]])
      g->low[g->path[depth - 1]] = g->low[node];
  }
  g->next[g->nodes] = stacked;
}

static uint32_t knot_of(const struct graph *g, const struct nt_waits *waits, uint32_t node) {
  if (node < g->ranks)
    return waits->rank_knot[node];
  return node < 2 * g->ranks ? waits->device_knot[node - g->ranks]
                             : waits->list[node - 2 * g->ranks].knot;
}

static void find_sinks(const struct graph *g, struct nt_waits *waits) {
  for (uint32_t i = 0; i < waits->knot_count; i++)
    waits->knot_sink[i] = true;
  for (uint32_t node = 0; node < g->nodes; node++)
    for (uint32_t e = g->start[node]; e < g->start[node + 1]; e++)
      if (knot_of(g, waits, g->edge[e]) != knot_of(g, waits, node))
        waits->knot_sink[knot_of(g, waits, node)] = false;
}

static int make_room(struct nt_waits *waits, uint32_t ranks, uint32_t nodes) {
  free(waits->rank_knot);
  free(waits->device_knot);
  free(waits->knot_ranks);
  free(waits->knot_stuck);
  free(waits->knot_sink);
  waits->knot_count = 0;
  waits->rank_knot = calloc((size_t)ranks + 1, sizeof *waits->rank_knot);
  waits->device_knot = calloc((size_t)ranks + 1, sizeof *waits->device_knot);
  waits->knot_ranks = calloc((size_t)nodes + 1, sizeof *waits->knot_ranks);
  waits->knot_stuck = calloc((size_t)nodes + 1, sizeof *waits->knot_stuck);
  waits->knot_sink = calloc((size_t)nodes + 1, sizeof *waits->knot_sink);
  return waits->rank_knot && waits->device_knot && waits->knot_ranks && waits->knot_stuck &&
                 waits->knot_sink
             ? 0
             : -NT_ERR_MEMORY;
}

int nt_knots_find(uint32_t rank_count, struct nt_waits *waits) {
  struct graph g;
  uint32_t clock = 0;
  int status = build_graph(&g, rank_count, waits);
  if (!status)
    status = make_room(waits, rank_count, g.nodes);
  if (!status) {
    g.next[g.nodes] = 0;
    for (uint32_t node = 0; node < g.nodes; node++)
      if (!g.index[node])
        search(&g, node, &clock, waits);
    find_sinks(&g, waits);
  }
  free_graph(&g);
  return status;
}
