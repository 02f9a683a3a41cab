/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks become numbers: each frame, code object and stack is stored once in the area's regions
 * (trace/stack_area.h), and private tables tell what is there already.
 *
 * Tables are private to the process, open-addressed, and only ever added to by compare-and-swap: a slot
 * is one word, so it is there as a whole or not at all. Two threads that meet a new stack at once both
 * copy it; one wins, the other's copy is room lost. 63 bits of a hash decide whether two stacks are the
 * same: with 10,000 stacks the odds of one mistake are 1 in 10^11. No lock, no system call; errno is kept.
 */
#ifndef NT_STACK_INTERN_H
#define NT_STACK_INTERN_H

#include <stdatomic.h>
#include <stdint.h>

#include "preload/call_data.h"
#include "trace/stack_area.h"

enum {
  NT_INTERN_STACKS = 32768,
  NT_INTERN_NODES = 32768,
  NT_INTERN_CODES = 8192,
  NT_INTERN_PROBES = 16,
  NT_INTERN_NO_ROOM = 0xffff, /* in place of an id: this stack was tried and did not fit */
};

_Static_assert(NT_STACK_NODES < NT_INTERN_NO_ROOM,
               "a node's index fits into the lower 16 bits of a slot");

/* Slots of `stacks`: 48 bits of a hash, 16 of an id. Of the others: an id. 0 is empty. */
struct nt_intern_tables {
  _Atomic uint64_t stacks[NT_INTERN_STACKS];
  _Atomic uint32_t nodes[NT_INTERN_NODES];
  _Atomic uint32_t codes[NT_INTERN_CODES];
};

extern struct nt_intern_tables *nt_intern_tables; /* NULL: stacks are off */

/* Empties the tables and directs them to the area's regions, or switches stacks off (both NULL). Where
 * recording starts, before any other thread can take a stack. Returns 0 or -NT_ERR_MEMORY. */
int nt_intern_start(struct nt_code_region *codes, struct nt_stack_region *stacks);

NT_IN_LINE uint64_t nt_intern_fold(uint64_t a, uint64_t b) {
  unsigned __int128 product = (unsigned __int128)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Id of the stack with this hash, NT_INTERN_NO_ROOM, or 0: it is new. */
static inline uint32_t nt_intern_find(uint64_t hash) {
  for (uint32_t i = 0; i < NT_INTERN_PROBES; i++) {
    /* Acquire: pairs with the release of the thread that made the stack. */
    uint64_t word = atomic_load_explicit(&nt_intern_tables->stacks[(hash + i) % NT_INTERN_STACKS],
                                         memory_order_acquire);
    if (!word)
      return 0;
    if ((word ^ hash) < 0x10000 && (word & 0xffff))
      return (uint32_t)(word & 0xffff);
  }
  return 0;
}

/* What nt_intern_find is to answer from now on; id 0: the stack found no room. */
void nt_intern_remember(uint64_t hash, uint32_t id);

/* Copies what is to be known of a code object into the region: its id, 0 if there is no room. */
typedef uint32_t nt_intern_copy(const void *context, uint64_t identity,
                                struct nt_code_region *codes);

/* Id of the code object with this identity, copied by `copy` if it is new. 0: there is no room. */
uint32_t nt_intern_code(uint64_t identity, nt_intern_copy *copy, const void *context);

/* Id of this node. 0: there is no room. */
uint32_t nt_intern_node(const struct nt_stack_node *wanted);

/* The `depth` of a node that is there, with NT_STACK_CUT; 0 for id 0. */
uint32_t nt_intern_depth(uint32_t id);

/* A call's stack found no room. */
void nt_intern_count_lost(void);

#endif
