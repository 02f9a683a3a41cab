/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks change hands here; the record path itself is inline in ring.h.
 *
 * Only two parties ever write a chunk's control words: its owner (a thread of the traced process) and
 * the helper, which may free a chunk only after its owner has retired it. So a claim needs one
 * compare-and-swap and nothing else can race with it.
 */
#include "trace/ring.h"

#include <string.h>

#define CHUNKS_APART 4u /* of threads with numbers that follow each other */

/* The chunk's `count` records are overwritten: all that were not drained are lost. Counted first and corrected then, since
 * the helper takes back what it has copied and not confirmed: the count never falls below what is lost. */
static uint64_t count_lost(struct nt_area *area, struct nt_chunk *chunk, uint32_t generation,
                           uint32_t count) {
  atomic_fetch_add_explicit(&area->header->lost, count, memory_order_relaxed);
  const uint32_t word = atomic_exchange_explicit(
      &chunk->drained, nt_ring_drained_word(generation + 2, 0), memory_order_acq_rel);
  const uint32_t drained = nt_ring_drained_count(word, generation);
  atomic_fetch_sub_explicit(&area->header->lost, drained, memory_order_relaxed);
  atomic_fetch_add_explicit(&area->header->calls, count, memory_order_relaxed);
  return count - drained;
}

/* Generation odd, counters reset, generation even. `over`: the chunk is the owner's, and full. Runs in the owner only. */
static void chunk_reset(struct nt_area *area, struct nt_chunk *chunk,
                        const struct nt_ring_writer *writer, bool over) {
  uint32_t generation = atomic_load_explicit(&chunk->generation, memory_order_relaxed);
  uint64_t lost = 0;
  atomic_store_explicit(&chunk->generation, generation | 1u, memory_order_relaxed);
  /* Readers that see anything written below also see the odd generation. */
  atomic_thread_fence(memory_order_release);
  if (over)
    lost = atomic_load_explicit(&chunk->lost, memory_order_relaxed) +
           count_lost(area, chunk, generation, writer->next);
  chunk->serial =
      atomic_fetch_add_explicit(&area->header->next_serial, 1, memory_order_relaxed) + 1;
  chunk->thread = writer->thread;
  atomic_store_explicit(&chunk->tid, writer->tid, memory_order_relaxed);
  atomic_store_explicit(&chunk->lost, lost, memory_order_relaxed);
  atomic_store_explicit(&chunk->published, 0, memory_order_relaxed);
  atomic_store_explicit(&chunk->closed, 0, memory_order_relaxed);
  atomic_store_explicit(&chunk->generation, (generation | 1u) + 1u, memory_order_release);
}

/* Where a thread looks for its next chunk first. It comes back to where it began as soon as that is drained: the few that
 * it uses then stay in a cache, and the rest of the area is never touched. Else the one behind its last is most likely free. */
static uint32_t likely_free(const struct nt_area *area, const struct nt_ring_writer *writer) {
  const uint32_t home = writer->thread * CHUNKS_APART % area->header->chunk_count;
  if (!writer->chunk ||
      atomic_load_explicit(&area->chunks[home].state, memory_order_relaxed) == NT_CHUNK_FREE)
    return home;
  return (uint32_t)(writer->chunk - area->chunks) + 1;
}

static struct nt_chunk *claim_free(struct nt_area *area, uint32_t hint) {
  uint32_t count = area->header->chunk_count;
  for (uint32_t i = 0; i < count; i++) {
    struct nt_chunk *chunk = &area->chunks[(hint + i) % count];
    uint32_t expected = NT_CHUNK_FREE;
    if (atomic_load_explicit(&chunk->state, memory_order_relaxed) == NT_CHUNK_FREE &&
        atomic_compare_exchange_strong_explicit(&chunk->state, &expected, NT_CHUNK_OWNED,
                                                memory_order_acquire, memory_order_relaxed))
      return chunk;
  }
  return NULL;
}

bool nt_ring_advance(struct nt_area *area, struct nt_ring_writer *writer) {
  struct nt_chunk *old = writer->chunk;
  struct nt_chunk *chunk = claim_free(area, likely_free(area, writer));
  if (chunk) {
    nt_area_raise(&area->header->chunks_used, (uint32_t)(chunk - area->chunks) + 1);
    if (old)
      nt_ring_retire(area, writer);
    chunk_reset(area, chunk, writer, false);
  } else if (old) {
    /* Nothing free: overwrite our own past, and say how much of it nobody had read. */
    chunk_reset(area, old, writer, true);
    chunk = old;
  } else {
    atomic_fetch_add_explicit(&area->header->lost, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&area->header->calls, 1, memory_order_relaxed);
    return false;
  }
  writer->chunk = chunk;
  writer->next = 0;
  return true;
}

void nt_ring_retire(struct nt_area *area, struct nt_ring_writer *writer) {
  if (writer->chunk)
    nt_chunk_retire(area, writer->chunk, writer->next);
  writer->chunk = NULL;
  writer->next = 0;
}

void nt_chunk_retire(struct nt_area *area, struct nt_chunk *chunk, uint32_t calls) {
  atomic_store_explicit(&chunk->state, NT_CHUNK_RETIRED, memory_order_release);
  atomic_fetch_add_explicit(&area->header->calls, calls, memory_order_relaxed);
}

uint64_t nt_ring_calls(const struct nt_area *area) {
  uint64_t calls = atomic_load_explicit(&area->header->calls, memory_order_relaxed);
  const uint32_t count = nt_area_chunks_used(area->header);
  for (uint32_t i = 0; i < count; i++)
    if (atomic_load_explicit(&area->chunks[i].state, memory_order_acquire) == NT_CHUNK_OWNED)
      calls += atomic_load_explicit(&area->chunks[i].published, memory_order_relaxed);
  return calls;
}

bool nt_ring_snapshot(const struct nt_chunk *chunk, uint32_t from, struct nt_chunk_copy *out) {
  uint32_t generation = atomic_load_explicit(&chunk->generation, memory_order_acquire);
  out->state = atomic_load_explicit(&chunk->state, memory_order_acquire);
  if ((generation & 1u) || out->state == NT_CHUNK_FREE)
    return false;
  out->generation = generation;
  /* closed before published: a record closed in between is merely seen as open. */
  out->closed = atomic_load_explicit(&chunk->closed, memory_order_acquire);
  out->published = atomic_load_explicit(&chunk->published, memory_order_acquire);
  out->drained = nt_ring_drained(chunk, generation);
  out->serial = chunk->serial;
  out->thread = chunk->thread;
  out->lost = atomic_load_explicit(&chunk->lost, memory_order_relaxed);
  if (out->published > NT_CHUNK_RECORDS || out->closed > out->published)
    return false;
  if (from == UINT32_MAX)
    from = out->drained;
  if (from < out->published)
    memcpy(&out->records[from], &chunk->records[from],
           (out->published - from) * sizeof(struct nt_record));
  atomic_thread_fence(memory_order_acquire);
  return atomic_load_explicit(&chunk->generation, memory_order_relaxed) == generation;
}

bool nt_ring_free(struct nt_chunk *chunk, uint32_t generation, bool abandon) {
  if (atomic_load_explicit(&chunk->state, memory_order_acquire) != NT_CHUNK_RETIRED ||
      atomic_load_explicit(&chunk->generation, memory_order_relaxed) != generation)
    return false;
  uint32_t published = atomic_load_explicit(&chunk->published, memory_order_relaxed);
  uint32_t closed = atomic_load_explicit(&chunk->closed, memory_order_relaxed);
  uint32_t wanted = abandon ? published : closed;
  if ((closed != published && !abandon) || nt_ring_drained(chunk, generation) < wanted)
    return false;
  /* A chunk that is being claimed must not look like one whose owner is gone. */
  atomic_store_explicit(&chunk->tid, 0, memory_order_relaxed);
  atomic_store_explicit(&chunk->state, NT_CHUNK_FREE, memory_order_release);
  return true;
}
