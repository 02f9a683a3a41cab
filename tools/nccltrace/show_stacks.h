/* SPDX-License-Identifier: Apache-2.0 */
/* Where in the program a call was made, for nccltrace show. */
#ifndef NT_SHOW_STACKS_H
#define NT_SHOW_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/json_output.h"
#include "trace/reader.h"

/* True if one of the calls has a stack, or lacks one that it should have. */
bool nt_show_has_stacks(const struct nt_call *const *calls, size_t count);

/* "train.py:88 step", escaped (stack_text.h); "?" if the stack is not known, "-" if there is
 * none. Returns `out`. */
const char *nt_show_at(struct nt_trace *trace, const struct nt_call *call, char *out, size_t size);

/* All frames, one a line, innermost first. */
void nt_show_stack(struct nt_trace *trace, const struct nt_call *call, FILE *out);

/* An array of {file, line, function}; native frames have {module, build_id, offset} too, and null for what the module's
 * file does not tell. */
json_t *nt_show_frames_json(const struct nt_stack_frame *frames, size_t count);

/* The same for a call; null if there is no stack. */
json_t *nt_show_stack_json(struct nt_trace *trace, const struct nt_call *call);

#endif
