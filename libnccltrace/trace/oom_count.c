/* SPDX-License-Identifier: Apache-2.0 */
/* Lines "oom_kill N" in small files. Formats: cgroups(7), the kernel's cgroup-v2 and memory documents. */
#include "trace/oom_count.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/area.h"

#define KEY "oom_kill "

/* vmstat is the longest of them, and has the line in its second half. */
static uint64_t count_in(const char *path) {
  char text[16384];
  size_t used = 0;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return NT_OOM_UNKNOWN;
  for (ssize_t got; used < sizeof text - 1; used += (size_t)got)
    if ((got = read(fd, text + used, sizeof text - 1 - used)) <= 0)
      break;
  close(fd);
  text[used] = 0;
  for (const char *line = text; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    const char *digits = line + sizeof KEY - 1;
    if (!strncmp(line, KEY, sizeof KEY - 1) && *digits >= '0' && *digits <= '9')
      return strtoull(digits, NULL, 10);
  }
  return NT_OOM_UNKNOWN;
}

uint64_t nt_oom_count(const char *dir) {
  static const char *const files[] = {"memory.events", "memory.oom_control"};
  if (!dir)
    return count_in("/proc/vmstat");
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    char path[1200];
    const int length = snprintf(path, sizeof path, "%s/%s", dir, files[i]);
    const uint64_t count =
        length > 0 && (size_t)length < sizeof path ? count_in(path) : NT_OOM_UNKNOWN;
    if (count != NT_OOM_UNKNOWN)
      return count;
  }
  return NT_OOM_UNKNOWN;
}

uint64_t nt_oom_count_of(const char *dir, uint64_t inode) {
  struct stat group;
  if (!dir)
    return nt_oom_count(NULL);
  if (stat(dir, &group) != 0 || (uint64_t)group.st_ino != inode)
    return NT_OOM_UNKNOWN;
  return nt_oom_count(dir);
}
