/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds of differences, tightened along shortest paths.
 *
 * Every communicator that spans hosts bounds each of them against the first of its hosts, in both directions; paths
 * over communicators do the rest. Only recent rounds are looked at, and what an older one tells is widened by what
 * undisciplined clocks drift: so a clock that drifts over hours is where it was last, and no line has to be fitted.
 */
#include "analysis/clocks.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/rounds.h"

#define FAR (INT64_MAX / 4)
#define PASSES 64

/* A clock is ahead of another by at most `ns`. */
struct bound {
  uint32_t host, than;
  int64_t ns;
};

struct bounds {
  struct bound *list;
  uint32_t count, room;
};

/* What one round tells of one host: the latest that one of its ranks can have been last, and so on. */
struct side {
  int64_t came_ns, finished_ns, unfinished_ns;
  uint32_t stamp;      /* of the round */
  int64_t over, under; /* best so far: ahead of the first host by at most, and behind it */
};

/* A process of an unknown host has a clock of its own. */
static bool same_clock(const struct nt_model_rank *x, const struct nt_model_rank *y) {
  if (x->boot && y->boot)
    return x->boot == y->boot;
  return x->host && y->host && !strcmp(x->host, y->host);
}

static int number_hosts(const struct nt_model *model, struct nt_clocks *out) {
  out->host = malloc((model->rank_count + 1u) * sizeof *out->host);
  out->list = calloc(model->rank_count + 1u, sizeof *out->list);
  if (!out->host || !out->list)
    return -NT_ERR_MEMORY;
  for (uint32_t r = 0; r < model->rank_count; r++) {
    uint32_t h = r ? out->host[r - 1] : 0;
    if (!r || !same_clock(&model->ranks[out->list[h].rank], &model->ranks[r]))
      for (h = 0; h < out->count; h++)
        if (same_clock(&model->ranks[out->list[h].rank], &model->ranks[r]))
          break;
    if (h == out->count)
      out->list[out->count++] = (struct nt_clock){r, false, 0, 0};
    out->host[r] = h;
  }
  return 0;
}

static int add_bound(struct bounds *bounds, uint32_t host, uint32_t than, int64_t ns) {
  if (ns >= FAR)
    return 0;
  if (bounds->count == bounds->room) {
    uint32_t wanted = bounds->room ? 2 * bounds->room : 64;
    struct bound *list = realloc(bounds->list, wanted * sizeof *list);
    if (!list)
      return -NT_ERR_MEMORY;
    bounds->list = list;
    bounds->room = wanted;
  }
  bounds->list[bounds->count++] = (struct bound){host, than, ns};
  return 0;
}

/* By how much `x`'s clock can be ahead of `y`'s at most, after one round; FAR if that tells nothing. */
static int64_t ahead(const struct side *x, const struct side *y, int64_t shortest_ns) {
  int64_t best = FAR;
  if (x->finished_ns == INT64_MAX)
    return best;
  best = x->finished_ns - y->came_ns;
  if (y->unfinished_ns && shortest_ns < FAR &&
      x->finished_ns - y->unfinished_ns + shortest_ns < best)
    best = x->finished_ns - y->unfinished_ns + shortest_ns;
  return best;
}

/* Gathers a round by host; returns the shortest time that a member was in it. */
static int64_t gather(const struct nt_clocks *clocks, const struct nt_joint *joint,
                      const struct nt_meeting *at, uint32_t round, struct side *sides) {
  int64_t shortest = FAR;
  for (uint32_t m = 0; m < joint->member_count; m++) {
    struct side *side = &sides[clocks->host[joint->members[m].rank]];
    if (side->stamp != round + 1) {
      side->stamp = round + 1;
      side->came_ns = side->unfinished_ns = 0;
      side->finished_ns = INT64_MAX;
    }
    if (at[m].from_ns > side->came_ns)
      side->came_ns = at[m].from_ns;
    if (at[m].unfinished_ns > side->unfinished_ns)
      side->unfinished_ns = at[m].unfinished_ns;
    if (at[m].finished_ns < side->finished_ns)
      side->finished_ns = at[m].finished_ns;
    if (at[m].finished_ns != INT64_MAX && at[m].finished_ns - at[m].from_ns < shortest)
      shortest = at[m].finished_ns - at[m].from_ns;
    if (at[m].took_us && INT64_C(1000) * at[m].took_us < shortest)
      shortest = INT64_C(1000) * at[m].took_us;
  }
  return shortest;
}

/* Each host of the joint, once. */
static uint32_t list_hosts(const struct nt_clocks *clocks, const struct nt_joint *joint,
                           struct side *sides, uint32_t *hosts) {
  uint32_t count = 0;
  for (uint32_t m = 0; m < joint->member_count; m++) {
    struct side *side = &sides[clocks->host[joint->members[m].rank]];
    if (side->stamp != UINT32_MAX)
      hosts[count++] = clocks->host[joint->members[m].rank];
    *side = (struct side){.stamp = UINT32_MAX, .over = FAR, .under = FAR};
  }
  for (uint32_t i = 0; i < count; i++)
    sides[hosts[i]].stamp = 0;
  return count;
}

static int bound_joint(const struct nt_job *job, const struct nt_clocks *clocks,
                       const struct nt_joint *joint, struct side *sides, uint32_t *hosts,
                       struct bounds *bounds) {
  struct nt_rounds rounds = {0};
  uint32_t count = list_hosts(clocks, joint, sides, hosts);
  int status = count > 1 ? nt_rounds_find(job, joint, false, &rounds) : 0;
  const int64_t end = rounds.count ? nt_round(&rounds, rounds.count - 1)->enter_ns : 0;
  for (uint32_t r = 0; r < rounds.count && !status; r++) {
    const struct nt_meeting *at = nt_round(&rounds, r);
    int64_t shortest = gather(clocks, joint, at, r, sides);
    int64_t drift = at->enter_ns < end ? NT_CLOCK_DRIFT(end - at->enter_ns) : 0;
    struct side *first = &sides[hosts[0]];
    for (uint32_t i = 1; i < count; i++) {
      struct side *side = &sides[hosts[i]];
      int64_t over = ahead(side, first, shortest) + drift;
      int64_t under = ahead(first, side, shortest) + drift;
      side->over = over < side->over ? over : side->over;
      side->under = under < side->under ? under : side->under;
    }
  }
  for (uint32_t i = 1; i < count && !status; i++) {
    status = add_bound(bounds, hosts[i], hosts[0], sides[hosts[i]].over);
    if (!status)
      status = add_bound(bounds, hosts[0], hosts[i], sides[hosts[i]].under);
  }
  nt_rounds_free(&rounds);
  return status;
}

static bool tighten(const struct bounds *bounds, int64_t *over, int64_t *under) {
  bool changed = false;
  for (uint32_t i = 0; i < bounds->count; i++) {
    const struct bound *b = &bounds->list[i];
    if (over[b->than] < FAR && over[b->than] + b->ns < over[b->host]) {
      over[b->host] = over[b->than] + b->ns;
      changed = true;
    }
    if (under[b->host] < FAR && under[b->host] + b->ns < under[b->than]) {
      under[b->than] = under[b->host] + b->ns;
      changed = true;
    }
  }
  return changed;
}

/* Shortest paths from and to the first host. Bounds that contradict each other: a clock jumped. */
static int settle(struct nt_clocks *clocks, const struct bounds *bounds) {
  int64_t *over = malloc(clocks->count * sizeof *over),
          *under = malloc(clocks->count * sizeof *under);
  int status = over && under ? 0 : -NT_ERR_MEMORY;
  for (uint32_t h = 0; h < clocks->count && !status; h++)
    over[h] = under[h] = h ? FAR : 0;
  for (uint32_t pass = 0; pass < PASSES && !status; pass++)
    if (!tighten(bounds, over, under))
      break;
  for (uint32_t h = 0; h < clocks->count && !status; h++) {
    struct nt_clock *clock = &clocks->list[h];
    clock->known = over[h] < FAR && under[h] < FAR && over[h] + under[h] >= 0 && over[0] >= 0;
    if (!clock->known)
      continue;
    clock->ahead_ns = h ? over[h] - (over[h] + under[h]) / 2 : 0;
    clock->error_ns = h ? (over[h] + under[h] + 1) / 2 : 0;
  }
  free(over);
  free(under);
  return status;
}

int nt_clocks_find(const struct nt_job *job, struct nt_clocks *out) {
  memset(out, 0, sizeof *out);
  int status = number_hosts(job->model, out);
  if (status || !out->count)
    return status;
  struct bounds bounds = {0};
  struct side *sides = calloc(out->count, sizeof *sides);
  uint32_t *hosts = malloc(out->count * sizeof *hosts);
  status = sides && hosts ? 0 : -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < job->joint_count && !status && out->count > 1; i++)
    status = bound_joint(job, out, &job->joints[i], sides, hosts, &bounds);
  if (!status)
    status = settle(out, &bounds);
  free(sides);
  free(hosts);
  free(bounds.list);
  return status;
}

void nt_clocks_free(struct nt_clocks *clocks) {
  free(clocks->host);
  free(clocks->list);
  memset(clocks, 0, sizeof *clocks);
}
