/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The drain as a whole: when frames are made, when the spool goes to the file, when the state is written.
 *
 * Local disks get every frame at once. File systems that thousands of processes share get a write when
 * the spool is full, when the calls have stopped for a while, and when somebody asks. A file that
 * cannot be written costs nothing but the records that the ring has to overwrite: errors are counted and
 * the write is tried again a second later.
 */
#include "trace/drain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "trace/clock.h"
#include "trace/drain_parts.h"

#define SECOND UINT64_C(1000000000)
#define STALL_NETWORK (5 * SECOND)  /* without calls, before a shared file system is written to */
#define STATE_IDLE (5 * SECOND)     /* between signs of life of an idle process */
#define STATE_NETWORK (60 * SECOND) /* the same, on a shared file system */

static void count_error(struct nt_drain *drain) {
  struct nt_area_header *header = drain->area->header;
  atomic_fetch_add_explicit(&header->write_errors, 1, memory_order_relaxed);
  atomic_store_explicit(&header->last_errno, errno, memory_order_relaxed);
  drain->retry = drain->now + SECOND;
}

/* ---- spool ------------------------------------------------------------------------------------- */

static uint32_t spool_used(const struct nt_drain *drain) {
  return atomic_load_explicit(&drain->area->header->spool_used, memory_order_relaxed);
}

static void set_spool_used(struct nt_drain *drain, uint32_t used) {
  atomic_store_explicit(&drain->area->header->spool_used, used, memory_order_release);
}

/* Readers of a living area copy the spool between two even and equal guards. */
static void guard_spool(struct nt_drain *drain, bool changing) {
  _Atomic uint32_t *guard = &drain->area->header->spool_guard;
  if (changing) {
    atomic_fetch_or_explicit(guard, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
  } else {
    atomic_fetch_add_explicit(guard, 1, memory_order_release);
  }
}

static int flush_spool(struct nt_drain *drain) {
  const uint32_t used = spool_used(drain);
  if (!used)
    return 0;
  if (drain->now < drain->retry)
    return -NT_ERR_SPACE;
  int rc = nt_trace_file_append(&drain->file, drain->area->spool, used, drain->spool_calls);
  if (rc) {
    count_error(drain);
    return rc;
  }
  guard_spool(drain, true);
  set_spool_used(drain, 0);
  guard_spool(drain, false);
  drain->spool_calls = 0;
  return 0;
}

void nt_drain_spool(struct nt_drain *drain, const struct nt_buffer *frames, uint64_t calls) {
  const uint32_t used = spool_used(drain);
  guard_spool(drain, true);
  memcpy(drain->area->spool + used, frames->data, frames->length);
  set_spool_used(drain, used + (uint32_t)frames->length);
  guard_spool(drain, false);
  drain->spool_calls += calls;
}

static int start_segment(struct nt_drain *drain) {
  struct nt_buffer payload = {0}, frame_bytes = {0};
  struct nt_clock_sync last;
  uint64_t retired = 0;
  if (drain->now < drain->retry)
    return -NT_ERR_SPACE;
  nt_area_clock(drain->area, &last);
  nt_entry_clock(&payload, &drain->area->header->clock_first, &last);
  struct nt_frame frame = {
      .type = NT_FRAME_SEGMENT, .epoch = drain->file.epoch + 1, .records = 1, .first = last.ticks};
  int rc = payload.failed ? -NT_ERR_MEMORY
                          : nt_frame_write(drain->packer, &frame, NULL, 0, payload.data,
                                           payload.length, &frame_bytes);
  if (!rc) {
    rc = nt_trace_file_rotate(&drain->file, &frame_bytes, &retired);
    if (rc)
      count_error(drain);
    else
      atomic_fetch_add_explicit(&drain->area->header->overwritten, retired, memory_order_relaxed);
  }
  free(payload.data);
  free(frame_bytes.data);
  return rc;
}

int nt_drain_make_room(struct nt_drain *drain, uint64_t length) {
  const uint64_t spool = drain->area->header->spool_size;
  const uint64_t segment = drain->file.layout.segment_size;
  if (length > spool || length + 1024 > segment)
    return -NT_ERR_SPACE;
  const uint32_t used = spool_used(drain);
  const uint64_t room = nt_trace_file_room(&drain->file);
  if (drain->file.epoch && used + length <= spool && used + length <= room)
    return 0;
  int rc = flush_spool(drain);
  if (rc)
    return rc;
  if (drain->file.epoch && length <= nt_trace_file_room(&drain->file))
    return 0;
  rc = start_segment(drain);
  return rc ? rc : 1;
}

int nt_drain_frame(struct nt_drain *drain, struct nt_frame frame, const struct nt_buffer *payload) {
  struct nt_buffer bytes = {0};
  int rc = payload->failed ? -NT_ERR_MEMORY : 0;
  do {
    bytes.length = 0;
    frame.epoch = drain->file.epoch;
    if (!rc || rc == 1)
      rc = nt_frame_write(drain->packer, &frame, NULL, 0, payload->data, payload->length, &bytes);
    if (!rc)
      rc = nt_drain_make_room(drain, bytes.length);
  } while (rc == 1);
  if (!rc)
    nt_drain_spool(drain, &bytes, 0);
  free(bytes.data);
  return rc;
}

int nt_drain_dump(struct nt_drain *drain, const struct nt_buffer *section) {
  drain->now = nt_clock_ns(CLOCK_MONOTONIC);
  drain->retry = 0;
  int rc = nt_drain_frame(drain, (struct nt_frame){.type = NT_FRAME_DUMP, .records = 1}, section);
  if (rc == -NT_ERR_SPACE)
    errno = ENOSPC;
  if (rc)
    count_error(drain);
  return rc;
}

/* ---- opening ----------------------------------------------------------------------------------- */

static bool allocate(struct nt_drain *drain) {
  const struct nt_area_header *header = drain->area->header;
  drain->packer = nt_packer_new();
  drain->codec = nt_codec_new();
  drain->batch.calls = calloc(NT_BATCH_CALLS, sizeof *drain->batch.calls);
  drain->batch.runs = calloc(header->chunk_count, sizeof *drain->batch.runs);
  drain->taken = calloc(header->chunk_count, sizeof *drain->taken);
  drain->waiting = calloc(header->chunk_count, sizeof *drain->waiting);
  drain->comm_numbers = calloc(header->comm_count, sizeof *drain->comm_numbers);
  drain->stream_numbers = calloc(header->stream_count, sizeof *drain->stream_numbers);
  drain->comms = calloc(header->comm_count, sizeof *drain->comms);
  drain->streams = calloc(header->stream_count, sizeof *drain->streams);
  drain->threads = calloc(header->thread_count, sizeof *drain->threads);
  drain->endings = calloc(header->comm_count, sizeof *drain->endings);
  drain->stacks = nt_stack_definer_new(drain->area);
  return drain->packer && drain->codec && drain->batch.calls && drain->batch.runs && drain->taken &&
         drain->waiting && drain->comm_numbers && drain->stream_numbers && drain->comms &&
         drain->streams && drain->threads && drain->endings && drain->stacks;
}

static void release(struct nt_drain *drain) {
  nt_packer_free(drain->packer);
  nt_codec_free(drain->codec);
  nt_batch_free(&drain->batch);
  free(drain->taken);
  free(drain->waiting);
  free(drain->comm_numbers);
  free(drain->stream_numbers);
  free(drain->comms);
  free(drain->streams);
  free(drain->threads);
  free(drain->endings);
  nt_stack_definer_free(drain->stacks);
  free(drain);
}

/* Bytes of whole frames at the spool's start, and the calls in them. */
static uint32_t whole_frames(const struct nt_drain *drain, uint32_t length, uint64_t *calls) {
  uint32_t at = 0;
  *calls = 0;
  while (at < length) {
    struct nt_frame frame;
    if (nt_frame_parse(drain->area->spool + at, length - at, &frame) ||
        nt_frame_span(&frame) > length - at)
      break;
    if (frame.type == NT_FRAME_CALLS)
      *calls += frame.records;
    at += (uint32_t)nt_frame_span(&frame);
  }
  return at;
}

/* True if the file ends with the first `length` bytes of the spool. */
static bool file_ends_with(const struct nt_drain *drain, uint32_t length) {
  const struct nt_trace_file *file = &drain->file;
  if (!file->epoch || length > file->used)
    return false;
  unsigned char *tail = malloc(length);
  if (!tail)
    return false;
  const uint64_t offset =
      file->layout.segment_offset +
      (file->epoch - 1) % file->layout.segment_count * file->layout.segment_size + file->used -
      length;
  const bool same = pread(file->fd, tail, length, (off_t)offset) == (ssize_t)length &&
                    memcmp(tail, drain->area->spool, length) == 0;
  free(tail);
  return same;
}

/* A process that died between writing the spool and emptying it leaves frames in both places: those that
 * the file has are dropped, the rest moves to the spool's front. */
static void adopt_spool(struct nt_drain *drain) {
  const struct nt_area_header *header = drain->area->header;
  uint32_t used = spool_used(drain);
  if (used > header->spool_size)
    used = header->spool_size;
  uint64_t calls;
  used = whole_frames(drain, used, &calls);
  uint32_t written = 0;
  for (uint32_t at = 0; at < used;) {
    struct nt_frame frame;
    if (nt_frame_parse(drain->area->spool + at, used - at, &frame))
      break;
    at += (uint32_t)nt_frame_span(&frame);
    if (file_ends_with(drain, at))
      written = at;
  }
  guard_spool(drain, true);
  memmove(drain->area->spool, drain->area->spool + written, used - written);
  set_spool_used(drain, used - written);
  guard_spool(drain, false);
  whole_frames(drain, used - written, &drain->spool_calls);
}

int nt_drain_open(struct nt_area *area, const struct nt_drain_config *config, struct nt_drain **out,
                  struct nt_error *err) {
  memset(err, 0, sizeof *err);
  *out = NULL;
  struct nt_drain *drain = calloc(1, sizeof *drain);
  if (!drain) {
    err->code = -NT_ERR_MEMORY;
    snprintf(err->reason, sizeof err->reason, "out of memory");
    return -NT_ERR_MEMORY;
  }
  drain->area = area;
  drain->file.fd = -1;
  drain->foreign = !config;
  drain->now = drain->active = drain->synced = nt_clock_ns(CLOCK_MONOTONIC);
  int rc = -NT_ERR_MEMORY;
  if (!allocate(drain)) {
    err->code = rc;
    snprintf(err->reason, sizeof err->reason, "out of memory");
  } else if (config) {
    rc = nt_trace_file_create(area->header, config->directory, config->size, config->keep_attempts,
                              nt_state_bound(area->header), &drain->file, err);
  } else {
    rc = nt_trace_file_resume(area->header, &drain->file, err);
  }
  if (rc) {
    release(drain);
    return rc;
  }
  if (!config)
    adopt_spool(drain);
  else if (config->high_descriptor)
    nt_trace_file_lift(&drain->file);
  *out = drain;
  return 0;
}

int nt_drain_renew(struct nt_drain *drain, const struct nt_drain_config *config) {
  struct nt_area_header *header = drain->area->header;
  struct nt_trace_file fresh;
  struct nt_error err;
  if (!nt_trace_file_is_gone(&drain->file))
    return 0;
  int rc = nt_trace_file_create(header, config->directory, config->size, config->keep_attempts,
                                nt_state_bound(header), &fresh, &err);
  if (rc)
    return rc;
  uint64_t lost = drain->spool_calls;
  for (uint32_t i = 0; i < drain->file.layout.segment_count; i++)
    lost += drain->file.segment_calls[i];
  atomic_fetch_add_explicit(&header->overwritten, lost, memory_order_relaxed);
  nt_trace_file_close(&drain->file);
  drain->file = fresh;
  if (config->high_descriptor)
    nt_trace_file_lift(&drain->file);
  guard_spool(drain, true);
  set_spool_used(drain, 0);
  guard_spool(drain, false);
  drain->spool_calls = 0;
  drain->stated = drain->retry = 0;
  nt_drain_undefine(drain);
  return 1;
}

void nt_drain_close(struct nt_drain *drain, bool sync) {
  if (!drain)
    return;
  if (sync)
    nt_trace_file_sync(&drain->file);
  nt_trace_file_close(&drain->file);
  release(drain);
}

/* ---- slots ------------------------------------------------------------------------------------- */

int nt_drain_evidence(struct nt_drain *drain) {
  const struct nt_area_header *header = drain->area->header;
  struct nt_buffer frame_bytes = {0};
  uint32_t length = atomic_load_explicit(&header->evidence_length, memory_order_acquire);
  if (length > header->evidence_size)
    length = header->evidence_size;
  struct nt_frame frame = {.type = NT_FRAME_EVIDENCE, .epoch = drain->file.evidence_version + 1};
  int rc = nt_frame_write(drain->packer, &frame, NULL, 0,
                          (const unsigned char *)drain->area->evidence, length, &frame_bytes);
  if (!rc) {
    rc = nt_trace_file_evidence(&drain->file, &frame_bytes);
    if (rc)
      count_error(drain);
  }
  free(frame_bytes.data);
  return rc;
}

static int write_state(struct nt_drain *drain) {
  struct nt_buffer payload = {0}, frame_bytes = {0};
  struct nt_frame frame = {.type = NT_FRAME_STATE, .epoch = drain->file.state_version + 1};
  int rc = nt_state_write(drain->area, drain->foreign ? NT_STATE_BY_OTHER : NT_STATE_BY_PROCESS,
                          drain->file.epoch, drain->file.used, &payload, &frame.records);
  if (!rc)
    rc = nt_frame_write(drain->packer, &frame, NULL, 0, payload.data, payload.length, &frame_bytes);
  if (!rc) {
    rc = nt_trace_file_state(&drain->file, &frame_bytes);
    if (rc)
      count_error(drain);
  }
  drain->stated = drain->now;
  free(payload.data);
  free(frame_bytes.data);
  return rc;
}

/* ---- the tick ---------------------------------------------------------------------------------- */

static bool time_for_frames(struct nt_drain *drain, enum nt_drain_how how) {
  if (!drain->waiting_calls) {
    drain->waiting_since = 0;
    return false;
  }
  if (!drain->waiting_since)
    drain->waiting_since = drain->now;
  /* A small ring must not fill up while a large batch is waited for. */
  const uint64_t quarter = (uint64_t)drain->area->header->chunk_count * NT_CHUNK_RECORDS / 4;
  const uint64_t enough = quarter < NT_BATCH_CALLS ? quarter : NT_BATCH_CALLS;
  /* Nor may it run out of chunks, each with the few calls of a thread that has ended. */
  return how != NT_DRAIN_LAZY || drain->waiting_calls >= enough ||
         drain->waiting_retired >= drain->area->header->chunk_count / 4 ||
         drain->now - drain->waiting_since >= SECOND || nt_drain_has_endings(drain);
}

static int64_t move_records(struct nt_drain *drain, enum nt_drain_how how) {
  int64_t moved = 0;
  nt_drain_look(drain);
  if (!time_for_frames(drain, how))
    return 0;
  while (drain->waiting_calls) {
    const int64_t rc = nt_drain_batch(drain);
    if (rc < 0)
      return rc;
    if (rc == 0)
      break;
    moved += rc;
  }
  drain->waiting_since = 0;
  drain->waiting_calls = 0;
  return moved;
}

/* How long the state in the file may be old. */
static uint64_t state_age(const struct nt_drain *drain) {
  const bool busy = drain->active + SECOND > drain->stated;
  if (drain->file.network)
    return STATE_NETWORK;
  return busy ? SECOND : STATE_IDLE;
}

static int write_out(struct nt_drain *drain, enum nt_drain_how how) {
  const uint64_t idle = drain->now - drain->active;
  /* Calls that wait for more have not stopped: at a slow pace they wait for a second, each time. */
  const bool stall = !drain->stalled && !drain->waiting_calls &&
                     idle >= (drain->file.network ? STALL_NETWORK : SECOND);
  const bool asked = how != NT_DRAIN_LAZY;
  int rc = 0;
  if (asked || stall || !drain->file.network)
    rc = flush_spool(drain);
  if (drain->now >= drain->retry &&
      (asked || stall || drain->now - drain->stated >= state_age(drain))) {
    const int state = write_state(drain);
    rc = rc ? rc : state;
  }
  if ((stall || how == NT_DRAIN_FLUSH) && !rc) {
    drain->stalled = drain->stalled || stall;
    rc = nt_trace_file_sync(&drain->file);
    if (rc)
      count_error(drain);
  }
  return rc;
}

int64_t nt_drain_tick(struct nt_drain *drain, enum nt_drain_how how) {
  drain->now = nt_clock_ns(CLOCK_MONOTONIC);
  if (how != NT_DRAIN_LAZY)
    drain->retry = 0;
  const int64_t moved = move_records(drain, how);
  if (moved > 0) {
    drain->active = drain->now;
    drain->stalled = false;
  }
  if (!drain->foreign)
    nt_drain_free_chunks(drain);
  if (moved >= 0 && !drain->foreign)
    nt_drain_endings(drain, !drain->waiting_since);
  nt_drain_marks(drain, how);
  nt_drain_define_open(drain);
  if (!drain->file.evidence_version && drain->now >= drain->retry &&
      atomic_load_explicit(&drain->area->header->evidence_length, memory_order_acquire))
    nt_drain_evidence(drain);
  const int rc = write_out(drain, how);
  return moved < 0 ? moved : rc ? rc : moved;
}
