/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/stack_intern.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>

#include "preload/python_code.h"
#include "trace/error.h"

struct nt_intern_tables *nt_intern_tables;
static struct nt_code_region *codes;
static struct nt_stack_region *stacks;

int nt_intern_start(struct nt_code_region *code_region, struct nt_stack_region *stack_region) {
  /* Pages come as they are touched; after a fork the parent's entries must go. */
  if (nt_intern_tables)
    munmap(nt_intern_tables, sizeof(*nt_intern_tables));
  nt_intern_tables = NULL;
  if (!code_region || !stack_region)
    return 0;
  void *memory = mmap(NULL, sizeof(*nt_intern_tables), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return -NT_ERR_MEMORY;
  codes = code_region;
  stacks = stack_region;
  nt_intern_tables = memory;
  return 0;
}

void nt_intern_remember(uint64_t hash, uint32_t id) {
  uint64_t word = (hash & ~UINT64_C(0xffff)) | (id ? id : NT_INTERN_NO_ROOM);
  for (uint32_t i = 0; i < NT_INTERN_PROBES; i++) {
    _Atomic uint64_t *slot = &nt_intern_tables->stacks[(hash + i) % NT_INTERN_STACKS];
    uint64_t found = 0;
    if (atomic_compare_exchange_strong_explicit(slot, &found, word, memory_order_acq_rel,
                                                memory_order_relaxed))
      return;
  }
}

uint32_t nt_intern_code(uint64_t identity, nt_intern_copy *copy, const void *context) {
  uint32_t made = 0;
  for (uint32_t i = 0; i < NT_INTERN_CODES; i++) {
    _Atomic uint32_t *slot = &nt_intern_tables->codes[(identity + i) % NT_INTERN_CODES];
    uint32_t id = atomic_load_explicit(slot, memory_order_acquire);
    if (!id) {
      made = made ? made : copy(context, identity, codes);
      /* Release: pairs with the acquire above in the thread that finds it. */
      if (!made || atomic_compare_exchange_strong_explicit(slot, &id, made, memory_order_acq_rel,
                                                           memory_order_acquire))
        return made;
    }
    const struct nt_code_entry *entry =
        (const struct nt_code_entry *)(const void *)((const char *)codes +
                                                     (size_t)id * NT_CODE_UNIT);
    if (entry->identity == identity)
      return id;
  }
  return 0;
}

static struct nt_stack_node *node_at(uint32_t id) {
  return (struct nt_stack_node *)(void *)(stacks + 1) + id;
}

static bool same_node(const struct nt_stack_node *a, const struct nt_stack_node *b) {
  return a->parent == b->parent && a->code == b->code && a->offset == b->offset &&
         a->depth == b->depth;
}

uint32_t nt_intern_node(const struct nt_stack_node *wanted) {
  const uint64_t k0 = UINT64_C(0x9e3779b97f4a7c15), k1 = UINT64_C(0xd6e8feb86659fd93);
  uint64_t hash = nt_intern_fold((uint64_t)wanted->parent << 32 ^ wanted->code ^ k0,
                                 (uint32_t)wanted->offset ^ (uint64_t)wanted->depth << 32 ^ k1);
  uint32_t made = 0;
  for (uint32_t i = 0; i < NT_INTERN_NODES; i++) {
    _Atomic uint32_t *slot = &nt_intern_tables->nodes[(hash + i) % NT_INTERN_NODES];
    uint32_t id = atomic_load_explicit(slot, memory_order_acquire);
    if (!id) {
      if (!made) {
        made = nt_python_reserve(&stacks->used, 1, stacks->count);
        if (made == UINT32_MAX)
          return 0;
        *node_at(made) = *wanted;
      }
      if (atomic_compare_exchange_strong_explicit(slot, &id, made, memory_order_acq_rel,
                                                  memory_order_acquire))
        return made;
    }
    if (same_node(node_at(id), wanted))
      return id;
  }
  return 0;
}

uint32_t nt_intern_depth(uint32_t id) {
  return id ? node_at(id)->depth : 0;
}

void nt_intern_count_lost(void) {
  atomic_fetch_add_explicit(&stacks->lost, 1, memory_order_relaxed);
}
