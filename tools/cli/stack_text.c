/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/stack_text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/text.h"

static bool is_installed(const char *file) {
  return strstr(file, "/site-packages/") != NULL || strstr(file, "/dist-packages/") != NULL ||
         strstr(file, "/lib/python3") != NULL || strncmp(file, "<frozen ", 8) == 0;
}

size_t nt_stack_site(const struct nt_stack_frame *frames, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!is_installed(frames[i].file))
      return i;
  return 0;
}

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

char *nt_stack_site_text(char *out, size_t size, const struct nt_stack_frame *frames,
                         size_t count) {
  char text[512], line[16] = "";
  if (size > 0)
    out[0] = '\0';
  if (count == 0)
    return out;
  const struct nt_stack_frame *frame = &frames[nt_stack_site(frames, count)];
  if (frame->line > 0)
    snprintf(line, sizeof line, ":%d", frame->line);
  snprintf(text, sizeof text, "%s%s %s", base_name(frame->file), line, frame->function);
  return nt_text_escape(out, size, text);
}
