/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Votes where a knot has more collectives than any rank has a part in.
 *
 * Behind two operations that ranks called in opposite orders others pile up, until no rank is in all of them. It is those
 * two that tell, of all pairs of operations that some ranks called in one order and some in the other: the strict majority of
 * each is right, those without a trace counted against it, and without one all in it are to blame, as in a circle
 * of two operations. Nobody may be right in one pair and not in another. Messages have no votes here: each is two ranks' only. A ring, in which any two operations have one rank in common, has no such pair.
 */
#include <stdlib.h>

#include "analysis/describe.h"
#include "analysis/knot_parts.h"
#include "cli/text.h"

/* That a rank has both operations, as indices of knot->stuck, before < after; which of them it called first. */
struct vote {
  uint32_t before, after, rank;
  bool in_order;
};

struct votes {
  struct vote *list;
  size_t count, room;
};

/* A rank's part in one operation; it has not called it: INT64_MAX. */
struct part {
  uint32_t rank, stuck;
  int64_t ns;
};

static int by_rank(const void *a, const void *b) {
  const struct part *x = a, *y = b;
  if (x->rank != y->rank)
    return x->rank < y->rank ? -1 : 1;
  return (x->stuck > y->stuck) - (x->stuck < y->stuck);
}

static int by_pair(const void *a, const void *b) {
  const struct vote *x = a, *y = b;
  if (x->before != y->before)
    return x->before < y->before ? -1 : 1;
  if (x->after != y->after)
    return x->after < y->after ? -1 : 1;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

static struct part *list_parts(const struct nt_knot *knot, size_t *count) {
  const struct nt_job *job = knot->inquiry->job;
  size_t room = 0;
  *count = 0;
  for (uint32_t i = 0; i < knot->stuck_count; i++)
    if (nt_stuck_is_collective(nt_knot_stuck(knot, i)))
      room += job->joints[nt_knot_stuck(knot, i)->joint].member_count;
  struct part *parts = calloc(room + 1, sizeof *parts);
  for (uint32_t i = 0; parts && i < knot->stuck_count; i++) {
    const struct nt_stuck *stuck = nt_knot_stuck(knot, i);
    const struct nt_joint *joint = &job->joints[stuck->joint];
    for (uint32_t m = 0; nt_stuck_is_collective(stuck) && m < joint->member_count; m++) {
      const uint32_t rank = joint->members[m].rank;
      const int64_t ns = nt_knot_issued_ns(knot, stuck, rank);
      parts[(*count)++] = (struct part){rank, i, ns ? ns : INT64_MAX};
    }
  }
  if (parts)
    qsort(parts, *count, sizeof *parts, by_rank);
  return parts;
}

static int add_vote(struct votes *votes, struct vote vote) {
  if (votes->count == votes->room) {
    const size_t room = votes->room ? 2 * votes->room : 256;
    struct vote *grown = realloc(votes->list, room * sizeof *grown);
    if (!grown)
      return -NT_ERR_MEMORY;
    votes->list = grown;
    votes->room = room;
  }
  votes->list[votes->count++] = vote;
  return 0;
}

/* Of each rank, all pairs of which it has called one at least. */
static int collect(const struct nt_knot *knot, struct votes *votes) {
  size_t count;
  struct part *parts = list_parts(knot, &count);
  int status = parts ? 0 : -NT_ERR_MEMORY;
  for (size_t i = 0; i < count && !status; i++)
    for (size_t k = i + 1; k < count && parts[k].rank == parts[i].rank && !status; k++)
      if (parts[i].ns != parts[k].ns)
        status = add_vote(votes, (struct vote){parts[i].stuck, parts[k].stuck, parts[i].rank,
                                               parts[i].ns < parts[k].ns});
  free(parts);
  if (!status && votes->count)
    qsort(votes->list, votes->count, sizeof *votes->list, by_pair);
  return status;
}

/* Without a trace: of both operations, as far as can be; of either. */
struct absent {
  uint32_t both, any;
};

static struct absent absent_of(const struct nt_knot *knot, const struct vote *vote) {
  const struct nt_joint *joints = knot->inquiry->job->joints;
  const uint32_t a = joints[nt_knot_stuck(knot, vote->before)->joint].absent,
                 b = joints[nt_knot_stuck(knot, vote->after)->joint].absent;
  if (!nt_rank_set_count(&knot->inquiry->verdict->missing))
    return (struct absent){0};
  return (struct absent){.both = a < b ? a : b, .any = a + b};
}

enum side { NO_SIDE, WITH, AGAINST };

/* Takes down each voter's side by the votes [first, end) of one pair on which they differ; in *usual, whether most called it in
 * order. False if that tells nothing. */
static bool take_sides(const struct nt_knot *knot, const struct vote *first, const struct vote *end,
                       uint8_t *sides, bool *usual) {
  uint32_t in_order = 0;
  const uint32_t voters = (uint32_t)(end - first);
  const struct absent absent = absent_of(knot, first);
  for (const struct vote *vote = first; vote < end; vote++)
    in_order += vote->in_order;
  const uint32_t most = in_order * 2 > voters ? in_order : voters - in_order;
  const bool decided = most * 2 > voters + absent.both;
  *usual = in_order == most;
  if (!decided && absent.any)
    return false;
  for (const struct vote *vote = first; vote < end; vote++) {
    const enum side side = decided && vote->in_order == *usual ? WITH : AGAINST;
    if (sides[vote->rank] != NO_SIDE && sides[vote->rank] != side)
      return false;
    sides[vote->rank] = (uint8_t)side;
  }
  return true;
}

static bool differ(const struct vote *first, const struct vote *end) {
  for (const struct vote *vote = first; vote < end; vote++)
    if (vote->in_order != first->in_order)
      return true;
  return false;
}

/* The votes on one pair: [first, end); what the majority called first, and then, as indices of knot->stuck. */
struct pair {
  const struct vote *first, *end;
  uint32_t early, late;
};

/* Fills sides, by rank, and *found: the pair whose operation has been waited for longest. False: there is none on which
 * ranks differ, or one that does not tell. */
static bool find_sides(const struct nt_knot *knot, const struct votes *votes, uint8_t *sides,
                       struct pair *found) {
  const struct vote *const last = votes->list + votes->count;
  for (const struct vote *first = votes->list, *end; first < last; first = end) {
    for (end = first; end < last && end->before == first->before && end->after == first->after;
         end++)
      ;
    if (!differ(first, end))
      continue;
    bool usual;
    if (!take_sides(knot, first, end, sides, &usual))
      return false;
    const struct pair pair = {first, end, usual ? first->before : first->after,
                              usual ? first->after : first->before};
    if (!found->first ||
        nt_knot_stuck(knot, pair.early)->since_ns < nt_knot_stuck(knot, found->early)->since_ns)
      *found = pair;
  }
  return found->first != NULL;
}

static int blame(const struct nt_knot *knot, const struct pair *pair, const uint8_t *sides,
                 struct nt_finding *finding) {
  const struct nt_job *job = knot->inquiry->job;
  const struct nt_stuck *early = nt_knot_stuck(knot, pair->early),
                        *late = nt_knot_stuck(knot, pair->late);
  struct nt_rank_set with = {0}, against = {0};
  char places[2][NT_DESCRIBE], who[2][NT_DESCRIBE];
  int status = 0;
  for (uint32_t r = 0; r < job->model->rank_count && !status; r++)
    status = sides[r] == AGAINST ? nt_finding_add(job, &finding->blame, r) : 0;
  for (const struct vote *vote = pair->first; vote < pair->end && !status; vote++)
    status = nt_finding_add(
        job, (vote->in_order == (pair->early == vote->before)) ? &with : &against, vote->rank);
  nt_describe_place(places[0], sizeof places[0], job, early->fn, early->seq, early->joint);
  nt_describe_place(places[1], sizeof places[1], job, late->fn, late->seq, late->joint);
  if (!status)
    nt_lines_add(&finding->evidence, "%s called %s before %s, %s after it",
                 nt_describe_ranks(who[0], sizeof who[0], &with), places[0], places[1],
                 nt_describe_ranks(who[1], sizeof who[1], &against));
  nt_rank_set_free(&with);
  nt_rank_set_free(&against);
  return status;
}

uint32_t nt_knot_vote_in_pairs(const struct nt_knot *knot, struct nt_finding *finding,
                               int *status) {
  const struct nt_job *job = knot->inquiry->job;
  struct votes votes = {0};
  struct pair pair = {0};
  uint8_t *sides = calloc((size_t)job->model->rank_count + 1, sizeof *sides);
  *status = sides ? collect(knot, &votes) : -NT_ERR_MEMORY;
  const bool told = !*status && find_sides(knot, &votes, sides, &pair);
  if (told)
    *status = blame(knot, &pair, sides, finding);
  free(sides);
  free(votes.list);
  return told ? pair.early : NT_NONE;
}
