/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits that the process's control groups set, and what became of those who met them. A limit of any group
 * around the process counts for it, so what is told is the one with the least room left.
 * Files: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst of the kernel.
 */
#include <stdio.h>
#include <string.h>

#include "preload/cgroup.h"
#include "preload/dump_parts.h"
#include "trace/read_text.h"

/* Version 1 has no word for unlimited, but a number that no machine has. */
#define UNLIMITED_V1 (UINT64_C(1) << 60)

struct limit {
  const char *key;         /* of the facts: KEY, KEY.used, KEY.group */
  const char *max, *usage; /* files */
};

static void add_number(struct nt_buffer *out, const char *key, const char *dir, const char *file,
                       const char *word) {
  uint64_t value;
  if (!nt_cgroup_read(dir, file, word, &value))
    return;
  if (value == NT_CGROUP_UNLIMITED)
    nt_dump_add_fact(out, key, "unlimited");
  else
    nt_dump_add_fact(out, key, "%llu", (unsigned long long)value);
}

/* The limit with the least room between the process's group and the mount; "unlimited" if none is set. The outermost
 * group has no file for one. */
static void add_limit(struct nt_buffer *out, struct nt_cgroup group, const struct limit *limit) {
  uint64_t best_max = 0, best_usage = 0, least = UINT64_MAX, max, usage;
  char key[64], dir[NT_CGROUP_PATH] = "";
  do {
    if (!nt_cgroup_read(group.dir, limit->max, NULL, &max))
      continue;
    if (max >= UNLIMITED_V1 || !nt_cgroup_read(group.dir, limit->usage, NULL, &usage))
      continue;
    const uint64_t room = max > usage ? max - usage : 0;
    if (*dir && room >= least)
      continue;
    least = room;
    best_max = max;
    best_usage = usage;
    strcpy(dir, group.dir);
  } while (nt_cgroup_up(&group));
  if (!*dir) {
    nt_dump_add_fact(out, limit->key, "unlimited");
    return;
  }
  nt_dump_add_fact(out, limit->key, "%llu", (unsigned long long)best_max);
  snprintf(key, sizeof key, "%s.used", limit->key);
  nt_dump_add_fact(out, key, "%llu", (unsigned long long)best_usage);
  snprintf(key, sizeof key, "%s.group", limit->key);
  nt_dump_add_fact(out, key, "%s", dir);
}

static bool find(struct nt_buffer *out, const char *root, const char *controller,
                 struct nt_cgroup *group) {
  char key[64];
  if (nt_cgroup_find(root, controller, group) == 0)
    return true;
  snprintf(key, sizeof key, "missing.cgroup.%s", controller);
  nt_dump_add_fact(out, key, "no control group of this process is mounted");
  return false;
}

static void add_memory(struct nt_buffer *out, const struct nt_cgroup *group) {
  static const struct limit max = {"cgroup.memory.limit", "memory.max", "memory.current"};
  static const struct limit high = {"cgroup.memory.high", "memory.high", "memory.current"};
  static const struct limit v1 = {"cgroup.memory.limit", "memory.limit_in_bytes",
                                  "memory.usage_in_bytes"};
  nt_dump_add_fact(out, "cgroup.version", "%d", group->version);
  nt_dump_add_fact(out, "cgroup.memory.group", "%s", group->dir);
  if (group->version == 1) {
    add_number(out, "cgroup.memory.used", group->dir, "memory.usage_in_bytes", NULL);
    add_number(out, "cgroup.memory.refused", group->dir, "memory.failcnt", NULL);
    add_number(out, "cgroup.memory.under_oom", group->dir, "memory.oom_control", "under_oom");
    add_number(out, "cgroup.memory.oom_kill", group->dir, "memory.oom_control", "oom_kill");
    add_limit(out, *group, &v1);
    return;
  }
  add_number(out, "cgroup.memory.used", group->dir, "memory.current", NULL);
  add_number(out, "cgroup.memory.refused", group->dir, "memory.events", "max");
  add_number(out, "cgroup.memory.oom", group->dir, "memory.events", "oom");
  add_number(out, "cgroup.memory.oom_kill", group->dir, "memory.events", "oom_kill");
  add_limit(out, *group, &max);
  add_limit(out, *group, &high);
}

/* Processors that the group may use: "quota period" in version 2, two files in version 1. 0: no limit. */
static double processors(const struct nt_cgroup *group) {
  char text[128];
  double quota = 0, period = 0;
  if (group->version == 2) {
    if (nt_read_text_at(text, sizeof text, "%s/cpu.max", group->dir) > 0)
      sscanf(text, "%lf %lf", &quota, &period); /* "max 100000" has no first number */
  } else {
    if (nt_read_text_at(text, sizeof text, "%s/cpu.cfs_quota_us", group->dir) > 0)
      sscanf(text, "%lf", &quota); /* -1: none */
    if (nt_read_text_at(text, sizeof text, "%s/cpu.cfs_period_us", group->dir) > 0)
      sscanf(text, "%lf", &period);
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

static void add_cpu(struct nt_buffer *out, struct nt_cgroup group) {
  struct nt_cgroup tightest = group;
  double least = 0;
  do {
    const double here = processors(&group);
    if (here > 0 && (least <= 0 || here < least)) {
      least = here;
      tightest = group;
    }
  } while (nt_cgroup_up(&group));
  if (least > 0)
    nt_dump_add_fact(out, "cgroup.cpu.limit", "%.2f", least);
  else
    nt_dump_add_fact(out, "cgroup.cpu.limit", "unlimited");
  add_number(out, "cgroup.cpu.periods", tightest.dir, "cpu.stat", "nr_periods");
  add_number(out, "cgroup.cpu.throttled", tightest.dir, "cpu.stat", "nr_throttled");
  uint64_t time;
  if (nt_cgroup_read(tightest.dir, "cpu.stat", "throttled_usec", &time))
    nt_dump_add_fact(out, "cgroup.cpu.throttled.ms", "%llu", (unsigned long long)time / 1000);
  else if (nt_cgroup_read(tightest.dir, "cpu.stat", "throttled_time", &time))
    nt_dump_add_fact(out, "cgroup.cpu.throttled.ms", "%llu", (unsigned long long)time / 1000000);
}

void nt_dump_cgroups(struct nt_buffer *out, const char *root) {
  static const struct limit pids = {"cgroup.pids.limit", "pids.max", "pids.current"};
  struct nt_cgroup group;
  if (find(out, root, "memory", &group))
    add_memory(out, &group);
  if (find(out, root, "cpu", &group))
    add_cpu(out, group);
  if (!find(out, root, "pids", &group))
    return;
  add_number(out, "cgroup.pids.used", group.dir, pids.usage, NULL);
  add_limit(out, group, &pids);
}
