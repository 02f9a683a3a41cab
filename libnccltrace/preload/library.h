/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One copy of NCCL, or of the CUDA runtime, as some caller sees it: which function is where.
 *
 * The loader is asked before the lock is taken, never under it: a constructor that calls NCCL holds the loader's lock.
 */
#ifndef NT_LIBRARY_H
#define NT_LIBRARY_H

#include <stdbool.h>
#include <stdint.h>

#include "nccl/nccl_api.h"

enum {
  NT_LIBRARIES = 16,
  NT_ENTRY_LIBRARIES = 8 /* the first of them have entries (entries.h) */
};

/* A slot is filled when a caller or a look-up first leads there. It stays what it is from the first call on: from then
 * on we hold references of our own. One that was looked up and never called is filled anew once it is unloaded. */
struct nt_library {
  void *fn[NT_FN_LIMIT]; /* by enum nt_fn; NULL where the copy lacks the function */
  uintptr_t low, high;   /* of NCCL's object, if all its functions lie there and callers do not */
  uintptr_t object_low, object_high; /* of NCCL's object in any case */
  int (*get_version)(int *);         /* NULL if the copy has none */
  int version;                       /* its number, 0 if unknown or never called */
  uint16_t index;
  bool called;
  char path[512]; /* of NCCL's object */
};

extern struct nt_library nt_libraries[NT_LIBRARIES] __attribute__((visibility("hidden")));

/* `address` lies in the object that defines the library's functions: NCCL calling itself. */
static inline bool nt_library_contains(const struct nt_library *library, const void *address) {
  return (uintptr_t)address - library->low < library->high - library->low;
}

static inline bool nt_library_is_called(const struct nt_library *library) {
  return __atomic_load_n(&library->called, __ATOMIC_ACQUIRE);
}

/* The library whose `fn` is at `address`; its other functions are looked up through `handle` (RTLD_NEXT: behind us in
 * the global scope). NULL if there is no room. Takes the loader's lock; leaves errno and dlerror undefined. */
const struct nt_library *nt_library_of(void *handle, unsigned fn, void *address);

/* It is about to be called: it stays loaded from here on. Takes the loader's lock the first time. */
void nt_library_call(const struct nt_library *library);

/* The i-th one, called or not; NULL past the end. Any thread. */
const struct nt_library *nt_library_at(unsigned i);
/* How many have been called. Any thread. */
unsigned nt_libraries_called(void);

/* An address in this library's own object. */
bool nt_in_own_object(const void *address);

#endif
