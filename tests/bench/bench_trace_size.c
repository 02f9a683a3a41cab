/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a whole trace file for one call, beside what other recorders write for the same calls.
 *
 * The calls of call_pattern.h go through an area, its ring and the library's drain into a file, with all that belongs to
 * them: communicators, streams, a Python stack of FRAMES frames for each place in the program, the environment, and marks
 * of the GPU as a look every 20 ms leaves them. One file has room for all calls, another one is a ring of 8 MiB that goes
 * round. GroupStart is no record of its own, as in the library.
 */
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "call_pattern.h"
#include "measure.h"
#include "nccl/nccl_api.h"
#include "other_formats.h"
#include "trace/drain.h"
#include "trace/python_lines.h"
#include "trace/reader.h"
#include "trace/ring.h"

enum { PORTION = 1 << 17, TICK_CALLS = 1024, FRAMES = 16, PLACES = 1024, FIRST_STACK = FRAMES };
enum {
  CALLS = 1000000,
  SLOW_CALLS = 100000,
  SLOWER = 20, /* the pattern has some 20,000 calls a second */
  RING_CALLS = 4000000,
  RING_BYTES = 8 << 20,
  ALL_BYTES = 64 << 20,
  JSON_CALLS = 100000
};
enum { LOOK_TICKS = 20000 * CALL_PATTERN_TICKS_PER_US, TIMED_EVERY = 64 };
#define SECOND_TICKS (UINT64_C(1000000) * CALL_PATTERN_TICKS_PER_US)

struct writer {
  struct nt_area area;
  struct nt_ring_writer ring;
  struct nt_drain *drain;
  uint32_t stacks[PLACES];                                             /* by the pattern's number */
  uint32_t launches[CALL_PATTERN_STREAMS], seen[CALL_PATTERN_STREAMS]; /* by stream */
  double slower;
  uint64_t looked;  /* when the GPU was looked at last */
  uint64_t written; /* when a slow job's calls were written last */
  uint32_t since_tick;
  uint64_t calls, fewest, most; /* records so far; what the ring held since it went round */
  uint64_t pickle, log;         /* bytes of others' records */
};

static char directory[] = "/tmp/nccltrace-bench-XXXXXX";
static char areas[] = "/dev/shm/nccltrace-bench-XXXXXX";

/* ---- what is there before the first call --------------------------------------------------------- */

/* A function of sixty lines, as its interpreter compiled it. */
static uint32_t add_code(struct nt_area *area, const char *file, int number) {
  struct nt_code_region *region = area->codes;
  const uint32_t used = atomic_load(&region->used);
  unsigned char *at = (unsigned char *)region + used;
  char name[32];
  snprintf(name, sizeof name, "function_%d", number);
  const struct nt_code_entry entry = {.identity = (uint64_t)number + 1,
                                      .first_line = 10 * number + 1,
                                      .lines = NT_PYTHON_LINES_3_10,
                                      .file_length = (uint32_t)strlen(file),
                                      .name_length = (uint32_t)strlen(name),
                                      .table_length = 120};
  memcpy(at, &entry, sizeof entry);
  at += sizeof entry;
  memcpy(at, file, entry.file_length);
  memcpy(at + entry.file_length, name, entry.name_length);
  at += entry.file_length + entry.name_length;
  for (unsigned i = 0; i < entry.table_length; i++)
    at[i] = i % 2 ? i % 3 : 2 + i % 5 * 2;
  const uint32_t size =
      (uint32_t)sizeof entry + entry.file_length + entry.name_length + entry.table_length;
  atomic_store(&region->used, used + ((size + 7) & ~7u));
  return used / NT_CODE_UNIT;
}

static uint32_t add_node(struct nt_area *area, uint32_t parent, uint32_t code, int offset) {
  const uint32_t id = atomic_fetch_add(&area->stacks->used, 1);
  struct nt_stack_node *nodes = (struct nt_stack_node *)(void *)(area->stacks + 1);
  nodes[id] = (struct nt_stack_node){.parent = parent,
                                     .code = code,
                                     .offset = offset,
                                     .depth = parent ? nodes[parent].depth + 1 : 1};
  return id;
}

/* Each place is a function of its own, below the frames of the program and its framework. */
static void add_stack(struct writer *w, uint32_t place) {
  uint32_t node = FIRST_STACK - 1; /* the innermost of those that all have */
  if (!w->stacks[place])
    w->stacks[place] =
        add_node(&w->area, node, add_code(&w->area, "/job/model.py", (int)place), 20);
}

static void add_program(struct writer *w) {
  uint32_t node = 0;
  for (int i = 1; i < FIRST_STACK; i++)
    node = add_node(&w->area, node,
                    add_code(&w->area, "/opt/venv/lib/python3.11/site-packages/torch/module.py", i),
                    2 * i);
}

static void add_comms(struct writer *w) {
  static const char *const names[CALL_PATTERN_COMMS] = {"", "fsdp", "tp", "pp", "world", "experts"};
  for (uint32_t i = 1; i < CALL_PATTERN_COMMS; i++) {
    struct nt_comm_slot *slot = &w->area.comms[i];
    slot->def = (struct nt_comm_def){.number = i,
                                     .rank = 3,
                                     .nranks = 8,
                                     .world_rank = 3,
                                     .ordinal = 1,
                                     .origin = NT_COMM_INIT,
                                     .handle = 0x485f9580 + i * 0x1000,
                                     .blocking = -1};
    memset(slot->def.id, (int)(0x35 + i), sizeof slot->def.id);
    memset(slot->def.uid_hash, (int)(0x53 + i), sizeof slot->def.uid_hash);
    snprintf(slot->def.name, sizeof slot->def.name, "%s", names[i]);
    atomic_store(&slot->live.state, NT_COMM_LIVE);
  }
  for (uint32_t i = 1; i < CALL_PATTERN_STREAMS; i++) {
    w->area.streams[i].number = i;
    atomic_store(&w->area.streams[i].handle, 0x5590c000 + i * 64);
  }
}

/* Some kilobytes, as they are. */
static void add_evidence(struct writer *w) {
  char *to = w->area.evidence;
  const uint32_t room = w->area.header->evidence_size;
  uint32_t used = 0;
  for (char **variable = environ; *variable; variable++) {
    const uint32_t length = (uint32_t)strlen(*variable) + 5;
    if (strchr(*variable, '\n') || used + length + 1 > room)
      continue;
    used += (uint32_t)snprintf(to + used, room - used, "env.%s\n", *variable);
  }
  atomic_store(&w->area.header->evidence_length, used);
}

static int begin(struct writer *w, const char *name, uint64_t size) {
  struct nt_drain_config config = {.size = size, .keep_attempts = 2};
  struct nt_error err = {0};
  snprintf(config.directory, sizeof config.directory, "%s/%s", directory, name);
  if (mkdir(config.directory, 0700) || nt_area_create(areas, 2560 << 10, &w->area))
    return -1;
  struct nt_area_header *h = w->area.header;
  h->world_rank = 3;
  h->world_size = 1024;
  h->clock_kind = NT_CLOCK_TSC;
  h->clock_first = (struct nt_clock_sync){0, 0, UINT64_C(1764384000000000000)};
  h->clock_last = h->clock_first;
  add_comms(w);
  add_program(w);
  add_evidence(w);
  w->area.threads[0].index = w->ring.thread = 1;
  snprintf(w->area.threads[0].name, sizeof w->area.threads[0].name, "pt_main_thread");
  atomic_store(&w->area.threads[0].tid, 40000);
  atomic_store(&h->ready, 1);
  w->fewest = UINT64_MAX;
  if (!nt_drain_open(&w->area, &config, &w->drain, &err))
    return 0;
  fprintf(stderr, "bench_trace_size: %s\n", err.reason);
  return -1;
}

/* ---- calls and marks ----------------------------------------------------------------------------- */

static void put_mark(struct writer *w, uint32_t stream, uint16_t kind, uint32_t first,
                     uint32_t last, uint64_t not_before, uint64_t by) {
  struct nt_area_header *h = w->area.header;
  const uint64_t at = atomic_load(&h->gpu_marks);
  w->area.gpu_mark_ring[at % h->gpu_mark_count] = (struct nt_gpu_mark){.stream = stream,
                                                                       .kind = kind,
                                                                       .first = first,
                                                                       .last = last,
                                                                       .not_before = not_before,
                                                                       .by = by};
  atomic_store(&h->gpu_marks, at + 1);
}

/* What the gpu thread writes at a look: how far each stream has come, and how long one launch in 64 took. */
static void look(struct writer *w, uint64_t now) {
  for (uint32_t i = 1; i < CALL_PATTERN_STREAMS; i++) {
    const uint32_t from = w->seen[i] + 1, to = w->launches[i];
    if (to < from)
      continue;
    for (uint32_t at = (from + TIMED_EVERY - 1) / TIMED_EVERY * TIMED_EVERY; at <= to;
         at += TIMED_EVERY)
      put_mark(w, i, NT_GPU_DURATION, at, at, 300000 + now % 40000, 0);
    put_mark(w, i, NT_GPU_REACHED, from, to, w->looked, now);
    put_mark(w, i, NT_GPU_FINISHED, from, to, w->looked, now);
    w->seen[i] = to;
  }
  w->looked = now;
}

static int tick(struct writer *w, uint64_t now, enum nt_drain_how how) {
  struct nt_area_header *h = w->area.header;
  const uint64_t ns = now * 1000 / CALL_PATTERN_TICKS_PER_US;
  h->clock_last = (struct nt_clock_sync){now, ns, h->clock_first.realtime_ns + ns};
  w->since_tick = 0;
  const bool failed = nt_drain_tick(w->drain, how) < 0;
  const uint64_t gone = atomic_load(&h->overwritten);
  if (gone && w->calls - gone < w->fewest)
    w->fewest = w->calls - gone;
  if (gone && w->calls - gone > w->most)
    w->most = w->calls - gone;
  return failed ? -1 : 0;
}

static int put(struct writer *w, const struct nt_batch_call *call) {
  unsigned char other[OTHER_FORMATS_MOST];
  struct nt_record *to = nt_ring_next(&w->area, &w->ring);
  const uint64_t now = call->record.enter;
  if (!to)
    return -1;
  w->pickle += flight_recorder_entry(call, w->calls, FRAMES, other);
  w->log += nccl_log_line(call, (char *)other);
  add_stack(w, call->record.stack % PLACES);
  *to = call->record;
  to->stack = w->stacks[call->record.stack % PLACES];
  to->comm = (uint16_t)call->comm;
  to->stream = (uint16_t)call->stream;
  to->duration = nt_duration_encode(call->record.duration);
  nt_ring_publish(&w->ring);
  nt_ring_close(&w->ring);
  w->calls++;
  w->launches[call->stream] = call->record.launch;
  if (now - w->looked >= LOOK_TICKS)
    look(w, now);
  if (w->slower > 0 && now - w->written >= SECOND_TICKS) {
    w->written = now;
    return tick(w, now, NT_DRAIN_FLUSH);
  }
  return ++w->since_tick < TICK_CALLS || w->slower > 0 ? 0 : tick(w, now, NT_DRAIN_LAZY);
}

static int write_calls(struct writer *w, uint64_t wanted) {
  struct call_pattern pattern = {.room = PORTION, .now = UINT64_C(1000000000), .slower = w->slower};
  int status = 0;
  pattern.calls = calloc(PORTION, sizeof *pattern.calls);
  if (!pattern.calls)
    return -1;
  while (w->calls < wanted && !status) {
    pattern.used = 0;
    call_pattern_fill(&pattern);
    for (uint32_t i = 0; i < pattern.used && w->calls < wanted && !status; i++)
      if (pattern.calls[i].record.fn != NT_FN_GroupStart)
        status = put(w, &pattern.calls[i]);
  }
  free(pattern.calls);
  return status ? status : tick(w, pattern.now, NT_DRAIN_FINAL);
}

/* ---- what became of them ------------------------------------------------------------------------- */

/* Bytes that the file takes on the disk, without the holes in its reserved places; -1 if it does not hold the calls that were not overwritten. */
static double file_size(struct writer *w, uint64_t bound) {
  const char *path = w->area.header->file_path;
  const struct nt_call *calls;
  struct nt_trace *trace;
  struct nt_error err;
  struct stat status;
  if (stat(path, &status) || nt_trace_open(path, NT_OPEN_NO_AREA, &trace, &err))
    return -1;
  const int64_t count = nt_trace_calls(trace, &calls, &err);
  const bool whole = count >= 0 &&
                     (uint64_t)count + atomic_load(&w->area.header->overwritten) == w->calls &&
                     !atomic_load(&w->area.header->lost);
  nt_trace_close(trace);
  return whole && (uint64_t)status.st_size <= bound ? 512.0 * (double)status.st_blocks : -1;
}

static double json_size(const char *program, const char *path) {
  char command[2048], buffer[65536], own[512];
  double bytes = 0;
  snprintf(own, sizeof own, "%s", program);
  snprintf(command, sizeof command, "'%s/../nccltrace' show --json --tail=%d '%s'", dirname(own),
           JSON_CALLS, path);
  FILE *pipe = popen(command, "r");
  for (size_t got; pipe && (got = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    bytes += (double)got;
  return pipe && pclose(pipe) == 0 ? bytes : -1;
}

static void finish(struct writer *w) {
  nt_drain_close(w->drain, false);
  if (w->area.header)
    nt_area_close(&w->area);
}

static int whole_file(const char *program) {
  struct writer w = {0};
  int missed = -1;
  if (!begin(&w, "all", ALL_BYTES) && !write_calls(&w, CALLS)) {
    const double bytes = file_size(&w, ALL_BYTES),
                 json = json_size(program, w.area.header->file_path);
    const double marks = (double)atomic_load(&w.area.header->gpu_marks);
    if (bytes > 0 && json > 0) {
      missed = report("trace_bytes_per_call", bytes / CALLS, "bytes", 5);
      printf("trace_gpu_marks_per_1000_calls %.1f marks target - ok\n", marks * 1000 / CALLS);
      printf("flight_recorder_bytes_per_call %.1f bytes target - ok\n", (double)w.pickle / CALLS);
      printf("nccl_log_bytes_per_call %.1f bytes target - ok\n", (double)w.log / CALLS);
      printf("json_bytes_per_call %.1f bytes target - ok\n", json / JSON_CALLS);
    }
  }
  finish(&w);
  return missed;
}

/* A thousand calls a second: frames are small, and there is a look at the GPU for every twenty calls. */
static int slow_file(void) {
  struct writer w = {.slower = SLOWER};
  int missed = -1;
  if (!begin(&w, "slow", ALL_BYTES) && !write_calls(&w, SLOW_CALLS)) {
    const double bytes = file_size(&w, ALL_BYTES);
    const double marks = (double)atomic_load(&w.area.header->gpu_marks);
    if (bytes > 0) {
      missed = report("trace_bytes_per_call_at_1000_a_second", bytes / SLOW_CALLS, "bytes", 5);
      printf("trace_gpu_marks_per_1000_calls_at_1000_a_second %.1f marks target - ok\n",
             marks * 1000 / SLOW_CALLS);
    }
  }
  finish(&w);
  return missed;
}

static int ring(void) {
  struct writer w = {0};
  int missed = -1;
  if (!begin(&w, "ring", RING_BYTES) && !write_calls(&w, RING_CALLS)) {
    if (file_size(&w, RING_BYTES) > 0 && w.most) {
      missed = report_least("trace_calls_in_8_mib", (double)w.most, "calls", 1500000);
      missed |= report_least("trace_calls_in_8_mib_least", (double)w.fewest, "calls", 1500000);
    }
  }
  finish(&w);
  return missed;
}

int main(int argc, char **argv) {
  (void)argc;
  if (!mkdtemp(directory) || !mkdtemp(areas)) {
    perror("bench_trace_size: no temporary directory in /tmp and /dev/shm");
    return 1;
  }
  const int all = whole_file(argv[0]), slow = slow_file(), rounds = ring();
  remove_tree(directory);
  remove_tree(areas);
  if (all < 0 || slow < 0 || rounds < 0)
    fprintf(stderr, "bench_trace_size: the trace could not be written or is not whole\n");
  return all || slow || rounds;
}
