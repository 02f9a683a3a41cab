/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "preload/dump_signal.h"
#include "preload/evidence.h"
#include "preload/log.h"
#include "preload/nccl_copies.h"
#include "preload/oom.h"
#include "preload/own_thread.h"
#include "preload/peers.h"
#include "preload/process.h"
#include "preload/python_layout.h"
#include "preload/requests.h"
#include "preload/watchdog.h"
#include "trace/drain.h"

enum {
  TICK_MS = 50,
  HOUSEKEEPING_MS = 500, /* dead threads, neighbours, evidence */
  MEETING_S = 30,        /* a job's start: neighbours are looked for as soon as they come */
  COLLECT_GRACE_S = 600,
};

static struct nt_settings settings;

/* Opens the area in this thread's table; what is open there holds the lock. */
static void reopen_area(struct nt_area *area, bool private_table) {
  struct nt_area again;
  area->fd = -1;
  if (!area->path[0] || !private_table || nt_area_open(area->path, 1, &again) != 0)
    return;
  area->fd = again.fd;
  again.fd = -1;
  nt_area_close(&again);
}

/* The lock by which others see that this process lives. A collector that looks at the area may hold it for a
 * moment. */
static bool lock_area(const struct nt_area *area) {
  return area->fd >= 0 && nt_area_lock(area->fd) == 0;
}

static void beat(struct nt_area_header *header) {
  struct nt_clock_sync sync;
  nt_clock_sync(nt_process.clock, &sync);
  atomic_fetch_or_explicit(&header->clock_guard, 1, memory_order_acq_rel);
  header->clock_last = sync;
  atomic_fetch_add_explicit(&header->clock_guard, 1, memory_order_release);
  atomic_store_explicit(&header->heartbeat_mono_ns, sync.monotonic_ns, memory_order_relaxed);
  atomic_store_explicit(&header->heartbeat_ns, sync.realtime_ns, memory_order_release);
}

/* Not by way of /proc, which may not be there, or be another pid namespace's, with other numbers. */
static bool thread_exists(uint32_t tid) {
  return syscall(SYS_tgkill, getpid(), (pid_t)tid, 0) == 0 || errno != ESRCH;
}

/* A thread owns one chunk at a time: an owner of a later one with the same number is another thread, to which
 * the kernel gave the number of one that is gone. */
static bool owner_lives(const struct nt_area *area, const struct nt_chunk *chunk) {
  uint32_t tid = atomic_load_explicit(&chunk->tid, memory_order_relaxed);
  for (uint32_t i = 0; i < nt_area_chunks_used(area->header); i++) {
    const struct nt_chunk *other = &area->chunks[i];
    if (other != chunk && atomic_load_explicit(&other->tid, memory_order_relaxed) == tid &&
        other->serial > chunk->serial && other->thread != chunk->thread &&
        atomic_load_explicit(&other->state, memory_order_acquire) == NT_CHUNK_OWNED)
      return false;
  }
  return !tid || thread_exists(tid);
}

/* The owner is gone: its chunk is complete as it is, and a record it left open stays so. */
static void retire_chunk(struct nt_area *area, struct nt_chunk *chunk) {
  uint32_t published = atomic_load_explicit(&chunk->published, memory_order_acquire);
  uint32_t closed = atomic_load_explicit(&chunk->closed, memory_order_acquire);
  if (closed < published && published <= NT_CHUNK_RECORDS) {
    chunk->records[published - 1].flags |= NT_CALL_ABANDONED;
    atomic_store_explicit(&chunk->closed, published, memory_order_release);
    atomic_fetch_add_explicit(&area->header->abandoned, 1, memory_order_relaxed);
  }
  nt_chunk_retire(area, chunk, published <= NT_CHUNK_RECORDS ? published : 0);
}

/* Names of threads that are gone are kept, for records still to be drained, until their places are needed. */
static void forget_threads(struct nt_area *area) {
  uint32_t count = area->header->thread_count, used = 0;
  for (uint32_t i = 0; i < count; i++)
    used += atomic_load_explicit(&area->threads[i].tid, memory_order_relaxed) != 0;
  for (uint32_t i = 0; i < count && used > count / 2; i++) {
    uint32_t tid = atomic_load_explicit(&area->threads[i].tid, memory_order_acquire);
    if (tid && !thread_exists(tid))
      atomic_store_explicit(&area->threads[i].tid, 0, memory_order_release);
  }
}

static void bury_threads(struct nt_area *area) {
  for (uint32_t i = 0; i < nt_area_chunks_used(area->header); i++) {
    struct nt_chunk *chunk = &area->chunks[i];
    uint32_t generation = atomic_load_explicit(&chunk->generation, memory_order_acquire);
    if (atomic_load_explicit(&chunk->state, memory_order_acquire) == NT_CHUNK_OWNED &&
        !(generation & 1) && !owner_lives(area, chunk) &&
        atomic_load_explicit(&chunk->state, memory_order_acquire) ==
            NT_CHUNK_OWNED) /* it did not */
      retire_chunk(area, chunk);
  }
  forget_threads(area);
}

static struct nt_drain_config config; /* with which the file was made */

static bool own_descriptors; /* else they are the application's: the less is opened the better */

static struct nt_drain *open_file(struct nt_area *area) {
  config = (struct nt_drain_config){.size = settings.file_size,
                                    .keep_attempts = settings.keep_attempts,
                                    .high_descriptor = !own_descriptors};
  struct nt_error error = {0};
  struct nt_drain *drain = NULL;
  if (!settings.directory[0]) {
    nt_complain(area->header,
                "cannot write a trace: the name of the directory is longer than %zu "
                "bytes: set NCCLTRACE_DIR to a shorter one",
                sizeof(settings.directory) - 1);
    return NULL;
  }
  memcpy(config.directory, settings.directory, sizeof(config.directory));
  if (nt_drain_open(area, &config, &drain, &error) == 0)
    return drain;
  char first[160];
  memcpy(first, error.reason, sizeof(first));
  if (settings.fallback[0]) {
    memcpy(config.directory, settings.fallback, sizeof(settings.fallback));
    if (nt_drain_open(area, &config, &drain, &error) == 0) {
      nt_log("cannot write to %s (%s), using %s", settings.directory, first, config.directory);
      return drain;
    }
  }
  nt_complain(area->header,
              "cannot write a trace in %s (%s): set NCCLTRACE_DIR to a writable "
              "directory; live evidence remains%s%s",
              settings.directory, first, area->path[0] ? ": tracediff " : " in memory", area->path);
  return NULL;
}

/* What the process is at, besides its calls. */
static void note_phase(struct nt_area_header *header) {
  const struct nt_python *python = nt_python_get();
  if (python && python->is_finalizing())
    atomic_fetch_or_explicit(&header->phase, NT_PHASE_PYTHON_ENDS, memory_order_relaxed);
}

static void *helper_main(void *unused) {
  struct nt_area *area = &nt_process.area;
  struct nt_area_header *header = area->header;
  struct nt_peers peers = {.directory = -1};
  (void)unused;
  prctl(PR_SET_NAME, "nccltrace", 0, 0, 0);
  own_descriptors = nt_own_descriptors();
  reopen_area(area, own_descriptors);
  bool locked = lock_area(area);
  nt_requests_start();
  atomic_store_explicit(&header->helper_tid, (uint32_t)syscall(SYS_gettid), memory_order_release);
  beat(header);
  struct nt_drain *drain = open_file(area);
  if (drain)
    nt_log("the trace file is %s", header->file_path);
  /* Not from the environment, which the application may be changing. */
  char directory[sizeof(area->path)];
  memcpy(directory, area->path, sizeof(directory));
  char *name = strrchr(directory, '/');
  bool shared = name && own_descriptors;
  if (name)
    *name = 0;
  if (shared) {
    nt_peers_start(&peers, directory);
    nt_drain_collect_beside(area->path, directory, COLLECT_GRACE_S);
  }
  uint64_t housekeeping = 0, started = nt_clock_ns(CLOCK_MONOTONIC);
  for (;;) {
    beat(header);
    locked = locked || lock_area(area);
    enum nt_drain_how how = nt_requests_take(drain);
    if (how == NT_DRAIN_FINAL)
      bury_threads(area);
    if (how != NT_DRAIN_LAZY)
      nt_nccl_copies_watch();
    /* A flush may be the last thing that happens here. */
    if (how != NT_DRAIN_LAZY && nt_evidence_update(area, &settings) && drain)
      nt_drain_evidence(drain);
    if (drain)
      nt_drain_tick(drain, how);
    nt_requests_answer(drain);
    uint64_t now = nt_clock_ns(CLOCK_MONOTONIC);
    if (now - housekeeping >= HOUSEKEEPING_MS * UINT64_C(1000000)) {
      housekeeping = now;
      bury_threads(area);
      note_phase(header);
      nt_dump_signal_check();
      if (own_descriptors)
        nt_oom_sample(area);
      nt_nccl_copies_watch();
      if (drain && nt_watchdog_look(area, now))
        nt_requests_dump(settings.native, nt_watchdog_stood());
      if (drain && nt_drain_renew(drain, &config) > 0)
        nt_log("the trace file was removed, a new one is %s", header->file_path);
      if (nt_evidence_update(area, &settings) && drain)
        nt_drain_evidence(drain);
    }
    if (shared && (housekeeping == now || (now - started < MEETING_S * UINT64_C(1000000000) &&
                                           nt_peers_may_have_come(&peers))))
      nt_peers_discover(&peers, directory, area);
    nt_peers_check(&peers, area);
    nt_requests_wait(TICK_MS);
  }
  return NULL;
}

int nt_helper_start(const struct nt_settings *from) {
  settings = *from;
  nt_watchdog_start(settings.watchdog_ns);
  return nt_own_thread_start(helper_main);
}
