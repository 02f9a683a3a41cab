/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of all lengths a turn may have, the one counts whose repetition covers most of the past.
 *
 * A difference that the record holds once before, after the same calls, is a branch that the program takes now and
 * then, and nothing left out.
 */
#include "analysis/turns.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/foretell.h"
#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

enum {
  PAST = 2048,   /* steps that are looked at */
  LONGEST = 512, /* turn */
  WINDOW = 64,   /* steps since the difference */
  SETTLED = 8,   /* turns that are enough where they are less than half of the past */
  EARLIER = 4,   /* turns, by time, that may hold the same departure */
};

struct step {
  uint64_t what; /* the kind, and of collectives the function */
  uint64_t kind;
  int64_t enter_ns;
  uint32_t order, seq, at; /* the line, 0 for launches */
};

struct steps {
  struct step *list;
  uint32_t count, room;
};

/* A stretch that repeats itself. */
struct stretch {
  uint32_t begin, length;
};

uint64_t nt_kind_launch(uint32_t joint) {
  return joint | UINT64_C(3) << 32;
}

static int by_time(const void *a, const void *b) {
  const struct step *x = a, *y = b;
  if (x->enter_ns != y->enter_ns)
    return x->enter_ns < y->enter_ns ? -1 : 1;
  return (x->order > y->order) - (x->order < y->order);
}

static int add(struct steps *steps, struct step step) {
  if (steps->count == steps->room) {
    const uint32_t wanted = steps->room ? 2 * steps->room : 256;
    struct step *list = realloc(steps->list, wanted * sizeof *list);
    if (!list)
      return -NT_ERR_MEMORY;
    steps->list = list;
    steps->room = wanted;
  }
  step.order = steps->count;
  steps->list[steps->count++] = step;
  return 0;
}

static int add_calls(const struct nt_job *job, uint32_t rank, int64_t since, struct steps *steps) {
  const struct nt_model_rank *model = &job->model->ranks[rank];
  int status = 0;
  for (uint32_t i = 0; i < model->call_count && !status; i++) {
    const struct nt_model_call *call = &model->calls[i];
    const uint64_t kind = nt_kind_of_call(job, rank, call);
    if (kind == NT_KIND_NONE || (call->flags & NT_CALL_CAPTURED) || call->enter_ns <= since)
      continue;
    const uint64_t function =
        nt_fn_is_collective(call->fn) ? (uint64_t)nt_fn_canonical(call->fn) << 40 : 0;
    status = add(steps, (struct step){.what = kind | function,
                                      .kind = kind,
                                      .enter_ns = call->enter_ns,
                                      .seq = call->seq,
                                      .at = call->at});
  }
  return status;
}

static int add_launches(const struct nt_job *job, const struct nt_replays *replays, uint32_t rank,
                        int64_t since, struct steps *steps) {
  int status = 0;
  for (uint32_t v = 0; v < job->model->ranks[rank].view_count && !status; v++) {
    const struct nt_place place = job->places[rank][v];
    if (place.joint == NT_NONE || !replays->joint_count || !replays->rows[place.joint])
      continue;
    const struct nt_replay_row *row = &replays->rows[place.joint][place.member];
    const uint64_t kind = nt_kind_launch(place.joint);
    for (uint32_t i = 0; i < row->count && !status; i++)
      if (row->list[i].enter_ns > since)
        status = add(steps, (struct step){.what = kind ^ row->list[i].sig << 40,
                                          .kind = kind,
                                          .enter_ns = row->list[i].enter_ns,
                                          .seq = i + 1});
  }
  return status;
}

/* Considers turns of that length: best[d - low] is the stretch in front of step d. */
static void measure(const struct steps *steps, uint32_t length, uint32_t low,
                    struct stretch *best) {
  const struct step *list = steps->list;
  uint32_t begin = low;
  while (begin > length && list[begin - 1].what == list[begin - 1 - length].what)
    begin--;
  begin = begin > length ? begin - length : 0;
  if (steps->count - begin < 2 * length)
    return; /* nor does it begin any earlier for those that follow */
  for (uint32_t d = low; d <= steps->count; d++) {
    struct stretch *own = &best[d - low];
    if (d > low && d > length && list[d - 1].what != list[d - 1 - length].what)
      begin = d - length;
    if (d - begin >= 2 * length && (!own->length || begin < own->begin))
      *own = (struct stretch){begin, length};
  }
}

/* How many steps in front of `d`, put in, make the rest, less than two turns, go on in turns; 0: none do. What took the place of
 * a message that was left out is one turn behind it. */
static uint32_t lacking(const struct steps *steps, struct stretch turn, uint32_t d) {
  const struct step *list = steps->list, *next = &list[d - turn.length];
  const uint32_t rest = steps->count - d;
  for (uint32_t k = 1; k < turn.length && rest < 2 * turn.length; k++) {
    uint32_t j = 0;
    while (j < rest && list[d + j].what == next[(k + j) % turn.length].what)
      j++;
    if (j == rest && list[d].what != next->what)
      return k;
  }
  return 0;
}

/* The same turn ended in the same way before. */
static bool has_precedent(const struct steps *steps, struct stretch turn, uint32_t d) {
  for (uint32_t i = turn.length; i < d; i++) {
    uint32_t j = 0;
    while (j <= turn.length && steps->list[i - j].what == steps->list[d - j].what)
      j++;
    if (j > turn.length)
      return true;
  }
  return false;
}

static void list_left_out(const struct steps *steps, struct stretch turn, uint32_t d,
                          uint32_t count, struct nt_turn *out) {
  for (uint32_t k = 0; k < count && k < NT_TURN_STEPS; k++) {
    const uint64_t kind = steps->list[d - turn.length + k].kind;
    uint32_t seq = 1;
    for (uint32_t i = d; i > 0 && seq == 1; i--)
      if (steps->list[i - 1].kind == kind)
        seq = steps->list[i - 1].seq + 1;
    for (uint32_t i = 0; i < k; i++)
      seq += out->left_out[i].kind == kind;
    out->left_out[out->left_out_count++] = (struct nt_turn_step){kind, seq};
  }
}

/* Not just a few equal steps at the end. */
static bool is_settled(struct stretch turn, uint32_t end) {
  const uint32_t covered = end - turn.begin;
  return turn.length && (2 * covered >= end || covered >= SETTLED * turn.length);
}

static void count_joints(const struct steps *steps, struct stretch turn, const uint32_t *joints,
                         uint32_t joint_count, struct nt_turn *out) {
  for (uint32_t i = turn.begin; i < turn.begin + turn.length; i++)
    for (uint32_t k = 0; k < joint_count; k++)
      out->on_joint[k] += steps->list[i].kind == nt_kind_collective(joints[k]) ||
                          steps->list[i].kind == nt_kind_launch(joints[k]);
}

static void tell(const struct steps *steps, const uint32_t *joints, uint32_t joint_count,
                 struct nt_turn *out) {
  struct stretch best[WINDOW + 1] = {{0}};
  const uint32_t low = steps->count > WINDOW ? steps->count - WINDOW : 0;
  for (uint32_t length = 1; length <= LONGEST && 2 * length <= steps->count; length++)
    measure(steps, length, low, best);
  const struct stretch kept = best[steps->count - low];
  uint32_t begin = kept.length ? kept.begin : steps->count, found = NT_NONE, count = 0;
  out->story = is_settled(kept, steps->count) ? NT_TURN_KEPT : NT_TURN_UNTOLD;
  for (uint32_t d = low; d < steps->count; d++) {
    const struct stretch turn = best[d - low];
    const uint32_t k = turn.length && turn.begin < begin ? lacking(steps, turn, d) : 0;
    if (!k)
      continue;
    begin = turn.begin;
    found = d;
    count = k;
  }
  const struct stretch turn = found == NT_NONE ? kept : best[found - low];
  out->length = turn.length;
  count_joints(steps, turn, joints, joint_count, out);
  if (found == NT_NONE)
    return;
  out->story = is_settled(turn, found) && !has_precedent(steps, turn, found) ? NT_TURN_LEFT_OUT
                                                                             : NT_TURN_UNTOLD;
  out->at_ns = steps->list[found].enter_ns;
  list_left_out(steps, turn, found, count, out);
}

/* All steps of the rank behind `since` in their order; none where some are lost. */
static int list_steps(const struct nt_job *job, const struct nt_replays *replays, uint32_t rank,
                      int64_t since, struct steps *steps) {
  if (job->model->ranks[rank].lost)
    return 0;
  int status = add_calls(job, rank, since, steps);
  if (!status)
    status = add_launches(job, replays, rank, since, steps);
  uint32_t run = 1; /* of one thread they are in order */
  while (run < steps->count && by_time(&steps->list[run - 1], &steps->list[run]) < 0)
    run++;
  if (!status && run < steps->count)
    qsort(steps->list, steps->count, sizeof *steps->list, by_time);
  return status;
}

int nt_turn_of(const struct nt_job *job, const struct nt_replays *replays, uint32_t rank,
               const uint32_t *joints, uint32_t joint_count, struct nt_turn *out) {
  struct steps steps = {0};
  memset(out, 0, sizeof *out);
  int status = list_steps(job, replays, rank, INT64_MIN, &steps);
  if (!status && steps.count) {
    if (steps.count > PAST) {
      memmove(steps.list, steps.list + steps.count - PAST, PAST * sizeof *steps.list);
      steps.count = PAST;
    }
    tell(&steps, joints, joint_count, out);
  }
  free(steps.list);
  return status;
}

static bool is_equal(const struct step *a, const struct step *b) {
  return a->what == b->what && a->at == b->at;
}

static uint32_t equal_run(const struct step *a, const struct step *b, uint32_t count) {
  uint32_t i = 0;
  while (i < count && is_equal(&a[i], &b[i]))
    i++;
  return i;
}

static bool is_in(const struct step *list, uint32_t count, const struct step *step) {
  for (uint32_t i = 0; i < count; i++)
    if (is_equal(&list[i], step))
      return true;
  return false;
}

/* Behind the same call as now, has it all been so before? */
static bool was_so(const struct steps *steps, uint32_t second) {
  const uint32_t count = steps->count - second;
  for (uint32_t i = 1; i + count <= second; i++)
    if (is_equal(&steps->list[i - 1], &steps->list[second - 1]) &&
        equal_run(&steps->list[i], &steps->list[second], count) == count)
      return true;
  return false;
}

/* One turn begins at `first`, the present one at `second`. */
static void tell_since(const struct steps *steps, uint32_t first, uint32_t second,
                       struct nt_turn *out) {
  const struct step *turn = &steps->list[first], *own = &steps->list[second];
  const uint32_t length = second - first, count = steps->count - second;
  uint32_t same = 0;
  while (same < count && is_equal(&own[same], &turn[same % length]))
    same++;
  out->length = length;
  if (same == count)
    out->story = NT_TURN_KEPT;
  if (same == count || was_so(steps, second))
    return;
  out->at_ns = own[same].enter_ns;
  if (same >= length) /* several turns ago: what it did since is not one story */
    return;
  for (uint32_t k = 1; k < length && k <= NT_TURN_STEPS && count - same < length; k++) {
    uint32_t i = same;
    while (i < count && is_equal(&own[i], &turn[(i + k) % length]))
      i++;
    if (i < count)
      continue;
    out->story = NT_TURN_LEFT_OUT;
    list_left_out(steps, (struct stretch){first, length}, second + same, k, out);
    return;
  }
  for (uint32_t k = 1; same + k <= count && k <= NT_TURN_STEPS; k++) {
    const uint32_t rest = count - same - k;
    if (same + rest > length || equal_run(&own[same + k], &turn[same], rest) < rest)
      continue;
    if (!rest && (k > 1 || is_in(turn, length, &own[same])))
      continue; /* it may have gone another way */
    out->story = NT_TURN_ADDED;
    return;
  }
}

int nt_turn_since(const struct nt_job *job, const struct nt_replays *replays, uint32_t rank,
                  int64_t first_ns, int64_t second_ns, struct nt_turn *out) {
  struct steps steps = {0};
  uint32_t first = 0, second = 0;
  memset(out, 0, sizeof *out);
  const int64_t since =
      first_ns == INT64_MIN ? first_ns : first_ns - EARLIER * (second_ns - first_ns);
  int status = list_steps(job, replays, rank, since, &steps);
  for (uint32_t i = 0; i < steps.count; i++) {
    first += steps.list[i].enter_ns <= first_ns;
    second += steps.list[i].enter_ns <= second_ns;
  }
  if (!status && second > first)
    tell_since(&steps, first, second, out);
  free(steps.list);
  return status;
}
