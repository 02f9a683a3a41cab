/* SPDX-License-Identifier: Apache-2.0 */
/* A whole stack for people: what the program itself does stands out, frames of frameworks are folded. */
#ifndef NT_CLI_STACK_LINES_H
#define NT_CLI_STACK_LINES_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/stack_text.h"

#define NT_STACK_LINE_TEXT 1024
/* "data.py:41 load_batch"; native, as far as the module's file tells, "step at train.c:41", "step+0x12 at libstep.so" or
 * "libstep.so+0x1234"; with `paths` the whole path. Escaped. Returns `out`. */
char *nt_stack_line_text(char *out, size_t size, const struct nt_stack_frame *frame, bool paths);

struct nt_stack_style {
  const char *indent;
  bool paths; /* whole paths of files */
  bool whole; /* every frame; else runs of frames of frameworks become "(5 frames of torch)" */
  unsigned
      program; /* of the program's frames, if not `whole`, the innermost so many, then "(2 more)"; 0: all */
};

/* One line a frame, innermost first, each with a newline. A stack that has nothing of the program shows its innermost
 * frame, one of native code alone some of these. `cut`: there are more frames outwards, which is said. */
void nt_stack_print(FILE *out, const struct nt_stack_style *style,
                    const struct nt_stack_frame *frames, size_t count, bool cut);

#endif
