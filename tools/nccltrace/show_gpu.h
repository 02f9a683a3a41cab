/* SPDX-License-Identifier: Apache-2.0 */
/* How far the GPU came with one call. */
#ifndef NT_SHOW_GPU_H
#define NT_SHOW_GPU_H

#include "nccl/nccl_api.h"
#include "trace/reader.h"

enum { NT_GPU_TEXT = 40 };

enum nt_gpu_state {
  NT_SEEN_NOTHING,
  NT_SEEN_ENQUEUED, /* behind other work */
  NT_SEEN_REACHED,  /* it had its turn and has not finished */
  NT_SEEN_DONE,
  NT_SEEN_ABORTED
};

struct nt_gpu_seen {
  enum nt_gpu_state state;
  int64_t took_ns;   /* exact, sampled; else -1 */
  int64_t within_ns; /* of what is done: from the call to the look that saw it; else -1 */
};

struct nt_gpu_seen nt_gpu_seen_of(const struct nt_trace *trace, const struct nt_call *call);

/* "done", "reached", "enqueued", "aborted", or NULL if it is not known. */
const char *nt_gpu_state_name(enum nt_gpu_state state);

/* "took 61 us" (exact, sampled), "done in <12 ms" (from the call to the look that saw it), "reached" (it had its
 * turn and has not finished), "enqueued" (behind other work), "aborted", or "-" if it is not known. */
const char *nt_show_gpu(const struct nt_trace *trace, const struct nt_call *call, char *out,
                        size_t size);

#endif
