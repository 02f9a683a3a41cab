/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One shared area per communicator. The first rank that needs it writes a complete area into a
 * private file and links it to the agreed name, so that nobody sees half of it; the last rank to
 * join removes the name. What a killed job leaves is a file with a name nobody will use again; each
 * new job removes such files, telling them by the lock that living users hold.
 *
 * Queues are slots as in NCCL's transports. The area is sparse: a slot costs what was written to it,
 * and large slots give their pages back when consumed. Waiting is sleeping on the rank's bell, one
 * futex word per rank, rung by whoever changes something that concerns the rank. A sleeper loads the
 * bell, looks, and sleeps only if the bell is unchanged, so nothing is missed.
 */
#include "sim_shm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RING_SLOTS 8u
#define RING_SLOT_SIZE (4u << 20)
#define TREE_SLOTS 8u
#define TREE_SLOT_SIZE 4096u
#define P2P_SLOTS 32u
#define P2P_SLOT_SIZE (128u << 10)
#define ORPHAN_AGE 5 /* seconds before an unlocked file counts as left behind */
#define PUNCH_SIZE (256u << 10)

static int area_dir(char *path, size_t room) {
  const char *dir = getenv("NTSIM_DIR");
  if (dir && *dir)
    snprintf(path, room, "%s", dir);
  else
    snprintf(path, room, "/dev/shm/ntsim-%u", (unsigned int)getuid());
  return mkdir(path, 0700) && errno != EEXIST ? -1 : 0;
}

/* Removes files that no process holds a lock on and that are no longer fresh. */
static void remove_orphans(const char *dir) {
  DIR *d = opendir(dir);
  struct dirent *entry;
  struct stat st;
  if (!d)
    return;
  while ((entry = readdir(d))) {
    if (entry->d_name[0] == '.' || fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
        !S_ISREG(st.st_mode) || time(NULL) - st.st_mtime < ORPHAN_AGE)
      continue;
    int fd = openat(dirfd(d), entry->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
      continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
      unlinkat(dirfd(d), entry->d_name, 0);
    close(fd);
  }
  closedir(d);
}

static uint64_t align64k(uint64_t at) {
  return (at + 65535) & ~(uint64_t)65535;
}

static void set_fifo(struct sim_fifo *f, int src, int dst, uint32_t slots, uint64_t slot_size,
                     uint64_t *at) {
  f->src = (uint32_t)src;
  f->dst = (uint32_t)dst;
  f->slots = slots;
  f->slot_size = slot_size;
  f->data = *at;
  *at += slots * slot_size;
}

/* NCCL's binary tree over ranks: the parent of a rank clears its lowest bit and sets the next. */
static int tree_parent(int rank, int nranks) {
  int bit = 1;
  if (rank == 0)
    return -1;
  while (!(rank & bit))
    bit <<= 1;
  int up = (rank ^ bit) | (bit << 1);
  return up >= nranks ? rank ^ bit : up;
}

static uint64_t layout(struct sim_shm *shm, int n, bool write) {
  uint64_t at = sizeof(struct sim_shm) + (uint64_t)n * sizeof(struct sim_shm_rank);
  uint64_t fifos = (at + 63) & ~(uint64_t)63;
  uint64_t marks = fifos + ((uint64_t)n * (uint64_t)n + 3 * (uint64_t)n) * sizeof(struct sim_fifo);
  uint64_t signals = (marks + (uint64_t)n * (uint64_t)n + 63) & ~(uint64_t)63;
  uint64_t data = align64k(signals + (uint64_t)n * (uint64_t)n * SIM_SIGNALS * sizeof(uint64_t));
  uint64_t total = data + (uint64_t)n * RING_SLOTS * RING_SLOT_SIZE +
                   2ull * (uint64_t)n * TREE_SLOTS * TREE_SLOT_SIZE +
                   (uint64_t)n * (uint64_t)n * P2P_SLOTS * P2P_SLOT_SIZE;
  if (!write)
    return total;
  shm->size = total;
  shm->nranks = n;
  shm->fifos = fifos;
  shm->p2p_marks = marks;
  shm->signals = signals;
  for (int r = 0; r < n; r++)
    set_fifo(sim_shm_ring(shm, r), r, (r + 1) % n, RING_SLOTS, RING_SLOT_SIZE, &data);
  for (int r = 0; r < n; r++) {
    int up = tree_parent(r, n);
    set_fifo(sim_shm_up(shm, r), r, up, TREE_SLOTS, TREE_SLOT_SIZE, &data);
    set_fifo(sim_shm_down(shm, r), up, r, TREE_SLOTS, TREE_SLOT_SIZE, &data);
  }
  for (int src = 0; src < n; src++)
    for (int dst = 0; dst < n; dst++)
      set_fifo(sim_shm_p2p(shm, src, dst), src, dst, P2P_SLOTS, P2P_SLOT_SIZE, &data);
  return total;
}

static struct sim_shm *map_area(int fd, uint64_t size) {
  void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  return at == MAP_FAILED ? NULL : at;
}

/* Writes a new area and gives it its name; an area that is already there is no error. */
static int create_area(const char *dir, const char *path, int nranks) {
  static _Atomic unsigned int counter;
  char temp[PATH_MAX + 64];
  int error = 0;
  uint64_t size = layout(NULL, nranks, false);
  snprintf(temp, sizeof(temp), "%s/new-%d-%u", dir, (int)getpid(), atomic_fetch_add(&counter, 1));
  int fd = open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0)
    return -1;
  flock(fd, LOCK_SH);
  struct sim_shm *shm = ftruncate(fd, (off_t)size) ? NULL : map_area(fd, size);
  if (shm) {
    layout(shm, nranks, true);
    munmap(shm, size);
  }
  if (!shm || (link(temp, path) && errno != EEXIST))
    error = errno;
  unlink(temp);
  close(fd);
  errno = error;
  return error ? -1 : 0;
}

struct sim_shm *sim_shm_open(const char *name, int nranks, int *fd_out) {
  char dir[PATH_MAX], path[PATH_MAX + 256];
  struct stat st;
  int fd = -1;
  for (int attempt = 0; attempt < 100 && fd < 0; attempt++) {
    if (area_dir(dir, sizeof(dir)))
      return NULL;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    /* Before the open whose errno is looked at below. */
    if (attempt == 0 && access(path, F_OK) != 0)
      remove_orphans(dir);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    /* Between two attempts somebody may remove the area, or the directory: it is rebuilt. */
    if (fd < 0 && (errno != ENOENT || (create_area(dir, path, nranks) && errno != ENOENT)))
      return NULL;
  }
  if (fd < 0)
    return NULL;
  flock(fd, LOCK_SH);
  struct sim_shm *shm = fstat(fd, &st) ? NULL : map_area(fd, (uint64_t)st.st_size);
  if (!shm)
    close(fd);
  *fd_out = shm ? fd : -1;
  return shm;
}

void sim_shm_unlink(const char *name) {
  char dir[PATH_MAX], path[PATH_MAX + 256];
  if (area_dir(dir, sizeof(dir)))
    return;
  snprintf(path, sizeof(path), "%s/%s", dir, name);
  unlink(path);
  if (!getenv("NTSIM_DIR"))
    rmdir(dir); /* if it is empty: nothing stays behind */
}

void sim_shm_close(struct sim_shm *shm) {
  munmap(shm, shm->size);
}

static struct sim_fifo *fifo_at(struct sim_shm *shm, uint64_t index) {
  return (struct sim_fifo *)(void *)((char *)shm + shm->fifos) + index;
}

struct sim_fifo *sim_shm_ring(struct sim_shm *shm, int src) {
  return fifo_at(shm, (uint64_t)src);
}

struct sim_fifo *sim_shm_up(struct sim_shm *shm, int child) {
  return fifo_at(shm, (uint64_t)(shm->nranks + child));
}

struct sim_fifo *sim_shm_down(struct sim_shm *shm, int child) {
  return fifo_at(shm, (uint64_t)(2 * shm->nranks + child));
}

struct sim_fifo *sim_shm_p2p(struct sim_shm *shm, int src, int dst) {
  return fifo_at(shm, (uint64_t)(3 * shm->nranks + src * shm->nranks + dst));
}

_Atomic uint8_t *sim_shm_p2p_mark(struct sim_shm *shm, int src, int dst) {
  return (_Atomic uint8_t *)(void *)((char *)shm + shm->p2p_marks) + src * shm->nranks + dst;
}

_Atomic uint64_t *sim_shm_signal(struct sim_shm *shm, int src, int dst, int kind) {
  return (_Atomic uint64_t *)(void *)((char *)shm + shm->signals) +
         (src * shm->nranks + dst) * SIM_SIGNALS + kind;
}

int sim_shm_segment(const char *name, size_t size, bool create) {
  char dir[PATH_MAX], path[PATH_MAX + 256];
  if (area_dir(dir, sizeof(dir)))
    return -1;
  snprintf(path, sizeof(path), "%s/%s", dir, name);
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT | O_EXCL : 0), 0600);
  if (fd >= 0 && create && ftruncate(fd, (off_t)size)) {
    close(fd);
    return -1;
  }
  return fd;
}

uint32_t sim_shm_bell(struct sim_shm *shm, int rank) {
  return atomic_load(&shm->rank[rank].bell);
}

void sim_shm_ring_bell(struct sim_shm *shm, int rank) {
  /* Sequentially consistent with sim_shm_sleep: either it sees the new bell or we see the sleeper. */
  atomic_fetch_add(&shm->rank[rank].bell, 1);
  if (atomic_load(&shm->rank[rank].sleepers))
    syscall(SYS_futex, &shm->rank[rank].bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void sim_shm_ring_all(struct sim_shm *shm) {
  for (int r = 0; r < shm->nranks; r++)
    sim_shm_ring_bell(shm, r);
}

void sim_shm_sleep(struct sim_shm *shm, int rank, uint32_t seen, int ms) {
  struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
  atomic_fetch_add(&shm->rank[rank].sleepers, 1);
  syscall(SYS_futex, &shm->rank[rank].bell, FUTEX_WAIT, seen, ms < 0 ? NULL : &limit, NULL, 0);
  atomic_fetch_sub(&shm->rank[rank].sleepers, 1);
}

static void *slot_data(struct sim_shm *shm, const struct sim_fifo *f, uint64_t number) {
  return (char *)shm + f->data + number % f->slots * f->slot_size;
}

void *sim_fifo_reserve(struct sim_shm *shm, struct sim_fifo *f, uint32_t limit) {
  uint64_t tail = atomic_load_explicit(&f->tail, memory_order_relaxed);
  /* Acquire pairs with sim_fifo_pop: the consumer is done with the slot's memory. */
  uint64_t head = atomic_load_explicit(&f->head, memory_order_acquire);
  if (tail - head >= (limit < f->slots ? limit : f->slots))
    return NULL;
  return slot_data(shm, f, tail);
}

void sim_fifo_publish(struct sim_shm *shm, struct sim_fifo *f, struct sim_slot what) {
  uint64_t tail = atomic_load_explicit(&f->tail, memory_order_relaxed);
  f->slot[tail % f->slots] = what;
  atomic_store_explicit(&f->tail, tail + 1, memory_order_release); /* pairs with sim_fifo_peek */
  sim_shm_ring_bell(shm, (int)f->dst);
}

struct sim_slot *sim_fifo_peek(struct sim_shm *shm, struct sim_fifo *f, void **data) {
  uint64_t head = atomic_load_explicit(&f->head, memory_order_relaxed);
  if (head == atomic_load_explicit(&f->tail, memory_order_acquire))
    return NULL;
  *data = slot_data(shm, f, head);
  return &f->slot[head % f->slots];
}

void sim_fifo_pop(struct sim_shm *shm, struct sim_fifo *f) {
  uint64_t head = atomic_load_explicit(&f->head, memory_order_relaxed);
  if (f->slot[head % f->slots].size >= PUNCH_SIZE)
    madvise(slot_data(shm, f, head), f->slot_size, MADV_REMOVE);
  atomic_store_explicit(&f->head, head + 1, memory_order_release);
  sim_shm_ring_bell(shm, (int)f->src);
}
