/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the control groups of this process are, and what stands in their files. Both versions; any thread;
 * no descriptor stays open.
 */
#ifndef NT_CGROUP_H
#define NT_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NT_CGROUP_PATH = 1024 };
#define NT_CGROUP_UNLIMITED UINT64_MAX

struct nt_cgroup {
  int version;              /* 1 or 2 */
  size_t top;               /* length of the mount point in dir: groups above it cannot be seen */
  char dir[NT_CGROUP_PATH]; /* absolute */
};

/* The group that accounts `controller` ("memory", "cpu", "pids") for this process. `root` stands before /proc and
 * before all mount points: "" but in tests. -1: none is mounted here or the kernel does not tell. */
int nt_cgroup_find(const char *root, const char *controller, struct nt_cgroup *group);
/* Makes it the group around it; false at the top. */
bool nt_cgroup_up(struct nt_cgroup *group);

/* The directory alone, of memory; -1 also if it does not fit. */
int nt_cgroup_memory(char *dir, size_t size, int *version);

/* The number of a file's line "key number", or the one with which the file starts (key NULL);
 * NT_CGROUP_UNLIMITED for "max". False: no such file, key or number, or it may not be read. */
bool nt_cgroup_read(const char *dir, const char *file, const char *key, uint64_t *value);

#endif
