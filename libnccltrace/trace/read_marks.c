/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of GPU progress, out of frames and out of an area, as one sorted list without doubles. */
#include <stdlib.h>

#include "trace/mark_codec.h"
#include "trace/read_parts.h"

enum { MOST = 1 << 24 };

int nt_take_mark_frame(struct nt_trace *trace, const struct nt_frame *frame,
                       const unsigned char *payload) {
  struct nt_buffer marks = {0};
  if (frame->version != NT_MARKS_VERSION)
    return -NT_ERR_VERSION;
  int rc = nt_marks_decode(payload, frame->raw, frame->records, &marks);
  if (!rc)
    rc = nt_take_marks(trace, &marks);
  free(marks.data);
  return rc;
}

int nt_take_marks(struct nt_trace *trace, const struct nt_buffer *marks) {
  const struct nt_gpu_mark *from = (const struct nt_gpu_mark *)(const void *)marks->data;
  const size_t count = marks->length / sizeof *from;
  if (trace->mark_count + count > MOST)
    return -NT_ERR_CORRUPT;
  struct nt_trace_mark *grown =
      realloc(trace->marks, (trace->mark_count + count + 1) * sizeof *trace->marks);
  if (!grown)
    return -NT_ERR_MEMORY;
  trace->marks = grown;
  for (size_t i = 0; i < count; i++)
    /* Ticks for now: the clock may not be known yet. */
    trace->marks[trace->mark_count++] =
        (struct nt_trace_mark){.stream = from[i].stream,
                               .kind = from[i].kind,
                               .first = from[i].first,
                               .last = from[i].last,
                               .not_before_ns = (int64_t)from[i].not_before,
                               .by_ns = (int64_t)from[i].by};
  return 0;
}

static int by_kind(const struct nt_trace_mark *x, const struct nt_trace_mark *y) {
  if (x->stream != y->stream)
    return x->stream < y->stream ? -1 : 1;
  return x->kind < y->kind ? -1 : x->kind > y->kind;
}

static int by_launch(const void *a, const void *b) {
  const struct nt_trace_mark *x = a, *y = b;
  const int kind = by_kind(x, y);
  return kind ? kind : x->first < y->first ? -1 : x->first > y->first;
}

/* Marks of one kind come in the order of their launches, those of several streams and kinds in turns: each kind is taken
 * out in its turn. False if there are too many, or they do not. */
static bool sort_by_kind(const struct nt_trace *trace, struct nt_trace_mark *out) {
  enum { MOST_KINDS = 32 };
  struct nt_trace_mark kinds[MOST_KINDS] = {{0}};
  size_t count = 0, used = 0;
  for (size_t i = 0; i < trace->mark_count; i++) {
    size_t k = 0;
    while (k < count && by_kind(&kinds[k], &trace->marks[i]))
      k++;
    if (k == MOST_KINDS)
      return false;
    kinds[k] = trace->marks[i];
    count += k == count;
  }
  qsort(kinds, count, sizeof *kinds, by_launch);
  for (size_t k = 0; k < count; k++)
    for (size_t i = 0; i < trace->mark_count; i++)
      if (by_kind(&kinds[k], &trace->marks[i]) == 0)
        out[used++] = trace->marks[i];
  for (size_t i = 1; i < used; i++)
    if (by_launch(&out[i - 1], &out[i]) > 0)
      return false;
  return true;
}

static void sort(struct nt_trace *trace) {
  struct nt_trace_mark *sorted = malloc((trace->mark_count + 1) * sizeof *sorted);
  if (sorted && sort_by_kind(trace, sorted)) {
    free(trace->marks);
    trace->marks = sorted;
    return;
  }
  free(sorted);
  qsort(trace->marks, trace->mark_count, sizeof *trace->marks, by_launch);
}

void nt_finish_marks(struct nt_trace *trace) {
  size_t kept = 0;
  if (trace->mark_count)
    sort(trace);
  for (size_t i = 0; i < trace->mark_count; i++) {
    struct nt_trace_mark mark = trace->marks[i];
    if (kept && by_launch(&trace->marks[kept - 1], &mark) == 0)
      continue;
    if (mark.kind != NT_GPU_DURATION) {
      mark.not_before_ns =
          mark.not_before_ns ? nt_read_time(trace, (uint64_t)mark.not_before_ns) : 0;
      mark.by_ns = nt_read_time(trace, (uint64_t)mark.by_ns);
    }
    trace->marks[kept++] = mark;
  }
  trace->mark_count = kept;
}

const struct nt_trace_mark *nt_trace_mark_of(const struct nt_trace *trace,
                                             enum nt_gpu_mark_kind kind,
                                             const struct nt_call *call) {
  size_t near = 0;
  return nt_trace_mark_near(trace, kind, call, &near);
}

/* How many marks start at or before the launch. */
static size_t marks_before(const struct nt_trace *trace, const struct nt_trace_mark *key,
                           size_t near) {
  size_t low = 0, high = trace->mark_count;
  if (near && near <= high && by_launch(&trace->marks[near - 1], key) <= 0)
    low = near;
  else if (near > 1 && near <= high && by_launch(&trace->marks[near - 2], key) <= 0)
    return near - 1;
  if (low == high || (low && by_launch(&trace->marks[low], key) > 0))
    return low;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (by_launch(&trace->marks[middle], key) <= 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

const struct nt_trace_mark *nt_trace_mark_near(const struct nt_trace *trace,
                                               enum nt_gpu_mark_kind kind,
                                               const struct nt_call *call, size_t *near) {
  const struct nt_trace_mark key = {
      .stream = call->stream, .kind = kind, .first = call->launch, .last = call->launch};
  if (!call->stream || !nt_call_launch(call))
    return NULL;
  *near = marks_before(trace, &key, *near);
  if (!*near)
    return NULL;
  const struct nt_trace_mark *mark = &trace->marks[*near - 1];
  return mark->stream == key.stream && mark->kind == key.kind && mark->last >= key.first ? mark
                                                                                         : NULL;
}
