/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader's face: finding a trace's parts, joining what they say, and answering questions about it.
 *
 * Opening reads what is small (identity, evidence, state, definitions) and copies the area, if there is
 * one, so that a living process is seen at one moment. Calls are read when they are first asked for.
 */
#include "trace/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/read_parts.h"

int nt_refuse(struct nt_error *err, int code, uint64_t offset, const char *format, ...) {
  va_list args;
  err->code = -code;
  err->offset = offset;
  va_start(args, format);
  vsnprintf(err->reason, sizeof err->reason, format, args);
  va_end(args);
  return -code;
}

void nt_warn(struct nt_trace *trace, const char *format, ...) {
  if (trace->warning_count >= NT_WARNINGS_MAX) {
    trace->warnings_dropped++;
    return;
  }
  if (!trace->warnings)
    trace->warnings = calloc(NT_WARNINGS_MAX, sizeof *trace->warnings);
  char *line = NULL;
  va_list args;
  va_start(args, format);
  if (trace->warnings && vasprintf(&line, format, args) >= 0)
    trace->warnings[trace->warning_count++] = line;
  va_end(args);
}

static void tell_damage(void *ctx, uint64_t offset, const char *reason) {
  nt_warn(ctx, "at byte %llu: %s", (unsigned long long)offset, reason);
}

struct nt_damage nt_warn_of_damage(struct nt_trace *trace) {
  return (struct nt_damage){tell_damage, trace};
}

int64_t nt_read_time(const struct nt_trace *trace, uint64_t ticks) {
  const struct nt_clock_sync *first = &trace->facts.clock_first, *last = &trace->facts.clock_last;
  const double limit = 4e18; /* nanoseconds: 126 years, and two of them fit in 63 bits */
  const double since = (double)(int64_t)(ticks - last->ticks) * trace->rate;
  if (last->realtime_ns > (uint64_t)limit || since > limit || since < -limit)
    return first->realtime_ns > (uint64_t)limit ? 0 : (int64_t)first->realtime_ns;
  return nt_clock_realtime(trace->rate, first, last, ticks);
}

/* ---- opening ----------------------------------------------------------------------------------- */

static bool is_area(const char *path) {
  char magic[8];
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return false;
  const bool yes = read(fd, magic, sizeof magic) == sizeof magic &&
                   memcmp(magic, NT_AREA_MAGIC, sizeof magic) == 0;
  close(fd);
  return yes;
}

/* What the area says is newer than the file's state and definitions. */
static int join_facts(struct nt_facts *file, const struct nt_facts *area) {
  int rc = 0;
  for (size_t i = 0; !rc && i < area->comm_count; i++)
    rc = nt_facts_add_comm(file, &area->comms[i]);
  for (size_t i = 0; !rc && i < area->stream_count; i++)
    rc = nt_facts_add_stream(file, &area->streams[i]);
  for (size_t i = 0; !rc && i < area->thread_count; i++)
    rc = nt_facts_add_thread(file, &area->threads[i]);
  file->peer_count = 0;
  for (size_t i = 0; !rc && i < area->peer_count; i++)
    rc = nt_facts_add_peer(file, &area->peers[i]);
  file->process = area->process;
  file->has_process = true;
  file->clock_first = area->clock_first;
  if (area->clock_last.ticks >= file->clock_last.ticks)
    file->clock_last = area->clock_last;
  return rc;
}

static int by_number(const void *a, const void *b) {
  const struct nt_trace_comm *x = a, *y = b;
  return x->def.number < y->def.number ? -1 : x->def.number > y->def.number;
}

static int make_comms(struct nt_trace *trace) {
  const struct nt_facts *facts = &trace->facts;
  trace->comms = calloc(facts->comm_count + 1, sizeof *trace->comms);
  if (!trace->comms)
    return -NT_ERR_MEMORY;
  trace->comm_count = facts->comm_count;
  for (size_t i = 0; i < facts->comm_count; i++) {
    const struct nt_comm_facts *from = &facts->comms[i];
    const uint64_t last = from->live.last_enter;
    trace->comms[i] = (struct nt_trace_comm){
        .def = from->def,
        .state = from->live.state,
        .collectives = from->live.collectives,
        .all_peer = from->live.all_peer,
        .sends = from->live.sends,
        .recvs = from->live.recvs,
        .async_error = from->live.async_error,
        .sum = from->live.sum,
        .created_ns = nt_read_time(trace, from->def.enter),
        .last_enter_ns = last ? nt_read_time(trace, last) : 0,
    };
    memcpy(trace->comms[i].sums, (const void *)from->live.sums, sizeof trace->comms[i].sums);
  }
  qsort(trace->comms, trace->comm_count, sizeof *trace->comms, by_number);
  return 0;
}

static void describe(struct nt_trace *trace) {
  struct nt_process_info *info = &trace->info;
  const struct nt_super *identity = &trace->identity;
  info->world_rank = identity->world_rank;
  info->world_size = identity->world_size;
  info->local_rank = identity->local_rank;
  info->pid = identity->pid;
  info->start_time = identity->start_time;
  info->pid_ns = identity->pid_ns;
  info->nonce = identity->nonce;
  info->restart = identity->restart;
  info->host = identity->host;
  info->run_id = identity->run_id;
  info->boot_id = identity->boot_id;
  info->from_file = trace->has_file;
  info->from_area = trace->area.present;
  info->aged = (trace->aged && !trace->area.present) ||
               (identity->digest_ns && identity->digest_flags & NT_DIGEST_AGED);
  info->file_path = trace->file_path[0] ? trace->file_path : NULL;
  info->digest_ns = (int64_t)identity->digest_ns;
  info->left_out = identity->left_out;
}

/* The file that an area names, if it still is that process's; else the area stands alone. */
static void find_file(struct nt_trace *trace) {
  struct nt_trace probe = {0};
  struct nt_error ignored = {0};
  if (!trace->file_path[0])
    return;
  if (nt_read_super(&probe, trace->file_path, &ignored)) {
    nt_warn(trace, "the trace file %s: %s", trace->file_path, ignored.reason);
    return;
  }
  const struct nt_super *a = &probe.identity, *b = &trace->identity;
  if (a->pid != b->pid || a->start_time != b->start_time || a->nonce != b->nonce) {
    nt_warn(trace, "the trace file %s belongs to another process now", trace->file_path);
    return;
  }
  trace->identity.layout = probe.identity.layout;
  trace->dev = probe.dev;
  trace->ino = probe.ino;
  trace->size = probe.size;
  trace->has_file = true;
}

static int read_parts(struct nt_trace *trace, const char *path, unsigned flags,
                      struct nt_error *err) {
  int rc = nt_read_super(trace, path, err);
  if (rc == -NT_ERR_FOREIGN && is_area(path)) {
    memset(err, 0, sizeof *err);
    rc = nt_read_area(trace, path, NULL, err);
    if (rc)
      return rc;
    find_file(trace);
  } else if (rc) {
    return rc;
  } else {
    const struct nt_layout layout = trace->identity.layout;
    if (!(flags & NT_OPEN_NO_AREA) && !trace->identity.digest_ns)
      nt_find_area(trace);
    trace->identity.layout = layout;
  }
  if (trace->has_file) {
    struct nt_facts area = trace->facts;
    memset(&trace->facts, 0, sizeof trace->facts);
    rc = nt_read_file_facts(trace, err);
    if (!rc && trace->area.present)
      rc = join_facts(&trace->facts, &area);
    nt_facts_free(&area);
    if (rc)
      return err->code ? rc : nt_refuse(err, -rc, 0, "out of memory");
  }
  if (!trace->facts.clock_first.ticks)
    trace->facts.clock_first = trace->identity.clock_first;
  if (trace->facts.clock_last.ticks < trace->facts.clock_first.ticks)
    trace->facts.clock_last = trace->facts.clock_first;
  trace->rate = nt_clock_rate(trace->identity.clock_kind, &trace->facts.clock_first,
                              &trace->facts.clock_last);
  nt_finish_marks(trace);
  rc = nt_finish_dumps(trace);
  if (!rc)
    rc = make_comms(trace);
  return rc ? nt_refuse(err, -rc, 0, "out of memory") : 0;
}

int nt_trace_open(const char *path, unsigned flags, struct nt_trace **out, struct nt_error *err) {
  return nt_trace_open_in(NULL, path, flags, out, err);
}

int nt_trace_open_in(struct nt_read_room *room, const char *path, unsigned flags,
                     struct nt_trace **out, struct nt_error *err) {
  memset(err, 0, sizeof *err);
  *out = NULL;
  struct nt_trace *trace = calloc(1, sizeof *trace);
  if (!trace)
    return nt_refuse(err, NT_ERR_MEMORY, 0, "out of memory");
  trace->own_room = !room;
  trace->room = room ? room : nt_read_room_new();
  if (!trace->room) {
    free(trace);
    return nt_refuse(err, NT_ERR_MEMORY, 0, "out of memory");
  }
  int rc = read_parts(trace, path, flags, err);
  if (rc) {
    nt_trace_close(trace);
    return rc;
  }
  describe(trace);
  nt_judge_process(trace);
  *out = trace;
  return 0;
}

void nt_trace_close(struct nt_trace *trace) {
  if (!trace)
    return;
  nt_area_copy_free(&trace->area);
  nt_facts_free(&trace->facts);
  for (size_t i = 0; i < trace->warning_count; i++)
    free(trace->warnings[i]);
  free(trace->warnings);
  free(trace->comms);
  free(trace->evidence);
  free(trace->lines);
  if (trace->own_room)
    nt_read_room_free(trace->room);
  nt_stack_table_free(&trace->stacks);
  free(trace->marks);
  nt_window_free(&trace->window);
  nt_known_dumps_free(&trace->dumps);
  free(trace);
}

/* ---- answers ----------------------------------------------------------------------------------- */

const struct nt_process_info *nt_trace_process(const struct nt_trace *trace) {
  return &trace->info;
}

const char *nt_trace_evidence(const struct nt_trace *trace, const char *key) {
  for (size_t i = 0; i < trace->line_count; i++)
    if (!strcmp(trace->lines[i].key, key))
      return trace->lines[i].value;
  return NULL;
}

bool nt_trace_evidence_at(const struct nt_trace *trace, size_t i, const char **key,
                          const char **value) {
  if (i >= trace->line_count)
    return false;
  *key = trace->lines[i].key;
  *value = trace->lines[i].value;
  return true;
}

size_t nt_trace_comm_count(const struct nt_trace *trace) {
  return trace->comm_count;
}

const struct nt_trace_comm *nt_trace_comm_at(const struct nt_trace *trace, size_t i) {
  return i < trace->comm_count ? &trace->comms[i] : NULL;
}

const struct nt_trace_comm *nt_trace_comm_by_number(const struct nt_trace *trace, uint32_t number) {
  size_t low = 0, high = trace->comm_count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (trace->comms[middle].def.number < number)
      low = middle + 1;
    else
      high = middle;
  }
  return low < trace->comm_count && trace->comms[low].def.number == number ? &trace->comms[low]
                                                                           : NULL;
}

size_t nt_trace_stream_count(const struct nt_trace *trace) {
  return trace->facts.stream_count;
}

struct nt_trace_stream nt_trace_stream_at(const struct nt_trace *trace, size_t i) {
  const struct nt_stream_facts *from = &trace->facts.streams[i];
  return (struct nt_trace_stream){
      .number = from->number,
      .device = from->device,
      .handle = from->handle,
      .issued = from->gpu.issued,
      .reached = from->gpu.reached,
      .finished = from->gpu.finished,
      .frozen = from->gpu.frozen,
      .frozen_after = from->gpu.frozen_after,
      .unmarked = from->gpu.unmarked,
      .unmarked_last = from->gpu.unmarked_last,
      .followed = from->gpu.followed,
      .error = from->gpu.error,
      .polled_ns = from->gpu.polled ? nt_read_time(trace, from->gpu.polled) : 0,
  };
}

/* The newest launch of which the marks do not tell whether it was complete. Behind `finished` come those without
 * marks, up to the next with marks; of a file that does not tell that one, at most as many as there are at all. */
static uint32_t last_in_doubt(const struct nt_trace_stream *stream, uint32_t launch) {
  const bool released = launch > stream->frozen && stream->frozen > stream->finished;
  if (stream->unmarked && !stream->unmarked_last)
    return stream->finished + stream->unmarked;
  return stream->followed > stream->finished && !released ? stream->followed - 1
                                                          : stream->unmarked_last;
}

enum nt_launch_state nt_trace_launch(const struct nt_trace_stream *stream, uint32_t launch) {
  if (!stream->polled_ns || !launch)
    return NT_LAUNCH_UNKNOWN;
  if (launch <= stream->finished || launch < stream->reached)
    return NT_LAUNCH_FINISHED;
  if (launch == stream->reached)
    return NT_LAUNCH_REACHED;
  return launch <= last_in_doubt(stream, launch) ? NT_LAUNCH_UNKNOWN : NT_LAUNCH_ENQUEUED;
}

uint32_t nt_trace_thread_tid(const struct nt_trace *trace, uint32_t index) {
  for (size_t i = 0; i < trace->facts.thread_count; i++)
    if (trace->facts.threads[i].index == index)
      return trace->facts.threads[i].tid;
  return 0;
}

size_t nt_trace_peer_count(const struct nt_trace *trace) {
  return trace->facts.peer_count;
}

const struct nt_peer_note *nt_trace_peer_at(const struct nt_trace *trace, size_t i) {
  return i < trace->facts.peer_count ? &trace->facts.peers[i] : NULL;
}

size_t nt_trace_warning_count(const struct nt_trace *trace) {
  return trace->warning_count;
}

const char *nt_trace_warning_at(const struct nt_trace *trace, size_t i) {
  return i < trace->warning_count ? trace->warnings[i] : NULL;
}

bool nt_trace_is_cut(const struct nt_trace *trace) {
  return trace->window.cut;
}

bool nt_trace_is_short(const struct nt_trace *trace) {
  return trace->window.lacks || (trace->window.cut && trace->warning_count);
}

int nt_trace_stack(struct nt_trace *trace, uint32_t id, const struct nt_stack_frame **frames) {
  return nt_stack_table_get(&trace->stacks, id, frames);
}

int64_t nt_trace_calls(struct nt_trace *trace, const struct nt_call **out, struct nt_error *err) {
  memset(err, 0, sizeof *err);
  if (!trace->calls_loaded) {
    int rc = nt_assemble_calls(trace, err);
    if (rc)
      return rc;
    nt_area_copy_free(&trace->area);
  }
  *out = trace->calls;
  return (int64_t)trace->call_count;
}
