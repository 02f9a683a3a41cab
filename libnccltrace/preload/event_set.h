/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events that were recorded on NCCL's streams.
 *
 * Lock-free and of a fixed size; any thread. Nothing tells when an event is destroyed, so where there is no room the
 * one goes that was recorded longest ago among its neighbours, never one of the last few. In line: every event that the
 * program records on one of NCCL's streams and every one that a stream waits for comes here.
 */
#ifndef NT_EVENT_SET_H
#define NT_EVENT_SET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "preload/call_data.h"

enum { NT_EVENT_PLACES = 4096, NT_EVENT_PROBES = 16 /* powers of two */ };

/* An event lies in one of the NT_EVENT_PROBES places, aligned to them, that its hash names; these fill up from the first. */
extern _Atomic uintptr_t nt_event_places[NT_EVENT_PLACES] __attribute__((visibility("hidden")));

/* Puts one there that is not. */
void nt_event_add(const void *event);

NT_IN_LINE uint32_t nt_event_row(const void *event) {
  const uint64_t hash = (uintptr_t)event * UINT64_C(0x9e3779b97f4a7c15) >> 32;
  return (uint32_t)hash & (NT_EVENT_PLACES / NT_EVENT_PROBES - 1);
}

NT_IN_LINE bool nt_event_known(const void *event) {
  const _Atomic uintptr_t *at = &nt_event_places[nt_event_row(event) * NT_EVENT_PROBES];
  for (uint32_t i = 0; i < NT_EVENT_PROBES; i++) {
    const uintptr_t found = atomic_load_explicit(&at[i], memory_order_relaxed);
    if (!found)
      return false;
    if (found == (uintptr_t)event)
      return true;
  }
  return false;
}

NT_IN_LINE void nt_event_keep(const void *event) {
  if (!nt_event_known(event))
    nt_event_add(event);
}

#endif
