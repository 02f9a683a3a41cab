/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's log, as far as it tells of a fault: of a GPU, a link, a disk, or of a lack of memory.
 *
 * Each read of /dev/kmsg is one record, "priority,number,microseconds,flags;text" and lines of details behind it
 * (Documentation/ABI/testing/dev-kmsg). Xid and SXid are the words under which NVIDIA's drivers report.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload/dump_parts.h"

enum { KEPT = 20, TEXT = 400, RECORD = 8192, RECORDS_MAX = 500000, WARNING = 4 };

struct kept {
  uint64_t at_us;
  char text[TEXT];
};

static bool has_any(const char *text, const char *const *words, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (strstr(text, words[i]))
      return true;
  return false;
}

/* Some words are a fault by themselves, those of drivers only in a warning or worse, or beside a word of failure. */
static bool tells_of_fault(const char *text, unsigned priority) {
  static const char *const faults[] = {
      "NVRM: Xid",
      "fallen off the bus",
      "SXid",
      "NVSwitch",
      "nvidia-",
      "oom-kill:",
      "ut of memory:",
      "Killed process",
      "I/O error",
      "Hardware Error",
      "AER:",
      "Machine check",
      "blocked for more than",
      "not responding",
  };
  static const char *const drivers[] = {"NVRM", "mlx5",       "hfi1",  "irdma",  "bnxt",   "efa",
                                        "nvme", "infiniband", "rdma_", "Lustre", "EXT4-fs"};
  static const char *const words[] = {"rror", "ERROR",     "ailed",  "imeout", "imed out",
                                      "down", "unhealthy", "health", "fatal",  "reset"};
  if (has_any(text, faults, sizeof faults / sizeof *faults))
    return true;
  if (!has_any(text, drivers, sizeof drivers / sizeof *drivers))
    return false;
  return priority <= WARNING || has_any(text, words, sizeof words / sizeof *words);
}

/* Parses a record in place. False: not one, or nothing in it matters. */
static bool take(char *record, struct kept *out) {
  char *text = strchr(record, ';'), *end;
  if (!text)
    return false;
  *text++ = 0;
  text[strcspn(text, "\n")] = 0;
  unsigned priority = (unsigned)strtoul(record, &end, 10) & 7; /* the rest is the facility */
  strtoull(*end ? end + 1 : end, &end, 10);
  out->at_us = strtoull(*end ? end + 1 : end, NULL, 10);
  if (!tells_of_fault(text, priority))
    return false;
  snprintf(out->text, sizeof out->text, "%s", text);
  return true;
}

/* Fills the ring of the newest; returns how many there were. */
static unsigned read_log(int fd, struct kept *ring) {
  char record[RECORD];
  unsigned found = 0;
  for (unsigned i = 0; i < RECORDS_MAX; i++) {
    ssize_t n = read(fd, record, sizeof record - 1);
    if (n < 0 && (errno == EPIPE || errno == EINTR))
      continue; /* records were overwritten; the next read goes on behind them */
    if (n <= 0)
      break;
    record[n] = 0;
    found += take(record, &ring[found % KEPT]);
  }
  return found;
}

void nt_dump_kernel_log(struct nt_buffer *out, const char *path, uint64_t now_us) {
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    nt_dump_add_fact(out, "missing.kernel-log", "%s: %s", path, strerror(errno));
    return;
  }
  struct kept *ring = calloc(KEPT + 1, sizeof *ring);
  unsigned found = ring ? read_log(fd, ring) : 0;
  close(fd);
  nt_dump_add_fact(out, "kernel.lines", "%u", found);
  for (unsigned i = 0; i < found && i < KEPT; i++) {
    const struct kept *line = &ring[(found - 1 - i) % KEPT];
    char key[32];
    snprintf(key, sizeof key, "kernel.%u", i + 1);
    nt_dump_add_fact(out, key, "%" PRIu64 " s ago: %s",
                     now_us > line->at_us ? (now_us - line->at_us) / 1000000 : 0, line->text);
  }
  free(ring);
}
