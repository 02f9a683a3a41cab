/* SPDX-License-Identifier: Apache-2.0 */
#include "nccltrace/show_stacks.h"

#include "cli/stack_text.h"
#include "cli/text.h"

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
    fputs("    ", out);
    nt_text_escape_print(out, frames[i].file);
    if (frames[i].line > 0)
      fprintf(out, ":%d", frames[i].line);
    fputc(' ', out);
    nt_text_escape_print(out, frames[i].function);
    fputc('\n', out);
  }
}

json_t *nt_show_stack_json(struct nt_trace *trace, const struct nt_call *call) {
  const struct nt_stack_frame *frames;
  int count = nt_trace_stack(trace, call->stack, &frames);
  if (count <= 0)
    return json_null();
  json_t *list = json_array();
  for (int i = 0; i < count && list != NULL; i++) {
    json_t *frame = json_pack("{s:o, s:o, s:o}", "file", nt_json_text(frames[i].file), "line",
                              frames[i].line > 0 ? json_integer(frames[i].line) : json_null(),
                              "function", nt_json_text(frames[i].function));
    json_array_append_new(list, frame);
  }
  return list;
}
