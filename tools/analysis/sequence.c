/* SPDX-License-Identifier: Apache-2.0 */
/* Positions come from the trace (absolute, even when earlier calls are gone), so nothing is counted here. */
#include "analysis/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "nccl/comm_id.h"
#include "nccl/signature.h"
#include "nccl/nccl_api.h"

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

static bool is_end(enum nt_shape shape) {
  return shape == NT_SHAPE_COMM_END || shape == NT_SHAPE_COMM_ABORT ||
         shape == NT_SHAPE_COMM_FINALIZE;
}

/* First pass over a rank's calls: bounds of every member's window, and how it left. */
static void find_bounds(struct nt_job *job, uint32_t r) {
  const struct nt_model_rank *rank = &job->model->ranks[r];
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (call->view == NT_NONE || call->enter_ns > job->cut_ns)
      continue;
    struct nt_place place = job->places[r][call->view];
    if (place.joint == NT_NONE)
      continue;
    struct nt_member *member = &job->joints[place.joint].members[place.member];
    enum nt_shape shape = nt_fn_shape(call->fn);
    if (shape == NT_SHAPE_COMM_INIT)
      member->create_call = i;
    if (!nt_call_counts(call))
      continue;
    if (nt_fn_is_collective(call->fn) && call->seq) {
      if (call->seq > member->called)
        member->called = call->seq;
      if (!member->first || call->seq < member->first)
        member->first = call->seq;
    } else if (shape == NT_SHAPE_COMM_SPLIT && call->seq > member->splits) {
      member->splits = call->seq;
      member->split_call = i;
    } else if (is_end(shape) && (!member->ended_ns || call->enter_ns < member->ended_ns)) {
      member->ended_ns = call->enter_ns;
      member->ended_fn = call->fn;
      member->ended_call = i;
    }
  }
}

static int make_window(const struct nt_job *job, struct nt_member *member) {
  const struct nt_model_rank *rank = nt_member_rank(job, member);
  const struct nt_model_view *view = nt_member_view(job, member);
  free(member->call);
  free(member->sig);
  member->call = NULL;
  member->sig = NULL;
  bool gone = rank->lost || rank->overwritten;
  if (job->cut_ns == INT64_MAX && gone && view->collectives > member->called)
    member->called = view->collectives;
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

static void fill_windows(struct nt_job *job, uint32_t r) {
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
}

int nt_sequences_build(struct nt_job *job) {
  int status = 0;
  for (uint32_t i = 0; i < job->joint_count; i++)
    for (uint32_t j = 0; j < job->joints[i].member_count; j++) {
      struct nt_member *member = &job->joints[i].members[j];
      member->called = member->first = member->splits = 0;
      member->split_call = member->create_call = NT_NONE;
      member->ended_ns = 0;
    }
  for (uint32_t r = 0; r < job->model->rank_count; r++)
    find_bounds(job, r);
  for (uint32_t i = 0; i < job->joint_count && !status; i++)
    for (uint32_t j = 0; j < job->joints[i].member_count && !status; j++)
      status = make_window(job, &job->joints[i].members[j]);
  for (uint32_t r = 0; r < job->model->rank_count && !status; r++)
    fill_windows(job, r);
  return status;
}

void nt_member_group(const struct nt_job *job, const struct nt_member *member, uint32_t position,
                     uint32_t *begin, uint32_t *end) {
  const struct nt_model_call *call = nt_member_call(job, member, position), *other;
  *begin = *end = position;
  if (!call || !call->group)
    return;
  while ((other = nt_member_call(job, member, *begin - 1)) && other->group == call->group &&
         other->thread == call->thread)
    --*begin;
  while ((other = nt_member_call(job, member, *end + 1)) && other->group == call->group &&
         other->thread == call->thread)
    ++*end;
}
