/* SPDX-License-Identifier: Apache-2.0 */
#include "nccltrace/show_stacks.h"

#include <string.h>

#include "cli/text.h"

bool nt_show_has_stacks(const struct nt_call *const *calls, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (calls[i]->stack != 0 || calls[i]->flags & NT_CALL_NO_STACK)
      return true;
  return false;
}

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

const char *nt_show_at(struct nt_trace *trace, const struct nt_call *call, char *out, size_t size) {
  const struct nt_stack_frame *frames;
  char text[512];
  int count = nt_trace_stack(trace, call->stack, &frames);
  if (count <= 0)
    return call->stack != 0 || call->flags & NT_CALL_NO_STACK ? "?" : "-";
  if (frames[0].line > 0)
    snprintf(text, sizeof text, "%s:%d %s", base_name(frames[0].file), frames[0].line,
             frames[0].function);
  else
    snprintf(text, sizeof text, "%s %s", base_name(frames[0].file), frames[0].function);
  return nt_text_escape(out, size, text);
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
