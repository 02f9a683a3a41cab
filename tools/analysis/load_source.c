/* SPDX-License-Identifier: Apache-2.0 */
/* One table of what can be read besides our own traces. A file is read whole and let go before the next. */
#include "analysis/load_source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/flight_parts.h"
#include "analysis/load_flight_recorder.h"
#include "analysis/load_nccl_log.h"
#include "trace/format.h"

#define HEAD_BYTES 65536
#define MAGIC_BYTES 8
#define SEARCH_BYTES (4 << 20)
#define FILE_BYTES_MAX (UINT64_C(2) << 30)

typedef int nt_load_fn(struct nt_trace_loader *loader, const char *source, const uint8_t *bytes,
                       size_t size, struct nt_error *err);

static const struct source {
  const char *one, *many, *lacks;
  nt_load_fn *load;
  int (*finish)(struct nt_model *model);
} sources[] = {
    [NT_RECORDER_TRACE] = {"trace", "traces", NULL, NULL, NULL},
    [NT_RECORDER_FLIGHT] = {"flight-recorder dump", "flight-recorder dumps",
                            "roots, operators and the states of processes are not in them",
                            nt_load_flight_recorder, nt_flight_settle},
    [NT_RECORDER_LOG] = {"NCCL log", "NCCL logs",
                         "whether an operation finished, where hosts are, which processes live "
                         "and what line called are not in them",
                         nt_load_nccl_log, nt_number_log_ranks},
};

static int refuse(struct nt_error *err, int code, const char *reason) {
  err->code = code;
  err->offset = 0;
  snprintf(err->reason, sizeof err->reason, "%s", reason);
  return code;
}

/* Reads up to `size` bytes from the file's begin; returns how many, or -1 with errno set. */
static ssize_t read_file(int fd, uint8_t *bytes, size_t size) {
  size_t done = 0;
  while (done < size) {
    ssize_t count = pread(fd, bytes + done, size - done, (off_t)done);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return -1;
    if (count == 0)
      break;
    done += (size_t)count;
  }
  return (ssize_t)done;
}

/* A program may have printed much before its first communicator: the lines from the first on that name NCCL. */
static bool is_late_log(int fd, const uint8_t *head, size_t size) {
  uint8_t *bytes = size == HEAD_BYTES && !memchr(head, '\0', size) ? malloc(SEARCH_BYTES) : NULL;
  const ssize_t count = bytes ? read_file(fd, bytes, SEARCH_BYTES) : 0;
  const uint8_t *found = count > 0 ? memmem(bytes, (size_t)count, " NCCL ", 6) : NULL;
  bool is_log = false;
  if (found) {
    const uint8_t *line = memrchr(bytes, '\n', (size_t)(found - bytes));
    line = line ? line + 1 : bytes;
    is_log = nt_is_nccl_log(line, (size_t)(bytes + count - line));
  }
  free(bytes);
  return is_log;
}

static const char unknown[] = "no trace, no flight-recorder dump, and no line of NCCL in it";
static const char unknown_so_far[] =
    "no trace, no flight-recorder dump, and no line of NCCL in its first 4 MiB";

bool nt_source_is_unknown(const char *reason) {
  return reason == unknown || reason == unknown_so_far;
}

const char *nt_source_refusal(const char *path) {
  static const struct {
    const char *magic, *reason;
  } packed[] = {{"\x1f\x8b", "compressed (gzip): uncompress it first"},
                {"\x28\xb5\x2f\xfd", "compressed (zstd): uncompress it first"},
                {"\xfd"
                 "7zXZ",
                 "compressed (xz): uncompress it first"},
                {"BZh", "compressed (bzip2): uncompress it first"},
                {"PK\x03\x04", "an archive (zip): unpack it first"}};
  struct stat status;
  char head[MAGIC_BYTES] = {0};
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    if (fd >= 0)
      close(fd);
    return NULL;
  }
  const ssize_t count = read_file(fd, (uint8_t *)head, sizeof head);
  close(fd);
  if (count <= 0)
    return count ? NULL : "empty";
  for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
    if (!memcmp(head, packed[i].magic, strlen(packed[i].magic)))
      return packed[i].reason;
  if (!memcmp(head, NT_FILE_MAGIC, MAGIC_BYTES))
    return NULL;
  if ((uint8_t)head[0] == 0x80)
    return "a pickle, but no dump of a flight recorder";
  return status.st_size > SEARCH_BYTES ? unknown_so_far : unknown;
}

enum nt_recorder nt_source_detect(const char *path, bool named, bool deep) {
  enum nt_recorder found = NT_RECORDER_TRACE;
  struct stat status;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  uint8_t *head = malloc(HEAD_BYTES);
  if (fd >= 0 && head && fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
    /* A thousand traces are told by their first bytes. */
    ssize_t count = read_file(fd, head, MAGIC_BYTES);
    if (count == MAGIC_BYTES && memcmp(head, NT_FILE_MAGIC, MAGIC_BYTES) != 0)
      count = read_file(fd, head, HEAD_BYTES);
    else if (count == MAGIC_BYTES)
      count = 0;
    if (count > 0 && nt_is_flight_recorder(head, (size_t)count, named))
      found = NT_RECORDER_FLIGHT;
    else if (count > 0 && (nt_is_nccl_log(head, (size_t)count) ||
                           (deep && is_late_log(fd, head, (size_t)count))))
      found = NT_RECORDER_LOG;
  }
  free(head);
  if (fd >= 0)
    close(fd);
  return found;
}

int nt_source_load(struct nt_trace_loader *loader, enum nt_recorder recorder, const char *path,
                   struct nt_error *err) {
  struct stat status;
  uint8_t *bytes = NULL;
  int result;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 || fstat(fd, &status) != 0) {
    result = refuse(err, -NT_ERR_IO, strerror(errno));
    goto out;
  }
  if (status.st_size < 0 || (uint64_t)status.st_size > FILE_BYTES_MAX) {
    result = refuse(err, -NT_ERR_SPACE, "larger than 2 GiB");
    goto out;
  }
  bytes = malloc((size_t)status.st_size + 1);
  if (!bytes) {
    result = refuse(err, -NT_ERR_MEMORY, "out of memory");
    goto out;
  }
  ssize_t count = read_file(fd, bytes, (size_t)status.st_size);
  result = count < 0 ? refuse(err, -NT_ERR_IO, strerror(errno))
                     : sources[recorder].load(loader, path, bytes, (size_t)count, err);
out:
  free(bytes);
  if (fd >= 0)
    close(fd);
  return result;
}

const char *nt_source_name(enum nt_recorder recorder, int count) {
  return count == 1 ? sources[recorder].one : sources[recorder].many;
}

int nt_source_finish(struct nt_model *model, enum nt_recorder recorder) {
  if (sources[recorder].lacks)
    nt_model_note(model, "read from %s: %s", sources[recorder].many, sources[recorder].lacks);
  return sources[recorder].finish ? sources[recorder].finish(model) : 0;
}
