/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions to be given to those who look NCCL's up by name: each belongs to one library, and calls just that one.
 *
 * A wrapper (wrap.h) finds out from its caller which copy is meant; an entry knows.
 */
#ifndef NT_ENTRIES_H
#define NT_ENTRIES_H

#include "preload/library.h"

/* NULL for a function without a wrapper, and for libraries beyond the first NT_ENTRY_LIBRARIES. Any thread. */
void *nt_entry(const struct nt_library *library, unsigned fn);

#endif
