/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding processes. A process may appear, die or drain its area between any two steps: whatever is
 * gone by the time it is opened is left out, not an error.
 */
#include "nccltrace/process_list.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/call_text.h"
#include "cli/text.h"
#include "nccl/nccl_api.h"
#include "cli/process_maps.h"

enum { BEING_MADE_S = 2 };

static struct nt_process *append(struct nt_process_list *list) {
  if ((list->count & (list->count - 1)) == 0) { /* full at every power of two */
    size_t room = list->count ? 2 * list->count : 1;
    struct nt_process *items = realloc(list->items, room * sizeof *items);
    if (items == NULL)
      return NULL;
    list->items = items;
  }
  struct nt_process *process = &list->items[list->count++];
  memset(process, 0, sizeof *process);
  return process;
}

static struct dirent *next_entry(DIR *dir) {
  // cppcheck-suppress readdirCalled ; POSIX: safe, since no stream here is shared between threads
  return readdir(dir);
}

/* An area that was begun just now and has not got its contents yet. Times of the future count as old. */
static bool is_being_made(const struct stat *status) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec - status->st_mtim.tv_sec < BEING_MADE_S && now.tv_sec >= status->st_mtim.tv_sec;
}

static int add_area(const char *path, void *ctx) {
  struct nt_process_list *list = ctx;
  struct nt_trace *trace = NULL;
  struct nt_error error = {0};
  struct stat status = {0};
  int rc = nt_trace_open(path, 0, &trace, &error);
  if (lstat(path, &status) != 0 && rc != 0)
    return 0; /* drained and removed meanwhile */
  if (rc != 0 && is_being_made(&status))
    return 0;
  struct nt_process *process = append(list);
  if (process == NULL) {
    nt_trace_close(trace);
    return -NT_ERR_MEMORY;
  }
  process->presence = NT_PRESENT_AREA;
  snprintf(process->area, sizeof process->area, "%s", path);
  process->uid = status.st_uid;
  process->device = status.st_dev;
  process->inode = status.st_ino;
  process->error = error;
  if (rc == 0) {
    process->trace = trace;
    process->pid = nt_trace_process(trace)->pid;
    process->error.code = 0;
  } else {
    process->error.code = rc;
    process->pid = nt_maps_area_pid(path);
  }
  return 0;
}

/* Areas in one directory of another user. No symbolic link is followed into or inside it. */
static int add_directory(const char *path, struct nt_process_list *list) {
  int rc = 0, fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
  if (dir == NULL) {
    if (fd >= 0)
      close(fd);
    return 0;
  }
  for (struct dirent *entry; rc == 0 && (entry = next_entry(dir)) != NULL;) {
    char area[512];
    size_t length = strlen(entry->d_name);
    if (length <= 5 || strcmp(entry->d_name + length - 5, ".area") != 0)
      continue;
    int n = snprintf(area, sizeof area, "%s/%s", path, entry->d_name);
    if (n > 0 && (size_t)n < sizeof area)
      rc = add_area(area, list);
  }
  closedir(dir);
  return rc;
}

/* The tool's own NCCLTRACE_SHM asks for one place. */
static bool place_is_chosen(void) {
  const char *chosen = getenv("NCCLTRACE_SHM");
  return chosen != NULL && *chosen != '\0';
}

/* Root sees everybody's areas. */
static int add_other_users(struct nt_process_list *list) {
  char own[512];
  if (geteuid() != 0)
    return 0;
  if (nt_area_directory(own, sizeof own) != 0)
    own[0] = '\0';
  DIR *dir = opendir("/dev/shm");
  int rc = 0;
  if (dir == NULL)
    return 0;
  for (struct dirent *entry; rc == 0 && (entry = next_entry(dir)) != NULL;) {
    char path[512];
    if (strncmp(entry->d_name, "nccltrace-", 10) != 0)
      continue;
    snprintf(path, sizeof path, "/dev/shm/%s", entry->d_name);
    if (strcmp(path, own) != 0)
      rc = add_directory(path, list);
  }
  closedir(dir);
  return rc;
}

static bool has_area(const struct nt_process_list *list, uint32_t pid, uint64_t own_pid_ns) {
  for (size_t i = 0; i < list->count; i++) {
    const struct nt_process *p = &list->items[i];
    if (p->presence != NT_PRESENT_AREA || p->pid != pid)
      continue;
    if (p->trace == NULL)
      return true;
    const struct nt_process_info *info = nt_trace_process(p->trace);
    if (info->live && (own_pid_ns == 0 || info->pid_ns == own_pid_ns))
      return true;
  }
  return false;
}

static bool is_listed(const struct nt_process_list *list, const struct nt_maps *maps) {
  for (size_t i = 0; i < list->count; i++)
    if (list->items[i].presence == NT_PRESENT_AREA && list->items[i].inode == maps->inode &&
        list->items[i].device == maps->device)
      return true;
  return false;
}

/* A process that was met in /proc: one whose area lies in a directory of its own choice, or has none. */
static int add_met(uint32_t pid, unsigned what, uint64_t pid_ns, struct nt_process_list *list) {
  struct nt_maps maps;
  if (!nt_maps_read(pid, &maps))
    return 0;
  if (maps.area[0] != '\0') {
    if (is_listed(list, &maps) || place_is_chosen() || !(what & NT_LIST_AREAS))
      return 0;
    return add_area(maps.area, list);
  }
  if (!(what & NT_LIST_LOADED) || has_area(list, pid, pid_ns))
    return 0;
  struct nt_process *process = append(list);
  if (process == NULL)
    return -NT_ERR_MEMORY;
  process->presence = maps.private_area ? NT_PRESENT_PRIVATE : NT_PRESENT_IDLE;
  process->pid = pid;
  process->uid = maps.uid;
  if (maps.nccl_memory)
    memcpy(process->nccl, maps.nccl, sizeof process->nccl);
  return 0;
}

static int add_running(unsigned what, struct nt_process_list *list) {
  struct stat status;
  uint64_t pid_ns = stat("/proc/self/ns/pid", &status) == 0 ? (uint64_t)status.st_ino : 0;
  DIR *proc = opendir("/proc");
  int rc = 0;
  if (proc == NULL)
    return 0;
  for (struct dirent *entry; rc == 0 && (entry = next_entry(proc)) != NULL;) {
    uint32_t pid = (uint32_t)strtoul(entry->d_name, NULL, 10);
    if (isdigit((unsigned char)entry->d_name[0]) && pid != (uint32_t)getpid())
      rc = add_met(pid, what, pid_ns, list);
  }
  closedir(proc);
  return rc;
}

int nt_process_list_read(unsigned what, struct nt_process_list *list) {
  *list = (struct nt_process_list){0};
  int rc = 0;
  if (what & NT_LIST_AREAS) {
    nt_area_each(add_area, list); /* no directory: nobody has been traced */
    rc = place_is_chosen() ? 0 : add_other_users(list);
  }
  if (rc == 0)
    rc = add_running(what, list);
  nt_process_sort(list);
  return rc;
}

void nt_process_list_free(struct nt_process_list *list) {
  for (size_t i = 0; i < list->count; i++)
    nt_trace_close(list->items[i].trace);
  free(list->items);
  *list = (struct nt_process_list){0};
}

const struct nt_process *nt_process_by_pid(const struct nt_process_list *list, uint32_t pid) {
  for (size_t i = 0; i < list->count; i++)
    if (list->items[i].presence == NT_PRESENT_AREA && list->items[i].pid == pid)
      return &list->items[i];
  return NULL;
}

/* Whether `a` tells more about what the process is in than `b` does. */
static bool is_later(const struct nt_call *a, const struct nt_call *b) {
  bool open_a = a->result == NT_RESULT_OPEN && !(a->flags & NT_CALL_ABANDONED);
  bool open_b = b->result == NT_RESULT_OPEN && !(b->flags & NT_CALL_ABANDONED);
  if (open_a != open_b)
    return open_a;
  int64_t time_a = a->exit_ns != 0 ? a->exit_ns : a->enter_ns;
  int64_t time_b = b->exit_ns != 0 ? b->exit_ns : b->enter_ns;
  return time_a >= time_b;
}

const struct nt_call *nt_process_last_call(struct nt_trace *trace) {
  const struct nt_call *calls, *last = NULL;
  struct nt_error error;
  int64_t count = nt_trace_calls(trace, &calls, &error);
  for (int64_t i = 0; i < count; i++)
    if (!nt_fn_is_cuda(calls[i].fn) && (last == NULL || is_later(&calls[i], last)))
      last = &calls[i];
  return last;
}

const struct nt_call *nt_process_host_wait(struct nt_trace *trace) {
  const struct nt_call *calls, *wait = NULL;
  struct nt_error error;
  int64_t count = nt_trace_calls(trace, &calls, &error);
  for (int64_t i = 0; i < count; i++)
    if (nt_fn_is_host_wait(calls[i].fn) && calls[i].result == NT_RESULT_OPEN &&
        !(calls[i].flags & NT_CALL_ABANDONED))
      wait = &calls[i];
  return wait;
}

const char *nt_process_comm_label(const struct nt_trace *trace, uint32_t number, char *out,
                                  size_t size) {
  if (number == 0)
    return NULL;
  const struct nt_trace_comm *comm = nt_trace_comm_by_number(trace, number);
  if (comm != NULL)
    return nt_comm_label(out, size, comm);
  snprintf(out, size, "comm %" PRIu32, number);
  return out;
}

void nt_report_error(const char *file, const struct nt_error *error) {
  fputs("nccltrace: ", stderr);
  nt_text_escape_print(stderr, file);
  if (error->code != -NT_ERR_IO && error->code != -NT_ERR_MEMORY)
    fprintf(stderr, ": at byte %" PRIu64, error->offset);
  fputs(": ", stderr);
  nt_text_escape_print(stderr, error->reason[0] != '\0' ? error->reason : "cannot be read");
  fputc('\n', stderr);
}
