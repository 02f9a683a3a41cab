/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Definitions: each segment names the communicators, streams and threads that its calls refer to, so that
 * it stands alone when the others are gone.
 *
 * Also the end of communicators: a slot whose communicator was destroyed is given back once its final state
 * is in the file and no record, closed or open, refers to it any more.
 */
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "trace/drain_parts.h"

/* True, and noted, when the segment does not have this definition yet. */
static bool is_new(const struct nt_drain *drain, struct nt_defined *known, uint32_t number,
                   uint64_t hash) {
  if (known->epoch == drain->file.epoch && known->number == number && known->hash == hash)
    return false;
  *known = (struct nt_defined){drain->file.epoch, hash, number};
  return true;
}

static uint32_t define_comms(struct nt_drain *drain, struct nt_buffer *payload) {
  uint32_t entries = 0;
  for (uint32_t slot = 0; slot < nt_area_comms_used(drain->area->header); slot++) {
    struct nt_comm_facts comm;
    if (!drain->comm_numbers[slot] || !nt_area_comm(drain->area, slot, &comm))
      continue;
    if (!is_new(drain, &drain->comms[slot], comm.def.number, XXH64(&comm.def, sizeof comm.def, 0)))
      continue;
    nt_entry_comm(payload, &comm);
    entries++;
  }
  return entries;
}

static uint32_t define_streams(struct nt_drain *drain, struct nt_buffer *payload) {
  uint32_t entries = 0;
  for (uint32_t slot = 0; slot < drain->area->header->stream_count; slot++) {
    struct nt_stream_facts stream;
    if (!drain->stream_numbers[slot] || !nt_area_stream(drain->area, slot, &stream) ||
        !is_new(drain, &drain->streams[slot], stream.number, stream.handle))
      continue;
    nt_entry_stream(payload, &stream);
    entries++;
  }
  return entries;
}

static bool in_batch(const struct nt_drain *drain, uint32_t thread) {
  for (uint32_t r = 0; r < drain->batch.run_count; r++)
    if (drain->batch.runs[r].thread == thread)
      return true;
  return false;
}

static uint32_t define_threads(struct nt_drain *drain, struct nt_buffer *payload) {
  uint32_t entries = 0;
  for (uint32_t slot = 0; slot < drain->area->header->thread_count; slot++) {
    struct nt_thread_facts thread;
    if (!nt_area_thread(drain->area, slot, &thread) || !in_batch(drain, thread.index) ||
        !is_new(drain, &drain->threads[slot], thread.index, thread.tid))
      continue;
    nt_entry_thread(payload, &thread);
    entries++;
  }
  return entries;
}

static int write_defs(struct nt_drain *drain, const struct nt_buffer *payload, uint32_t entries,
                      struct nt_buffer *frames) {
  struct nt_frame frame = {.type = NT_FRAME_DEFS, .epoch = drain->file.epoch, .records = entries};
  if (payload->failed)
    return -NT_ERR_MEMORY;
  return nt_frame_write(drain->packer, &frame, NULL, 0, payload->data, payload->length, frames);
}

/* Of spool and segment, what frames of stacks may take. */
static uint64_t stacks_limit(const struct nt_drain *drain) {
  const uint64_t spool = drain->area->header->spool_size;
  const uint64_t segment = drain->file.layout.segment_size;
  return (spool < segment ? spool : segment) / 4;
}

static int define_stacks(struct nt_drain *drain, struct nt_buffer *frames) {
  for (uint32_t i = 0; i < drain->batch.call_count; i++)
    nt_stack_definer_want(drain->stacks, drain->file.epoch, drain->batch.calls[i].record.stack);
  return nt_stack_definer_write(drain->stacks, drain->packer, stacks_limit(drain), frames);
}

/* A look at records that change meanwhile: a wrong id is as good as none. */
static void want_open(struct nt_drain *drain) {
  const struct nt_area *area = drain->area;
  for (uint32_t i = 0; i < nt_area_chunks_used(area->header); i++) {
    const struct nt_chunk *chunk = &area->chunks[i];
    const uint32_t closed = atomic_load_explicit(&chunk->closed, memory_order_acquire);
    const uint32_t published = atomic_load_explicit(&chunk->published, memory_order_acquire);
    if (closed < published && published <= NT_CHUNK_RECORDS)
      nt_stack_definer_want(drain->stacks, drain->file.epoch, chunk->records[published - 1].stack);
  }
}

int nt_drain_define_open(struct nt_drain *drain) {
  struct nt_buffer frames = {0};
  int rc;
  if (!drain->area->stacks)
    return 0;
  do {
    frames.length = 0;
    want_open(drain);
    rc = nt_stack_definer_write(drain->stacks, drain->packer, stacks_limit(drain), &frames);
    if (rc || !frames.length)
      break;
    rc = nt_drain_make_room(drain, frames.length);
    if (rc)
      nt_drain_undefine(drain);
    else
      nt_drain_spool(drain, &frames, 0);
  } while (rc == 1);
  free(frames.data);
  return rc;
}

int nt_drain_define(struct nt_drain *drain, struct nt_buffer *frames) {
  struct nt_buffer payload = {0};
  const uint32_t entries = define_comms(drain, &payload) + define_streams(drain, &payload) +
                           define_threads(drain, &payload);
  int rc = entries ? write_defs(drain, &payload, entries, frames) : 0;
  free(payload.data);
  return rc ? rc : define_stacks(drain, frames);
}

void nt_drain_undefine(struct nt_drain *drain) {
  const struct nt_area_header *header = drain->area->header;
  memset(drain->comms, 0, header->comm_count * sizeof *drain->comms);
  memset(drain->streams, 0, header->stream_count * sizeof *drain->streams);
  memset(drain->threads, 0, header->thread_count * sizeof *drain->threads);
  nt_stack_definer_forget(drain->stacks);
}

/* ---- the end of a communicator ----------------------------------------------------------------- */

bool nt_drain_has_endings(const struct nt_drain *drain) {
  for (uint32_t slot = 0; slot < nt_area_comms_used(drain->area->header); slot++)
    if (atomic_load_explicit(&drain->area->comms[slot].live.state, memory_order_relaxed) >=
        NT_COMM_DESTROYED)
      return true;
  return false;
}

static bool is_in_use(const struct nt_drain *drain, uint32_t slot) {
  const struct nt_area *area = drain->area;
  for (uint32_t i = 0; i < nt_area_chunks_used(area->header); i++) {
    const struct nt_chunk *chunk = &area->chunks[i];
    const uint32_t closed = atomic_load_explicit(&chunk->closed, memory_order_acquire);
    const uint32_t published = atomic_load_explicit(&chunk->published, memory_order_acquire);
    if (atomic_load_explicit(&chunk->state, memory_order_acquire) == NT_CHUNK_FREE ||
        closed >= published || published > NT_CHUNK_RECORDS)
      continue;
    if (chunk->records[published - 1].comm == slot)
      return true;
  }
  return false;
}

static int write_end(struct nt_drain *drain, const struct nt_comm_facts *comm) {
  int rc;
  do {
    struct nt_buffer payload = {0}, frames = {0};
    rc = drain->file.epoch ? 0 : nt_drain_make_room(drain, NT_FRAME_HEADER);
    nt_entry_comm(&payload, comm);
    if (rc >= 0)
      rc = write_defs(drain, &payload, 1, &frames);
    if (!rc)
      rc = nt_drain_make_room(drain, frames.length);
    if (!rc)
      nt_drain_spool(drain, &frames, 0);
    free(payload.data);
    free(frames.data);
  } while (rc == 1);
  return rc;
}

/* Nobody else touches a slot whose communicator has ended; the store of the state is what lets the
 * application's threads take it, so it comes last (release; they load it with acquire). */
static void release_slot(struct nt_comm_slot *slot) {
  atomic_fetch_or_explicit(&slot->guard, 1, memory_order_acq_rel);
  memset(&slot->def, 0, sizeof slot->def);
  atomic_fetch_add_explicit(&slot->guard, 1, memory_order_release);
  atomic_store_explicit(&slot->live.state, NT_COMM_FREE, memory_order_release);
}

void nt_drain_endings(struct nt_drain *drain, bool full) {
  if (!full)
    return;
  for (uint32_t slot = 0; slot < nt_area_comms_used(drain->area->header); slot++) {
    struct nt_ending *ending = &drain->endings[slot];
    struct nt_comm_facts comm;
    if (!nt_area_comm(drain->area, slot, &comm) || comm.live.state < NT_COMM_DESTROYED) {
      ending->number = 0;
      continue;
    }
    if (ending->number != comm.def.number) {
      *ending = (struct nt_ending){comm.def.number, 0};
      continue;
    }
    if (++ending->ticks < 2 || is_in_use(drain, slot))
      continue;
    if (write_end(drain, &comm) == 0) {
      ending->number = 0;
      release_slot(&drain->area->comms[slot]);
    }
  }
}
