/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The window of a digest: the last calls of the process. What a thread called last is kept without a break, so that what
 * stands in front of a call is what came before it.
 */
#include <stdlib.h>

#include "trace/digest_parts.h"
#include "trace/mark_codec.h"

enum { SHIFT = 9, GROUP_MAX = 1024, LATEST_THREADS = 64 };
/* The last calls are a frame of their own, so that a first look reads them alone: some more than it takes. */
enum { LAST_CALLS = 160 };

static int by_time(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

static int find_threads(struct nt_digest *digest) {
  const size_t count = digest->call_count;
  size_t threads = 0;
  for (size_t i = 0; i < count; i++)
    threads += !i || digest->calls[i].thread != digest->calls[i - 1].thread;
  digest->threads = malloc((threads + 1) * sizeof *digest->threads);
  digest->kept = calloc(threads + 1, sizeof *digest->kept);
  digest->enters = malloc((count + 1) * sizeof *digest->enters);
  if (!digest->threads || !digest->kept || !digest->enters)
    return -NT_ERR_MEMORY;
  for (size_t i = 0; i < count; i++) {
    digest->enters[i] = digest->calls[i].enter_ns;
    if (!i || digest->calls[i].thread != digest->calls[i - 1].thread)
      digest->threads[digest->thread_count++].from = i;
    digest->threads[digest->thread_count - 1].to = i + 1;
  }
  if (count)
    qsort(digest->enters, count, sizeof *digest->enters, by_time);
  return 0;
}

int nt_digest_open(struct nt_digest *digest, struct nt_error *err) {
  digest->packer = nt_packer_new();
  digest->codec = nt_codec_new();
  if (!digest->packer || !digest->codec)
    return -NT_ERR_MEMORY;
  const int64_t count = nt_trace_calls(digest->trace, &digest->calls, err);
  if (count < 0)
    return (int)count;
  digest->call_count = (size_t)count;
  return find_threads(digest);
}

void nt_digest_close(struct nt_digest *digest) {
  nt_packer_free(digest->packer);
  nt_codec_free(digest->codec);
  free(digest->threads);
  free(digest->kept);
  free(digest->enters);
}

/* ---- picking ------------------------------------------------------------------------------------ */

static bool is_open(const struct nt_call *call) {
  return call->result == NT_RESULT_OPEN;
}

/* When the thread that is the LATEST_THREADS-th from the last made its last call. */
static int64_t latest_threads(const struct nt_digest *digest) {
  int64_t since = INT64_MIN;
  if (digest->thread_count <= LATEST_THREADS)
    return since;
  int64_t *last = malloc(digest->thread_count * sizeof *last);
  for (size_t t = 0; last && t < digest->thread_count; t++)
    last[t] = digest->calls[digest->threads[t].to - 1].enter_ns;
  if (last) {
    qsort(last, digest->thread_count, sizeof *last, by_time);
    since = last[digest->thread_count - LATEST_THREADS];
  }
  free(last);
  return since;
}

/* A group is whole, if it is none of a thousand calls. */
static size_t begin_of_group(const struct nt_digest *digest, size_t first, size_t at) {
  const size_t bound = at - first > GROUP_MAX ? at - GROUP_MAX : first;
  size_t begin = at;
  while (begin > bound && digest->calls[begin].group &&
         digest->calls[begin - 1].group == digest->calls[begin].group)
    begin--;
  return begin == bound && bound != first ? at : begin;
}

size_t nt_digest_pick(struct nt_digest *digest, size_t wanted, size_t each) {
  const size_t count = digest->call_count;
  const int64_t cut = wanted >= count ? INT64_MIN
                      : wanted        ? digest->enters[count - wanted]
                                      : INT64_MAX;
  const int64_t latest = latest_threads(digest);
  size_t kept = 0;
  digest->kept_count = digest->thread_count;
  for (size_t t = 0; t < digest->thread_count; t++) {
    const struct nt_digest_span all = digest->threads[t];
    const struct nt_call *last = &digest->calls[all.to - 1];
    size_t least = last->enter_ns >= latest ? each : 0, from = all.to;
    if (is_open(last) && !least)
      least = 1;
    while (from > all.from && (digest->calls[from - 1].enter_ns >= cut || all.to - from < least))
      from--;
    if (from < all.to && least != 1)
      from = begin_of_group(digest, all.from, from);
    digest->kept[t] = (struct nt_digest_span){from, all.to};
    kept += all.to - from;
  }
  return kept;
}

/* ---- calls -------------------------------------------------------------------------------------- */

static void fill(const struct nt_call *from, uint32_t stack, struct nt_batch_call *out) {
  const int64_t took = from->exit_ns > from->enter_ns ? from->exit_ns - from->enter_ns : 0;
  out->comm = from->comm;
  out->stream = from->stream;
  out->record = (struct nt_record){
      .enter = (uint64_t)from->enter_ns,
      .duration = nt_duration_encode((uint64_t)took),
      .seq = from->seq,
      .count = from->count,
      .send = from->send,
      .recv = from->recv,
      .peer = from->peer,
      .stack = stack,
      .launch = from->launch,
      .group = (uint16_t)(from->group ? (from->group - 1) % 65535 + 1 : 0),
      .fn = from->fn,
      .dtype = from->dtype,
      .op = from->op,
      .result = from->result,
      .flags = from->flags,
  };
}

static bool wants_stack(const struct nt_digest_span *span, size_t i, uint32_t lacks) {
  return !(lacks & NT_DIGEST_NO_STACKS) || i + 2 >= span->to;
}

/* Chunks are numbered anew: nothing else has records of these. */
static int make_batch(const struct nt_digest *digest, uint32_t lacks,
                      struct nt_digest_stacks *stacks, struct nt_batch *batch) {
  size_t calls = 0, runs = 0;
  uint64_t serial = 0;
  for (size_t t = 0; t < digest->kept_count; t++) {
    const size_t own = digest->kept[t].to - digest->kept[t].from;
    calls += own;
    runs += (own + NT_CHUNK_RECORDS - 1) / NT_CHUNK_RECORDS;
  }
  if (calls > NT_CODEC_MAX_CALLS)
    return -NT_ERR_SPACE;
  batch->calls = calloc(calls + 1, sizeof *batch->calls);
  batch->runs = calloc(runs + 1, sizeof *batch->runs);
  if (!batch->calls || !batch->runs)
    return -NT_ERR_MEMORY;
  for (size_t t = 0; t < digest->kept_count; t++) {
    const struct nt_digest_span *span = &digest->kept[t];
    for (size_t i = span->from; i < span->to; i++) {
      const struct nt_call *call = &digest->calls[i];
      if ((i - span->from) % NT_CHUNK_RECORDS == 0) {
        serial++;
        batch->runs[batch->run_count++] = (struct nt_run){.serial = serial, .thread = call->thread};
      }
      batch->runs[batch->run_count - 1].count++;
      fill(call, wants_stack(span, i, lacks) ? nt_digest_stack(stacks, call->stack) : 0,
           &batch->calls[batch->call_count++]);
    }
  }
  return 0;
}

/* Those of `all` entered from..to - 1; each thread has them without a break. */
static int pick_batch(const struct nt_batch *all, int64_t from, int64_t to, struct nt_batch *out) {
  *out = (struct nt_batch){.calls = malloc((all->call_count + 1u) * sizeof *out->calls),
                           .runs = malloc((all->run_count + 1u) * sizeof *out->runs)};
  if (!out->calls || !out->runs)
    return -NT_ERR_MEMORY;
  for (uint32_t r = 0, at = 0; r < all->run_count; r++) {
    struct nt_run run = all->runs[r];
    run.count = 0;
    for (uint32_t i = 0; i < all->runs[r].count; i++, at++) {
      const int64_t enter = (int64_t)all->calls[at].record.enter;
      if (enter < from || enter >= to)
        continue;
      run.first = run.count ? run.first : all->runs[r].first + i;
      run.count++;
      out->calls[out->call_count++] = all->calls[at];
    }
    if (run.count)
      out->runs[out->run_count++] = run;
  }
  return 0;
}

static int write_frame(const struct nt_digest *digest, const struct nt_batch *batch,
                       struct nt_buffer *out) {
  struct nt_buffer payload = {0}, index = {0};
  struct nt_frame frame = {.type = NT_FRAME_CALLS,
                           .version = NT_CODEC_VERSION,
                           .epoch = 1,
                           .records = batch->call_count,
                           .first = UINT64_MAX};
  if (!batch->call_count)
    return 0;
  for (uint32_t i = 0; i < batch->call_count; i++) {
    const uint64_t enter = batch->calls[i].record.enter;
    frame.first = enter < frame.first ? enter : frame.first;
    frame.last = enter > frame.last ? enter : frame.last;
  }
  int rc = nt_codec_encode(digest->codec, batch, SHIFT, &payload, &index);
  if (!rc) {
    frame.front = (uint32_t)nt_codec_kinds_need(payload.data, payload.length, payload.length);
    rc = nt_frame_write(digest->packer, &frame, index.data, index.length, payload.data,
                        payload.length, out);
  }
  free(payload.data);
  free(index.data);
  return rc;
}

/* Threads whose clock went back have all calls in one frame. */
static bool is_in_order(const struct nt_batch *batch) {
  for (uint32_t r = 0, at = 0; r < batch->run_count; r++)
    for (uint32_t i = 0; i < batch->runs[r].count; i++, at++)
      if (at && batch->calls[at].record.enter < batch->calls[at - 1].record.enter &&
          (i || batch->runs[r].thread == batch->runs[r - 1].thread))
        return false;
  return true;
}

static int write_calls(const struct nt_digest *digest, const struct nt_batch *batch,
                       struct nt_buffer *out) {
  struct nt_batch part = {0};
  int64_t cut = INT64_MIN;
  if (batch->call_count >= 2 * LAST_CALLS && is_in_order(batch))
    cut = digest->enters[digest->call_count - LAST_CALLS];
  int rc = pick_batch(batch, INT64_MIN, cut, &part);
  if (!rc)
    rc = write_frame(digest, &part, out);
  nt_batch_free(&part);
  if (!rc)
    rc = pick_batch(batch, cut, INT64_MAX, &part);
  if (!rc)
    rc = write_frame(digest, &part, out);
  nt_batch_free(&part);
  return rc;
}

/* ---- marks -------------------------------------------------------------------------------------- */

/* The oldest launch on the stream that the window has, 0 if it has none. */
static uint32_t first_launch(const struct nt_digest *digest, uint32_t stream) {
  uint32_t first = 0;
  for (size_t t = 0; t < digest->kept_count; t++)
    for (size_t i = digest->kept[t].from; i < digest->kept[t].to; i++) {
      const struct nt_call *call = &digest->calls[i];
      const uint32_t launch = nt_call_launch(call);
      if (call->stream == stream && launch && (!first || launch < first))
        first = launch;
    }
  return first;
}

static int write_marks(const struct nt_digest *digest, struct nt_buffer *out) {
  const struct nt_trace *trace = digest->trace;
  struct nt_buffer marks = {0}, payload = {0};
  uint32_t stream = 0, first = 0;
  for (size_t i = 0; i < trace->mark_count; i++) {
    const struct nt_trace_mark *mark = &trace->marks[i];
    if (!i || mark->stream != stream)
      first = first_launch(digest, stream = mark->stream);
    if (!first || mark->last < first)
      continue;
    const struct nt_gpu_mark out_mark = {
        .stream = mark->stream,
        .kind = (uint16_t)mark->kind,
        .first = mark->first,
        .last = mark->last,
        .not_before = (uint64_t)mark->not_before_ns,
        .by = mark->kind == NT_GPU_DURATION ? 0 : (uint64_t)mark->by_ns};
    nt_add_bytes(&marks, &out_mark, sizeof out_mark);
  }
  const struct nt_gpu_mark *all = (const struct nt_gpu_mark *)(const void *)marks.data;
  struct nt_frame frame = {.type = NT_FRAME_GPU,
                           .version = NT_MARKS_VERSION,
                           .epoch = 1,
                           .records = (uint32_t)(marks.length / sizeof *all)};
  int rc = marks.failed ? -NT_ERR_MEMORY : 0;
  if (!rc && marks.length)
    rc = nt_marks_encode(all, frame.records, SHIFT, &payload);
  if (!rc && marks.length)
    rc = nt_frame_write(digest->packer, &frame, NULL, 0, payload.data, payload.length, out);
  free(marks.data);
  free(payload.data);
  return rc;
}

int nt_digest_window(const struct nt_digest *digest, uint32_t lacks, struct nt_buffer *out) {
  struct nt_digest_stacks *stacks = nt_digest_stacks_new(digest->trace);
  struct nt_batch batch = {0};
  int rc = stacks ? make_batch(digest, lacks, stacks, &batch) : -NT_ERR_MEMORY;
  if (!rc)
    rc = nt_digest_stack_frames(digest, stacks, out);
  if (!rc)
    rc = write_calls(digest, &batch, out);
  if (!rc)
    rc = write_marks(digest, out); /* behind their calls, as in any trace */
  nt_batch_free(&batch);
  nt_digest_stacks_free(stacks);
  return rc;
}
