/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/stack_lines.h"

#include <inttypes.h>
#include <string.h>

#include "cli/native_symbols.h"
#include "cli/text.h"

enum { PACKAGES = 3, PACKAGE_TEXT = 40, NATIVE_SHOWN = 8 };

static const char *name_of(const char *path, bool whole) {
  return whole ? path : nt_base_name(path);
}

char *nt_stack_line_text(char *out, size_t size, const struct nt_stack_frame *frame, bool paths) {
  struct nt_native_symbol symbol;
  const char *file = name_of(frame->file, paths);
  char text[2 * NT_STACK_LINE_TEXT], line[16] = "";
  if (frame->line > 0)
    snprintf(line, sizeof line, ":%d", frame->line);
  if (frame->build_id == NULL)
    snprintf(text, sizeof text, "%s%s%s%s", file, line, *frame->function ? " " : "",
             frame->function);
  else if (!nt_native_symbol(frame, &symbol))
    snprintf(text, sizeof text, "%s+0x%" PRIx64, file, frame->offset);
  else if (symbol.line > 0)
    snprintf(text, sizeof text, "%s at %s:%d", symbol.function, name_of(symbol.file, paths),
             symbol.line);
  else
    snprintf(text, sizeof text, "%s+0x%" PRIx64 " at %s", symbol.function, symbol.offset, file);
  return nt_text_escape(out, size, text);
}

/* ---- folding ------------------------------------------------------------------------------------ */

struct fold {
  size_t frames;
  char packages[PACKAGES][PACKAGE_TEXT];
  size_t package_count; /* may be greater than PACKAGES */
};

/* "torch" of /x/site-packages/torch/nn/module.py. */
static void package_of(char out[PACKAGE_TEXT], const struct nt_stack_frame *frame) {
  static const char *const marks[] = {"/site-packages/", "/dist-packages/"};
  const char *at = NULL;
  for (size_t i = 0; i < 2 && at == NULL; i++)
    if ((at = strstr(frame->file, marks[i])) != NULL)
      at += strlen(marks[i]);
  if (at == NULL)
    snprintf(out, PACKAGE_TEXT, "%s", frame->build_id ? "native code" : "the standard library");
  else
    snprintf(out, PACKAGE_TEXT, "%.*s", (int)strcspn(at, "/."), at);
}

static void fold(struct fold *fold, const struct nt_stack_frame *frame) {
  char package[PACKAGE_TEXT];
  package_of(package, frame);
  fold->frames++;
  for (size_t i = 0; i < fold->package_count && i < PACKAGES; i++)
    if (strcmp(fold->packages[i], package) == 0)
      return;
  if (fold->package_count < PACKAGES)
    memcpy(fold->packages[fold->package_count], package, sizeof package);
  fold->package_count++;
}

static void print_fold(FILE *out, const char *indent, struct fold *fold) {
  if (fold->frames == 0)
    return;
  fprintf(out, "%s(%zu frame%s of ", indent, fold->frames, fold->frames == 1 ? "" : "s");
  for (size_t i = 0; i < fold->package_count && i < PACKAGES; i++) {
    if (i > 0)
      fputs(", ", out);
    nt_text_escape_print(out, fold->packages[i]);
  }
  fputs(fold->package_count > PACKAGES ? " and others)\n" : ")\n", out);
  *fold = (struct fold){0};
}

static void print_frame(FILE *out, const struct nt_stack_style *style,
                        const struct nt_stack_frame *frame) {
  char text[NT_STACK_LINE_TEXT];
  fprintf(out, "%s%s\n", style->indent, nt_stack_line_text(text, sizeof text, frame, style->paths));
}

/* Native code alone, none of it the program's: the innermost frames. */
static void print_native(FILE *out, const struct nt_stack_style *style,
                         const struct nt_stack_frame *frames, size_t count) {
  size_t shown = style->whole || count <= NATIVE_SHOWN + 1 ? count : NATIVE_SHOWN;
  for (size_t i = 0; i < shown; i++)
    print_frame(out, style, &frames[i]);
  if (shown < count)
    fprintf(out, "%s(%zu more frames of native code)\n", style->indent, count - shown);
}

void nt_stack_print(FILE *out, const struct nt_stack_style *style,
                    const struct nt_stack_frame *frames, size_t count, bool cut) {
  size_t program = 0, native = 0;
  struct fold folded = {0};
  for (size_t i = 0; i < count; i++) {
    program += nt_stack_is_program(&frames[i]);
    native += frames[i].build_id != NULL;
  }
  size_t limit = style->program == 0 ? program : style->program;
  bool brief = style->program != 0 && native == count; /* only what the program does */
  bool foreign = count > 0 && native == count && program == 0;
  if (foreign)
    print_native(out, style, frames, count);
  for (size_t i = 0, shown = 0; i < count && !foreign; i++) {
    bool own = nt_stack_is_program(&frames[i]);
    if (style->whole || own || (i == 0 && program == 0)) {
      if (brief && shown == 0)
        folded = (struct fold){0};
      print_fold(out, style->indent, &folded);
      print_frame(out, style, &frames[i]);
      shown += own;
      if (!style->whole && style->program != 0 && shown == limit) {
        if (i + 1 < count)
          fprintf(out, "%s(%zu more)\n", style->indent, count - i - 1);
        return;
      }
      continue;
    }
    fold(&folded, &frames[i]);
  }
  if (!brief)
    print_fold(out, style->indent, &folded);
  if (cut)
    fprintf(out, "%s(more frames, which the dump does not have)\n", style->indent);
}
