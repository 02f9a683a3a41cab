/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which NCCL a caller would have reached without us.
 *
 * In the order of the loader itself: the next definition in the global scope (that keeps other
 * interposers in the chain), the local scope of the calling object (PyTorch loads NCCL behind
 * RTLD_LOCAL), the usual file name, any loaded object. The answer is kept per call site; later calls
 * on a communicator are served by the copy that created it.
 */
#ifndef NT_RESOLVE_H
#define NT_RESOLVE_H

#include <stdbool.h>
#include <stdint.h>

#include "nccl/nccl_api.h"

/* One copy of NCCL, or of the CUDA runtime, as some caller sees it. Made once, never freed. */
struct nt_library {
  void *fn[NT_FN_LIMIT]; /* by enum nt_fn; NULL where the copy lacks the function */
  uintptr_t low, high;   /* address range of the object that defines the functions */
  int version;           /* ncclGetVersion's number, 0 if unknown */
  uint16_t index;
  char path[512];
};

/* The library for calls made from `caller` (a return address), NULL if there is none. `fn` is the
 * function being called. Lock-free after a call site's first use. */
const struct nt_library *nt_resolve(unsigned fn, const void *caller);

/* `address` lies in the object that defines the library's functions: NCCL calling itself. */
static inline bool nt_library_contains(const struct nt_library *library, const void *address) {
  return (uintptr_t)address - library->low < library->high - library->low;
}

/* The i-th copy seen so far, NULL past the end. Any thread. */
const struct nt_library *nt_library_at(unsigned i);

#endif
