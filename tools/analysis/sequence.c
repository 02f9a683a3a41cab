/* SPDX-License-Identifier: Apache-2.0 */
/* Positions come from the trace (absolute, even when earlier calls are gone), so nothing is counted here. */
#include "analysis/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/each.h"
#include "nccl/comm_id.h"
#include "nccl/signature.h"
#include "nccl/nccl_api.h"
#include "nccl/nccl_types.h"

/* A window that would need more positions than calls exist plus this is hostile or has lost most. */
#define MAX_GAPS (1u << 16)

bool nt_call_has_root(const struct nt_model_call *call) {
  switch (nt_fn_canonical(call->fn)) {
  case NT_FN_Broadcast:
  case NT_FN_Reduce:
  case NT_FN_Gather:
  case NT_FN_Scatter:
    return true;
  default:
    return false;
  }
}

uint64_t nt_call_signature(const struct nt_model_call *call) {
  int op = call->op == 255 ? -1 : call->op;
  uint64_t signature = nt_signature(call->fn, call->count, call->dtype, op,
                                    nt_call_has_root(call) ? call->peer : -1);
  if (call->flags & NT_CALL_CAPTURED)
    signature = ~signature; /* it moves nothing: no counterpart of one that does */
  return signature ? signature : 1;
}

bool nt_call_is_message(const struct nt_model_call *call) {
  enum nt_shape shape = nt_fn_shape(call->fn);
  return shape == NT_SHAPE_SEND || shape == NT_SHAPE_RECV || shape == NT_SHAPE_RMA;
}

bool nt_call_sends(const struct nt_model_call *call) {
  return nt_fn_shape(call->fn) == NT_SHAPE_SEND ||
         (nt_fn_shape(call->fn) == NT_SHAPE_RMA && call->fn != NT_FN_WaitSignal);
}

uint32_t nt_call_signal(const struct nt_model_call *call) {
  return nt_fn_shape(call->fn) == NT_SHAPE_RMA ? call->buffer : 0;
}

uint64_t nt_call_bytes(const struct nt_model_call *call) {
  if (nt_fn_shape(call->fn) == NT_SHAPE_RMA)
    return 0;
  size_t size = nt_dtype_size(call->dtype);
  return call->count * (size ? size : 1);
}

bool nt_call_counts(const struct nt_model_call *call) {
  return !(call->flags & NT_CALL_VOID) && !call->pending;
}

bool nt_call_aborts(const struct nt_model_call *call) {
  enum nt_shape shape = nt_fn_shape(call->fn);
  return shape == NT_SHAPE_COMM_ABORT ||
         (shape == NT_SHAPE_COMM_SHRINK && call->peer > 0 && (call->peer & NCCL_SHRINK_ABORT));
}

bool nt_call_ends(const struct nt_model_call *call) {
  enum nt_shape shape = nt_fn_shape(call->fn);
  return shape == NT_SHAPE_COMM_END || shape == NT_SHAPE_COMM_FINALIZE || nt_call_aborts(call);
}

uint32_t nt_call_made(const struct nt_job *job, uint32_t r, uint32_t index) {
  const struct nt_model_rank *rank = &job->model->ranks[r];
  const struct nt_model_call *call = &rank->calls[index];
  enum nt_shape shape = nt_fn_shape(call->fn);
  if (call->view == NT_NONE)
    return NT_NONE;
  if (shape == NT_SHAPE_COMM_INIT ||
      (shape == NT_SHAPE_COMM_GROW && !rank->views[call->view].parent_number &&
       rank->views[call->view].origin == NT_COMM_GROW))
    return call->view;
  if (shape != NT_SHAPE_COMM_SHRINK && shape != NT_SHAPE_COMM_GROW)
    return NT_NONE;
  for (uint32_t i = call->view + 1; i < rank->view_count; i++)
    if (rank->views[i].parent_number == rank->views[call->view].number &&
        rank->views[i].created_ns == call->enter_ns)
      return i;
  return NT_NONE;
}

static void note_counted(struct nt_member *member, const struct nt_model_call *call,
                         uint32_t index) {
  switch (nt_fn_shape(call->fn)) {
  case NT_SHAPE_COMM_SPLIT:
  case NT_SHAPE_COMM_GROW:
    if (call->seq > member->splits) {
      member->splits = call->seq;
      member->split_call = index;
    }
    break;
  case NT_SHAPE_COMM_SYNC:
    if (call->seq > member->syncs) {
      member->syncs = call->seq;
      member->sync_call = index;
    }
    break;
  default:
    break;
  }
}

/* The call may be on the parent of what it makes. */
static void note_creation(struct nt_job *job, uint32_t r, uint32_t index) {
  const uint32_t made = nt_call_made(job, r, index);
  if (made == NT_NONE || job->places[r][made].joint == NT_NONE)
    return;
  const struct nt_place place = job->places[r][made];
  job->joints[place.joint].members[place.member].create_call = index;
}

/* First pass over a rank's calls: bounds of every member's window, and how it left. */
static int find_bounds(void *ctx, uint32_t r) {
  struct nt_job *job = ctx;
  const struct nt_model_rank *rank = &job->model->ranks[r];
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (call->view == NT_NONE || call->enter_ns > job->cut_ns)
      continue;
    note_creation(job, r, i);
    struct nt_place place = job->places[r][call->view];
    if (place.joint == NT_NONE)
      continue;
    struct nt_member *member = &job->joints[place.joint].members[place.member];
    if (!nt_call_counts(call))
      continue;
    if (nt_fn_is_collective(call->fn) && call->seq) {
      if (call->seq > member->called)
        member->called = call->seq;
      if (!member->first || call->seq < member->first)
        member->first = call->seq;
    }
    note_counted(member, call, i);
    if (nt_call_ends(call) && (!member->ended_ns || call->enter_ns < member->ended_ns)) {
      member->ended_ns = call->enter_ns;
      member->ended_fn = call->fn;
      member->ended_call = i;
    }
  }
  return 0;
}

static uint32_t furthest_of(const struct nt_joint *joint) {
  uint32_t furthest = 0;
  for (uint32_t i = 0; i < joint->member_count; i++)
    furthest = joint->members[i].called > furthest ? joint->members[i].called : furthest;
  return furthest;
}

static int make_window(const struct nt_job *job, struct nt_member *member, uint32_t furthest) {
  const struct nt_model_rank *rank = nt_member_rank(job, member);
  const struct nt_model_view *view = nt_member_view(job, member);
  free(member->call);
  free(member->sig);
  member->call = NULL;
  member->sig = NULL;
  bool gone = rank->lost || rank->overwritten;
  if (job->cut_ns == INT64_MAX && gone && view->collectives > member->called)
    member->called = view->collectives;
  /* When it made those whose calls are gone is not known: it is not behind others in them, nor ahead. */
  if (job->cut_ns != INT64_MAX && rank->cut && furthest > member->called)
    member->called = view->collectives < furthest ? view->collectives : furthest;
  if (!member->first ||
      (uint64_t)member->called - member->first >= (uint64_t)rank->call_count + MAX_GAPS)
    member->first = member->called + 1;
  size_t count = member->called + 1 - member->first;
  member->call = malloc((count ? count : 1) * sizeof *member->call);
  member->sig = calloc(count ? count : 1, sizeof *member->sig);
  if (!member->call || !member->sig)
    return -NT_ERR_MEMORY;
  for (size_t i = 0; i < count; i++)
    member->call[i] = NT_NONE;
  return 0;
}

static int fill_windows(void *ctx, uint32_t r) {
  struct nt_job *job = ctx;
  const struct nt_model_rank *rank = &job->model->ranks[r];
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (call->view == NT_NONE || call->enter_ns > job->cut_ns || !call->seq ||
        !nt_fn_is_collective(call->fn) || !nt_call_counts(call))
      continue;
    struct nt_place place = job->places[r][call->view];
    if (place.joint == NT_NONE)
      continue;
    struct nt_member *member = &job->joints[place.joint].members[place.member];
    if (call->seq < member->first || call->seq > member->called)
      continue;
    member->call[call->seq - member->first] = i;
    member->sig[call->seq - member->first] = nt_call_signature(call);
  }
  return 0;
}

static int make_windows(void *ctx, uint32_t i) {
  struct nt_job *job = ctx;
  const uint32_t furthest = furthest_of(&job->joints[i]);
  int status = 0;
  for (uint32_t j = 0; j < job->joints[i].member_count && !status; j++)
    status = make_window(job, &job->joints[i].members[j], furthest);
  return status;
}

int nt_sequences_build(struct nt_job *job) {
  for (uint32_t i = 0; i < job->joint_count; i++)
    for (uint32_t j = 0; j < job->joints[i].member_count; j++) {
      struct nt_member *member = &job->joints[i].members[j];
      member->called = member->first = member->splits = member->syncs = 0;
      member->split_call = member->sync_call = member->create_call = NT_NONE;
      member->ended_ns = 0;
    }
  int status = nt_each(job->model->rank_count, find_bounds, job);
  if (!status)
    status = nt_each(job->joint_count, make_windows, job);
  return status ? status : nt_each(job->model->rank_count, fill_windows, job);
}

static bool same_group(const struct nt_model_call *a, const struct nt_model_call *b) {
  return a->group == b->group && a->thread == b->thread;
}

void nt_call_group(const struct nt_model_rank *rank, uint32_t call, uint32_t *first,
                   uint32_t *end) {
  const struct nt_model_call *own = &rank->calls[call];
  *first = call;
  *end = call + 1;
  while (own->group && *first && same_group(&rank->calls[*first - 1], own))
    --*first;
  while (own->group && *end < rank->call_count && same_group(&rank->calls[*end], own))
    ++*end;
}

void nt_member_group(const struct nt_job *job, const struct nt_member *member, uint32_t position,
                     uint32_t *begin, uint32_t *end) {
  const struct nt_model_call *call = nt_member_call(job, member, position), *other;
  *begin = *end = position;
  if (!call || !call->group)
    return;
  while ((other = nt_member_call(job, member, *begin - 1)) && same_group(other, call))
    --*begin;
  while ((other = nt_member_call(job, member, *end + 1)) && same_group(other, call))
    ++*end;
}
