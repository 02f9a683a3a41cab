/* SPDX-License-Identifier: Apache-2.0 */
/* A stream runs in order; across streams only events order, and what they were recorded behind counts. */
#include "analysis/progress.h"

#include "analysis/freeze.h"
#include "nccl/nccl_api.h"

bool nt_call_unfinished(const struct nt_job *job, uint32_t rank, uint32_t index) {
  const struct nt_model_call *call = &job->model->ranks[rank].calls[index];
  return call->progress != NT_PROGRESS_FINISHED || nt_call_is_open(job, rank, index);
}

bool nt_call_outstanding(const struct nt_job *job, uint32_t rank, uint32_t index) {
  const struct nt_model_call *call = &job->model->ranks[rank].calls[index];
  return call->progress == NT_PROGRESS_ENQUEUED || call->progress == NT_PROGRESS_REACHED ||
         call->progress == NT_PROGRESS_UNFINISHED || nt_call_is_open(job, rank, index);
}

/* The oldest launch of the stream that is known to be unfinished, up to number `last`. */
static uint32_t oldest_on(const struct nt_job *job, const struct nt_model_rank *rank,
                          uint32_t stream, uint32_t last) {
  uint32_t found = NT_NONE;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (call->stream != stream || !call->launch || call->launch > last ||
        call->enter_ns > job->cut_ns ||
        (call->progress != NT_PROGRESS_ENQUEUED && call->progress != NT_PROGRESS_REACHED))
      continue;
    if (found == NT_NONE || call->launch < rank->calls[found].launch)
      found = i;
  }
  return found;
}

/* The record that a wait for an event refers to: the newest in front of it. */
static uint32_t record_of(const struct nt_model_rank *rank, const struct nt_model_call *wait) {
  uint32_t found = NT_NONE;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (nt_fn_shape(call->fn) == NT_SHAPE_EVENT_RECORD && call->event == wait->event &&
        call->enter_ns < wait->enter_ns &&
        (found == NT_NONE || call->enter_ns > rank->calls[found].enter_ns))
      found = i;
  }
  return found;
}

/* Another stream's operation that was launched earlier and is known to be unfinished. */
static uint32_t elsewhere(const struct nt_model_rank *rank, const struct nt_model_call *call) {
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *other = &rank->calls[i];
    if (other->launch && other->stream != call->stream && other->enter_ns < call->enter_ns &&
        other->progress == NT_PROGRESS_REACHED)
      return i;
  }
  return NT_NONE;
}

/* A stream is numbered from its first launch on: a wait on one that had none yet may be of any such stream. */
static bool is_wait_of(const struct nt_model_call *wait, const struct nt_model_call *call) {
  return nt_fn_shape(wait->fn) == NT_SHAPE_STREAM_WAIT && wait->launch < call->launch &&
         wait->enter_ns <= call->enter_ns &&
         (wait->stream == call->stream || (!wait->stream && call->launch == 1));
}

/* The stream's launch of that number was called, and how far it came is not known; or it is none of the calls that are
 * there: neither is what was called between it and the next. */
static bool lacks_launch(const struct nt_model_rank *rank, uint32_t stream, uint32_t launch) {
  bool there = false;
  for (uint32_t i = 0; i < rank->call_count && launch; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    const enum nt_shape shape = nt_fn_shape(call->fn);
    if (call->stream != stream || call->launch != launch ||
        !(nt_shape_is_operation(shape) || shape == NT_SHAPE_GRAPH_LAUNCH))
      continue;
    if (call->progress == NT_PROGRESS_UNKNOWN)
      return true;
    there = true;
  }
  return launch && !there && (rank->overwritten || rank->lost || rank->cut);
}

/* Of a wait for an event: what it was recorded behind is not there. */
static bool lacks_record(const struct nt_model_rank *rank, uint32_t record) {
  return record == NT_NONE
             ? rank->overwritten || rank->lost || rank->cut
             : lacks_launch(rank, rank->calls[record].stream, rank->calls[record].launch);
}

struct nt_front nt_front_of(const struct nt_job *job, uint32_t r, uint32_t index) {
  const struct nt_model_rank *rank = &job->model->ranks[r];
  const struct nt_model_call *call = &rank->calls[index];
  struct nt_front front = {.call = oldest_on(job, rank, call->stream, call->launch - 1),
                           .event = NT_NONE};
  if (front.call != NT_NONE)
    return front;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *wait = &rank->calls[i];
    if (!is_wait_of(wait, call))
      continue;
    uint32_t record = record_of(rank, wait);
    uint32_t other = record == NT_NONE ? NT_NONE
                                       : oldest_on(job, rank, rank->calls[record].stream,
                                                   rank->calls[record].launch);
    if (other != NT_NONE)
      return (struct nt_front){.call = other, .event = i};
    if (wait->stream && wait->launch == call->launch - 1) {
      front.event = i;
      front.unseen |= lacks_record(rank, record);
    }
  }
  if (front.event != NT_NONE) /* of an event that was recorded out of sight: behind anything */
    front.call = elsewhere(rank, call);
  front.unseen |= call->launch && lacks_launch(rank, call->stream, call->launch - 1);
  return front;
}

uint32_t nt_host_wait_of(const struct nt_job *job, uint32_t r) {
  return nt_host_wait_in(job, r, 0);
}

uint32_t nt_host_wait_in(const struct nt_job *job, uint32_t r, uint32_t thread) {
  const struct nt_model_rank *rank = &job->model->ranks[r];
  uint32_t found = NT_NONE;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (nt_fn_is_host_wait(call->fn) && (!thread || call->thread == thread) &&
        call->enter_ns <= job->cut_ns && (!call->exit_ns || call->exit_ns > job->cut_ns) &&
        !(call->flags & NT_CALL_ABANDONED) &&
        (found == NT_NONE || call->enter_ns > rank->calls[found].enter_ns))
      found = i;
  }
  return found;
}
