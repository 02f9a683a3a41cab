/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is the traced process alive, and if not, how did it leave?
 *
 * On its own node and in its pid namespace /proc tells; the start time says whether a number has been
 * given to another process, and the helper thread whether it still runs the program that was traced: exec keeps the
 * number and ends all threads. From another namespace only the lock tells, from another node only what was written.
 */
#include <fcntl.h>
#include <signal.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/clock.h"
#include "trace/oom_count.h"
#include "trace/read_parts.h"
#include "trace/read_text.h"

#define UNBEGUN_NS INT64_C(5000000000)     /* by then the helper of any process has begun */
#define SILENT_NS INT64_C(20000000000)     /* no living process is silent in its file for so long */
#define LINGERED_NS INT64_C(2000000000)    /* longer than the last drain takes */
#define GPU_BLOCKED_NS INT64_C(2000000000) /* a look takes microseconds, and is due every 100 ms */

static char boot[64]; /* of the kernel that runs here: read once, for the many traces of a job */

static void read_boot(void) {
  nt_read_text("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
}

static const char *own_boot(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_boot);
  return boot;
}

static bool same_boot(const char *boot_id, size_t size) {
  return *own_boot() && !strncmp(own_boot(), boot_id, size);
}

bool nt_boot_differs(const char *boot_id) {
  return *own_boot() && *boot_id && strcmp(own_boot(), boot_id) != 0;
}

/* And /proc counts as that namespace does: it may have been mounted in another one. */
static bool same_pid_namespace(uint64_t pid_ns) {
  struct stat own;
  char text[32];
  return stat("/proc/self/ns/pid", &own) == 0 && (uint64_t)own.st_ino == pid_ns &&
         nt_read_text("/proc/self/stat", text, sizeof text) > 0 &&
         strtol(text, NULL, 10) == (long)getpid();
}

/* The state letter of a process that has this pid and start time, 0 if there is none, or none any more: one that is
 * being taken down is still there for as long as that takes, seconds where a driver has much to release. */
static char proc_state(uint32_t pid, uint64_t start_time) {
  enum { STATE = 3, FLAGS = 9, START = 22, EXITING = 0x4 /* PF_EXITING, include/linux/sched.h */ };
  char text[1024];
  if (nt_read_text_at(text, sizeof text, "/proc/%u/stat", pid) <= 0)
    return 0;
  const char *letter = nt_stat_field(text, STATE), *start = nt_stat_field(text, START);
  if (!start || strtoul(nt_stat_field(text, FLAGS), NULL, 10) & EXITING ||
      (start_time && strtoull(start, NULL, 10) != start_time))
    return 0;
  const char state = *letter;
  return state == 'Z' || state == 'X' || state == 'x' ? 0 : state;
}

static bool file_is_locked(const struct nt_trace *trace) {
  if (!trace->has_file || trace->network)
    return false;
  const int fd = open(trace->file_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return false;
  const bool locked = nt_area_is_locked(fd) == 1;
  close(fd);
  return locked;
}

static bool thread_exists(uint32_t pid, uint32_t tid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%u/task/%u", pid, tid);
  return access(path, F_OK) == 0;
}

/* The process lives, does the program that was traced? Without an area the file's lock tells, and since a file
 * system may not know locks, only together with a heartbeat that is older than it ever is. */
static bool is_replaced(const struct nt_trace *trace, int64_t now_ns) {
  if (trace->area.present && trace->area.locked)
    return false;
  if (trace->area.present &&
      !trace->area.helper_tid) /* it begins at once, unless exec came first */
    return now_ns - (int64_t)trace->identity.clock_first.realtime_ns > UNBEGUN_NS;
  if (trace->area.present)
    return !thread_exists(trace->identity.pid, trace->area.helper_tid);
  const int64_t beat = (int64_t)trace->facts.process.heartbeat_ns;
  return trace->has_file && !trace->network && trace->facts.has_process && beat &&
         now_ns - beat > SILENT_NS && !file_is_locked(trace);
}

/* The thread has been killed and has not come to its end yet: it waits for a processor, or in a call of the kernel that
 * does not end. */
static bool is_killed(uint32_t pid, uint32_t tid) {
  char text[4096];
  nt_read_text_at(text, sizeof text, "/proc/%u/task/%u/status", pid, tid);
  const uint64_t signals = nt_status_signals(text, "ShdPnd") | nt_status_signals(text, "SigPnd");
  return signals >> (SIGKILL - 1) & 1;
}

/* A main thread that ended by pthread_exit reads as gone while the others go on; in a process that is being taken down
 * they are killed or gone as well, though our lock may still be held for a moment. */
static bool outlives_main_thread(const struct nt_trace *trace) {
  const uint32_t pid = trace->identity.pid, helper = trace->area.helper_tid;
  if (!trace->area.locked && !file_is_locked(trace))
    return false;
  return !trace->area.present || !helper || !same_pid_namespace(trace->identity.pid_ns) ||
         (thread_exists(pid, helper) && !is_killed(pid, helper));
}

static enum nt_process_state living_state(const struct nt_trace *trace, char letter,
                                          int64_t now_ns) {
  if (is_killed(trace->identity.pid, trace->identity.pid))
    return NT_PROCESS_VANISHED;
  if (is_replaced(trace, now_ns))
    return NT_PROCESS_REPLACED;
  if (letter == 'T' || letter == 't')
    return NT_PROCESS_STOPPED;
  return trace->facts.process.run_state == NT_RUN_EXITING ? NT_PROCESS_ENDING : NT_PROCESS_RUNNING;
}

/* Its heart went on to beat after it had called exit; nobody has seen it gone. */
static bool was_ending(const struct nt_process_facts *facts) {
  return facts->writer == NT_STATE_BY_PROCESS &&
         (int64_t)(facts->heartbeat_ns - facts->exit_ns) > LINGERED_NS;
}

static enum nt_process_state judge(const struct nt_trace *trace, int64_t now_ns) {
  const struct nt_super *identity = &trace->identity;
  const struct nt_process_facts *facts = &trace->facts.process;
  const bool here = same_boot(identity->boot_id, sizeof identity->boot_id);
  if (here && same_pid_namespace(identity->pid_ns)) {
    const char letter = proc_state(identity->pid, identity->start_time);
    if (letter)
      return living_state(trace, letter, now_ns);
  }
  if (here && outlives_main_thread(trace))
    return facts->run_state == NT_RUN_EXITING ? NT_PROCESS_ENDING : NT_PROCESS_RUNNING;
  if (trace->facts.has_process && facts->run_state == NT_RUN_EXITING)
    return !here && was_ending(facts) ? NT_PROCESS_ENDING : NT_PROCESS_EXITED;
  if (here || (trace->facts.has_process && facts->writer == NT_STATE_BY_OTHER))
    return NT_PROCESS_VANISHED;
  return NT_PROCESS_UNKNOWN;
}

bool nt_area_process_lives(const struct nt_area *area) {
  const struct nt_area_header *header = area->header;
  return same_boot(header->boot_id, sizeof header->boot_id) && same_pid_namespace(header->pid_ns) &&
         proc_state(header->pid, header->start_time) != 0;
}

bool nt_area_owner_lives(const struct nt_area *area) {
  const uint32_t helper = atomic_load_explicit(&area->header->helper_tid, memory_order_acquire);
  return nt_area_process_lives(area) && (!helper || thread_exists(area->header->pid, helper));
}

static int64_t latest(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* While the heart beats, the GPU is looked at several times a second, until exit is called. */
static bool gpu_is_blocked(const struct nt_process_facts *process) {
  const uint64_t end =
      process->run_state == NT_RUN_EXITING ? process->exit_ns : process->heartbeat_ns;
  return process->gpu_beat_ns && (int64_t)(end - process->gpu_beat_ns) > GPU_BLOCKED_NS;
}

/* What the cgroup of a vanished process has counted by now. */
static uint64_t oom_now(const struct nt_trace *trace) {
  const char *dir = nt_trace_evidence(trace, NT_OOM_GROUP_KEY);
  const char *inode = nt_trace_evidence(trace, NT_OOM_INODE_KEY);
  if (!same_boot(trace->identity.boot_id, sizeof trace->identity.boot_id) || !trace->line_count)
    return NT_OOM_UNKNOWN;
  if (!dir)
    return nt_oom_count(NULL);
  return inode ? nt_oom_count_of(dir, strtoull(inode, NULL, 10)) : NT_OOM_UNKNOWN;
}

/* What whoever made the digest saw, on the process's own node. */
static enum nt_process_state state_in_digest(const struct nt_super *identity) {
  return identity->digest_state <= NT_PROCESS_REPLACED
             ? (enum nt_process_state)identity->digest_state
             : NT_PROCESS_UNKNOWN;
}

void nt_judge_process(struct nt_trace *trace) {
  struct nt_process_info *info = &trace->info;
  const struct nt_facts *facts = &trace->facts;
  const struct nt_process_facts *process = &facts->process;
  const struct nt_super *identity = &trace->identity;
  const bool digest = identity->digest_ns != 0;
  const int64_t now_ns =
      digest ? (int64_t)identity->digest_ns : (int64_t)nt_clock_ns(CLOCK_REALTIME);
  info->state = digest ? state_in_digest(identity) : judge(trace, now_ns);
  const bool left = info->state == NT_PROCESS_EXITED || info->state == NT_PROCESS_ENDING;
  info->exit_code = left ? process->exit_code : 0;
  info->exit_ns = left ? (int64_t)process->exit_ns : 0;
  info->moved = digest && identity->digest_flags & NT_DIGEST_MOVED;
  info->live = (digest ? identity->digest_flags & NT_DIGEST_LIVE : trace->area.present) &&
               (info->state == NT_PROCESS_RUNNING || info->state == NT_PROCESS_STOPPED ||
                info->state == NT_PROCESS_ENDING);
  info->outlived =
      digest ? identity->digest_flags & NT_DIGEST_OUTLIVED
             : !trace->area.present && process->writer != NT_STATE_BY_OTHER &&
                   (info->state == NT_PROCESS_UNKNOWN || info->state == NT_PROCESS_VANISHED);
  if (trace->has_file && *identity->writer)
    snprintf(trace->writer, sizeof trace->writer, "%s, format %u.%u", identity->writer,
             (unsigned)identity->major, (unsigned)identity->minor);
  info->writer = trace->writer;
  info->started_ns = (int64_t)trace->identity.clock_first.realtime_ns;
  info->last_beat_ns = latest((int64_t)process->heartbeat_ns, (int64_t)process->exit_ns);
  for (size_t i = 0; i < trace->comm_count; i++)
    info->last_beat_ns = latest(info->last_beat_ns, trace->comms[i].last_enter_ns);
  info->seen_ns = info->live ? now_ns : info->last_beat_ns;
  info->gpu_beat_ns = (int64_t)process->gpu_beat_ns;
  info->gpu_blocked = facts->has_process && gpu_is_blocked(process);
  info->phase = process->phase;
  info->oom_kills = facts->has_process ? process->oom_kills : NT_OOM_UNKNOWN;
  info->oom_now = digest                               ? identity->oom_now
                  : info->state == NT_PROCESS_VANISHED ? oom_now(trace)
                                                       : NT_OOM_UNKNOWN;
  if (digest && identity->digest_flags & NT_DIGEST_DAMAGED)
    nt_warn(trace, "parts of the trace that this digest was made from could not be read");
  info->oom_machine = !nt_trace_evidence(trace, NT_OOM_GROUP_KEY);
  info->calls = process->calls;
  info->lost = process->lost;
  info->overwritten = process->overwritten;
  if (info->overwritten < info->left_out) /* as a digest without that entry has it */
    info->overwritten = info->left_out;
  info->comms_lost = process->comms_lost;
  info->abandoned = process->abandoned;
  info->write_errors = process->write_errors;
}
