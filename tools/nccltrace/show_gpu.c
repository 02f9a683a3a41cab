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

const char *nt_show_gpu(const struct nt_trace *trace, const struct nt_call *call, char *out,
                        size_t size) {
  struct nt_trace_stream stream;
  char text[NT_DURATION_TEXT];
  bool launches = !nt_fn_is_cuda(call->fn) || nt_fn_shape(call->fn) == NT_SHAPE_GRAPH_LAUNCH;
  if (!call->launch || !launches || (call->flags & NT_CALL_CAPTURED) ||
      !stream_of(trace, call->stream, &stream) || !stream.polled_ns)
    return "-";
  const struct nt_trace_mark *exact = nt_trace_mark_of(trace, NT_GPU_DURATION, call);
  const struct nt_trace_mark *done = nt_trace_mark_of(trace, NT_GPU_FINISHED, call);
  if (exact)
    snprintf(out, size, "took %s", nt_duration_text(text, exact->not_before_ns));
  else if (done && done->by_ns > call->enter_ns)
    snprintf(out, size, "done in <%s", nt_duration_text(text, done->by_ns - call->enter_ns));
  else if (call->launch > stream.frozen_after && call->launch <= stream.frozen)
    snprintf(out, size, "aborted");
  else if (call->launch <= stream.finished)
    snprintf(out, size, "done");
  else
    snprintf(out, size, call->launch <= stream.reached ? "reached" : "enqueued");
  return out;
}
