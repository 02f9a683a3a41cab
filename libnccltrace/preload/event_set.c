/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/event_set.h"

_Alignas(64) _Atomic uintptr_t nt_event_places[NT_EVENT_PLACES];
static _Atomic uint8_t next_victim[NT_EVENT_PLACES / NT_EVENT_PROBES];

void nt_event_add(const void *event) {
  const uint32_t row = nt_event_row(event);
  if (!event)
    return;
  const uint32_t victim = atomic_fetch_add_explicit(&next_victim[row], 1, memory_order_relaxed);
  atomic_store_explicit(&nt_event_places[row * NT_EVENT_PROBES + victim % NT_EVENT_PROBES],
                        (uintptr_t)event, memory_order_relaxed);
}
