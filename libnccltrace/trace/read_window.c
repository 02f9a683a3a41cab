/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last calls of a file alone: a hang is nearly always told by them.
 *
 * The newest segments are kept in memory, as many as hold the wanted number of calls. Of their definitions all are read,
 * of their calls only those from one frame on, and of these what is older than the wanted number is left out again,
 * unless the device had not finished it.
 */
#include <stdlib.h>

#include "trace/read_parts.h"

struct count {
  struct {
    uint64_t offset;
    uint32_t records;
  } * frames;
  size_t used, room;
};

static int count_frame(const struct nt_frame *frame, const unsigned char *stored, uint64_t offset,
                       void *ctx) {
  struct count *count = ctx;
  (void)stored;
  if (frame->type != NT_FRAME_CALLS)
    return 0;
  if (count->used == count->room) {
    const size_t room = count->room ? 2 * count->room : 64;
    void *grown = realloc(count->frames, room * sizeof *count->frames);
    if (!grown)
      return -NT_ERR_MEMORY;
    count->frames = grown;
    count->room = room;
  }
  count->frames[count->used].offset = offset;
  count->frames[count->used++].records = frame->records;
  return 0;
}

static void note_damage(void *ctx, uint64_t offset, const char *reason) {
  (void)offset;
  (void)reason;
  *(bool *)ctx = true;
}

int nt_window_add(struct nt_trace *trace, struct nt_segment *segment, bool earlier, bool *enough) {
  struct nt_window *window = &trace->window;
  struct count count = {0};
  bool damaged = false;
  const struct nt_damage damage = {note_damage, &damaged};
  struct nt_segment *grown =
      realloc(window->segments, (window->segment_count + 1) * sizeof *window->segments);
  int rc = grown ? nt_segment_walk(segment, count_frame, &count, &damage) : -NT_ERR_MEMORY;
  if (grown)
    window->segments = grown;
  if (rc) {
    free(count.frames);
    nt_segment_free(segment);
    return rc;
  }
  memmove(grown + 1, grown, window->segment_count++ * sizeof *grown);
  grown[0] = *segment;
  grown[0].checked = !damaged;
  size_t first = count.used;
  while (first > 0 && window->records < trace->room->window)
    window->records += count.frames[--first].records;
  *enough = window->records >= trace->room->window;
  window->begin = first < count.used ? count.frames[first].offset : segment->length;
  window->marks = first ? count.frames[first - 1].offset : 0;
  window->older = earlier;
  window->cut = first > 0 || earlier;
  free(count.frames);
  return 0;
}

void nt_window_free(struct nt_window *window) {
  for (uint32_t i = 0; i < window->segment_count; i++)
    nt_segment_free(&window->segments[i]);
  free(window->segments);
  memset(window, 0, sizeof *window);
}

bool nt_window_is_before(const struct nt_window *window, const struct nt_frame *frame,
                         uint64_t offset) {
  return window->segment_count && frame->epoch == window->segments[0].epoch &&
         offset < window->marks;
}

int nt_window_walk(const struct nt_window *window, nt_calls_fn *fn, void *ctx, bool calls,
                   const struct nt_damage *damage) {
  int rc = 0;
  for (uint32_t i = 0; i < window->segment_count && !rc; i++) {
    struct nt_segment segment = window->segments[i];
    segment.begin = calls && i == 0 ? window->begin : 0;
    rc = nt_segment_walk(&segment, fn, ctx, damage);
  }
  return rc;
}

/* ---- trimming ------------------------------------------------------------------------------------ */

/* The newest launch of its stream that was finished, as far as that was looked at and not undone by an abort. */
static uint32_t finished_of(const struct nt_trace *trace, const struct nt_call *call) {
  for (size_t i = 0; i < trace->facts.stream_count; i++) {
    const struct nt_stream_facts *stream = &trace->facts.streams[i];
    if (stream->number == call->stream)
      return stream->gpu.frozen   ? stream->gpu.frozen_after
             : stream->gpu.polled ? stream->gpu.finished
                                  : UINT32_MAX;
  }
  return UINT32_MAX;
}

/* Each launch behind the last finished one of its stream is there. */
static bool has_unfinished(const struct nt_trace *trace) {
  for (size_t i = 0; i < trace->facts.stream_count; i++) {
    const struct nt_stream_facts *stream = &trace->facts.streams[i];
    const struct nt_call of = {.stream = stream->number};
    const uint32_t finished = finished_of(trace, &of);
    uint32_t oldest = UINT32_MAX;
    if (finished == UINT32_MAX || stream->gpu.issued <= finished)
      continue;
    for (size_t k = 0; k < trace->call_count; k++)
      if (trace->calls[k].stream == stream->number && nt_call_launch(&trace->calls[k]) &&
          nt_call_launch(&trace->calls[k]) < oldest)
        oldest = nt_call_launch(&trace->calls[k]);
    if (oldest > finished + 1)
      return false;
  }
  return true;
}

static int by_time(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

/* When the oldest call that has to be kept was entered. */
static int64_t oldest_kept(const struct nt_trace *trace) {
  const size_t count = trace->call_count, wanted = trace->room->window;
  const struct nt_call *calls = trace->calls;
  int64_t from = calls[count - wanted].enter_ns;
  if (calls[0].thread != calls[count - 1].thread) {
    int64_t *times = malloc(count * sizeof *times);
    if (!times)
      return INT64_MIN;
    for (size_t i = 0; i < count; i++)
      times[i] = calls[i].enter_ns;
    qsort(times, count, sizeof *times, by_time);
    from = times[count - wanted];
    free(times);
  }
  for (size_t i = 0; i < count; i++)
    if (nt_call_launch(&calls[i]) && calls[i].stream && calls[i].enter_ns < from &&
        nt_call_launch(&calls[i]) > finished_of(trace, &calls[i]))
      from = calls[i].enter_ns;
  return from;
}

void nt_window_trim(struct nt_trace *trace) {
  struct nt_call *calls = trace->calls;
  const size_t count = trace->call_count;
  size_t kept = 0;
  trace->window.lacks = trace->window.cut && !has_unfinished(trace);
  if (count <= trace->room->window)
    return;
  const int64_t from = oldest_kept(trace);
  for (size_t begin = 0, end; begin < count; begin = end) {
    size_t first = begin;
    for (end = begin; end < count && calls[end].thread == calls[begin].thread;)
      end++;
    while (first < end && calls[first].enter_ns < from)
      first++;
    if (first == end && calls[end - 1].result == NT_RESULT_OPEN)
      first--;
    while (first < end && first > begin && calls[first].group &&
           calls[first - 1].group == calls[first].group)
      first--; /* groups stay whole */
    trace->window.cut |= first > begin;
    memmove(calls + kept, calls + first, (end - first) * sizeof *calls);
    kept += end - first;
  }
  trace->call_count = kept;
}

/* ---- what is in front of it ---------------------------------------------------------------------- */

struct kinds {
  struct nt_unpacker *unpacker;
  nt_call_kind_fn *fn;
  void *ctx;
  unsigned char *payload; /* of the frame that is looked at: its front */
  size_t room;
  bool damaged;
};

/* As much of the payload as tells the kinds of call. */
static int unpack_front(struct kinds *kinds, const struct nt_frame *frame,
                        const unsigned char *stored) {
  if (frame->raw > kinds->room) {
    unsigned char *grown = realloc(kinds->payload, frame->raw);
    if (!grown)
      return -NT_ERR_MEMORY;
    kinds->payload = grown;
    kinds->room = frame->raw;
  }
  int rc = nt_frame_unpack_begin(kinds->unpacker, frame, stored);
  size_t have = 0, need;
  while (!rc && (need = nt_codec_kinds_need(kinds->payload, have, frame->raw)) > have) {
    rc = nt_frame_unpack_next(kinds->unpacker, kinds->payload + have, need - have);
    have = need;
  }
  return rc;
}

static int list_kinds(const struct nt_frame *frame, const unsigned char *stored, uint64_t offset,
                      void *ctx) {
  struct kinds *kinds = ctx;
  (void)offset;
  if (frame->type != NT_FRAME_CALLS)
    return 0;
  const int rc =
      frame->version == NT_CODEC_VERSION ? unpack_front(kinds, frame, stored) : -NT_ERR_CORRUPT;
  return rc ? rc
            : nt_codec_kinds(kinds->payload, frame->raw, frame->records, kinds->fn, kinds->ctx);
}

int nt_trace_kinds(struct nt_trace *trace, nt_call_kind_fn *fn, void *ctx) {
  struct kinds kinds = {.unpacker = trace->room->unpacker, .fn = fn, .ctx = ctx};
  const struct nt_damage damage = {note_damage, &kinds.damaged};
  const struct nt_window *window = &trace->window;
  int rc = 0;
  if (window->older)
    rc = nt_read_file_before(trace, window->segments[0].epoch, list_kinds, &kinds, &damage);
  if (!rc)
    rc = nt_window_walk(window, list_kinds, &kinds, false, &damage);
  free(kinds.payload);
  return !rc && kinds.damaged ? -NT_ERR_CORRUPT : rc;
}
