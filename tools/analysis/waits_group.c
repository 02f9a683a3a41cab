/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of one NCCL group, on several communicators or with messages among them.
 *
 * The device has a group finished as a whole: where one of its operations is held up, the others are unfinished as well, on all who
 * are in the group, though everybody has called them. They wait for that one: followed from the operations that lack somebody, or
 * stand behind something, outwards, so that operations that hang for a reason of their own never wait for each other.
 */
#include <stdlib.h>

#include "analysis/progress.h"
#include "analysis/sequence.h"
#include "analysis/waits_parts.h"
#include "nccl/nccl_api.h"

/* A rank's end of a message that both sides have called. */
struct side {
  uint32_t rank, call, item;
};

struct search {
  struct nt_finder *f;
  const struct nt_p2p *p2p;
  uint32_t *device;   /* by joint: the operation that all called, as index + 1; 0: none */
  struct side *sides; /* sorted */
  uint32_t side_count;
  uint32_t *found; /* operations, as indices, in the order in which they were reached */
  uint32_t *depth; /* by operation: how far from one that is held up, which has 1; 0: not reached */
  uint32_t count;
};

static bool is_held_up(const struct nt_stuck *stuck) {
  switch (stuck->kind) {
  case NT_STUCK_COLLECTIVE:
  case NT_STUCK_DIVERGED:
  case NT_STUCK_RECV:
  case NT_STUCK_SEND:
    return true;
  case NT_STUCK_DEVICE:
    return stuck->behind_count || stuck->blocked_count || stuck->laggard_count ||
           stuck->leaver_count;
  default:
    return false;
  }
}

static bool lists(const uint32_t *list, uint32_t count, uint32_t value) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == value)
      return true;
  return false;
}

/* The operation, on the rank's device, waits for one at that depth. */
static void tie(struct search *s, uint32_t item, uint32_t rank, uint32_t depth) {
  struct nt_stuck *stuck = &s->f->out->list[item];
  if (s->depth[item] && s->depth[item] <= depth)
    return;
  if (!s->depth[item])
    s->found[s->count++] = item;
  s->depth[item] = depth + 1;
  if (!lists(stuck->behind, stuck->behind_count, rank))
    stuck->behind[stuck->behind_count++] = rank;
}

static int by_call(const void *a, const void *b) {
  const struct side *x = a, *y = b;
  if (x->rank != y->rank)
    return x->rank < y->rank ? -1 : 1;
  return (x->call > y->call) - (x->call < y->call);
}

/* The operation that is this call of the rank, and that all have called; NT_NONE. */
static uint32_t operation_of(const struct search *s, uint32_t rank, uint32_t index) {
  const struct side key = {.rank = rank, .call = index};
  const struct side *side = bsearch(&key, s->sides, s->side_count, sizeof key, by_call);
  if (side)
    return side->item;
  const struct nt_model_call *call = &s->f->job->model->ranks[rank].calls[index];
  const uint32_t joint =
      call->view == NT_NONE ? NT_NONE : s->f->job->places[rank][call->view].joint;
  const uint32_t item = joint == NT_NONE || !nt_fn_is_collective(call->fn) ? 0 : s->device[joint];
  return item && s->f->out->list[item - 1].seq == call->seq ? item - 1 : NT_NONE;
}

/* What the rank has called in one group with this call of its, which has not finished. */
static void follow_call(struct search *s, uint32_t rank, uint32_t index, uint32_t depth) {
  const struct nt_job *job = s->f->job;
  const struct nt_model_rank *model = &job->model->ranks[rank];
  uint32_t first, end;
  if (!model->calls[index].group || !nt_call_outstanding(job, rank, index))
    return;
  nt_call_group(model, index, &first, &end);
  for (uint32_t i = first; i < end; i++) {
    const uint32_t item = operation_of(s, rank, i);
    if (item != NT_NONE)
      tie(s, item, rank, depth);
  }
}

/* The calls of all who are in the operation. */
static void follow(struct search *s, uint32_t item) {
  const struct nt_job *job = s->f->job;
  const struct nt_stuck *stuck = &s->f->out->list[item];
  const struct nt_joint *joint = &job->joints[stuck->joint];
  if (stuck->item != NT_NONE) {
    const struct nt_p2p_end *end = &s->p2p->ends[stuck->item];
    follow_call(s, end->rank, end->call, s->depth[item]);
    if (stuck->kind == NT_STUCK_DEVICE)
      follow_call(s, end[1].rank, end[1].call, s->depth[item]);
    return;
  }
  for (uint32_t m = 0; m < joint->member_count; m++) {
    const struct nt_member *member = &joint->members[m];
    const struct nt_model_call *call = nt_member_call(job, member, stuck->seq);
    if (call)
      follow_call(s, member->rank, (uint32_t)(call - nt_member_rank(job, member)->calls),
                  s->depth[item]);
  }
}

int nt_stuck_groups(struct nt_finder *f, const struct nt_p2p *p2p) {
  const struct nt_waits *waits = f->out;
  struct search s = {.f = f,
                     .p2p = p2p,
                     .device = calloc((size_t)f->job->joint_count + 1, sizeof *s.device),
                     .sides = calloc(2 * (size_t)waits->count + 1, sizeof *s.sides),
                     .found = calloc((size_t)waits->count + 1, sizeof *s.found),
                     .depth = calloc((size_t)waits->count + 1, sizeof *s.depth)};
  const int status = s.device && s.sides && s.found && s.depth ? 0 : -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < waits->count && !status; i++) {
    const uint32_t item = waits->list[i].item;
    if (waits->list[i].kind == NT_STUCK_DEVICE && item == NT_NONE)
      s.device[waits->list[i].joint] = i + 1;
    for (uint32_t k = 0; waits->list[i].kind == NT_STUCK_DEVICE && item != NT_NONE && k < 2; k++)
      s.sides[s.side_count++] =
          (struct side){p2p->ends[item + k].rank, p2p->ends[item + k].call, i};
    if (!is_held_up(&waits->list[i]))
      continue;
    s.depth[i] = 1;
    s.found[s.count++] = i;
  }
  if (s.side_count)
    qsort(s.sides, s.side_count, sizeof *s.sides, by_call);
  for (uint32_t i = 0; i < s.count; i++)
    follow(&s, s.found[i]);
  free(s.device);
  free(s.sides);
  free(s.found);
  free(s.depth);
  return status;
}
