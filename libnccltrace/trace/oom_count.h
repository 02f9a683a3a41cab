/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often the kernel's out-of-memory killer has struck in a memory cgroup.
 *
 * A killed process leaves no word, but its cgroup counts: version 2 in memory.events, version 1 in
 * memory.oom_control, the machine as a whole in /proc/vmstat. Any process; nothing stays open.
 */
#ifndef NT_OOM_COUNT_H
#define NT_OOM_COUNT_H

#include <stdbool.h>
#include <stdint.h>

/* Evidence keys: the directory of the process's memory cgroup, and its inode. */
#define NT_OOM_GROUP_KEY "cgroup.memory"
#define NT_OOM_INODE_KEY "cgroup.memory.inode"

/* Kills counted in the cgroup at `dir`; on the whole machine if dir is NULL. NT_OOM_UNKNOWN if that cannot be
 * told. */
uint64_t nt_oom_count(const char *dir);

/* The same, if the directory has this inode: another container may have another cgroup at the same place. */
uint64_t nt_oom_count_of(const char *dir, uint64_t inode);

#endif
