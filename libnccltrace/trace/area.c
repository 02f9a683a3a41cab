/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making, mapping and checking areas.
 *
 * Only a tmpfs is used: a store through a mapping of a disk file system can stall for tens of
 * milliseconds. The space is allocated at once, so that a full file system is an error here and never
 * a SIGBUS in somebody's training step. Runs in the application's thread at its first communicator,
 * and in tools.
 */
#include "trace/area.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "trace/error.h"
#include "trace/read_text.h"

enum {
  EVIDENCE_BYTES = 64 * 1024,
  THREADS = 256,
  STREAMS = 256,
  GPU_MARKS = 1024,
  COMMS_MAX = 256,
  COMMS_MIN = 64,
  CHUNKS_MIN = 8,
  SPOOL_MAX = 512 * 1024,
  SPOOL_MIN = 128 * 1024,
  AREA_MIN = 512 * 1024,
  SPACE_SHARE = 16, /* of the free space, what one process may take */
};

int nt_area_directory(char *out, uint64_t size) {
  const char *set = getenv("NCCLTRACE_SHM");
  int n = set && *set ? snprintf(out, size, "%s", set)
                      : snprintf(out, size, "/dev/shm/nccltrace-%u", (unsigned)geteuid());
  return n < 0 || (uint64_t)n >= size ? -NT_ERR_SPACE : 0;
}

/* 0 if `dir` exists (made if need be), is ours alone, is no link (else NT_ERR_UNSAFE) and lies on a tmpfs
 * (else NT_ERR_FOREIGN). */
static int prepare_directory(const char *dir) {
  struct stat st;
  struct statfs fs;
  if (mkdir(dir, 0700) != 0 && errno != EEXIST)
    return -NT_ERR_IO;
  if (lstat(dir, &st) != 0)
    return -NT_ERR_IO;
  if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))
    return -NT_ERR_UNSAFE;
  if (statfs(dir, &fs) != 0)
    return -NT_ERR_IO;
  return fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC ? 0 : -NT_ERR_FOREIGN;
}

/* A file beyond RLIMIT_FSIZE would not fail but kill the process with SIGXFSZ; the limit holds on a tmpfs
 * and for memory files too. */
static uint64_t within_limit(uint64_t wanted) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      limit.rlim_cur >= wanted)
    return wanted;
  return limit.rlim_cur;
}

static uint64_t affordable(const char *dir, uint64_t wanted) {
  struct statfs fs;
  if (statfs(dir, &fs) != 0)
    return 0;
  uint64_t share = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize / SPACE_SHARE;
  return within_limit(share < wanted ? share : wanted);
}

static uint32_t place(uint64_t *end, uint64_t bytes) {
  uint64_t at = *end;
  *end = (at + bytes + 4095) & ~UINT64_C(4095);
  return (uint32_t)at;
}

/* Divides about `bytes` among the regions; the ring gets what is left. */
static void lay_out(struct nt_area_header *h, uint64_t bytes) {
  int small = bytes < 4 * AREA_MIN;
  uint64_t end = 4096;
  h->header_size = 4096;
  h->evidence_size = EVIDENCE_BYTES;
  h->evidence_offset = place(&end, EVIDENCE_BYTES);
  h->comm_size = sizeof(struct nt_comm_slot);
  h->comm_count = small ? COMMS_MIN : COMMS_MAX;
  h->comm_offset = place(&end, (uint64_t)h->comm_size * h->comm_count);
  h->thread_size = sizeof(struct nt_thread_slot);
  h->thread_count = THREADS;
  h->thread_offset = place(&end, (uint64_t)h->thread_size * h->thread_count);
  h->stream_size = sizeof(struct nt_stream_slot);
  h->stream_count = STREAMS;
  h->stream_offset = place(&end, (uint64_t)h->stream_size * h->stream_count);
  h->gpu_stream_size = sizeof(struct nt_gpu_stream);
  h->gpu_stream_count = STREAMS;
  h->gpu_stream_offset = place(&end, (uint64_t)h->gpu_stream_size * h->gpu_stream_count);
  h->gpu_mark_size = sizeof(struct nt_gpu_mark);
  h->gpu_mark_count = GPU_MARKS;
  h->gpu_mark_offset = place(&end, (uint64_t)h->gpu_mark_size * h->gpu_mark_count);
  h->code_size = small ? NT_CODES_BYTES / 8 : NT_CODES_BYTES;
  h->code_offset = place(&end, h->code_size);
  h->stack_size = (small ? NT_STACK_NODES / 8 : NT_STACK_NODES) * sizeof(struct nt_stack_node);
  h->stack_offset = place(&end, h->stack_size);
  h->spool_size = small ? SPOOL_MIN : SPOOL_MAX;
  h->spool_offset = place(&end, h->spool_size);
  uint64_t left = bytes > end ? (bytes - end) / NT_CHUNK_BYTES : 0;
  h->chunk_size = NT_CHUNK_BYTES;
  h->chunk_count = left < CHUNKS_MIN ? CHUNKS_MIN : (uint32_t)left;
  h->chunk_offset = place(&end, (uint64_t)h->chunk_size * h->chunk_count);
  h->total_size = end;
}

static void set_pointers(struct nt_area *area) {
  unsigned char *base = (unsigned char *)area->header;
  struct nt_area_header *h = area->header;
  area->comms = (struct nt_comm_slot *)(void *)(base + h->comm_offset);
  area->threads = (struct nt_thread_slot *)(void *)(base + h->thread_offset);
  area->streams = (struct nt_stream_slot *)(void *)(base + h->stream_offset);
  area->chunks = (struct nt_chunk *)(void *)(base + h->chunk_offset);
  area->gpu_streams = (struct nt_gpu_stream *)(void *)(base + h->gpu_stream_offset);
  area->gpu_mark_ring = (struct nt_gpu_mark *)(void *)(base + h->gpu_mark_offset);
  if (h->code_size && h->stack_size) {
    area->codes = (struct nt_code_region *)(void *)(base + h->code_offset);
    area->stacks = (struct nt_stack_region *)(void *)(base + h->stack_offset);
  }
  area->evidence = (char *)(base + h->evidence_offset);
  area->spool = base + h->spool_offset;
  area->mapped = h->total_size;
}

static uint64_t own_start_time(void) {
  char text[1024];
  const char *start =
      nt_read_text("/proc/self/stat", text, sizeof(text)) > 0 ? nt_stat_field(text, 22) : NULL;
  return start ? strtoull(start, NULL, 10) : 0;
}

static void identify(struct nt_area_header *h) {
  struct stat st;
  h->pid = (uint32_t)getpid();
  h->uid = (uint32_t)geteuid();
  h->start_time = own_start_time();
  h->pid_ns = stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
  if (getrandom(&h->nonce, sizeof(h->nonce), GRND_NONBLOCK) != (ssize_t)sizeof(h->nonce)) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    h->nonce = (uint64_t)ts.tv_nsec << 32 ^ (uint64_t)ts.tv_sec ^ h->pid;
  }
  nt_read_text("/proc/sys/kernel/random/boot_id", h->boot_id, sizeof(h->boot_id));
  if (gethostname(h->host, sizeof(h->host) - 1) != 0)
    memcpy(h->host, "?", 2);
  h->world_rank = h->world_size = h->local_rank = -1;
}

/* An open descriptor of `size` allocated bytes: a file in `dir`, or a memfd when dir is NULL. */
static int make_file(const char *dir, const struct nt_area_header *h, struct nt_area *out) {
  out->path[0] = 0;
  if (within_limit(h->total_size) < h->total_size)
    return -NT_ERR_SPACE;
  if (!dir) {
    out->fd = memfd_create("nccltrace", MFD_CLOEXEC);
  } else {
    int n = snprintf(out->path, sizeof(out->path), "%s/%u-%llu-%llu-%08x.area", dir, h->pid,
                     (unsigned long long)h->start_time, (unsigned long long)h->pid_ns,
                     (unsigned)h->nonce);
    if (n < 0 || (size_t)n >= sizeof(out->path))
      return -NT_ERR_SPACE;
    out->fd = open(out->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  }
  if (out->fd < 0)
    return -NT_ERR_IO;
  int refused = posix_fallocate(out->fd, 0, (off_t)h->total_size);
  if (!refused)
    return 0;
  close(out->fd);
  if (dir)
    unlink(out->path);
  return refused == ENOSPC ? -NT_ERR_SPACE : -NT_ERR_IO;
}

static int map_file(const struct nt_area_header *h, struct nt_area *out) {
  void *map = mmap(NULL, h->total_size, PROT_READ | PROT_WRITE, MAP_SHARED, out->fd, 0);
  if (map == MAP_FAILED) {
    close(out->fd);
    if (out->path[0])
      unlink(out->path);
    return -NT_ERR_MEMORY;
  }
  memcpy(map, h, sizeof(*h));
  out->header = map;
  set_pointers(out);
  atomic_store_explicit(&out->codes->used, sizeof(*out->codes), memory_order_relaxed);
  out->codes->size = h->code_size;
  atomic_store_explicit(&out->stacks->used, 1, memory_order_relaxed);
  out->stacks->count =
      (uint32_t)((h->stack_size - sizeof(*out->stacks)) / sizeof(struct nt_stack_node));
  memcpy(out->header->magic, NT_AREA_MAGIC, 8);
  return 0;
}

int nt_area_create(const char *dir, uint64_t bytes, struct nt_area *out) {
  struct nt_area_header h;
  memset(&h, 0, sizeof(h));
  memset(out, 0, sizeof(*out));
  h.major = NT_AREA_MAJOR;
  h.minor = NT_AREA_MINOR;
  h.oom_kills = NT_OOM_UNKNOWN;
  identify(&h);
  int rc = dir ? prepare_directory(dir) : -NT_ERR_UNSAFE;
  if (rc == 0) {
    uint64_t share = affordable(dir, bytes);
    rc = share < AREA_MIN ? -NT_ERR_SPACE : 0;
    if (rc == 0) {
      lay_out(&h, share);
      rc = make_file(dir, &h, out);
    }
  }
  if (rc != 0) {
    out->fallback_reason = rc;
    lay_out(&h, within_limit(bytes));
    rc = make_file(NULL, &h, out);
  }
  return rc ? rc : map_file(&h, out);
}

static int region_ok(uint64_t total, uint64_t offset, uint64_t size, uint64_t count,
                     uint64_t wanted) {
  return size == wanted && offset >= 4096 && offset % 64 == 0 && count <= UINT32_MAX / wanted &&
         offset + size * count <= total;
}

static int stacks_ok(const struct nt_area_header *h) {
  if (!h->code_size && !h->stack_size)
    return 1;
  return h->code_size >= sizeof(struct nt_code_region) &&
         h->stack_size >= sizeof(struct nt_stack_region) &&
         region_ok(h->total_size, h->code_offset, 1, h->code_size, 1) &&
         region_ok(h->total_size, h->stack_offset, 1, h->stack_size, 1);
}

/* Every size that set_pointers and the readers rely on. */
static int check_header(const struct nt_area_header *h, uint64_t file_size) {
  if (memcmp(h->magic, NT_AREA_MAGIC, 8) != 0)
    return -NT_ERR_FOREIGN;
  if (h->major != NT_AREA_MAJOR)
    return -NT_ERR_VERSION;
  uint64_t total = h->total_size;
  if (h->header_size != 4096 || total != file_size)
    return -NT_ERR_TRUNCATED;
  if (!region_ok(total, h->comm_offset, h->comm_size, h->comm_count, sizeof(struct nt_comm_slot)) ||
      !region_ok(total, h->thread_offset, h->thread_size, h->thread_count,
                 sizeof(struct nt_thread_slot)) ||
      !region_ok(total, h->stream_offset, h->stream_size, h->stream_count,
                 sizeof(struct nt_stream_slot)) ||
      !region_ok(total, h->gpu_stream_offset, h->gpu_stream_size, h->gpu_stream_count,
                 sizeof(struct nt_gpu_stream)) ||
      !region_ok(total, h->gpu_mark_offset, h->gpu_mark_size, h->gpu_mark_count,
                 sizeof(struct nt_gpu_mark)) ||
      !region_ok(total, h->chunk_offset, h->chunk_size, h->chunk_count, NT_CHUNK_BYTES) ||
      !region_ok(total, h->evidence_offset, 1, h->evidence_size, 1) ||
      !region_ok(total, h->spool_offset, 1, h->spool_size, 1) || !stacks_ok(h))
    return -NT_ERR_CORRUPT;
  return 0;
}

int nt_area_open(const char *path, int writable, struct nt_area *out) {
  struct stat st;
  memset(out, 0, sizeof(*out));
  int flags = (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  out->fd = open(path, flags);
  if (out->fd < 0)
    return -NT_ERR_IO;
  int rc = -NT_ERR_IO;
  if (fstat(out->fd, &st) != 0)
    goto fail;
  rc = -NT_ERR_FOREIGN;
  if (!S_ISREG(st.st_mode))
    goto fail;
  rc = -NT_ERR_TRUNCATED;
  if (st.st_size < 4096)
    goto fail;
  void *map = mmap(NULL, (size_t)st.st_size, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                   MAP_SHARED, out->fd, 0);
  rc = -NT_ERR_MEMORY;
  if (map == MAP_FAILED)
    goto fail;
  out->header = map;
  out->mapped = (uint64_t)st.st_size;
  rc = check_header(out->header, out->mapped);
  if (rc != 0) {
    munmap(map, out->mapped);
    out->header = NULL;
    goto fail;
  }
  set_pointers(out);
  snprintf(out->path, sizeof(out->path), "%s", path);
  return 0;
fail:
  close(out->fd);
  out->fd = -1;
  return rc;
}

void nt_area_close(struct nt_area *area) {
  if (area->header)
    munmap(area->header, area->mapped);
  if (area->fd >= 0)
    close(area->fd);
  memset(area, 0, sizeof(*area));
  area->fd = -1;
}

int nt_area_lock(int fd) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
  if (fcntl(fd, F_SETLK, &lock) == 0)
    return 0;
  return errno == EACCES || errno == EAGAIN ? -NT_ERR_BUSY : -NT_ERR_IO;
}

int nt_area_is_locked(int fd) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
  if (fcntl(fd, F_GETLK, &lock) != 0)
    return -NT_ERR_IO;
  return lock.l_type != F_UNLCK;
}
