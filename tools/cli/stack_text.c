/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/stack_text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/native_symbols.h"
#include "cli/text.h"

static bool begins(const char *text, const char *prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_native(const struct nt_stack_frame *frame) {
  return frame->build_id != NULL;
}

/* An object of the system, the interpreter, PyTorch, NCCL, CUDA or this library, wherever it lies. */
static bool is_installed_object(const char *file) {
  static const char *const places[] = {"/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"};
  static const char *const names[] = {"python",   "libpython", "libnccl", "libcuda",
                                      "ld-linux", "libtorch",  "libc10"};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++)
    if (begins(file, places[i]))
      return true;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (begins(nt_base_name(file), names[i]))
      return true;
  return file[0] != '/';
}

/* What the C library links into every program. */
static bool is_start(const struct nt_stack_frame *frame) {
  struct nt_native_symbol symbol;
  return nt_native_symbol(frame, &symbol) &&
         (strcmp(symbol.function, "_start") == 0 || begins(symbol.function, "__libc_start_"));
}

static bool is_installed(const struct nt_stack_frame *frame) {
  const char *file = frame->file;
  if (is_native(frame) && is_installed_object(file))
    return true;
  if (strstr(file, "/site-packages/") != NULL || strstr(file, "/dist-packages/") != NULL ||
      strstr(file, "/lib/python3") != NULL || begins(file, "<frozen "))
    return true;
  return is_native(frame) && is_start(frame);
}

bool nt_stack_is_program(const struct nt_stack_frame *frame) {
  return !is_installed(frame);
}

size_t nt_stack_site(const struct nt_stack_frame *frames, size_t count) {
  size_t first = 0;
  while (first < count && is_native(&frames[first]))
    first++;
  if (first == count) /* no Python at all */
    first = 0;
  for (size_t i = first; i < count; i++)
    if (!is_installed(&frames[i]))
      return i;
  return first;
}

static void native_site(char *text, size_t size, const struct nt_stack_frame *frame) {
  struct nt_native_symbol symbol;
  const char *module = nt_base_name(frame->file);
  if (!nt_native_symbol(frame, &symbol))
    snprintf(text, size, "%s+0x%" PRIx64, module, frame->offset);
  else if (symbol.line > 0)
    snprintf(text, size, "%s:%d %s", nt_base_name(symbol.file), symbol.line, symbol.function);
  else
    snprintf(text, size, "%s %s+0x%" PRIx64, module, symbol.function, symbol.offset);
}

char *nt_stack_site_text(char *out, size_t size, const struct nt_stack_frame *frames,
                         size_t count) {
  char text[2048], line[16] = "";
  if (size > 0)
    out[0] = '\0';
  if (count == 0)
    return out;
  const struct nt_stack_frame *frame = &frames[nt_stack_site(frames, count)];
  if (frame->line > 0)
    snprintf(line, sizeof line, ":%d", frame->line);
  if (is_native(frame))
    native_site(text, sizeof text, frame);
  else
    snprintf(text, sizeof text, "%s%s %s", nt_base_name(frame->file), line, frame->function);
  return nt_text_escape(out, size, text);
}
