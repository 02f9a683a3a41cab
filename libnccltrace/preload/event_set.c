/* SPDX-License-Identifier: Apache-2.0 */
/* An event lies in one of the NT_EVENT_PROBES places, aligned to them, that its hash names. */
#include "preload/event_set.h"

#include <stdatomic.h>
#include <stdint.h>

static _Alignas(64) _Atomic uintptr_t places[NT_EVENT_PLACES];
static _Atomic uint8_t next_victim[NT_EVENT_PLACES / NT_EVENT_PROBES];

static uint32_t row_of(uintptr_t event) {
  uint64_t hash = (uint64_t)event * UINT64_C(0x9e3779b97f4a7c15) >> 32;
  return (uint32_t)hash & (NT_EVENT_PLACES / NT_EVENT_PROBES - 1);
}

static bool holds(uint32_t row, uintptr_t event) {
  const _Atomic uintptr_t *at = &places[row * NT_EVENT_PROBES];
  for (uint32_t i = 0; i < NT_EVENT_PROBES; i++)
    if (atomic_load_explicit(&at[i], memory_order_relaxed) == event)
      return true;
  return false;
}

void nt_event_keep(const void *event) {
  uint32_t row = row_of((uintptr_t)event);
  if (!event || holds(row, (uintptr_t)event))
    return;
  uint32_t victim = atomic_fetch_add_explicit(&next_victim[row], 1, memory_order_relaxed);
  atomic_store_explicit(&places[row * NT_EVENT_PROBES + victim % NT_EVENT_PROBES], (uintptr_t)event,
                        memory_order_relaxed);
}

bool nt_event_known(const void *event) {
  return event && holds(row_of((uintptr_t)event), (uintptr_t)event);
}
