/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where PyTorch's own code that calls NCCL lies.
 *
 * Of that code it is known that nothing which computes stands on a stream between its wait for another stream and the
 * launch that follows (ProcessGroupNCCL: syncStream, then the call). Of any other it is not.
 */
#ifndef NT_TORCH_OBJECT_H
#define NT_TORCH_OBJECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

extern _Atomic uintptr_t nt_torch_low, nt_torch_high;

/* Any thread; false before the object is found. */
static inline bool nt_torch_holds(const void *address) {
  uintptr_t low = atomic_load_explicit(&nt_torch_low, memory_order_relaxed);
  uintptr_t high = atomic_load_explicit(&nt_torch_high, memory_order_acquire);
  return (uintptr_t)address - low < high - low;
}

/* Looks for it, if it is loaded by now and was not found before. Takes the loader's lock: not for the call path. */
void nt_torch_find(void);

#endif
