/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rendezvous: the ranks of a communicator find each other through a shared area named by a key that
 * all of them can compute (from the unique id, or from the parent). Joining waits, in the calling
 * thread and for ever, until all ranks are there. As with NCCL's bootstrap root, ranks that disagree
 * about the size, or two ranks with one number, end the rendezvous: nobody gets through and nobody
 * is told.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "sim_nccl.h"

static _Thread_local char last_warning[256];

void sim_nccl_warn(const char *format, ...) {
  const char *level = getenv("NCCL_DEBUG");
  va_list args;
  va_start(args, format);
  vsnprintf(last_warning, sizeof(last_warning), format, args);
  va_end(args);
  if (level && (!strcmp(level, "WARN") || !strcmp(level, "INFO")))
    fprintf(stderr, "[%d] NCCL WARN %s\n", (int)getpid(), last_warning);
}

const char *sim_nccl_last_warning(void) {
  return last_warning;
}

uint64_t sim_boot_hash(uint64_t seed, const void *data, size_t size) {
  const unsigned char *bytes = data;
  uint64_t h = seed ^ 0x9e3779b97f4a7c15ull;
  for (size_t i = 0; i < size; i++)
    h = (h ^ bytes[i]) * 0x100000001b3ull;
  h ^= h >> 29;
  h *= 0xbf58476d1ce4e5b9ull;
  return h ^ h >> 32;
}

SIM_NCCL_API(ncclResult_t, GetUniqueId, ncclUniqueId *uniqueId) {
  if (!uniqueId)
    return ncclInvalidArgument;
  struct sockaddr_in address = {.sin_family = AF_INET};
  uint16_t port;
  memset(uniqueId, 0, sizeof(*uniqueId));
  if (getrandom(uniqueId->internal, 8, 0) != 8 || getrandom(&port, sizeof(port), 0) != sizeof(port))
    return ncclSystemError;
  /* As with NCCL all ids are equal then. */
  const char *fixed = getenv("NCCL_COMM_ID");
  if (fixed) {
    uint64_t magic = sim_boot_hash(6, fixed, strlen(fixed));
    memcpy(uniqueId->internal, &magic, sizeof(magic));
    return ncclSuccess;
  }
  /* Nobody listens there: the port only makes ids look as NCCL's do. */
  address.sin_port = htons((uint16_t)(32768 + port % 28000));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  memcpy(uniqueId->internal + 8, &address, sizeof(address));
  return ncclSuccess;
}

/* Waits until `all` ranks have joined; false if aborted. A broken rendezvous never completes. */
static bool wait_joined(ncclComm_t comm, uint32_t all) {
  struct sim_shm *shm = comm->shm;
  for (;;) {
    uint32_t seen = sim_shm_bell(shm, comm->rank);
    if (!atomic_load(&shm->broken) && atomic_load(&shm->joined) == all)
      return true;
    if (!sim_comm_wait(comm, seen, -1))
      return false;
  }
}

static ncclResult_t refuse(ncclComm_t comm, struct sim_shm *shm, const char *name) {
  atomic_store(&shm->broken, 1);
  sim_shm_unlink(name); /* latecomers then wait for each other: never enough of them */
  sim_shm_ring_all(shm);
  /* The area has no place for this rank: wait where nothing will ever happen. */
  while (!atomic_load(&comm->aborted)) {
    struct timespec pause = {.tv_nsec = 100000000};
    nanosleep(&pause, NULL);
  }
  return ncclInternalError;
}

ncclResult_t sim_boot_join(ncclComm_t comm) {
  char name[64];
  int fd, none = 0;
  snprintf(name, sizeof(name), "comm-%016llx", (unsigned long long)comm->key);
  struct sim_shm *shm = sim_shm_open(name, comm->nranks, &fd);
  if (!shm) {
    sim_nccl_warn("cannot share memory: %s", strerror(errno));
    return ncclSystemError;
  }
  ncclResult_t result = ncclSuccess;
  if (shm->nranks != comm->nranks ||
      !atomic_compare_exchange_strong(&shm->rank[comm->rank].pid, &none, (int)getpid())) {
    sim_nccl_warn("Bootstrap Root : rank %d of %d does not fit", comm->rank, comm->nranks);
    result = refuse(comm, shm, name);
    sim_shm_close(shm);
    close(fd);
    return result;
  }
  comm->shm = shm;
  uint32_t all = (uint32_t)comm->nranks;
  if (atomic_fetch_add(&shm->joined, 1) + 1 == all && !atomic_load(&shm->broken)) {
    sim_shm_unlink(name);
    sim_shm_ring_all(shm);
  }
  if (!wait_joined(comm, all))
    result = ncclInternalError;
  close(fd);
  return result;
}

ncclResult_t sim_boot_exchange(ncclComm_t comm, enum sim_board board, int64_t a, int64_t b,
                               int64_t *values) {
  struct sim_shm *shm = comm->shm;
  uint64_t round = ++comm->rounds[board];
  struct sim_post *mine = &shm->rank[comm->rank].post[board][round & 1];
  mine->value[0] = a;
  mine->value[1] = b;
  atomic_store(&mine->round, round);
  sim_shm_ring_all(shm);
  for (int r = 0; r < comm->nranks; r++) {
    struct sim_post *post = &shm->rank[r].post[board][round & 1];
    for (;;) {
      uint32_t seen = sim_shm_bell(shm, comm->rank);
      if (atomic_load(&post->round) == round)
        break;
      if (!sim_comm_wait(comm, seen, board == SIM_BOARD_SPLIT ? r : -1))
        return ncclInternalError;
      if (board == SIM_BOARD_SPLIT && atomic_load(&comm->async) == ncclRemoteError)
        return ncclRemoteError; /* the sockets of the bootstrap notice who is gone */
    }
    if (values) {
      values[2 * r] = post->value[0];
      values[2 * r + 1] = post->value[1];
    }
  }
  return ncclSuccess;
}
