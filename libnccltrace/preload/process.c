/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start and end of recording in this process.
 *
 * Started by the thread that creates the first communicator, under a lock that is never on the path of
 * any other call.
 */
#include "preload/process.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "preload/call_data.h"
#include "preload/comm_config.h"
#include "preload/comms.h"
#include "preload/dlsym_filter.h"
#include "preload/dump_thread.h"
#include "preload/dump_signal.h"
#include "preload/evidence.h"
#include "preload/fork_lock.h"
#include "preload/gpu_progress.h"
#include "preload/helper.h"
#include "preload/log.h"
#include "preload/nccl_copies.h"
#include "preload/native_stack.h"
#include "preload/python_layout.h"
#include "preload/python_stack.h"
#include "preload/requests.h"
#include "preload/settings.h"
#include "preload/stack_intern.h"
#include "preload/thread_state.h"
#include "preload/torch_object.h"
#include "preload/unwinder.h"
#include "trace/world.h"
#include "trace/error.h"

enum { LAST_DRAIN_MS = 200 };

NT_CALL_DATA struct nt_process nt_process;

static struct nt_guard never;
NT_CALL_DATA struct nt_guard *nt_guard = &never;

static struct nt_fork_lock lock;
static struct nt_settings
    settings; /* once read, of this process or of one that it was forked from */
static bool python_wanted;

static void wipe_guard(void) {
  memset(nt_guard, 0, sizeof(*nt_guard));
}

/* Where the kernel cannot wipe a page at fork (before 4.14, gVisor) a handler does, which sees all forks but those by a
 * bare system call. A child has its parent's page and handler. False: nothing is recorded, since a child would write
 * into its parent's area. */
static bool make_guard(void) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (nt_guard != &never)
    return true;
  struct nt_guard *guard =
      mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (guard == MAP_FAILED)
    return false;
  if (madvise(guard, page, MADV_WIPEONFORK) != 0 && pthread_atfork(NULL, NULL, wipe_guard) != 0) {
    munmap(guard, page);
    return false;
  }
  nt_guard = guard;
  return true;
}

static void fill_header(const struct nt_world *world, int rank, int nranks) {
  struct nt_area_header *header = nt_process.area.header;
  bool launched = world->rank >= 0;
  header->world_rank = launched ? world->rank : rank;
  header->world_size = launched ? world->size : nranks;
  header->local_rank = world->local_rank;
  header->restart = world->restart;
  memcpy(header->run_id, world->run_id, sizeof(header->run_id));
  header->clock_kind = nt_process.clock;
  nt_clock_sync(nt_process.clock, &header->clock_first);
  header->clock_last = header->clock_first;
  atomic_store_explicit(&header->heartbeat_ns, header->clock_first.realtime_ns,
                        memory_order_relaxed);
  atomic_store_explicit(&header->ready, 1, memory_order_release);
}

static void at_exit(int code, void *unused) {
  (void)unused;
  nt_process_leaving(code);
}

/* Without memory for its tables there are no stacks, and the evidence lacks its line on them. */
static void start_stacks(void) {
  struct nt_area *area = &nt_process.area;
  nt_python_allow(settings.python);
  bool wanted = settings.python || settings.native;
  bool ready = nt_intern_start(wanted ? area->codes : NULL, wanted ? area->stacks : NULL) == 0;
  python_wanted = settings.python && ready && nt_intern_tables;
  nt_python_stack_enable(python_wanted);
  nt_native_start(settings.native);
}

/* A program may make its first communicator before it embeds an interpreter. */
static void find_python_late(void) {
  const char *version, *state;
  int saved_errno = errno;
  if (!python_wanted || nt_python_describe(&version, &state))
    return;
  nt_python_find();
  errno = saved_errno;
}

/* Why an area could not be made where it should be: struct nt_area, fallback_reason. */
static const char *refusal(int reason) {
  switch (-reason) {
  case NT_ERR_SPACE:
    return "has too little room, or ulimit -f allows too little";
  case NT_ERR_FOREIGN:
    return "is not on a tmpfs";
  case NT_ERR_UNSAFE:
    return "is not a directory of this user alone";
  default:
    return "cannot be made or written";
  }
}

static void start(int rank, int nranks) {
  struct nt_world world;
  char directory[256];
  nt_dlsym_say();
  nt_world_read(getenv, &world);
  if (nt_area_directory(directory, sizeof(directory)) != 0) {
    nt_complain(NULL, "NCCLTRACE_SHM is too long: this job is not traced");
    return;
  }
  memset(&nt_process.area, 0, sizeof(nt_process.area));
  if (nt_area_create(directory, settings.area_size, &nt_process.area) != 0) {
    if (world.local_rank <= 0)
      nt_complain(NULL, "no memory or no descriptor for the live area: this job is not traced");
    return;
  }
  nt_process.clock = nt_clock_pick();
  nt_process.incarnation++;
  nt_threads_start();
  nt_comms_reset();
  nt_comm_config_reset();
  nt_gpu_reset(settings.gpu);
  start_stacks();
  fill_header(&world, rank, nranks);
  if (!nt_process.area.path[0])
    nt_complain(nt_process.area.header,
                "%s %s: live evidence will die with the process; set NCCLTRACE_SHM to a directory "
                "of yours on a tmpfs with room",
                directory, refusal(nt_process.area.fallback_reason));
  nt_dump_signal_install(settings.signal);
  nt_evidence_capture_environment();
  nt_evidence_write(&nt_process.area, &settings);
  /* The helper opens its own; the application's table is the application's. */
  close(nt_process.area.fd);
  nt_process.area.fd = -1;
  if (nt_helper_start(&settings) != 0) {
    nt_complain(nt_process.area.header, "no thread could be started: this job is not traced");
    if (nt_process.area.path[0])
      unlink(nt_process.area.path);
    nt_area_close(&nt_process.area);
    return;
  }
  nt_dump_start(); /* without it requests are answered, and the trace lacks dumps */
  on_exit(at_exit, NULL);
  __atomic_store_n(&nt_guard->recording, 1, __ATOMIC_RELEASE);
  nt_log("tracing rank %d of %d, live area %s", nt_process.area.header->world_rank,
         nt_process.area.header->world_size,
         nt_process.area.path[0] ? nt_process.area.path : "in memory");
}

/* The settings, read by the first thread that asks. False: nothing is recorded. */
static bool is_wanted(void) {
  bool wanted;
  nt_fork_lock(&lock);
  if (!nt_guard->tried && !nt_guard->settled) {
    bool guarded = make_guard();
    nt_settings_read(&settings);
    if (!settings.enabled)
      nt_log("NCCLTRACE=%s: this process is not traced", getenv("NCCLTRACE"));
    nt_guard->settled = 1;
    nt_guard->tried = !guarded || !settings.enabled;
  }
  wanted = !nt_guard->tried;
  nt_fork_unlock(&lock);
  return wanted;
}

/* All that start() needs of the loader, under no lock: a constructor that makes a communicator holds the loader's, and
 * would wait for us. */
static void ask_loader(void) {
  const char *reason;
  nt_nccl_copies_look();
  nt_torch_find();
  if (settings.python)
    nt_python_find();
  if (settings.native)
    (void)nt_unwinder_open(&reason);
  nt_process_find_exit();
}

bool nt_process_start(int rank, int nranks) {
  if (NT_LIKELY(nt_recording())) {
    nt_nccl_copies_look();
    find_python_late();
    return true;
  }
  int saved_errno = errno;
  if (is_wanted()) {
    ask_loader();
    nt_fork_lock(&lock);
    if (!nt_guard->tried) {
      nt_guard->tried = 1;
      start(rank, nranks);
    }
    nt_fork_unlock(&lock);
  }
  errno = saved_errno;
  return nt_recording();
}

bool nt_process_ending(int code) {
  if (!nt_recording())
    return false;
  struct nt_area_header *header = nt_process.area.header;
  /* A vfork child runs in our memory and ends without having been us. */
  if ((uint32_t)getpid() != header->pid)
    return false;
  atomic_store_explicit(&header->exit_code, code, memory_order_relaxed);
  if (atomic_load_explicit(&header->run_state, memory_order_relaxed) == NT_RUN_RUNNING)
    atomic_store_explicit(&header->exit_ns, nt_clock_ns(CLOCK_REALTIME), memory_order_relaxed);
  atomic_store_explicit(&header->run_state, NT_RUN_EXITING, memory_order_release);
  return true;
}

void nt_process_leaving(int code) {
  int saved_errno = errno;
  if (!nt_process_ending(code))
    return;
  nt_gpu_stop();
  nt_request(NT_REQUEST_FLUSH, LAST_DRAIN_MS);
  errno = saved_errno;
}
