/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records between one writing thread and any number of readers, without a lock.
 *
 * A thread owns a chunk and fills it from front to back. At most one of its records is open, the last
 * one. Protocol:
 *
 *   claim     FREE -> OWNED by compare-and-swap; generation odd; counters reset; generation even
 *   enter     fields of records[published], then published + 1         (release)
 *   exit      duration, result, flags, then closed = published          (release)
 *   full      OWNED -> RETIRED; claim another; none free: restart the same chunk, counting what is lost
 *   drained   the helper says how many records are in a frame; a restart takes that word away from it, so that
 *             each record is either in a frame or counted
 *   drain     a reader loads generation, closed, published (acquire), copies, and discards the copy
 *             when the generation has moved
 *   free      helper: RETIRED and drained == closed -> FREE
 *
 * The writer's side is inline: it is the call path.
 */
#ifndef NT_RING_H
#define NT_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/area.h"

/* The calling thread's place in the ring. Zero-initialised means "no chunk yet". */
struct nt_ring_writer {
  struct nt_chunk *chunk;
  uint32_t next;    /* index of the next record */
  uint32_t thread;  /* index of the thread, unique in the process */
  uint32_t tid;     /* its number in the kernel */
  uint32_t restart; /* this chunk was restarted; lost calls are being counted */
};

/* Gives the writer a chunk to write into: the slow path of nt_ring_next, taken once in 255 calls.
 * False when the area has no chunk for this thread at all (the call is counted as lost). */
bool nt_ring_advance(struct nt_area *area, struct nt_ring_writer *writer);

/* The record to fill for the next call, NULL if there is none. Owner thread only. */
static inline struct nt_record *nt_ring_next(struct nt_area *area, struct nt_ring_writer *writer) {
  if (__builtin_expect(!writer->chunk || writer->next >= NT_CHUNK_RECORDS, 0)) {
    if (!nt_ring_advance(area, writer))
      return NULL;
  }
  return &writer->chunk->records[writer->next];
}

/* Makes the record that nt_ring_next gave visible as open. Pairs with nt_ring_snapshot. */
static inline void nt_ring_publish(struct nt_ring_writer *writer) {
  writer->next++;
  atomic_store_explicit(&writer->chunk->published, writer->next, memory_order_release);
}

/* Marks everything published as complete. */
static inline void nt_ring_close(struct nt_ring_writer *writer) {
  atomic_store_explicit(&writer->chunk->closed, writer->next, memory_order_release);
}

/* Retires the writer's chunk, which is full. */
void nt_ring_retire(struct nt_area *area, struct nt_ring_writer *writer);

/* The same for the chunk of a thread that is gone; `calls` are published in it. */
void nt_chunk_retire(struct nt_area *area, struct nt_chunk *chunk, uint32_t calls);

/* Calls published so far, those that found no room included: those of chunks that were given back, and those in the others. Any process; while a chunk
 * is being retired its calls may be missing. */
uint64_t nt_ring_calls(const struct nt_area *area);

/* A consistent copy of one chunk's header words and of records [from, published). */
struct nt_chunk_copy {
  uint64_t serial;
  uint64_t lost;
  uint32_t thread;
  uint32_t state;
  uint32_t generation;
  uint32_t published, closed, drained;
  struct nt_record records[NT_CHUNK_RECORDS];
};

/* Copies records from index `from` on (`from` > published copies none; UINT32_MAX: from `drained`).
 * False if the chunk is free or was reset meanwhile: try again at the next tick. Any process. */
bool nt_ring_snapshot(const struct nt_chunk *chunk, uint32_t from, struct nt_chunk_copy *out);

/* The word `drained` carries the generation beside the count, so that a late store of the helper cannot reach a chunk
 * that was reset meanwhile. */
static inline uint32_t nt_ring_drained_word(uint32_t generation, uint32_t count) {
  return (generation & 0xffffffu) << 8 | (count & 0xffu);
}

/* Its count, 0 if it is another generation's. */
static inline uint32_t nt_ring_drained_count(uint32_t word, uint32_t generation) {
  return word >> 8 == (generation & 0xffffffu) ? word & 0xffu : 0;
}

/* Records of the chunk's generation that are in a frame already. */
static inline uint32_t nt_ring_drained(const struct nt_chunk *chunk, uint32_t generation) {
  return nt_ring_drained_count(atomic_load_explicit(&chunk->drained, memory_order_acquire),
                               generation);
}

/* Helper only, once the frame that holds records [0, count) is safe. False if the owner has restarted the chunk: all
 * that was not drained by then it has counted as lost, what is in the frame included. */
static inline bool nt_ring_set_drained(struct nt_chunk *chunk, uint32_t generation,
                                       uint32_t count) {
  uint32_t word = atomic_load_explicit(&chunk->drained, memory_order_acquire);
  const uint32_t ahead = (word >> 8) - (generation & 0xffffffu);
  if (ahead & 0xffffffu && !(ahead & 0x800000u))
    return false;
  /* A failure's acquire pairs with the restart: what it counted is in the area's count. */
  return atomic_compare_exchange_strong_explicit(&chunk->drained, &word,
                                                 nt_ring_drained_word(generation, count),
                                                 memory_order_release, memory_order_acquire);
}

/* Helper only: frees a retired chunk whose closed records are all drained. `generation` is the one the
 * snapshot was taken at. A record left open by a dead thread counts as closed when `abandon` is set. */
bool nt_ring_free(struct nt_chunk *chunk, uint32_t generation, bool abandon);

#endif
