/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From chunks to a frame. Runs in the drain's thread.
 *
 * The order matters: copy records, make the frame, put it into the spool, and only then say `drained`. A
 * process that dies in between leaves some records in both places, and the reader knows them by (serial,
 * index).
 */
#include <stdlib.h>

#include "trace/drain_parts.h"

static int by_thread_and_serial(const void *a, const void *b) {
  const struct nt_waiting *x = a, *y = b;
  if (x->thread != y->thread)
    return x->thread < y->thread ? -1 : 1;
  return x->serial < y->serial ? -1 : x->serial > y->serial;
}

void nt_drain_look(struct nt_drain *drain) {
  const struct nt_area *area = drain->area;
  drain->waiting_count = 0;
  drain->waiting_calls = 0;
  drain->waiting_retired = 0;
  for (uint32_t i = 0; i < nt_area_chunks_used(area->header); i++) {
    const struct nt_chunk *chunk = &area->chunks[i];
    if (!nt_ring_snapshot(chunk, NT_CHUNK_RECORDS, &drain->copy))
      continue;
    const struct nt_chunk_copy *copy = &drain->copy;
    /* A record left open in a retired chunk will never be closed. */
    const uint32_t to = copy->state == NT_CHUNK_RETIRED ? copy->published : copy->closed;
    if (to <= copy->drained)
      continue;
    drain->waiting[drain->waiting_count++] = (struct nt_waiting){
        .serial = copy->serial,
        .chunk = i,
        .thread = copy->thread,
        .from = copy->drained,
        .to = to,
        .generation = copy->generation,
    };
    drain->waiting_calls += to - copy->drained;
    drain->waiting_retired += copy->state == NT_CHUNK_RETIRED;
  }
  qsort(drain->waiting, drain->waiting_count, sizeof *drain->waiting, by_thread_and_serial);
}

static uint32_t comm_number(struct nt_drain *drain, uint32_t slot) {
  if (!slot || slot >= drain->area->header->comm_count)
    return 0;
  uint32_t *known = &drain->comm_numbers[slot];
  if (!*known)
    *known = nt_area_comm_number(drain->area, slot);
  return *known;
}

static uint32_t stream_number(struct nt_drain *drain, uint32_t slot) {
  if (slot >= drain->area->header->stream_count)
    return 0;
  uint32_t *known = &drain->stream_numbers[slot];
  if (!*known)
    *known = nt_area_stream_number(drain->area, slot);
  return *known;
}

static void take(struct nt_drain *drain, struct nt_waiting *from, uint32_t count) {
  struct nt_batch *batch = &drain->batch;
  const struct nt_chunk_copy *copy = &drain->copy;
  for (uint32_t i = from->from; i < from->from + count; i++) {
    struct nt_batch_call *call = &batch->calls[batch->call_count++];
    call->record = copy->records[i];
    call->comm = comm_number(drain, call->record.comm);
    call->stream = stream_number(drain, call->record.stream);
    if (i >= copy->closed && !(call->record.flags & NT_CALL_ABANDONED)) {
      call->record.flags |= NT_CALL_ABANDONED;
      call->record.result = NT_RESULT_OPEN;
      call->record.duration = 0;
      atomic_fetch_add_explicit(&drain->area->header->abandoned, 1, memory_order_relaxed);
    }
  }
  drain->taken[batch->run_count] = *from;
  drain->taken[batch->run_count].to = from->from + count;
  batch->runs[batch->run_count++] = (struct nt_run){
      .serial = copy->serial, .first = from->from, .count = count, .thread = copy->thread};
}

/* Copies up to `limit` waiting calls into the batch. What has moved meanwhile waits for the next tick. */
static void gather(struct nt_drain *drain, uint32_t limit) {
  struct nt_batch *batch = &drain->batch;
  batch->call_count = batch->run_count = 0;
  memset(drain->comm_numbers, 0, drain->area->header->comm_count * sizeof *drain->comm_numbers);
  memset(drain->stream_numbers, 0,
         drain->area->header->stream_count * sizeof *drain->stream_numbers);
  for (uint32_t i = 0; i < drain->waiting_count && batch->call_count < limit; i++) {
    struct nt_waiting *from = &drain->waiting[i];
    if (from->from >= from->to)
      continue;
    if (!nt_ring_snapshot(&drain->area->chunks[from->chunk], from->from, &drain->copy) ||
        drain->copy.generation != from->generation || drain->copy.serial != from->serial) {
      from->from = from->to;
      continue;
    }
    uint32_t count = from->to - from->from;
    if (count > limit - batch->call_count)
      count = limit - batch->call_count;
    take(drain, from, count);
  }
}

static void bounds(const struct nt_batch *batch, struct nt_frame *frame) {
  frame->first = UINT64_MAX;
  for (uint32_t i = 0; i < batch->call_count; i++) {
    const uint64_t enter = batch->calls[i].record.enter;
    if (enter < frame->first)
      frame->first = enter;
    if (enter > frame->last)
      frame->last = enter;
  }
}

static int make_frames(struct nt_drain *drain, struct nt_buffer *out) {
  struct nt_buffer payload = {0}, index = {0};
  struct nt_clock_sync last;
  nt_area_clock(drain->area, &last);
  const struct nt_area_header *header = drain->area->header;
  const unsigned shift = nt_codec_shift(header->clock_kind, &header->clock_first, &last);
  struct nt_frame frame = {.type = NT_FRAME_CALLS,
                           .version = NT_CODEC_VERSION,
                           .epoch = drain->file.epoch,
                           .records = drain->batch.call_count};
  bounds(&drain->batch, &frame);
  int rc = nt_drain_define(drain, out);
  if (!rc)
    rc = nt_codec_encode(drain->codec, &drain->batch, shift, &payload, &index);
  if (!rc) {
    frame.front = (uint32_t)nt_codec_kinds_need(payload.data, payload.length, payload.length);
    rc = nt_frame_write(drain->packer, &frame, index.data, index.length, payload.data,
                        payload.length, out);
  }
  free(payload.data);
  free(index.data);
  return rc;
}

static void confirm(struct nt_drain *drain) {
  const struct nt_batch *batch = &drain->batch;
  for (uint32_t r = 0; r < batch->run_count; r++) {
    const struct nt_waiting *run = &drain->taken[r];
    /* Restarted after it was copied: counted as lost, and yet in the frame. */
    if (!nt_ring_set_drained(&drain->area->chunks[run->chunk], run->generation, run->to))
      atomic_fetch_sub_explicit(&drain->area->header->lost, run->to - run->from,
                                memory_order_relaxed);
    for (uint32_t i = 0; i < drain->waiting_count; i++)
      if (drain->waiting[i].chunk == run->chunk)
        drain->waiting[i].from = run->to;
  }
  drain->waiting_calls -=
      batch->call_count < drain->waiting_calls ? batch->call_count : drain->waiting_calls;
}

int64_t nt_drain_batch(struct nt_drain *drain) {
  struct nt_buffer frames = {0};
  uint32_t limit = NT_BATCH_CALLS;
  int rc = drain->file.epoch ? 0 : nt_drain_make_room(drain, NT_FRAME_HEADER);
  if (rc < 0)
    return rc;
  for (;;) {
    frames.length = 0;
    gather(drain, limit);
    if (!drain->batch.call_count) {
      rc = 0;
      break;
    }
    rc = make_frames(drain, &frames);
    if (!rc)
      rc = nt_drain_make_room(drain, frames.length);
    if (rc)
      nt_drain_undefine(drain);
    if (rc == -NT_ERR_SPACE && limit > 32 && frames.length > NT_SEGMENT_MIN / 4) {
      limit = drain->batch.call_count < limit ? drain->batch.call_count / 2 : limit / 2;
      continue;
    }
    if (rc == 1)
      continue; /* another segment: it needs its own definitions */
    if (rc)
      break;
    nt_drain_spool(drain, &frames, drain->batch.call_count);
    confirm(drain);
    break;
  }
  free(frames.data);
  return rc ? rc : (int64_t)drain->batch.call_count;
}

void nt_drain_free_chunks(struct nt_drain *drain) {
  const struct nt_area *area = drain->area;
  for (uint32_t i = 0; i < nt_area_chunks_used(area->header); i++) {
    struct nt_chunk *chunk = &area->chunks[i];
    if (atomic_load_explicit(&chunk->state, memory_order_acquire) == NT_CHUNK_RETIRED)
      nt_ring_free(chunk, atomic_load_explicit(&chunk->generation, memory_order_acquire), true);
  }
}
