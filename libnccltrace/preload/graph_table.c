/* SPDX-License-Identifier: Apache-2.0 */
/* A handle lies in one of the NT_GRAPH_PROBES places, aligned to them, that its hash names. */
#include "preload/graph_table.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct place {
  _Atomic uintptr_t handle; /* 0: free */
  _Atomic uint32_t capture;
};

static _Alignas(64) struct place places[NT_GRAPH_PLACES];
static _Atomic uint32_t without_room;
static _Atomic uint32_t numbers;

static struct place *row_of(uintptr_t handle) {
  uint64_t hash = (uint64_t)handle * UINT64_C(0x9e3779b97f4a7c15) >> 32;
  return &places[hash & (NT_GRAPH_PLACES - 1) & ~(uint64_t)(NT_GRAPH_PROBES - 1)];
}

static struct place *find(uintptr_t handle) {
  struct place *row = row_of(handle);
  for (uint32_t i = 0; handle && i < NT_GRAPH_PROBES; i++)
    if (atomic_load_explicit(&row[i].handle, memory_order_acquire) == handle)
      return &row[i];
  return NULL;
}

static struct place *claim(uintptr_t handle) {
  struct place *row = row_of(handle);
  for (uint32_t i = 0; i < NT_GRAPH_PROBES; i++) {
    uintptr_t none = 0;
    if (atomic_compare_exchange_strong_explicit(&row[i].handle, &none, handle, memory_order_acq_rel,
                                                memory_order_relaxed))
      return &row[i];
  }
  atomic_fetch_add_explicit(&without_room, 1, memory_order_relaxed);
  return NULL;
}

uint32_t nt_graph_capture(const void *handle) {
  const struct place *place = find((uintptr_t)handle);
  return place ? atomic_load_explicit(&place->capture, memory_order_acquire) : 0;
}

void nt_graph_keep(const void *handle, uint32_t capture) {
  struct place *place = find((uintptr_t)handle);
  if (!place && capture && handle)
    place = claim((uintptr_t)handle);
  if (!place)
    return;
  atomic_store_explicit(&place->capture, capture, memory_order_release);
  /* Release: whoever claims the place finds no number of ours behind its own handle. */
  if (!capture)
    atomic_store_explicit(&place->handle, 0, memory_order_release);
}

uint32_t nt_graph_number(void) {
  uint32_t n = atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed);
  return UINT32_C(0x8000ffff) - n % 0xffff;
}

uint32_t nt_graphs_without_room(void) {
  return atomic_load_explicit(&without_room, memory_order_relaxed);
}
