/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the device came to calls, while loading.
 *
 * Marks are looked at every 20 ms at best, host waits return at once, and one launch in 64 has an exact duration: what
 * each tells is kept apart. Of old calls only the durations are kept, or a job of thousands of ranks would not fit.
 */
#include <stdlib.h>

#include "analysis/load_parts.h"
#include "nccl/nccl_api.h"

enum {
  STREAMS = 32,
  TIMED_EVERY = 64, /* marks, so about as many launches */
  LOOK_BACK = 8,    /* records */
};

struct way {
  struct {
    uint32_t stream;
    int64_t waited_ns; /* the next host wait for it returned then */
  } next[STREAMS];
  uint32_t count;
  int64_t device_ns;
  uint32_t sampled_stream, sampled_launch; /* the last duration that was found */
  size_t durations, reached, finished;     /* where marks were found last */
};

static bool is_launched(const struct nt_model_call *call) {
  enum nt_shape shape = nt_fn_shape(call->fn);
  return call->stream && !(call->flags & (NT_CALL_CAPTURED | NT_CALL_VOID)) &&
         call->view != NT_NONE &&
         (nt_fn_is_collective(call->fn) || shape == NT_SHAPE_SEND || shape == NT_SHAPE_RECV);
}

static uint32_t after(const struct nt_model_call *call, int64_t ns) {
  int64_t us = ns > call->enter_ns ? (ns - call->enter_ns + 999) / 1000 : 1;
  return !ns ? 0 : us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

static void add_wait(struct way *way, const struct nt_model_call *call) {
  uint32_t i = 0;
  if (nt_fn_shape(call->fn) == NT_SHAPE_DEVICE_SYNC) {
    way->device_ns = call->exit_ns;
    way->count = 0; /* it is earlier than all that was kept */
    return;
  }
  while (i < way->count && way->next[i].stream != call->stream)
    i++;
  if (!call->stream || i == STREAMS)
    return;
  way->next[i].stream = call->stream;
  way->next[i].waited_ns = call->exit_ns;
  way->count += i == way->count;
}

static int64_t waited_ns(const struct way *way, uint32_t stream) {
  for (uint32_t i = 0; i < way->count; i++)
    if (way->next[i].stream == stream)
      return way->next[i].waited_ns;
  return way->device_ns;
}

/* Backwards, so the next one is near a whole period in front of the last. */
static int64_t sampled_ns(struct way *way, const struct nt_trace *trace,
                          const struct nt_call *call) {
  if (call->stream == way->sampled_stream && call->launch < way->sampled_launch &&
      call->launch + TIMED_EVERY / 2 > way->sampled_launch)
    return 0;
  const struct nt_trace_mark *mark =
      nt_trace_mark_near(trace, NT_GPU_DURATION, call, &way->durations);
  if (!mark)
    return 0;
  way->sampled_stream = call->stream;
  way->sampled_launch = call->launch;
  return mark->not_before_ns;
}

static void look_up(struct way *way, struct nt_model_seen *seen, const struct nt_trace *trace,
                    const struct nt_call *from, const struct nt_model_call *call) {
  const struct nt_trace_mark *reached =
      nt_trace_mark_near(trace, NT_GPU_REACHED, from, &way->reached);
  const struct nt_trace_mark *finished =
      nt_trace_mark_near(trace, NT_GPU_FINISHED, from, &way->finished);
  if (reached)
    seen->reached_us = after(call, reached->by_ns);
  if (reached && reached->not_before_ns > call->enter_ns)
    seen->unreached_us = (uint32_t)(after(call, reached->not_before_ns) - 1);
  if (finished)
    seen->finished_us = after(call, finished->by_ns);
  if (finished && finished->not_before_ns > call->enter_ns)
    seen->unfinished_us = (uint32_t)(after(call, finished->not_before_ns) - 1);
}

/* The first launch of its stream behind a host wait: no earlier operation is in front of it. */
static bool is_first(const struct nt_model_rank *rank, uint32_t index) {
  const struct nt_model_call *call = &rank->calls[index];
  for (uint32_t i = index; i-- > 0 && index - i <= LOOK_BACK;) {
    const struct nt_model_call *before = &rank->calls[i];
    bool device = nt_fn_shape(before->fn) == NT_SHAPE_DEVICE_SYNC;
    if (before->thread != call->thread)
      return false;
    if (nt_fn_is_host_wait(before->fn) && (device || before->stream == call->stream))
      return before->exit_ns && !before->result;
    if (before->launch && before->stream == call->stream)
      return false;
  }
  return false;
}

/* Adds them in the order of their calls, the last one first. */
static void walk(struct nt_model_rank *rank, const struct nt_trace *trace,
                 const struct nt_call *calls, uint32_t *left) {
  struct way way = {.count = 0};
  int64_t abort_ns = nt_load_first_abort(rank);
  for (uint32_t i = rank->call_count; i-- > 0;) {
    const struct nt_model_call *call = &rank->calls[i];
    if (i + 1 < rank->call_count && rank->calls[i + 1].thread != call->thread)
      way.count = 0, way.device_ns = 0;
    if (nt_fn_is_host_wait(call->fn) && call->exit_ns && call->exit_ns < abort_ns && !call->result)
      add_wait(&way, call);
    if (!is_launched(call) || !call->exit_ns || call->exit_ns > abort_ns)
      continue;
    struct nt_model_seen seen = {.call = i};
    int64_t took = sampled_ns(&way, trace, &calls[i]);
    seen.took_us =
        took > 0 ? (uint32_t)(took < INT64_C(1000) * UINT32_MAX ? (took + 999) / 1000 : UINT32_MAX)
                 : 0;
    if (left[call->view]) {
      left[call->view]--;
      look_up(&way, &seen, trace, &calls[i], call);
      if (is_first(rank, i)) /* marks are looked at now and then, so by then at the latest */
        seen.reached_us = seen.unreached_us ? seen.unreached_us : 1;
      if (!(call->flags & NT_CALL_IN_PROGRESS))
        seen.waited_us = after(call, waited_ns(&way, call->stream));
    }
    if (seen.took_us || seen.reached_us || seen.finished_us || seen.waited_us)
      rank->seen[rank->seen_count++] = seen;
  }
}

int nt_load_seen(struct nt_model_rank *rank, const struct nt_trace *trace,
                 const struct nt_call *calls) {
  uint32_t *left = malloc((rank->view_count + 1u) * sizeof *left);
  rank->seen = malloc((rank->call_count + 1u) * sizeof *rank->seen);
  if (!left || !rank->seen) {
    free(left);
    return -NT_ERR_MEMORY;
  }
  for (uint32_t v = 0; v < rank->view_count; v++)
    left[v] = NT_SEEN_KEPT;
  walk(rank, trace, calls, left);
  free(left);
  for (uint32_t a = 0, b = rank->seen_count; a + 1 < b; a++) {
    const struct nt_model_seen seen = rank->seen[a];
    rank->seen[a] = rank->seen[--b];
    rank->seen[b] = seen;
  }
  struct nt_model_seen *fit = realloc(rank->seen, (rank->seen_count + 1u) * sizeof *fit);
  rank->seen = fit ? fit : rank->seen;
  return 0;
}
