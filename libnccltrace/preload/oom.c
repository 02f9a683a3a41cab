/* SPDX-License-Identifier: Apache-2.0 */
/* The directory is told to others by the evidence (evidence.c); both sides take it from there. */
#include "preload/oom.h"

#include <stdlib.h>
#include <string.h>

#include "preload/cgroup.h"
#include "trace/oom_count.h"

/* The value of an evidence line; false if there is none or it does not fit. */
static bool value_of(const struct nt_area *area, const char *key, char *out, size_t size) {
  uint32_t length = atomic_load_explicit(&area->header->evidence_length, memory_order_acquire);
  const size_t key_length = strlen(key);
  if (length > area->header->evidence_size)
    return false;
  for (const char *line = area->evidence, *end = line + length; line < end;) {
    const size_t left = (size_t)(end - line);
    const char *stop = memchr(line, '\n', left);
    const size_t whole = stop ? (size_t)(stop - line) : left;
    if (whole > key_length && line[key_length] == '=' && !memcmp(line, key, key_length)) {
      const size_t value = whole - key_length - 1;
      if (value >= size)
        return false;
      memcpy(out, line + key_length + 1, value);
      out[value] = 0;
      return true;
    }
    line += whole + 1;
  }
  return false;
}

static uint64_t count_of(const struct nt_area *area) {
  char dir[NT_CGROUP_PATH], inode[32];
  const uint32_t length =
      atomic_load_explicit(&area->header->evidence_length, memory_order_acquire);
  if (!length || length > area->header->evidence_size)
    return NT_OOM_UNKNOWN; /* 0: it was being written anew */
  if (!value_of(area, NT_OOM_GROUP_KEY, dir, sizeof dir))
    return nt_oom_count(NULL);
  if (!value_of(area, NT_OOM_INODE_KEY, inode, sizeof inode))
    return NT_OOM_UNKNOWN;
  return nt_oom_count_of(dir, strtoull(inode, NULL, 10));
}

void nt_oom_sample(struct nt_area *own) {
  const uint64_t count = count_of(own);
  if (count != NT_OOM_UNKNOWN)
    atomic_store_explicit(&own->header->oom_kills, count, memory_order_relaxed);
}

uint32_t nt_oom_risen(const struct nt_area *gone) {
  const uint64_t before = atomic_load_explicit(&gone->header->oom_kills, memory_order_relaxed);
  const uint64_t now = before == NT_OOM_UNKNOWN ? NT_OOM_UNKNOWN : count_of(gone);
  if (now == NT_OOM_UNKNOWN || now <= before)
    return 0;
  return now - before < UINT32_MAX ? (uint32_t)(now - before) : UINT32_MAX;
}
