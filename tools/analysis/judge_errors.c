/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors that NCCL returned.
 *
 * An error of a rank that others wait for is the earliest cause, and its process's end the consequence.
 * A remote error is always the echo of somebody else's end. Where something else explains the job,
 * errors are evidence only.
 */
#include <stdlib.h>

#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "cli/call_text.h"
#include "cli/text.h"
#include "nccl/nccl_api.h"
#include "nccl/nccl_types.h"

static int error_in(const struct nt_model_call *call) {
  int result = 0;
  if (nt_fn_shape(call->fn) == NT_SHAPE_ASYNC_ERROR)
    result = call->count <= 100 ? (int)call->count : 0;
  else if ((call->flags & NT_CALL_VOID) && call->result != NT_RESULT_OPEN)
    result = call->result;
  return result == ncclRemoteError || result == ncclInProgress ? 0 : result;
}

uint32_t nt_error_of(const struct nt_inquiry *inquiry, uint32_t rank) {
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  uint32_t found = NT_NONE;
  for (uint32_t i = 0; i < model->call_count; i++) {
    const struct nt_model_call *call = &model->calls[i];
    if (call->enter_ns > inquiry->job->cut_ns)
      continue;
    bool counted = call->view != NT_NONE && nt_fn_is_collective(call->fn) &&
                   !(call->flags & NT_CALL_VOID) && !call->pending;
    if (error_in(call) && found == NT_NONE)
      found = i;
    else if (counted && found != NT_NONE && call->enter_ns > model->calls[found].enter_ns &&
             (model->calls[found].view == NT_NONE || model->calls[found].view == call->view))
      found = NT_NONE; /* it recovered */
  }
  return found;
}

bool nt_echoes_an_end(const struct nt_inquiry *inquiry, uint32_t rank) {
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  int64_t heard = 0, last = 0;
  for (uint32_t i = 0; i < model->call_count && model->recorder == NT_RECORDER_LOG; i++) {
    const struct nt_model_call *call = &model->calls[i];
    if (nt_fn_shape(call->fn) == NT_SHAPE_ASYNC_ERROR && call->count == ncclRemoteError)
      heard = call->enter_ns > heard ? call->enter_ns : heard;
    else if (call->view != NT_NONE && call->enter_ns > last)
      last = call->enter_ns;
  }
  return heard > last;
}

int nt_judge_echoes(struct nt_inquiry *inquiry, const struct nt_stuck *stuck) {
  struct nt_rank_set behind = {0};
  char who[NT_DESCRIBE], place[NT_DESCRIBE];
  for (uint32_t i = 0; i < stuck->laggard_count; i++)
    if (!nt_echoes_an_end(inquiry, stuck->laggards[i]))
      return 0;
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_UNDECIDED, stuck->joint);
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->fn = stuck->fn;
  finding->seq = stuck->seq;
  finding->since_ns = stuck->since_ns;
  finding->confidence = NT_UNDECIDED;
  int status = nt_inquiry_ranks(inquiry, &finding->waiting, stuck->waiters, stuck->waiter_count);
  if (!status)
    status = nt_inquiry_ranks(inquiry, &behind, stuck->laggards, stuck->laggard_count);
  nt_finding_say(
      finding,
      "%s lost the connection to a peer before calling %s; whose end that was "
      "cannot be told",
      nt_describe_ranks(who, sizeof who, &behind),
      nt_describe_place(place, sizeof place, inquiry->job, finding->fn, stuck->seq, stuck->joint));
  nt_rank_set_free(&behind);
  return status;
}

/* The rank had, before that, a side of a message of two sizes on this communicator. */
static bool follows_uneven(const struct nt_inquiry *inquiry, uint32_t rank, uint32_t joint,
                           const struct nt_model_call *error) {
  for (uint32_t i = 0; i < inquiry->p2p.uneven_count; i++) {
    const struct nt_p2p_end *send = &inquiry->p2p.ends[inquiry->p2p.uneven[i]];
    for (const struct nt_p2p_end *end = send; end <= send + 1; end++)
      if (end->joint == joint && end->rank == rank &&
          nt_p2p_call(inquiry->job, end)->enter_ns <= error->enter_ns)
        return true;
  }
  return false;
}

/* What NCCL calls a misuse may be the size of a message that the rank took before from a member without a trace, or one without its last
 * calls. */
static bool may_follow_absent(const struct nt_inquiry *inquiry, uint32_t rank, uint32_t joint,
                              const struct nt_model_call *error) {
  if (joint == NT_NONE || error_in(error) != ncclInvalidUsage)
    return false;
  for (uint32_t i = 0; i < inquiry->p2p.count; i++) {
    const struct nt_p2p_end *end = &inquiry->p2p.ends[i];
    if (end->joint == joint && end->rank == rank && !end->is_send && !end->signal &&
        nt_p2p_call(inquiry->job, end)->enter_ns <= error->enter_ns &&
        !nt_p2p_partner(inquiry->job, end))
      return true;
  }
  return false;
}

bool nt_error_is_echo(const struct nt_inquiry *inquiry, uint32_t rank) {
  const uint32_t error = nt_error_of(inquiry, rank);
  const struct nt_job *job = inquiry->job;
  if (error == NT_NONE || job->model->ranks[rank].calls[error].view == NT_NONE)
    return false;
  const struct nt_model_call *call = &job->model->ranks[rank].calls[error];
  const struct nt_place place = job->places[rank][call->view];
  if (place.joint == NT_NONE)
    return false;
  if (follows_uneven(inquiry, rank, place.joint, call) ||
      may_follow_absent(inquiry, rank, place.joint, call))
    return true;
  if (!inquiry->divergences[place.joint].position)
    return false;
  const struct nt_model_call *diverged =
      nt_member_call(job, &job->joints[place.joint].members[place.member],
                     inquiry->divergences[place.joint].position);
  return diverged && diverged != call && diverged->enter_ns <= call->enter_ns;
}

/* Ranks whose end nothing else explains. */
static bool matters(const struct nt_inquiry *inquiry, uint32_t rank) {
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  return !nt_model_left(model) && nt_error_of(inquiry, rank) != NT_NONE;
}

int nt_judge_errors(struct nt_inquiry *inquiry) {
  const struct nt_model *model = inquiry->job->model;
  uint32_t first = NT_NONE, first_call = NT_NONE;
  if (nt_inquiry_explains(inquiry))
    return 0;
  for (uint32_t r = 0; r < model->rank_count; r++) {
    uint32_t call = matters(inquiry, r) ? nt_error_of(inquiry, r) : NT_NONE;
    if (call != NT_NONE &&
        (first == NT_NONE ||
         model->ranks[r].calls[call].enter_ns < model->ranks[first].calls[first_call].enter_ns)) {
      first = r;
      first_call = call;
    }
  }
  if (first == NT_NONE)
    return 0;
  const struct nt_model_call *cause = &model->ranks[first].calls[first_call];
  uint32_t joint =
      cause->view == NT_NONE ? NT_NONE : inquiry->job->places[first][cause->view].joint;
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_ERROR, joint);
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->fn = cause->fn;
  finding->seq = cause->seq;
  finding->since_ns = cause->enter_ns;
  finding->confidence = NT_CERTAIN;
  int status = 0;
  for (uint32_t r = 0; r < model->rank_count && !status; r++) {
    uint32_t call = matters(inquiry, r) ? nt_error_of(inquiry, r) : NT_NONE;
    if (call == NT_NONE)
      continue;
    const struct nt_model_call *own = &model->ranks[r].calls[call];
    uint32_t place = own->view == NT_NONE ? NT_NONE : inquiry->job->places[r][own->view].joint;
    char text[NT_DESCRIBE], time[NT_TIME_TEXT];
    char name[NT_RESULT_TEXT];
    if (may_follow_absent(inquiry, r, place, own))
      finding->confidence = NT_UNDECIDED;
    if (place == joint && nt_fn_canonical(own->fn) == nt_fn_canonical(cause->fn))
      status = nt_finding_add(inquiry->job, &finding->blame, r);
    if (finding->evidence.count < 16)
      nt_lines_add(&finding->evidence, "%s: rank %d got %s from %s",
                   nt_time_short(time, own->enter_ns), model->ranks[r].world,
                   nt_result_text(name, sizeof name, error_in(own)),
                   nt_describe_call(text, sizeof text, inquiry->job, r, call));
  }
  char who[NT_DESCRIBE], place[NT_DESCRIBE];
  char name[NT_RESULT_TEXT];
  nt_finding_say(
      finding, "%s got %s from %s", nt_describe_ranks(who, sizeof who, &finding->blame),
      nt_result_text(name, sizeof name, error_in(cause)),
      nt_describe_place(place, sizeof place, inquiry->job, cause->fn, cause->seq, joint));
  return status;
}
