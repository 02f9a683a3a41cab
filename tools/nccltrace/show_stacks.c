/* SPDX-License-Identifier: Apache-2.0 */
#include "nccltrace/show_stacks.h"

#include "cli/native_symbols.h"
#include "cli/stack_lines.h"

bool nt_show_has_stacks(const struct nt_call *const *calls, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (calls[i]->stack != 0 || calls[i]->flags & NT_CALL_NO_STACK)
      return true;
  return false;
}

const char *nt_show_at(struct nt_trace *trace, const struct nt_call *call, char *out, size_t size) {
  const struct nt_stack_frame *frames;
  int count = nt_trace_stack(trace, call->stack, &frames);
  if (count <= 0)
    return call->stack != 0 || call->flags & NT_CALL_NO_STACK ? "?" : "-";
  return nt_stack_site_text(out, size, frames, (size_t)count);
}

void nt_show_stack(struct nt_trace *trace, const struct nt_call *call, FILE *out) {
  const struct nt_stack_frame *frames;
  int count = nt_trace_stack(trace, call->stack, &frames);
  for (int i = 0; i < count; i++) {
    char text[NT_STACK_LINE_TEXT];
    fprintf(out, "    %s\n", nt_stack_line_text(text, sizeof text, &frames[i], true));
  }
}

static json_t *frame_json(const struct nt_stack_frame *frame) {
  struct nt_native_symbol symbol;
  if (frame->build_id == NULL)
    return json_pack("{s:o, s:o, s:o}", "file", nt_json_text(frame->file), "line",
                     frame->line > 0 ? json_integer(frame->line) : json_null(), "function",
                     nt_json_text(frame->function));
  bool known = nt_native_symbol(frame, &symbol);
  return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "file",
                   symbol.line > 0 ? nt_json_text(symbol.file) : json_null(), "line",
                   symbol.line > 0 ? json_integer(symbol.line) : json_null(), "function",
                   known ? nt_json_text(symbol.function) : json_null(), "module",
                   nt_json_text(frame->file), "build_id", nt_json_text(frame->build_id), "offset",
                   nt_json_count(frame->offset));
}

json_t *nt_show_frames_json(const struct nt_stack_frame *frames, size_t count) {
  json_t *list = json_array();
  for (size_t i = 0; i < count && list != NULL; i++)
    json_array_append_new(list, frame_json(&frames[i]));
  return list;
}

json_t *nt_show_stack_json(struct nt_trace *trace, const struct nt_call *call) {
  const struct nt_stack_frame *frames;
  int count = nt_trace_stack(trace, call->stack, &frames);
  return count > 0 ? nt_show_frames_json(frames, (size_t)count) : json_null();
}
