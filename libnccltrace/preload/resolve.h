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

#include "preload/library.h"

/* The library for calls made from `caller` (a return address), NULL if there is none or no room. `fn` is the
 * function being called. Lock-free after a call site's first use. */
const struct nt_library *nt_resolve(unsigned fn, const void *caller);

/* The function itself, where nt_resolve had no room; NULL if there is none. Takes the loader's lock each time. */
void *nt_resolve_untraced(unsigned fn, const void *caller);

/* A call has come from between these addresses, without a communicator that was known. Any thread. */
bool nt_resolve_has_site(uintptr_t low, uintptr_t high);

#endif
