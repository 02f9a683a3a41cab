/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which NCCL a caller would have reached without us.
 *
 * In the order of the loader itself: the next definition in the global scope (that keeps other
 * interposers in the chain), the local scope of the calling object (PyTorch loads NCCL behind
 * RTLD_LOCAL), the usual file name, any loaded object. The answer is kept per call site, until the object with the site
 * is unloaded; later calls on a communicator are served by the copy that created it.
 */
#ifndef NT_RESOLVE_H
#define NT_RESOLVE_H

#include "preload/call_data.h"
#include "preload/library.h"

enum { NT_SITES = 1024 /* power of two */ };

/* A site without a caller was of an object that is unloaded: it has no meaning, and may be used again. */
struct nt_site {
  const void *caller;
  const struct nt_library *library;
};

/* Open-addressed by nt_site_hash. */
extern struct nt_site *nt_sites[NT_SITES] __attribute__((visibility("hidden")));

NT_IN_LINE unsigned nt_site_hash(const void *caller) {
  return (unsigned)((uintptr_t)caller * UINT64_C(0x9e3779b97f4a7c15) >> 54) & (NT_SITES - 1);
}

/* The library for calls made from `caller` (a return address), NULL if there is none or no room. `fn` is the
 * function being called. Lock-free after a call site's first use. */
const struct nt_library *nt_resolve(unsigned fn, const void *caller);

/* The same if the first place asked has the answer, else NULL. In line, for what programs call all the time. */
NT_IN_LINE const struct nt_library *nt_resolve_at_once(unsigned fn, const void *caller) {
  const struct nt_site *site = __atomic_load_n(&nt_sites[nt_site_hash(caller)], __ATOMIC_ACQUIRE);
  if (!site || __atomic_load_n(&site->caller, __ATOMIC_ACQUIRE) != caller || !site->library->fn[fn])
    return NULL;
  return site->library;
}

/* The function itself, where nt_resolve had no room; NULL if there is none. Takes the loader's lock each time. */
void *nt_resolve_untraced(unsigned fn, const void *caller);

/* A call has come from between these addresses, without a communicator that was known. Any thread. */
bool nt_resolve_has_site(uintptr_t low, uintptr_t high);

#endif
