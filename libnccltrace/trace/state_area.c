/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts out of an area, its own process's, a living one's or a dead one's.
 *
 * Guarded words are copied and the copy is kept when the guard was even and did not move. A process may
 * have died with its guard odd: after some tries the copy is taken as it is.
 */
#include <sched.h>

#include "trace/ring.h"
#include "trace/state_slot.h"

enum { TRIES = 64 };

static bool copy_guarded(const _Atomic uint32_t *guard, void *out, const void *in, size_t size) {
  for (int i = 0; i < TRIES; i++) {
    const uint32_t before = atomic_load_explicit(guard, memory_order_acquire);
    memcpy(out, in, size);
    atomic_thread_fence(memory_order_acquire);
    const uint32_t after = atomic_load_explicit(guard, memory_order_relaxed);
    if (before == after && !(before & 1))
      return true;
    if (i > TRIES / 2)
      sched_yield();
  }
  return false;
}

bool nt_area_comm(const struct nt_area *area, uint32_t index, struct nt_comm_facts *out) {
  if (index >= area->header->comm_count)
    return false;
  const struct nt_comm_slot *slot = &area->comms[index];
  if (atomic_load_explicit(&slot->live.state, memory_order_acquire) == NT_COMM_FREE)
    return false;
  copy_guarded(&slot->guard, &out->def, &slot->def, sizeof out->def);
  memcpy((void *)&out->live, (const void *)&slot->live, sizeof out->live);
  return out->def.number != 0 && out->live.state != NT_COMM_FREE;
}

uint32_t nt_area_comm_number(const struct nt_area *area, uint32_t slot) {
  struct nt_comm_facts facts;
  return slot && nt_area_comm(area, slot, &facts) ? facts.def.number : 0;
}

bool nt_area_stream(const struct nt_area *area, uint32_t index, struct nt_stream_facts *out) {
  if (index >= area->header->stream_count)
    return false;
  const struct nt_stream_slot *slot = &area->streams[index];
  *out = (struct nt_stream_facts){
      .handle = atomic_load_explicit(&slot->handle, memory_order_acquire),
      .number = slot->number,
      .device = slot->device,
  };
  if (index < area->header->gpu_stream_count) {
    const struct nt_gpu_stream *gpu = &area->gpu_streams[index];
    /* Followed before finished before reached before issued: a copy never claims more than there is. */
    out->gpu.polled = atomic_load_explicit(&gpu->polled, memory_order_acquire);
    out->gpu.followed = atomic_load_explicit(&gpu->followed, memory_order_acquire);
    out->gpu.finished = atomic_load_explicit(&gpu->finished, memory_order_acquire);
    out->gpu.reached = atomic_load_explicit(&gpu->reached, memory_order_acquire);
    out->gpu.issued = atomic_load_explicit(&gpu->issued, memory_order_relaxed);
    out->gpu.frozen = atomic_load_explicit(&gpu->frozen, memory_order_relaxed);
    out->gpu.frozen_after = atomic_load_explicit(&gpu->frozen_after, memory_order_relaxed);
    out->gpu.unmarked = atomic_load_explicit(&gpu->unmarked, memory_order_relaxed);
    out->gpu.unmarked_last = atomic_load_explicit(&gpu->unmarked_last, memory_order_relaxed);
    out->gpu.error = atomic_load_explicit(&gpu->error, memory_order_relaxed);
  }
  return out->number != 0;
}

uint32_t nt_area_stream_number(const struct nt_area *area, uint32_t slot) {
  struct nt_stream_facts facts;
  return nt_area_stream(area, slot, &facts) ? facts.number : 0;
}

bool nt_area_thread(const struct nt_area *area, uint32_t index, struct nt_thread_facts *out) {
  if (index >= area->header->thread_count)
    return false;
  const struct nt_thread_slot *slot = &area->threads[index];
  out->tid = atomic_load_explicit(&slot->tid, memory_order_acquire);
  out->index = slot->index;
  out->last_enter = atomic_load_explicit(&slot->last_enter, memory_order_relaxed);
  memcpy(out->name, slot->name, sizeof out->name);
  out->name[sizeof out->name - 1] = 0;
  return out->tid != 0;
}

void nt_area_clock(const struct nt_area *area, struct nt_clock_sync *last) {
  const struct nt_area_header *header = area->header;
  if (!copy_guarded(&header->clock_guard, last, &header->clock_last, sizeof *last) ||
      last->ticks < header->clock_first.ticks)
    *last = header->clock_first;
}

static void process_facts(const struct nt_area *area, struct nt_process_facts *out) {
  const struct nt_area_header *header = area->header;
#define LOAD(field) atomic_load_explicit(&header->field, memory_order_relaxed)
  out->run_state = atomic_load_explicit(&header->run_state, memory_order_acquire);
  out->exit_code = LOAD(exit_code);
  out->exit_ns = LOAD(exit_ns);
  out->heartbeat_ns = LOAD(heartbeat_ns);
  out->heartbeat_mono_ns = LOAD(heartbeat_mono_ns);
  out->calls = nt_ring_calls(area);
  out->lost = LOAD(lost);
  out->overwritten = LOAD(overwritten);
  out->comms_lost = LOAD(comms_lost);
  out->abandoned = LOAD(abandoned);
  out->write_errors = LOAD(write_errors);
  out->last_errno = LOAD(last_errno);
  out->phase = LOAD(phase);
  out->gpu_beat_ns = LOAD(gpu_heartbeat_ns);
  out->oom_kills = LOAD(oom_kills);
#undef LOAD
}

int nt_area_facts(const struct nt_area *area, struct nt_facts *out) {
  const struct nt_area_header *header = area->header;
  int rc = 0;
  process_facts(area, &out->process);
  out->has_process = true;
  out->clock_first = header->clock_first;
  nt_area_clock(area, &out->clock_last);
  out->peer_count = 0;
  uint32_t peers = atomic_load_explicit(&header->peer_notes, memory_order_acquire);
  for (uint32_t i = 0; !rc && i < peers && i < NT_PEER_NOTES; i++)
    rc = nt_facts_add_peer(out, &header->peers[i]);
  for (uint32_t i = 0; !rc && i < nt_area_comms_used(header); i++) {
    struct nt_comm_facts comm;
    if (nt_area_comm(area, i, &comm))
      rc = nt_facts_add_comm(out, &comm);
  }
  for (uint32_t i = 0; !rc && i < header->stream_count; i++) {
    struct nt_stream_facts stream;
    if (nt_area_stream(area, i, &stream))
      rc = nt_facts_add_stream(out, &stream);
  }
  for (uint32_t i = 0; !rc && i < header->thread_count; i++) {
    struct nt_thread_facts thread;
    if (nt_area_thread(area, i, &thread))
      rc = nt_facts_add_thread(out, &thread);
  }
  return rc;
}

bool nt_area_open_call(const struct nt_area *area, uint32_t chunk, struct nt_chunk_copy *copy,
                       struct nt_open_call *out) {
  const struct nt_chunk *from = &area->chunks[chunk];
  const uint32_t published = atomic_load_explicit(&from->published, memory_order_acquire);
  if (published == 0 || atomic_load_explicit(&from->closed, memory_order_acquire) >= published)
    return false;
  if (!nt_ring_snapshot(from, published - 1, copy) || copy->published != published ||
      copy->closed >= published || copy->state == NT_CHUNK_RETIRED)
    return false;
  *out = (struct nt_open_call){
      .serial = copy->serial,
      .index = published - 1,
      .thread = copy->thread,
      .record = copy->records[published - 1],
  };
  out->comm = nt_area_comm_number(area, out->record.comm);
  out->stream = nt_area_stream_number(area, out->record.stream);
  return true;
}

/* ---- the state slot ---------------------------------------------------------------------------- */

void nt_entry_process(struct nt_buffer *out, const struct nt_process_facts *facts) {
  unsigned char *at = nt_entry_add(out, NT_ENTRY_PROCESS, NT_ENTRY_PROCESS_SIZE);
  if (!at)
    return;
  nt_put_u64(at + NT_PROCESS_FIELD_HEARTBEAT, facts->heartbeat_ns);
  nt_put_u64(at + NT_PROCESS_FIELD_HEARTBEAT_MONO, facts->heartbeat_mono_ns);
  nt_put_u64(at + NT_PROCESS_FIELD_EXIT, facts->exit_ns);
  nt_put_u32(at + NT_PROCESS_FIELD_RUN_STATE, facts->run_state);
  nt_put_u32(at + NT_PROCESS_FIELD_EXIT_CODE, (uint32_t)facts->exit_code);
  nt_put_u64(at + NT_PROCESS_FIELD_CALLS, facts->calls);
  nt_put_u64(at + NT_PROCESS_FIELD_LOST, facts->lost);
  nt_put_u64(at + NT_PROCESS_FIELD_OVERWRITTEN, facts->overwritten);
  nt_put_u64(at + NT_PROCESS_FIELD_COMMS_LOST, facts->comms_lost);
  nt_put_u64(at + NT_PROCESS_FIELD_ABANDONED, facts->abandoned);
  nt_put_u64(at + NT_PROCESS_FIELD_WRITE_ERRORS, facts->write_errors);
  nt_put_u32(at + NT_PROCESS_FIELD_LAST_ERRNO, (uint32_t)facts->last_errno);
  nt_put_u32(at + NT_PROCESS_FIELD_WRITER, facts->writer);
  nt_put_u64(at + NT_PROCESS_FIELD_GPU_BEAT, facts->gpu_beat_ns);
  nt_put_u64(at + NT_PROCESS_FIELD_OOM_KILLS, facts->oom_kills);
  nt_put_u32(at + NT_PROCESS_FIELD_PHASE, facts->phase);
}

void nt_entry_gpu(struct nt_buffer *out, const struct nt_stream_facts *stream) {
  unsigned char *at = nt_entry_add(out, NT_ENTRY_GPU, NT_ENTRY_GPU_SIZE);
  if (!at)
    return;
  nt_put_u32(at + NT_GPU_FIELD_STREAM, stream->number);
  nt_put_u32(at + NT_GPU_FIELD_ISSUED, stream->gpu.issued);
  nt_put_u32(at + NT_GPU_FIELD_REACHED, stream->gpu.reached);
  nt_put_u32(at + NT_GPU_FIELD_FINISHED, stream->gpu.finished);
  nt_put_u32(at + NT_GPU_FIELD_FROZEN, stream->gpu.frozen);
  nt_put_u32(at + NT_GPU_FIELD_FROZEN_AFTER, stream->gpu.frozen_after);
  nt_put_u32(at + NT_GPU_FIELD_UNMARKED, stream->gpu.unmarked);
  nt_put_u32(at + NT_GPU_FIELD_ERROR, stream->gpu.error);
  nt_put_u64(at + NT_GPU_FIELD_POLLED, stream->gpu.polled);
  nt_put_u32(at + NT_GPU_FIELD_FOLLOWED, stream->gpu.followed);
  nt_put_u32(at + NT_GPU_FIELD_UNMARKED_LAST, stream->gpu.unmarked_last);
}

static uint32_t add_open_calls(const struct nt_area *area, struct nt_buffer *out) {
  uint32_t entries = 0;
  struct nt_chunk_copy copy;
  for (uint32_t i = 0; i < nt_area_chunks_used(area->header); i++) {
    struct nt_open_call call;
    if (!nt_area_open_call(area, i, &copy, &call))
      continue;
    unsigned char *at = nt_entry_add(out, NT_ENTRY_OPEN, NT_ENTRY_OPEN_SIZE);
    if (!at)
      break;
    nt_put_u64(at + NT_OPEN_SERIAL, call.serial);
    nt_put_u32(at + NT_OPEN_INDEX, call.index);
    nt_put_u32(at + NT_OPEN_THREAD, call.thread);
    nt_put_u32(at + NT_OPEN_COMM, call.comm);
    nt_put_u32(at + NT_OPEN_STREAM, call.stream);
    memcpy(at + NT_OPEN_RECORD, &call.record, sizeof call.record);
    entries++;
  }
  return entries;
}

int nt_state_write(const struct nt_area *area, uint32_t writer, uint64_t epoch, uint64_t used,
                   struct nt_buffer *out, uint32_t *entries) {
  struct nt_facts facts = {0};
  int rc = nt_area_facts(area, &facts);
  facts.process.writer = writer;
  nt_entry_process(out, &facts.process);
  nt_entry_clock(out, &facts.clock_first, &facts.clock_last);
  unsigned char *position = nt_entry_add(out, NT_ENTRY_POSITION, NT_ENTRY_POSITION_SIZE);
  if (position) {
    nt_put_u64(position, epoch);
    nt_put_u64(position + 8, used);
  }
  *entries = 3;
  for (size_t i = 0; i < facts.peer_count; i++, ++*entries) {
    unsigned char *at = nt_entry_add(out, NT_ENTRY_PEER, NT_ENTRY_PEER_SIZE);
    if (at)
      memcpy(at, &facts.peers[i], NT_ENTRY_PEER_SIZE);
  }
  /* Open calls before their communicators: whoever reads a cut-off slot wants them most. */
  *entries += add_open_calls(area, out);
  for (size_t i = 0; i < facts.comm_count; i++, ++*entries)
    nt_entry_comm(out, &facts.comms[i]);
  for (size_t i = 0; i < facts.stream_count; i++, *entries += 2) {
    nt_entry_stream(out, &facts.streams[i]);
    nt_entry_gpu(out, &facts.streams[i]);
  }
  for (size_t i = 0; i < facts.thread_count; i++, ++*entries)
    nt_entry_thread(out, &facts.threads[i]);
  nt_facts_free(&facts);
  if (!rc && out->failed)
    rc = -NT_ERR_MEMORY;
  return rc;
}

uint64_t nt_state_bound(const struct nt_area_header *header) {
  const uint64_t entries = (uint64_t)header->comm_count * (NT_ENTRY_COMM_SIZE + NT_ENTRY_HEAD) +
                           (uint64_t)header->stream_count * (NT_ENTRY_STREAM_SIZE + NT_ENTRY_HEAD) +
                           (uint64_t)header->stream_count * (NT_ENTRY_GPU_SIZE + NT_ENTRY_HEAD) +
                           (uint64_t)header->thread_count * (NT_ENTRY_THREAD_SIZE + NT_ENTRY_HEAD) +
                           (uint64_t)header->chunk_count * (NT_ENTRY_OPEN_SIZE + NT_ENTRY_HEAD) +
                           (uint64_t)NT_PEER_NOTES * (NT_ENTRY_PEER_SIZE + NT_ENTRY_HEAD);
  return nt_round_up(entries + 4096, 4096);
}
