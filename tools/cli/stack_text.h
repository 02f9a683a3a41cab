/* SPDX-License-Identifier: Apache-2.0 */
/* Where a call was made, in a few words. */
#ifndef NT_CLI_STACK_TEXT_H
#define NT_CLI_STACK_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "trace/reader.h"

#define NT_SITE_TEXT 256

/* The frame is of the program itself: neither of an installed package nor of a standard or system library, nor what starts
 * every program. */
bool nt_stack_is_program(const struct nt_stack_frame *frame);

/* Index of the frame that says most: the innermost one of the program, since all calls of a framework end in the
 * same few lines of it; one of Python where there is Python. The innermost of these if none is the program's. */
size_t nt_stack_site(const struct nt_stack_frame *frames, size_t count);

/* "train.py:88 step" of that frame, native "train.c:41 step", "libstep.so step+0x12" or "libstep.so+0x1234", escaped; "" if there are no frames. Returns `out`. */
char *nt_stack_site_text(char *out, size_t size, const struct nt_stack_frame *frames, size_t count);

#endif
