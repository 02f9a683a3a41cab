/* SPDX-License-Identifier: Apache-2.0 */
/* What the process has of memory, threads and descriptors, and how far the machine is from having none. Sizes are
 * bytes. Formats: proc_pid_status(5), proc_meminfo(5), proc_loadavg(5), Documentation/accounting/psi. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "preload/dump_thread.h"
#include "preload/dump_parts.h"
#include "trace/read_text.h"

struct row {
  const char *name, *key;
};

static void add_missing(struct nt_buffer *out, const char *key, const char *path) {
  nt_dump_add_fact(out, key, "%s: %s", path, strerror(errno));
}

/* Lines "Name:  number [kB]". */
static void add_rows(struct nt_buffer *out, const char *text, const struct row *rows,
                     size_t count) {
  for (const char *at = text; at; at = strchr(at, '\n')) {
    at += *at == '\n';
    for (size_t i = 0; i < count; i++) {
      const size_t length = strlen(rows[i].name);
      if (strncmp(at, rows[i].name, length) || at[length] != ':')
        continue;
      char *end;
      uint64_t value = strtoull(at + length + 1, &end, 10);
      nt_dump_add_fact(out, rows[i].key, "%llu",
                       (unsigned long long)(strncmp(end, " kB", 3) ? value : value * 1024));
    }
  }
}

/* The listing is the process's; the directory being read stands in it only where this thread has no table of its own. */
static bool is_descriptor_of(DIR *dir, const char *name) {
  struct stat listed, own;
  return atoi(name) == dirfd(dir) && fstatat(dirfd(dir), name, &listed, 0) == 0 &&
         fstat(dirfd(dir), &own) == 0 && listed.st_dev == own.st_dev && listed.st_ino == own.st_ino;
}

static void add_descriptors(struct nt_buffer *out, const char *root) {
  char path[1024];
  struct rlimit limit;
  unsigned long count = 0;
  snprintf(path, sizeof path, "%s/proc/self/fd", root);
  DIR *dir = opendir(path);
  if (!dir) {
    add_missing(out, "missing.descriptors", path);
    return;
  }
  for (struct dirent *entry; (entry = readdir(dir));)
    count += entry->d_name[0] != '.' && !is_descriptor_of(dir, entry->d_name);
  closedir(dir);
  nt_dump_add_fact(out, "process.descriptors", "%lu", count);
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    nt_dump_add_fact(out, "process.descriptors.limit", "%llu", (unsigned long long)limit.rlim_cur);
}

void nt_dump_process_memory(struct nt_buffer *out, const char *root) {
  static const struct row rows[] = {
      {"VmRSS", "process.rss"},       {"VmHWM", "process.rss.peak"},
      {"VmSwap", "process.swap"},     {"VmLck", "process.locked"},
      {"Threads", "process.threads"}, {"FDSize", "process.descriptors.table"},
  };
  char text[8192];
  if (nt_read_text_at(text, sizeof text, "%s/proc/self/status", root) < 0)
    add_missing(out, "missing.process", "/proc/self/status");
  add_rows(out, text, rows, sizeof rows / sizeof *rows);
  add_descriptors(out, root);
}

/* "some avg10=0.00 …" and, but for processors, "full avg10=0.00 …". */
static void add_pressure(struct nt_buffer *out, const char *root) {
  static const char *const kinds[] = {"memory", "cpu", "io"};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    char text[512], key[64], *save = NULL;
    if (nt_read_text_at(text, sizeof text, "%s/proc/pressure/%s", root, kinds[i]) < 0) {
      /* EOPNOTSUPP: built in and switched off. */
      snprintf(key, sizeof key, "missing.pressure.%s", kinds[i]);
      nt_dump_add_fact(out, key, "/proc/pressure/%s: %s", kinds[i], strerror(errno));
      continue;
    }
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
      char *value = strchr(line, ' ');
      if (!value)
        continue;
      *value++ = 0;
      snprintf(key, sizeof key, "pressure.%s.%.8s", kinds[i], line);
      nt_dump_add_fact(out, key, "%s", value);
    }
  }
}

void nt_dump_machine(struct nt_buffer *out, const char *root) {
  static const struct row rows[] = {
      {"MemTotal", "machine.memory"},
      {"MemAvailable", "machine.memory.available"},
      {"SwapTotal", "machine.swap"},
      {"SwapFree", "machine.swap.free"},
  };
  char text[8192];
  struct statvfs shm;
  if (nt_read_text_at(text, sizeof text, "%s/proc/meminfo", root) < 0)
    add_missing(out, "missing.machine", "/proc/meminfo");
  add_rows(out, text, rows, sizeof rows / sizeof *rows);
  if (nt_read_text_at(text, sizeof text, "%s/proc/loadavg", root) < 0)
    add_missing(out, "missing.load", "/proc/loadavg");
  else
    nt_dump_add_fact(out, "machine.load", "%s", text);
  add_pressure(out, root);
  snprintf(text, sizeof text, "%s/dev/shm", root);
  if (statvfs(text, &shm) != 0) {
    add_missing(out, "missing.shm", "/dev/shm");
    return;
  }
  nt_dump_add_fact(out, "shm.size", "%llu", (unsigned long long)shm.f_blocks * shm.f_frsize);
  nt_dump_add_fact(out, "shm.free", "%llu", (unsigned long long)shm.f_bavail * shm.f_frsize);
}

void nt_dump_memory(struct nt_buffer *out) {
  nt_dump_process_memory(out, "");
  nt_dump_cgroups(out, "");
  nt_dump_machine(out, "");
}
