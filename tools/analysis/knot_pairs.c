/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Votes where a knot has more collectives than any rank has a part in.
 *
 * Behind two operations that ranks called in opposite orders others pile up, until no rank is in all of them. It is those
 * two that tell, of all pairs of operations that some ranks called in one order and some in the other: the strict majority of
 * each is right, those without a trace counted against it. Without one all in it are to blame, as in a circle of two
 * operations, if there is no pair with one: that would explain it. Messages have no votes here: each is two
 * ranks' only. A ring, in which any two operations have one rank in common, has no such pair.
 */
#include <stdlib.h>

#include "analysis/describe.h"
#include "analysis/knot_parts.h"
#include "analysis/progress.h"
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
  uint32_t call; /* NT_NONE: it has none, or a launch of a graph */
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
      const struct nt_model_call *call = stuck->kind == NT_STUCK_REPLAY
                                             ? NULL
                                             : nt_member_call(job, &joint->members[m], stuck->seq);
      parts[(*count)++] =
          (struct part){.rank = rank,
                        .stuck = i,
                        .ns = ns ? ns : INT64_MAX,
                        .call = call ? (uint32_t)(call - job->model->ranks[rank].calls) : NT_NONE};
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

/* Does the device have the one wait behind the other, on one stream or by events? Where it is not known how far the first is,
 * the order of the calls tells. */
static bool is_behind(const struct nt_job *job, uint32_t rank, uint32_t later, uint32_t earlier) {
  enum { STEPS = 8 };
  const struct nt_model_call *calls = job->model->ranks[rank].calls;
  if (later == NT_NONE || earlier == NT_NONE || calls[later].progress == NT_PROGRESS_UNKNOWN)
    return true;
  if (calls[later].progress == NT_PROGRESS_REACHED)
    return false;
  for (uint32_t at = later, n = 0; at != NT_NONE && n < STEPS; n++) {
    if (calls[at].stream == calls[earlier].stream &&
        (n || calls[at].launch > calls[earlier].launch))
      return true;
    at = nt_front_of(job, rank, at).call;
  }
  return false;
}

/* It has called one of them in front of the other, and that waits behind it. */
static bool has_order(const struct nt_job *job, const struct part *a, const struct part *b) {
  const struct part *later = a->ns > b->ns ? a : b, *earlier = a->ns > b->ns ? b : a;
  return a->ns != b->ns && is_behind(job, a->rank, later->call, earlier->call);
}

/* Of each rank, all pairs of which it has called one at least. */
static int collect(const struct nt_knot *knot, struct votes *votes) {
  size_t count;
  struct part *parts = list_parts(knot, &count);
  int status = parts ? 0 : -NT_ERR_MEMORY;
  for (size_t i = 0; i < count && !status; i++)
    for (size_t k = i + 1; k < count && parts[k].rank == parts[i].rank && !status; k++)
      if (has_order(knot->inquiry->job, &parts[i], &parts[k]))
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
  if (!knot->may_lack_members)
    return (struct absent){0};
  return (struct absent){.both = a < b ? a : b, .any = a + b};
}

/* The votes on one pair: [first, end); how many of them called it in order; what most called first, and then, as
 * indices of knot->stuck. */
struct pair {
  const struct vote *first, *end;
  uint32_t in_order, early, late;
};

/* The pair that begins at `first`. */
static struct pair pair_at(const struct votes *votes, const struct vote *first) {
  const struct vote *const last = votes->list + votes->count;
  struct pair pair = {.first = first, .end = first};
  for (; pair.end < last && pair.end->before == first->before && pair.end->after == first->after;
       pair.end++)
    pair.in_order += pair.end->in_order;
  const bool usual = 2 * pair.in_order >= (uint32_t)(pair.end - first);
  pair.early = usual ? first->before : first->after;
  pair.late = usual ? first->after : first->before;
  return pair;
}

/* Called what most called first, before the other. */
static bool is_usual(const struct pair *pair, const struct vote *vote) {
  return vote->in_order == (pair->early == vote->before);
}

/* Adds to `blamed`, by rank, who is so by the pairs with a strict majority (`tied`: by those without), and keeps in *found the
 * one that has been waited for longest. */
static void judge_pairs(const struct nt_knot *knot, const struct votes *votes, bool tied,
                        bool *blamed, struct pair *found) {
  for (const struct vote *first = votes->list; first < votes->list + votes->count;) {
    const struct pair pair = pair_at(votes, first);
    const uint32_t voters = (uint32_t)(pair.end - first),
                   most = 2 * pair.in_order >= voters ? pair.in_order : voters - pair.in_order;
    const struct absent absent = absent_of(knot, first);
    first = pair.end;
    const bool decided = 2 * most > voters + absent.both;
    if (most == voters || decided == tied || (tied && absent.any))
      continue;
    for (const struct vote *vote = pair.first; vote < pair.end; vote++)
      blamed[vote->rank] |= tied || !is_usual(&pair, vote);
    if (!found->first ||
        nt_knot_stuck(knot, pair.early)->since_ns < nt_knot_stuck(knot, found->early)->since_ns)
      *found = pair;
  }
}

static int tell(const struct nt_knot *knot, const struct pair *pair, const bool *blamed,
                struct nt_finding *finding) {
  const struct nt_job *job = knot->inquiry->job;
  const struct nt_stuck *early = nt_knot_stuck(knot, pair->early),
                        *late = nt_knot_stuck(knot, pair->late);
  struct nt_rank_set with = {0}, against = {0};
  char places[2][NT_DESCRIBE], who[2][NT_DESCRIBE];
  int status = 0;
  for (uint32_t r = 0; r < job->model->rank_count && !status; r++)
    status = blamed[r] ? nt_finding_add(job, &finding->blame, r) : 0;
  for (const struct vote *vote = pair->first; vote < pair->end && !status; vote++)
    status = nt_finding_add(job, is_usual(pair, vote) ? &with : &against, vote->rank);
  nt_describe_place(places[0], sizeof places[0], job, early->fn, early->seq, early->joint);
  nt_describe_place(places[1], sizeof places[1], job, late->fn, late->seq, late->joint);
  if (!status)
    nt_lines_add(&finding->evidence, "%s came to %s first, %s to %s",
                 nt_describe_ranks(who[0], sizeof who[0], &with), places[0],
                 nt_describe_ranks(who[1], sizeof who[1], &against), places[1]);
  nt_rank_set_free(&with);
  nt_rank_set_free(&against);
  return status;
}

uint32_t nt_knot_vote_in_pairs(const struct nt_knot *knot, struct nt_finding *finding, bool *tied,
                               int *status) {
  const struct nt_job *job = knot->inquiry->job;
  struct votes votes = {0};
  struct pair pair = {0};
  bool *blamed = calloc((size_t)job->model->rank_count + 1, sizeof *blamed);
  *status = blamed ? collect(knot, &votes) : -NT_ERR_MEMORY;
  for (int round = 0; round < 2 && !*status && !pair.first; round++) {
    *tied = round != 0;
    judge_pairs(knot, &votes, *tied, blamed, &pair);
  }
  if (!*status && pair.first)
    *status = tell(knot, &pair, blamed, finding);
  free(blamed);
  free(votes.list);
  return pair.first ? pair.early : NT_NONE;
}
