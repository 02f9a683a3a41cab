/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A new trace file: its directory, its name among earlier attempts, its superblock.
 *
 * Nothing that exists is opened for writing: a file gets a name that is free, and where the file system can do that,
 * only once its superblock is written, so that a process may die at any moment and leave no file that is none. Earlier
 * attempts are removed only
 * when nobody holds their lock, and never the first, which tends to have the cause in it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "trace/trace_file.h"

#ifndef NT_VERSION
#define NT_VERSION "0"
#endif

static int refuse(struct nt_error *err, int code, const char *what) {
  const int saved = errno;
  err->code = -code;
  err->offset = 0;
  if (code == NT_ERR_IO || code == NT_ERR_SPACE)
    snprintf(err->reason, sizeof err->reason, "%s: %s", what, strerror(saved));
  else
    snprintf(err->reason, sizeof err->reason, "%s", what);
  errno = saved;
  return -code;
}

static int make_directories(const char *path) {
  char part[1024];
  const size_t length = strlen(path);
  if (!length || length >= sizeof part)
    return -NT_ERR_SPACE;
  memcpy(part, path, length + 1);
  for (size_t i = 1; i <= length; i++) {
    if (part[i] != '/' && part[i] != 0)
      continue;
    const char saved = part[i];
    part[i] = 0;
    if (mkdir(part, 0700) && errno != EEXIST && errno != EISDIR) {
      struct stat there;
      if (stat(part, &there))
        return -NT_ERR_IO;
    }
    part[i] = saved;
  }
  return 0;
}

/* "rank3" of "rank3.trace" and "rank3.2.trace". */
static void base_name(const struct nt_area_header *header, char *out, size_t size) {
  if (header->world_rank >= 0)
    snprintf(out, size, "rank%d", header->world_rank);
  else
    snprintf(out, size, "pid%u", header->pid);
}

/* The attempt that a file name stands for, -1 if it is none of `base`. */
static long attempt_of(const char *name, const char *base) {
  const size_t length = strlen(base);
  if (strncmp(name, base, length) != 0)
    return -1;
  const char *rest = name + length;
  if (!strcmp(rest, ".trace"))
    return 0;
  if (rest[0] != '.' || rest[1] < '1' || rest[1] > '9')
    return -1;
  char *end;
  const long number = strtol(rest + 1, &end, 10);
  return !strcmp(end, ".trace") && number < 1000000 ? number : -1;
}

static long last_attempt(int dir, const char *base) {
  const int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
  long last = -1;
  if (!list) {
    if (copy >= 0)
      close(copy);
    return last;
  }
  for (struct dirent *entry; (entry = readdir(list));) {
    const long attempt = attempt_of(entry->d_name, base);
    if (attempt > last)
      last = attempt;
  }
  closedir(list);
  return last;
}

static void attempt_name(const char *base, long attempt, char *out, size_t size) {
  if (attempt == 0)
    snprintf(out, size, "%s.trace", base);
  else
    snprintf(out, size, "%s.%ld.trace", base, attempt);
}

static void remove_attempts(int dir, const char *base, long current, uint32_t keep) {
  for (long attempt = current - (long)keep - 1, tries = 0; attempt >= 1 && tries < 64;
       attempt--, tries++) {
    char name[64];
    attempt_name(base, attempt, name, sizeof name);
    const int fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
      continue;
    if (nt_area_is_locked(fd) == 0)
      unlinkat(dir, name, 0);
    close(fd);
  }
}

static bool shared_by_network(int fd) {
  static const unsigned long types[] = {
      0x6969,     /* NFS */
      0x0bd00bd0, /* Lustre */
      0x47504653, /* GPFS */
      0x19830326, /* BeeGFS */
      0xff534d42, /* CIFS */
      0xfe534d42, /* SMB2 */
      0x65735546, /* FUSE */
      0x00c36400, /* Ceph */
      0x01021997, /* 9P */
  };
  struct statfs fs;
  if (fstatfs(fd, &fs))
    return false;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (((unsigned long)fs.f_type & 0xffffffffUL) == types[i])
      return true;
  return false;
}

static int lay_out(const struct nt_area_header *header, uint64_t size, uint64_t state_bytes,
                   struct nt_layout *out) {
  const uint64_t evidence = nt_round_up((uint64_t)header->evidence_size + 4096, 4096);
  *out = (struct nt_layout){
      .evidence_offset = NT_SUPER_SIZE,
      .evidence_size = (uint32_t)evidence,
      .evidence_count = NT_EVIDENCE_COPIES,
      .state_size = (uint32_t)state_bytes,
      .state_count = NT_STATE_SLOTS,
      .segment_count = NT_SEGMENT_COUNT,
  };
  if (evidence > UINT32_MAX || state_bytes > UINT32_MAX)
    return -NT_ERR_SPACE;
  out->state_offset = out->evidence_offset + evidence * NT_EVIDENCE_COPIES;
  out->segment_offset = out->state_offset + state_bytes * NT_STATE_SLOTS;
  const uint64_t left = size > out->segment_offset ? size - out->segment_offset : 0;
  out->segment_size = left / NT_SEGMENT_COUNT / 4096 * 4096;
  if (out->segment_size < NT_SEGMENT_MIN)
    out->segment_size = NT_SEGMENT_MIN;
  return 0;
}

static void describe(const struct nt_area_header *header, const struct nt_layout *layout,
                     unsigned char out[NT_SUPER_SIZE]) {
  struct nt_super super = {
      .layout = *layout,
      .major = NT_FILE_MAJOR,
      .minor = NT_FILE_MINOR,
      .clock_kind = header->clock_kind,
      .pid = header->pid,
      .uid = header->uid,
      .restart = header->restart,
      .start_time = header->start_time,
      .pid_ns = header->pid_ns,
      .nonce = header->nonce,
      .clock_first = header->clock_first,
      .world_rank = header->world_rank,
      .world_size = header->world_size,
      .local_rank = header->local_rank,
      .writer = "libnccltrace " NT_VERSION,
  };
  memcpy(super.boot_id, header->boot_id, sizeof super.boot_id);
  memcpy(super.host, header->host, sizeof super.host);
  memcpy(super.run_id, header->run_id, sizeof super.run_id);
  nt_super_write(&super, out);
}

static int write_superblock(struct nt_trace_file *file, const unsigned char *bytes) {
  for (size_t done = 0; done < NT_SUPER_SIZE;) {
    const ssize_t wrote = pwrite(file->fd, bytes + done, NT_SUPER_SIZE - done, (off_t)done);
    if (wrote < 0 && errno == EINTR)
      continue;
    if (wrote <= 0)
      return -NT_ERR_IO;
    done += (size_t)wrote;
  }
  return 0;
}

struct attempt {
  int dir;
  const char *base;
  char name[64];
  long number;
};

/* Creates the file under the next free name; its superblock is still to be written. */
static int open_named(struct attempt *attempt) {
  for (int tries = 0; tries < 1000; tries++, attempt->number++) {
    attempt_name(attempt->base, attempt->number, attempt->name, sizeof attempt->name);
    const int fd = openat(attempt->dir, attempt->name,
                          O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 || errno != EEXIST)
      return fd;
  }
  return -1;
}

/* Gives a file without a name the next free one. The thread's own table of descriptors may differ from the process's. */
static int give_name(struct attempt *attempt, int fd) {
  char path[64];
  snprintf(path, sizeof path, "/proc/thread-self/fd/%d", fd);
  for (int tries = 0; tries < 1000; tries++, attempt->number++) {
    attempt_name(attempt->base, attempt->number, attempt->name, sizeof attempt->name);
    if (!linkat(AT_FDCWD, path, attempt->dir, attempt->name, AT_SYMLINK_FOLLOW))
      return 0;
    if (errno != EEXIST)
      break;
  }
  attempt->name[0] = 0;
  return -NT_ERR_IO;
}

/* Locks the file and writes its superblock. */
static int begin_file(struct nt_trace_file *file, const unsigned char *super,
                      struct nt_error *err) {
  struct stat made;
  if (nt_area_lock(file->fd) == -NT_ERR_BUSY || fstat(file->fd, &made))
    return refuse(err, NT_ERR_IO, "the new trace file cannot be locked");
  file->dev = (uint64_t)made.st_dev;
  file->ino = (uint64_t)made.st_ino;
  file->network = shared_by_network(file->fd);
  if (write_superblock(file, super))
    return refuse(err, errno == ENOSPC || errno == EDQUOT ? NT_ERR_SPACE : NT_ERR_IO,
                  "the trace file cannot be written");
  return 0;
}

static int make_file(struct attempt *attempt, const unsigned char *super, struct nt_trace_file *out,
                     struct nt_error *err) {
  out->fd = openat(attempt->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (out->fd >= 0) {
    const int rc = begin_file(out, super, err);
    if (rc || !give_name(attempt, out->fd))
      return rc;
    close(out->fd);
  }
  out->fd = open_named(attempt);
  if (out->fd < 0)
    return refuse(err, NT_ERR_IO, "no trace file can be made in the trace directory");
  return begin_file(out, super, err);
}

int nt_trace_file_create(struct nt_area_header *header, const char *directory, uint64_t size,
                         uint32_t keep, uint64_t state_bytes, struct nt_trace_file *out,
                         struct nt_error *err) {
  struct attempt attempt = {.name = ""};
  char base[32], real[1024 - sizeof attempt.name];
  unsigned char super[NT_SUPER_SIZE];
  memset(out, 0, sizeof *out);
  out->fd = -1;
  if (lay_out(header, size, state_bytes, &out->layout))
    return refuse(err, NT_ERR_SPACE, "the area is too large for a trace file");
  if (make_directories(directory))
    return refuse(err, NT_ERR_IO, "the trace directory cannot be made");
  attempt.dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (attempt.dir < 0)
    return refuse(err, NT_ERR_IO, "the trace directory cannot be opened");
  base_name(header, base, sizeof base);
  attempt.base = base;
  attempt.number = last_attempt(attempt.dir, base) + 1;
  describe(header, &out->layout, super);
  const int rc = make_file(&attempt, super, out, err);
  if (rc)
    goto out;
  /* The process may change its directory; whoever reads the area needs the whole path. */
  char *resolved = realpath(directory, NULL);
  snprintf(real, sizeof real, "%s", resolved ? resolved : directory);
  free(resolved);
  snprintf(out->path, sizeof out->path, "%s/%s", real, attempt.name);
  memcpy(header->file_path, out->path, sizeof header->file_path);
  struct stat status;
  out->dir_ino = fstat(attempt.dir, &status) == 0 ? status.st_ino : 0;
  header->file_dev = out->dev;
  header->file_ino = out->ino;
  atomic_store_explicit(&header->file_ready, 1, memory_order_release);
  remove_attempts(attempt.dir, base, attempt.number, keep);
out:
  if (rc && out->fd >= 0) {
    close(out->fd);
    out->fd = -1;
    if (attempt.name[0])
      unlinkat(attempt.dir, attempt.name, 0);
  }
  close(attempt.dir);
  return rc;
}
