/* SPDX-License-Identifier: Apache-2.0 */
/* Where a call was made, in a few words. */
#ifndef NT_CLI_STACK_TEXT_H
#define NT_CLI_STACK_TEXT_H

#include <stddef.h>

#include "trace/reader.h"

#define NT_SITE_TEXT 256

/* Index of the frame that says most: the innermost one that is neither of an installed package nor of
 * the standard library, since all calls of a framework end in the same few lines of it. 0 if there is
 * no such frame. */
size_t nt_stack_site(const struct nt_stack_frame *frames, size_t count);

/* "train.py:88 step" of that frame, escaped; "" if there are no frames. Returns `out`. */
char *nt_stack_site_text(char *out, size_t size, const struct nt_stack_frame *frames, size_t count);

#endif
