/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device progress of calls while loading.
 *
 * A stream runs in order, so its two watermarks place every launch. They may be a look behind, and there may
 * be none; a captured call has nothing to do on the device once it has returned; a host wait that returned tells of everything in front of it on
 * that stream, as long as nobody had aborted: after an abort hung operations read as finished.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/load_parts.h"
#include "analysis/sequence.h"
#include "cli/untraced_copies.h"
#include "nccl/nccl_api.h"

#define WAITED_STREAMS 32
#define STALE_NS INT64_C(1000000000) /* of a look at the device: says nothing of now any more */
#define HUNG_NS INT64_C(1000000000)  /* a call unfinished for so long was let go by the abort */
#define LOOK_NS INT64_C(50000000)    /* more than the time between two looks at the device */

static enum nt_progress place(const struct nt_trace_stream *stream, uint32_t launch) {
  static const enum nt_progress of_launch[] = {
      [NT_LAUNCH_UNKNOWN] = NT_PROGRESS_UNKNOWN,
      [NT_LAUNCH_ENQUEUED] = NT_PROGRESS_ENQUEUED,
      [NT_LAUNCH_REACHED] = NT_PROGRESS_REACHED,
      [NT_LAUNCH_FINISHED] = NT_PROGRESS_FINISHED,
  };
  return of_launch[nt_trace_launch(stream, launch)];
}

/* Unfinished when a communicator was aborted: what was seen later means nothing, what was seen before does. */
static enum nt_progress place_frozen(const struct nt_trace *trace, const struct nt_call *call,
                                     const struct nt_trace_stream *stream, int64_t abort_ns) {
  const struct nt_trace_mark *mark = nt_trace_mark_of(trace, NT_GPU_REACHED, call);
  /* Nothing that was launched before the abort has moved `reached` since. */
  const enum nt_progress seen =
      stream->reached <= stream->frozen ? place(stream, call->launch) : NT_PROGRESS_UNKNOWN;
  if (!mark || seen == NT_PROGRESS_FINISHED)
    return seen;
  if (mark->by_ns <= abort_ns)
    return NT_PROGRESS_REACHED;
  return mark->not_before_ns > call->enter_ns + LOOK_NS ? NT_PROGRESS_ENQUEUED
                                                        : NT_PROGRESS_UNKNOWN;
}

/* On a stream; where the GPU is not followed it has no number there. */
static bool is_enqueued(const struct nt_model_call *call) {
  enum nt_shape shape = nt_fn_shape(call->fn);
  return call->stream && !(call->flags & (NT_CALL_CAPTURED | NT_CALL_VOID)) &&
         (nt_fn_is_collective(call->fn) || nt_call_is_message(call) ||
          shape == NT_SHAPE_GRAPH_LAUNCH);
}

int64_t nt_load_first_abort(const struct nt_model_rank *rank) {
  int64_t first = INT64_MAX;
  if (!nt_model_may_have(rank, NT_SHAPE_COMM_ABORT) &&
      !nt_model_may_have(rank, NT_SHAPE_COMM_SHRINK))
    return first;
  for (uint32_t i = 0; i < rank->call_count; i++)
    if (nt_call_aborts(&rank->calls[i]) && rank->calls[i].enter_ns < first)
      first = rank->calls[i].enter_ns;
  return first;
}

static void place_calls(struct nt_model_rank *rank, const struct nt_trace *trace,
                        const struct nt_call *calls) {
  int64_t abort_ns = nt_load_first_abort(rank);
  size_t count = nt_trace_stream_count(trace);
  for (size_t s = 0; s < count; s++) {
    struct nt_trace_stream stream = nt_trace_stream_at(trace, s);
    rank->gpu_steps += (uint64_t)stream.reached + stream.finished;
    if (stream.polled_ns && stream.issued > stream.finished)
      rank->undone += stream.issued - stream.finished;
    if (stream.polled_ns > rank->gpu_ns)
      rank->gpu_ns = stream.polled_ns;
    for (uint32_t i = 0; i < rank->call_count; i++) {
      struct nt_model_call *call = &rank->calls[i];
      if (call->stream != stream.number || !call->launch || !is_enqueued(call))
        continue;
      bool frozen = call->launch > stream.frozen_after && call->launch <= stream.frozen;
      call->progress =
          frozen ? place_frozen(trace, &calls[i], &stream, abort_ns) : place(&stream, call->launch);
    }
  }
}

/* Streams that one thread has waited for, seen from the end of its calls. */
struct waited {
  uint32_t stream[WAITED_STREAMS], count;
  bool device;
};

static bool was_waited(const struct waited *waited, uint32_t stream) {
  for (uint32_t i = 0; i < waited->count; i++)
    if (waited->stream[i] == stream)
      return true;
  return waited->device;
}

static void add_wait(struct waited *waited, const struct nt_model_call *call) {
  if (nt_fn_shape(call->fn) == NT_SHAPE_DEVICE_SYNC)
    waited->device = true;
  else if (call->stream && !was_waited(waited, call->stream) && waited->count < WAITED_STREAMS)
    waited->stream[waited->count++] = call->stream;
}

/* Backwards through each thread's calls: what stands in front of a wait that returned is finished. */
static void place_by_waits(struct nt_model_rank *rank) {
  int64_t abort_ns = nt_load_first_abort(rank);
  struct waited waited = {0};
  for (uint32_t i = rank->call_count; i-- > 0;) {
    struct nt_model_call *call = &rank->calls[i];
    if (i + 1 < rank->call_count && rank->calls[i + 1].thread != call->thread)
      memset(&waited, 0, sizeof waited);
    bool returned = call->exit_ns && call->exit_ns < abort_ns && call->result == 0;
    if (nt_fn_is_host_wait(call->fn) && returned)
      add_wait(&waited, call);
    else if (is_enqueued(call) && call->progress != NT_PROGRESS_FINISHED && call->exit_ns &&
             !(call->flags & NT_CALL_IN_PROGRESS) && was_waited(&waited, call->stream))
      call->progress = NT_PROGRESS_FINISHED;
  }
}

void nt_load_progress(struct nt_model_rank *rank, const struct nt_trace *trace,
                      const struct nt_call *calls) {
  for (uint32_t i = 0; i < rank->call_count; i++) {
    struct nt_model_call *call = &rank->calls[i];
    if (!(call->flags & NT_CALL_CAPTURED))
      continue;
    call->progress = NT_PROGRESS_FINISHED;
    if (nt_call_is_message(call))
      call->flags |= NT_CALL_VOID; /* a message takes no position */
  }
  place_calls(rank, trace, calls);
  place_by_waits(rank);
}

void nt_age_progress(struct nt_model_rank *rank, int64_t now_ns) {
  if (rank->recorder != NT_RECORDER_TRACE)
    return; /* as of when it was written */
  int64_t end = nt_model_is_over(rank) ? nt_model_end(rank) : now_ns,
          abort_ns = nt_load_first_abort(rank);
  if (abort_ns < end)
    end = abort_ns; /* what was unfinished then was judged by what had been seen by then */
  if (end - rank->gpu_ns <= STALE_NS)
    return;
  for (uint32_t i = 0; i < rank->call_count; i++)
    if (rank->calls[i].progress != NT_PROGRESS_FINISHED)
      rank->calls[i].progress = NT_PROGRESS_UNKNOWN;
}

/* What differs between the ranks of a healthy job. */
static bool is_of_one_rank(const char *name) {
  static const char *const own[] = {"NCCL_HOSTID", "NCCL_DEBUG_FILE", "NCCL_COMM_ID",
                                    "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE"};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (!strcmp(name, own[i]))
      return true;
  return false;
}

static int by_text(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *join(char **lines, size_t count) {
  size_t size = 1;
  for (size_t i = 0; i < count; i++)
    size += strlen(lines[i]) + 1;
  char *text = malloc(size), *at = text;
  for (size_t i = 0; text && i < count; i++) {
    size_t length = strlen(lines[i]);
    memcpy(at, lines[i], length);
    at[length] = '\n';
    at += length + 1;
  }
  if (text)
    *at = '\0';
  return text;
}

int nt_load_settings(struct nt_model_rank *rank, const struct nt_trace *trace) {
  static const char prefix[] = "env.NCCL_";
  const char *key, *value, *version = nt_trace_evidence(trace, "nccl.0.version");
  size_t count = 0, kept = 0;
  while (nt_trace_evidence_at(trace, count, &key, &value))
    count++;
  char **lines = calloc(count + 1, sizeof *lines);
  int status = lines ? 0 : -NT_ERR_MEMORY;
  for (size_t i = 0; i < count && !status; i++) {
    nt_trace_evidence_at(trace, i, &key, &value);
    const bool cuda = !strcmp(key, "env.CUDA_LAUNCH_BLOCKING");
    if ((!cuda && strncmp(key, prefix, sizeof prefix - 1)) || is_of_one_rank(key + 4))
      continue;
    size_t size = strlen(key) + strlen(value);
    lines[kept] = malloc(size);
    if (lines[kept])
      stpcpy(stpcpy(stpcpy(lines[kept], key + 4), "="), value), kept++;
    else
      status = -NT_ERR_MEMORY;
  }
  if (kept)
    qsort(lines, kept, sizeof *lines, by_text);
  if (!status) {
    rank->nccl_env = join(lines, kept);
    rank->nccl = version ? strdup(version) : NULL;
    status = rank->nccl_env ? 0 : -NT_ERR_MEMORY;
  }
  for (size_t i = 0; i < kept; i++)
    free(lines[i]);
  free(lines);
  return status;
}

int nt_load_untraced(struct nt_model_rank *rank, const struct nt_trace *trace) {
  enum { LINES = 16 };
  char *lines[LINES], text[NT_UNTRACED_TEXT];
  size_t count = 0;
  while (count < LINES && nt_untraced_copy(text, trace, (unsigned)count) &&
         (lines[count] = strdup(text)))
    count++;
  if (count)
    rank->untraced = join(lines, count);
  for (size_t i = 0; i < count; i++)
    free(lines[i]);
  return count && !rank->untraced ? -NT_ERR_MEMORY : 0;
}

static int64_t after_ns(const struct nt_model_call *call, uint32_t us) {
  return call->enter_ns + INT64_C(1000) * us;
}

/* Between the two looks at the device the communicator was aborted somewhere. */
static bool is_released(const struct nt_model_call *call, uint32_t not_before_us, uint32_t by_us,
                        int64_t abort_ns) {
  return by_us && after_ns(call, by_us) > abort_ns && not_before_us &&
         after_ns(call, not_before_us) + LOOK_NS >= abort_ns;
}

/* What had hung for a second by then, and was seen to come to its turn or to finish right after, was let go by the abort. */
static void hold_released(struct nt_model_rank *rank, int64_t abort_ns) {
  for (uint32_t i = 0; i < rank->seen_count; i++) {
    const struct nt_model_seen *seen = &rank->seen[i];
    struct nt_model_call *call = &rank->calls[seen->call];
    const bool waited = seen->waited_us && after_ns(call, seen->waited_us) <= abort_ns;
    if (call->enter_ns + HUNG_NS > abort_ns || waited)
      continue;
    if (call->progress == NT_PROGRESS_FINISHED &&
        is_released(call, seen->unfinished_us, seen->finished_us, abort_ns))
      call->progress = NT_PROGRESS_REACHED;
    if (call->progress == NT_PROGRESS_REACHED &&
        is_released(call, seen->unreached_us, seen->reached_us, abort_ns))
      call->progress = NT_PROGRESS_ENQUEUED;
  }
}

void nt_settle_released(struct nt_model *model) {
  int64_t first_ns = INT64_MAX;
  for (uint32_t r = 0; r < model->rank_count; r++) {
    const int64_t ns = nt_load_first_abort(&model->ranks[r]);
    first_ns = ns < first_ns ? ns : first_ns;
  }
  for (uint32_t r = 0; r < model->rank_count && first_ns != INT64_MAX; r++)
    hold_released(&model->ranks[r], first_ns);
}
