/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All stages of a pipeline run one program, each in a role of its own; so their turns differ, and in a first one there is no
 * turn before. But the lines follow each other as the program has them.
 *
 * A way that only one rank went, only once, while it went on as always before and later, is no branch and no end of a
 * loop: of a loop the line behind it never follows a line in the middle of it.
 */
#include "analysis/passages.h"

#include <stdlib.h>

#include "analysis/foretell.h"
#include "analysis/graphs.h"
#include "analysis/sequence.h"

/* Steps of a rank that are looked at, ranks elsewhere that are asked, and lonely messages in a job where few are odd. */
enum { PAST = 2048, ASKED = 64, MANY = 64 };

struct step {
  uint32_t at;
  uint64_t kind; /* foretell.h */
};

struct way {
  struct step *list;
  uint32_t count;
};

struct ways {
  struct way *of; /* by rank; empty of those that are not asked */
  uint32_t count;
};

/* A call in its place in the program; launches of graphs have no line. */
static bool is_step(const struct nt_model_call *call) {
  return !(call->flags & NT_CALL_CAPTURED) && !nt_is_replayed(call);
}

/* Empty if lines are not known, or several threads call: their calls have no order. */
static int read_way(const struct nt_job *job, uint32_t rank, struct way *out) {
  const struct nt_model_rank *model = &job->model->ranks[rank];
  uint32_t thread = 0;
  *out = (struct way){.list = malloc(PAST * sizeof *out->list)};
  if (!out->list)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < model->call_count; i++) {
    const struct nt_model_call *call = &model->calls[i];
    const uint64_t kind = nt_kind_of_call(job, rank, call);
    if (kind == NT_KIND_NONE || !is_step(call))
      continue;
    if (!call->at || out->count == PAST || (out->count && call->thread != thread)) {
      out->count = 0;
      return 0;
    }
    thread = call->thread;
    out->list[out->count++] = (struct step){call->at, kind};
  }
  return 0;
}

static uint32_t passes(const struct way *way, uint32_t from, uint32_t a, uint32_t b) {
  uint32_t count = 0;
  for (uint32_t i = from; i + 1 < way->count; i++)
    count += way->list[i].at == a && way->list[i + 1].at == b;
  return count;
}

static bool calls_at(const struct way *way, uint32_t line) {
  for (uint32_t i = 0; i < way->count; i++)
    if (way->list[i].at == line)
      return true;
  return false;
}

/* All that the rank calls at that line is of the kind. */
static bool is_line_of(const struct way *way, uint32_t line, uint64_t kind) {
  bool found = false;
  for (uint32_t i = 0; i < way->count; i++) {
    if (way->list[i].at != line)
      continue;
    if (way->list[i].kind != kind)
      return false;
    found = true;
  }
  return found;
}

/* Another that uses the line `by` went from `a` to `b` as well; `by` 0: anybody. */
static bool is_shared(const struct ways *ways, uint32_t rank, uint32_t a, uint32_t b, uint32_t by) {
  for (uint32_t r = 0; r < ways->count; r++)
    if (r != rank && passes(&ways->of[r], 0, a, b) && (!by || calls_at(&ways->of[r], by)))
      return true;
  return false;
}

/* Another went from `a` by way of `b` to `c`, where it comes to `c` from there but once: a step from one part of the program to the
 * next. */
static bool is_step_on(const struct ways *ways, uint32_t rank, uint32_t a, uint32_t b, uint32_t c) {
  for (uint32_t r = 0; r < ways->count; r++) {
    const struct way *way = &ways->of[r];
    for (uint32_t i = 0; r != rank && i + 2 < way->count; i++)
      if (way->list[i].at == a && way->list[i + 1].at == b && way->list[i + 2].at == c &&
          passes(way, 0, b, c) == 1)
        return true;
  }
  return false;
}

/* Between its steps `i` and the next it left out a call at `line`. */
static bool skipped_line(const struct ways *ways, uint32_t rank, uint32_t i, uint32_t line) {
  const struct way *way = &ways->of[rank];
  const uint32_t a = way->list[i].at, c = way->list[i + 1].at;
  return line != a && line != c && passes(way, 0, a, line) &&
         (passes(way, 0, line, c) || is_shared(ways, rank, line, c, 0)) &&
         !is_shared(ways, rank, a, c, line) &&
         (passes(way, i + 1, a, line) || is_step_on(ways, rank, a, line, c));
}

static bool left_out(const struct ways *ways, uint32_t rank, uint64_t kind) {
  const struct way *way = &ways->of[rank];
  for (uint32_t k = 0; k < way->count; k++) {
    const uint32_t line = way->list[k].at;
    bool first = way->list[k].kind == kind;
    for (uint32_t i = 0; i < k && first; i++)
      first = way->list[i].at != line;
    if (!first || !is_line_of(way, line, kind))
      continue;
    for (uint32_t i = 0; i + 1 < way->count; i++)
      if (passes(way, 0, way->list[i].at, way->list[i + 1].at) == 1 &&
          skipped_line(ways, rank, i, line))
        return true;
  }
  return false;
}

static bool put_in(const struct ways *ways, uint32_t rank, uint64_t kind) {
  const struct way *way = &ways->of[rank];
  for (uint32_t i = 0; i + 2 < way->count; i++) {
    const uint32_t a = way->list[i].at, line = way->list[i + 1].at, c = way->list[i + 2].at;
    if (way->list[i + 1].kind == kind && is_line_of(way, line, kind) && line != c &&
        passes(way, 0, a, line) == 1 && passes(way, 0, a, c) > (a == line) &&
        !is_shared(ways, rank, a, line, 0))
      return true;
  }
  return false;
}

static bool is_whole(const struct nt_model_rank *rank) {
  return rank->recorder == NT_RECORDER_TRACE && !rank->lost && !rank->overwritten && !rank->cut;
}

static int read_ways(const struct nt_job *job, uint32_t joint, struct ways *ways) {
  uint32_t others = 0;
  int status = 0;
  ways->count = job->model->rank_count;
  ways->of = calloc((size_t)ways->count + 1, sizeof *ways->of);
  if (!ways->of)
    return -NT_ERR_MEMORY;
  for (uint32_t m = 0; m < job->joints[joint].member_count && m < ASKED && !status; m++)
    status = read_way(job, job->joints[joint].members[m].rank,
                      &ways->of[job->joints[joint].members[m].rank]);
  for (uint32_t r = 0; r < ways->count && others < ASKED && !status; r++)
    if (!ways->of[r].list) {
      others++;
      status = read_way(job, r, &ways->of[r]);
    }
  return status;
}

enum nt_passage_side nt_passages_tell(const struct nt_inquiry *inquiry,
                                      const struct nt_p2p_end *end) {
  const struct nt_job *job = inquiry->job;
  const struct nt_member *partner = nt_p2p_partner(job, end);
  struct ways ways = {0};
  enum nt_passage_side side = NT_PASSAGE_UNTOLD;
  if (!partner || end->signal || inquiry->p2p.unmatched_count > MANY ||
      !is_whole(&job->model->ranks[end->rank]) || !is_whole(&job->model->ranks[partner->rank]))
    return side;
  const uint64_t own =
      nt_kind_message(end->joint, end->is_send, end->is_send ? end->destination : end->source);
  const uint64_t theirs =
      nt_kind_message(end->joint, !end->is_send, end->is_send ? end->source : end->destination);
  if (read_ways(job, end->joint, &ways) == 0) {
    const bool lacks = left_out(&ways, partner->rank, theirs) && !left_out(&ways, end->rank, own);
    const bool exceeds = put_in(&ways, end->rank, own) && !put_in(&ways, partner->rank, theirs);
    if (lacks != exceeds)
      side = lacks ? NT_PASSAGE_PARTNER : NT_PASSAGE_OWNER;
  }
  for (uint32_t r = 0; r < ways.count && ways.of; r++)
    free(ways.of[r].list);
  free(ways.of);
  return side;
}
