/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whom creations wait for that lack one member each.
 *
 * Nobody says who the others of a communicator are. Its free place lies between two members, whose world ranks
 * ascend; no two creations under way have the same members; and who is in another creation waits there. All
 * ways to fill the free places are tried. If the chains of waits end in the same ranks in every one of them, it
 * does not matter which is true, and the first is taken.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/creation.h"

enum { CREATIONS = 24, STEPS = 20000 };

struct ends {
  int32_t world[CREATIONS + 1]; /* ascending */
  uint32_t count;
};

struct guess {
  const struct nt_job *job;
  struct nt_creations *creations;
  uint32_t open[CREATIONS],
      count; /* creations: those with one free place, `free`, and then all others */
  uint32_t free;
  int32_t low[CREATIONS], high[CREATIONS];
  int32_t chosen[CREATIONS], first[CREATIONS]; /* world ranks */
  struct ends ends;                            /* in the ways tried so far */
  uint32_t ways, steps;
  bool same;
};

static const struct nt_creation *creation_at(const struct guess *g, uint32_t i) {
  return &g->creations->list[g->open[i]];
}

static bool creates(const struct nt_creation *creation, int32_t world) {
  for (uint32_t i = 0; i < creation->creator_count; i++)
    if (creation->creators[i].world == world)
      return true;
  return false;
}

/* World ranks between which that of the free place lies. Returns false if that is not to be told. */
static bool find_gap(const struct nt_job *job, const struct nt_creation *creation, int32_t *low,
                     int32_t *high) {
  int32_t place = 0;
  *low = -1;
  *high = job->model->expected;
  for (uint32_t i = 0; i < creation->creator_count; i++) {
    const struct nt_creator *creator = &creation->creators[i];
    bool falls = i && creator->world <= creation->creators[i - 1].world;
    if (creator->world < 0 || falls || creator->comm_rank < (int32_t)i)
      return false;
    if (creator->comm_rank == place) {
      *low = creator->world;
      place++;
    } else if (creator->world < *high) {
      *high = creator->world;
    }
  }
  return true;
}

/* Both are filled, and with the same members. */
static bool have_same_members(const struct guess *g, uint32_t a, uint32_t b) {
  const struct nt_creation *x = creation_at(g, a), *y = creation_at(g, b);
  if (x->size != y->size || (g->chosen[a] != g->chosen[b] && !creates(y, g->chosen[a])))
    return false;
  for (uint32_t i = 0; i < x->creator_count; i++)
    if (x->creators[i].world != g->chosen[b] && !creates(y, x->creators[i].world))
      return false;
  return true;
}

/* The creation in which a rank waits, g->count if none. */
static uint32_t waits_in(const struct guess *g, int32_t world) {
  uint32_t i = 0;
  while (i < g->count && !creates(creation_at(g, i), world))
    i++;
  return i;
}

static void add_end(struct ends *ends, int32_t world) {
  uint32_t i = 0;
  while (i < ends->count && ends->world[i] < world)
    i++;
  if (i < ends->count && ends->world[i] == world)
    return;
  memmove(&ends->world[i + 1], &ends->world[i], (ends->count - i) * sizeof *ends->world);
  ends->world[i] = world;
  ends->count++;
}

/* Where the chains of one way end: in a creation that lacks several or has another fault, at a rank that is in no creation, or in a circle, which adds all its ranks. */
static void find_ends(const struct guess *g, struct ends *out) {
  out->count = 0;
  for (uint32_t i = 0; i < g->count; i++) {
    uint32_t at = i, last = i;
    for (uint32_t n = 0; n < g->count && at < g->count && g->chosen[at] >= 0; n++) {
      last = at;
      at = waits_in(g, g->chosen[at]);
    }
    if (at < g->count && g->chosen[at] < 0) {
      add_end(out, g->chosen[at]);
      continue;
    }
    if (at == g->count) {
      add_end(out, g->chosen[last]);
      continue;
    }
    for (uint32_t n = 0; n < g->count; n++, at = waits_in(g, g->chosen[at]))
      add_end(out, g->chosen[at]);
  }
}

static void fill(struct guess *g, uint32_t i) {
  if (g->steps++ >= STEPS || !g->same)
    return;
  if (i == g->free) {
    struct ends ends;
    find_ends(g, &ends);
    if (!g->ways++) {
      memcpy(g->first, g->chosen, sizeof g->first);
      g->ends = ends;
    }
    g->same = ends.count == g->ends.count &&
              !memcmp(ends.world, g->ends.world, ends.count * sizeof *ends.world);
    return;
  }
  for (int32_t w = g->low[i] + 1; w < g->high[i]; w++) {
    bool fits = !creates(creation_at(g, i), w);
    g->chosen[i] = w;
    for (uint32_t j = 0; j < g->count && fits; j++)
      fits = (j >= i && j < g->free) || g->chosen[j] < 0 || !have_same_members(g, i, j);
    if (fits)
      fill(g, i + 1);
  }
}

/* Where the creation is known to lack one rank, that rank; else a number of its own below 0. */
static int32_t known_end(const struct nt_creation *creation, uint32_t index) {
  bool one = creation->problem == NT_CREATION_MISSING && creation->missing_known &&
             nt_rank_set_count(&creation->missing) == 1;
  return one ? (int32_t)nt_rank_set_next(&creation->missing, 0) : -1 - (int32_t)index;
}

static bool has_free_place(const struct nt_creation *creation) {
  return creation->problem == NT_CREATION_MISSING && !creation->missing_known &&
         (int64_t)creation->creator_count + 1 == creation->size;
}

int nt_creations_guess(const struct nt_job *job, struct nt_creations *creations) {
  struct guess g = {.job = job, .creations = creations, .same = true};
  int status = 0;
  if (creations->count > CREATIONS)
    return 0;
  for (uint32_t i = 0; i < creations->count; i++) {
    const struct nt_creation *creation = &creations->list[i];
    if (!has_free_place(creation))
      continue;
    if (!find_gap(job, creation, &g.low[g.count], &g.high[g.count]))
      return 0;
    g.open[g.count++] = i;
  }
  g.free = g.count;
  for (uint32_t i = 0; i < creations->count; i++)
    if (!has_free_place(&creations->list[i])) {
      g.chosen[g.count] = known_end(&creations->list[i], i);
      g.open[g.count++] = i;
    }
  if (!g.free || g.count < 2)
    return 0;
  fill(&g, 0);
  if (!g.ways || !g.same || g.steps >= STEPS)
    return 0;
  for (uint32_t i = 0; i < g.free && !status; i++) {
    struct nt_creation *creation = &creations->list[g.open[i]];
    status = nt_rank_set_add(&creation->missing, (uint32_t)g.first[i]);
    creation->missing_known = creation->guessed = true;
  }
  return status;
}
