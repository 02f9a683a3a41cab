/* SPDX-License-Identifier: Apache-2.0 */
/* Every thread as the kernel shows it in /proc/self/task; nothing in the threads themselves is asked. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "preload/dump_thread.h"
#include "preload/process.h"
#include "trace/read_text.h"

enum { THREADS_MAX = 2048 };

static ssize_t read_text(uint32_t tid, const char *name, char *out, size_t size) {
  return nt_read_text_at(out, size, "/proc/self/task/%u/%s", tid, name);
}

/* "PID (name) S ...": state in field 3, clock ticks in user and kernel mode in 14 and 15 (proc(5)). */
static void read_stat(struct nt_dump_thread_facts *thread) {
  char text[1024];
  if (read_text(thread->tid, "stat", text, sizeof text) <= 0)
    return;
  const char *state = nt_stat_field(text, 3), *user = nt_stat_field(text, 14);
  const char *system = nt_stat_field(text, 15);
  if (state)
    thread->state = *state;
  const uint64_t ticks =
      (user ? strtoull(user, NULL, 10) : 0) + (system ? strtoull(system, NULL, 10) : 0);
  long per_second = sysconf(_SC_CLK_TCK);
  if (per_second > 0)
    thread->cpu_ns = ticks * (1000000000 / (uint64_t)per_second);
}

/* "running", or "NUMBER 6 arguments SP PC"; needs the right to trace the process, which it has of itself unless a
 * container takes it away. */
static void read_syscall(struct nt_dump_thread_facts *thread) {
  char text[512], *at = text;
  thread->syscall = NT_SYSCALL_UNKNOWN;
  if (read_text(thread->tid, "syscall", text, sizeof text) <= 0)
    return;
  if (text[0] != '-' && !isdigit((unsigned char)text[0])) {
    thread->syscall = NT_SYSCALL_NONE;
    return;
  }
  thread->syscall = strtoll(at, &at, 10);
  for (int i = 0; i < 6 && thread->syscall >= 0; i++)
    thread->args[i] = strtoull(at, &at, 16);
}

/* "0": it does not sleep, or the kernel does not tell. */
static void read_wait(struct nt_dump_thread_facts *thread) {
  char text[128];
  if (read_text(thread->tid, "wchan", text, sizeof text) <= 0 || !strcmp(text, "0"))
    return;
  snprintf(thread->wait, sizeof thread->wait, "%.*s", (int)sizeof thread->wait - 1, text);
}

static void read_thread(uint32_t tid, struct nt_dump_thread_facts *thread) {
  char name[32] = "";
  *thread = (struct nt_dump_thread_facts){.tid = tid};
  read_text(tid, "comm", name, sizeof name);
  snprintf(thread->name, sizeof thread->name, "%.*s", (int)sizeof thread->name - 1, name);
  read_stat(thread);
  read_syscall(thread);
  read_wait(thread);
  if (tid == (uint32_t)getpid())
    thread->flags |= NT_DUMP_THREAD_MAIN;
  if (!strncmp(name, "nccltrace", 9))
    thread->flags |= NT_DUMP_THREAD_OURS;
}

void nt_dump_threads(struct nt_buffer *out) {
  uint32_t count = 0, unknown = 0;
  DIR *dir = opendir("/proc/self/task");
  if (!dir) {
    nt_dump_add_fact(out, "missing.threads", "/proc/self/task: %s", strerror(errno));
    return;
  }
  for (struct dirent *entry; (entry = readdir(dir));) {
    struct nt_dump_thread_facts thread;
    uint32_t tid = (uint32_t)strtoul(entry->d_name, NULL, 10);
    if (!tid)
      continue;
    if (count++ >= THREADS_MAX)
      continue;
    read_thread(tid, &thread);
    unknown += thread.syscall == NT_SYSCALL_UNKNOWN;
    nt_dump_add_thread(out, &thread);
  }
  closedir(dir);
  nt_dump_add_fact(out, "threads", "%u", count);
  if (count > THREADS_MAX)
    nt_dump_add_fact(out, "missing.threads", "%u of %u threads are left out", count - THREADS_MAX,
                     count);
  if (unknown)
    nt_dump_add_fact(out, "missing.syscall",
                     "/proc/self/task/TID/syscall cannot be read for %u of %u threads", unknown,
                     count);
}
