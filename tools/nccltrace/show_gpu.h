/* SPDX-License-Identifier: Apache-2.0 */
/* How far the GPU came with one call. */
#ifndef NT_SHOW_GPU_H
#define NT_SHOW_GPU_H

#include "nccl/nccl_api.h"
#include "trace/reader.h"

enum { NT_GPU_TEXT = 40 };

/* "took 61 us" (exact, sampled), "done in <12 ms" (from the call to the look that saw it), "reached" (it had its
 * turn and has not finished), "enqueued" (behind other work), "aborted", or "-" if it is not known. */
const char *nt_show_gpu(const struct nt_trace *trace, const struct nt_call *call, char *out,
                        size_t size);

#endif
