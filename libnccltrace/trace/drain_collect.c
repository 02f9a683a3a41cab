/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What dead processes have left: their areas are drained into their files and removed.
 *
 * Any number of collectors may run at once. Each takes the lock that the area's process held while it lived; who
 * gets it works alone, and a process that is alive keeps everybody out. The name is looked at before the
 * file is opened: closing a descriptor of its own area would take a process's lock away.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "trace/drain_parts.h"

/* PID-START-PIDNS-RANDOM.area; false for other names and for this process's own, which without `own` is any of its
 * number. */
static bool may_collect(const char *path, const char *name, const char *own) {
  const size_t length = strlen(name);
  if (length < 6 || strcmp(name + length - 5, ".area") != 0)
    return false;
  char *end;
  const unsigned long pid = strtoul(name, &end, 10);
  if (end == name || *end != '-')
    return false;
  return own ? strcmp(path, own) != 0 : pid != (unsigned long)getpid();
}

static uint64_t seconds_since_beat(const struct nt_area *area, const struct stat *file) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  uint64_t beat =
      atomic_load_explicit(&area->header->heartbeat_ns, memory_order_relaxed) / 1000000000u;
  if (!beat)
    beat = (uint64_t)file->st_mtime;
  return (uint64_t)now.tv_sec > beat ? (uint64_t)now.tv_sec - beat : 0;
}

/* True when everything that the area held is in the file. */
static bool drain_dead(struct nt_area *area) {
  struct nt_drain *drain;
  struct nt_error err;
  if (!atomic_load_explicit(&area->header->file_ready, memory_order_acquire))
    return false;
  if (nt_drain_open(area, NULL, &drain, &err))
    return false;
  const bool whole = nt_drain_tick(drain, NT_DRAIN_FINAL) >= 0;
  nt_drain_close(drain, true);
  return whole;
}

/* The path may have been removed, and even be another area by now. */
static bool is_still(const struct nt_area *area, const char *path) {
  struct stat open_file, named;
  return fstat(area->fd, &open_file) == 0 && lstat(path, &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

/* What a process left that died while it was making its area. */
static int remove_stillborn(const char *path, unsigned grace_seconds) {
  struct stat file;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return lstat(path, &file) == 0 && S_ISREG(file.st_mode) && file.st_uid == geteuid() &&
         now.tv_sec - file.st_mtime >= (time_t)grace_seconds && unlink(path) == 0;
}

/* Somebody has removed the trace file: nobody will ask for what the area still has. */
static bool file_is_gone(const struct nt_area *area) {
  const struct nt_area_header *header = area->header;
  struct stat file;
  if (!atomic_load_explicit(&header->file_ready, memory_order_acquire) ||
      !memchr(header->file_path, 0, sizeof header->file_path))
    return false;
  return lstat(header->file_path, &file) != 0 && errno == ENOENT;
}

static int collect(const char *path, unsigned grace_seconds) {
  struct nt_area area;
  struct stat file;
  int removed = 0;
  const int rc = nt_area_open(path, 1, &area);
  if (rc)
    return rc == -NT_ERR_TRUNCATED || rc == -NT_ERR_FOREIGN ? remove_stillborn(path, grace_seconds)
                                                            : 0;
  /* A process whose helper could not get a lock is alive all the same. That it became another program is told by its
   * area alone: only that program may collect it. */
  const bool own = area.header->pid == (uint32_t)getpid();
  const bool lives = own ? nt_area_owner_lives(&area) : nt_area_process_lives(&area);
  if (!lives && nt_area_lock(area.fd) == 0 && is_still(&area, path) && fstat(area.fd, &file) == 0 &&
      file.st_uid == geteuid()) {
    const bool drained = drain_dead(&area);
    if (drained || file_is_gone(&area) || seconds_since_beat(&area, &file) >= grace_seconds)
      removed = unlink(path) == 0;
  }
  nt_area_close(&area);
  return removed;
}

/* What the program left that was in this process before the last exec: that is still asked for (nccltrace ls). */
static void find_last(DIR *list, const char *directory, const char *own, char *out, size_t size) {
  time_t newest = 0;
  out[0] = 0;
  for (struct dirent *entry; (entry = readdir(list));) {
    char path[1024];
    struct stat file;
    const int length = snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
    if (length < 0 || (size_t)length >= size || !may_collect(path, entry->d_name, own) ||
        may_collect(path, entry->d_name, NULL) || lstat(path, &file) != 0 || file.st_mtime < newest)
      continue;
    newest = file.st_mtime;
    memcpy(out, path, (size_t)length + 1);
  }
  rewinddir(list);
}

int nt_drain_collect(const char *directory, unsigned grace_seconds) {
  return nt_drain_collect_beside(NULL, directory, grace_seconds);
}

int nt_drain_collect_beside(const char *own, const char *directory, unsigned grace_seconds) {
  DIR *list = opendir(directory);
  if (!list)
    return errno == ENOENT ? 0 : -NT_ERR_IO;
  /* A file-size limit would otherwise kill the tool. */
  sigset_t exceeded, before, pending;
  sigemptyset(&exceeded);
  sigaddset(&exceeded, SIGXFSZ);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &exceeded, &before);
  int removed = 0;
  char last[1024] = "";
  if (own)
    find_last(list, directory, own, last, sizeof last);
  for (struct dirent *entry; (entry = readdir(list));) {
    char path[1024];
    const int length = snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
    if (length > 0 && (size_t)length < sizeof path && may_collect(path, entry->d_name, own) &&
        strcmp(path, last) != 0)
      removed += collect(path, grace_seconds);
  }
  if (!sigismember(&pending, SIGXFSZ)) {
    const struct timespec none = {0};
    while (sigtimedwait(&exceeded, NULL, &none) > 0)
      ;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  closedir(list);
  return removed;
}
