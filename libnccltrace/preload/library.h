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
  NT_LIBRARIES = 32,
  NT_ENTRY_LIBRARIES = 8 /* the first of them have entries (entries.h) */
};

/* A slot is filled when a caller or a look-up first leads there, and never again: an entry of it may be in anybody's hands.
 * It serves once more when the same object comes back to the same place. From the first call on we hold references of our
 * own, but on objects in another namespace (dlmopen). */
struct nt_library {
  uintptr_t low, high;   /* of NCCL's object, if all its functions lie there and callers do not */
  void *fn[NT_FN_LIMIT]; /* by enum nt_fn; NULL where the copy lacks the function */
  void *answer[NT_FN_LIMIT]; /* what its entry calls; NULL before anybody was given that entry */
  uintptr_t object;          /* one of NCCL's functions */
  uintptr_t base, dynamic;   /* NCCL's object as the loader has it */
  int (*get_version)(int *); /* NULL if the copy has none */
  int version;               /* its number, 0 if unknown or never called */
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
 * the global scope). `answer`: what its entry for `fn` is to call, which is another one than `address` where another
 * interposer answers look-ups; NULL if no entry is wanted. NULL if there is no room. Takes the loader's lock; leaves errno
 * and dlerror undefined. */
const struct nt_library *nt_library_of(void *handle, unsigned fn, void *address, void *answer);

/* It is about to be called: it stays loaded from here on. Takes the loader's lock the first time. */
void nt_library_call(const struct nt_library *library);

/* The i-th one, called or not; NULL past the end. Any thread. */
const struct nt_library *nt_library_at(unsigned i);
/* How many have been called. Any thread. */
unsigned nt_libraries_called(void);

/* An address in this library's own object. */
bool nt_in_own_object(const void *address);

#endif
