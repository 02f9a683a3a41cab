/* SPDX-License-Identifier: Apache-2.0 */
/* How far the GPU came with one call, in a word or two. */
#include "nccltrace/show_gpu.h"

#include <stdio.h>
#include <string.h>

#include "cli/text.h"

static bool stream_of(const struct nt_trace *trace, uint32_t number, struct nt_trace_stream *out) {
  for (size_t i = 0; i < nt_trace_stream_count(trace); i++) {
    *out = nt_trace_stream_at(trace, i);
    if (out->number == number)
      return true;
  }
  return false;
}

struct nt_gpu_seen nt_gpu_seen_of(const struct nt_trace *trace, const struct nt_call *call) {
  static const enum nt_gpu_state of_launch[] = {
      [NT_LAUNCH_ENQUEUED] = NT_SEEN_ENQUEUED,
      [NT_LAUNCH_REACHED] = NT_SEEN_REACHED,
      [NT_LAUNCH_FINISHED] = NT_SEEN_DONE,
  };
  struct nt_gpu_seen seen = {NT_SEEN_NOTHING, -1, -1};
  struct nt_trace_stream stream;
  bool launches = !nt_fn_is_cuda(call->fn) || nt_fn_shape(call->fn) == NT_SHAPE_GRAPH_LAUNCH;
  if (!nt_call_launch(call) || !launches || !stream_of(trace, call->stream, &stream) ||
      !stream.polled_ns)
    return seen;
  const struct nt_trace_mark *exact = nt_trace_mark_of(trace, NT_GPU_DURATION, call);
  const struct nt_trace_mark *done = nt_trace_mark_of(trace, NT_GPU_FINISHED, call);
  if (exact)
    seen.took_ns = exact->not_before_ns;
  else if (done && done->by_ns > call->enter_ns)
    seen.within_ns = done->by_ns - call->enter_ns;
  if (seen.took_ns >= 0 || seen.within_ns >= 0)
    seen.state = NT_SEEN_DONE;
  else if (call->launch > stream.frozen_after && call->launch <= stream.frozen)
    seen.state = NT_SEEN_ABORTED;
  else
    seen.state = of_launch[nt_trace_launch(&stream, call->launch)];
  return seen;
}

const char *nt_gpu_state_name(enum nt_gpu_state state) {
  static const char *const names[] = {[NT_SEEN_ENQUEUED] = "enqueued",
                                      [NT_SEEN_REACHED] = "reached",
                                      [NT_SEEN_DONE] = "done",
                                      [NT_SEEN_ABORTED] = "aborted"};
  return names[state];
}

const char *nt_show_gpu(const struct nt_trace *trace, const struct nt_call *call, char *out,
                        size_t size) {
  const struct nt_gpu_seen seen = nt_gpu_seen_of(trace, call);
  char text[NT_DURATION_TEXT];
  if (seen.took_ns >= 0)
    snprintf(out, size, "took %s", nt_duration_text(text, seen.took_ns));
  else if (seen.within_ns >= 0)
    snprintf(out, size, "done in <%s", nt_duration_text(text, seen.within_ns));
  else
    snprintf(out, size, "%s", seen.state ? nt_gpu_state_name(seen.state) : "-");
  return out;
}
