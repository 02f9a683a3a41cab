/* SPDX-License-Identifier: Apache-2.0 */
/* What a process tells of copies of NCCL whose calls its trace cannot have. */
#ifndef NT_UNTRACED_COPIES_H
#define NT_UNTRACED_COPIES_H

#include <stdbool.h>
#include <stddef.h>

#include "trace/reader.h"

enum { NT_UNTRACED_TEXT = 1400 };

/* "an NCCL copy is loaded whose calls are not traced: PATH; …": the i-th such copy; false past the last. The paths are
 * as they were recorded: escape the text. */
bool nt_untraced_copy(char out[NT_UNTRACED_TEXT], const struct nt_trace *trace, unsigned i);

/* The same of a process without a trace, that has memory of NCCL's mapped. */
void nt_untraced_process(char out[NT_UNTRACED_TEXT], const char *path);

#endif
