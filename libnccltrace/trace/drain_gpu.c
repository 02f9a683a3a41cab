/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of GPU progress: from the area's ring of marks into frames of their own.
 *
 * The gpu thread writes marks, this thread takes them; it may be overtaken, which is counted. Marks that
 * are in a frame are not looked at again: the header says up to which one.
 */
#include <stdlib.h>

#include "trace/drain_parts.h"
#include "trace/mark_codec.h"

#define SECOND UINT64_C(1000000000)
#define ENOUGH 256u /* marks for which a frame is made at once */

/* Copies the marks [from, to) that are still whole; returns how many were overwritten meanwhile. */
static uint64_t copy_marks(const struct nt_area *area, uint64_t from, uint64_t to,
                           struct nt_buffer *out) {
  const struct nt_area_header *header = area->header;
  const uint32_t room = header->gpu_mark_count;
  const size_t start = out->length;
  for (uint64_t at = from; at < to; at++) {
    struct nt_gpu_mark mark = area->gpu_mark_ring[at % room];
    mark.stream = nt_area_stream_number(area, mark.stream);
    nt_add_bytes(out, &mark, sizeof mark);
    if (out->failed)
      return 0;
  }
  atomic_thread_fence(memory_order_acquire);
  const uint64_t written = atomic_load_explicit(&header->gpu_marks, memory_order_relaxed);
  /* One more than the ring may hold is being written right now. */
  const uint64_t oldest = written + 1 > room ? written + 1 - room : 0;
  if (oldest <= from)
    return 0;
  const uint64_t gone = oldest < to ? oldest - from : to - from;
  const size_t size = sizeof(struct nt_gpu_mark);
  memmove(out->data + start, out->data + start + gone * size, (size_t)(to - from - gone) * size);
  out->length -= (size_t)gone * size;
  return gone;
}

uint64_t nt_area_marks(const struct nt_area *area, uint64_t *from, struct nt_buffer *out) {
  const struct nt_area_header *header = area->header;
  if (!header->gpu_mark_count)
    return 0;
  const uint64_t written = atomic_load_explicit(&header->gpu_marks, memory_order_acquire);
  uint64_t lost = 0;
  if (written - *from > header->gpu_mark_count) {
    lost = written - *from - header->gpu_mark_count;
    *from += lost;
  }
  lost += copy_marks(area, *from, written, out);
  *from = written;
  return lost;
}

int nt_drain_marks(struct nt_drain *drain, enum nt_drain_how how) {
  struct nt_area_header *header = drain->area->header;
  uint64_t from = atomic_load_explicit(&header->gpu_marks_drained, memory_order_relaxed);
  const uint64_t written = atomic_load_explicit(&header->gpu_marks, memory_order_acquire);
  if (written == from)
    return 0;
  if (how == NT_DRAIN_LAZY && written - from < ENOUGH && drain->now - drain->marked < SECOND)
    return 0;
  struct nt_buffer marks = {0}, payload = {0};
  const uint64_t lost = nt_area_marks(drain->area, &from, &marks);
  const struct nt_gpu_mark *all = (const struct nt_gpu_mark *)(const void *)marks.data;
  const uint32_t count = (uint32_t)(marks.length / sizeof *all);
  struct nt_clock_sync last;
  nt_area_clock(drain->area, &last);
  const unsigned shift = nt_codec_shift(header->clock_kind, &header->clock_first, &last);
  int rc = marks.failed ? -NT_ERR_MEMORY : nt_marks_encode(all, count, shift, &payload);
  if (!rc)
    rc = nt_drain_frame(
        drain,
        (struct nt_frame){.type = NT_FRAME_GPU, .version = NT_MARKS_VERSION, .records = count},
        &payload);
  if (!rc) {
    atomic_fetch_add_explicit(&header->gpu_marks_lost, lost, memory_order_relaxed);
    atomic_store_explicit(&header->gpu_marks_drained, from, memory_order_release);
    drain->marked = drain->now;
  }
  free(marks.data);
  free(payload.data);
  return rc;
}
