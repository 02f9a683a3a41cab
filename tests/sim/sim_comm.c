/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators: creation from a unique id, queries, errors, abort. A communicator's memory outlives
 * its destruction on purpose: a call on a dead handle is then an error and not a crash (but see NTSIM_REUSE). The shared
 * area goes when the last plan that uses it has run.
 *
 * Anything that waits for other ranks ends up in sim_comm_wait, which is also where an abort ends
 * it and where the death of a peer is noticed: as with NCCL's sockets only by a rank that is waiting
 * to receive from it.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sim_nccl.h"

#define COMM_MAGIC 0x4e54434f4d4d5349ull
#define DEATH_CHECK_MS 200

struct init_job {
  ncclComm_t comm;
  int device;
};

static bool config_has(const ncclConfig_t *config, size_t end) {
  return config && config->size >= end;
}

static void read_config(ncclComm_t comm, const ncclConfig_t *config) {
  if (config_has(config, offsetof(ncclConfig_t, cgaClusterSize)) &&
      config->blocking != NCCL_CONFIG_UNDEF_INT)
    comm->blocking = config->blocking != 0;
  if (config_has(config, offsetof(ncclConfig_t, collnetEnable)) && config->commName)
    strncpy(comm->name, config->commName, sizeof(comm->name) - 1);
}

/* NTSIM_REUSE=1: as malloc does it for NCCL, the next communicator lies where the last one was. */
static pthread_mutex_t grave_lock = PTHREAD_MUTEX_INITIALIZER;
static ncclComm_t graves[64];
static int grave_count;

static void bury(ncclComm_t comm) {
  const char *text = getenv("NTSIM_REUSE");
  if (!text || *text != '1')
    return;
  free(comm->pidfd);
  free((void *)comm->p2p_connected);
  pthread_mutex_lock(&grave_lock);
  memset(comm, 0, sizeof(*comm));
  if (grave_count < (int)(sizeof(graves) / sizeof(*graves)))
    graves[grave_count++] = comm;
  pthread_mutex_unlock(&grave_lock);
}

static ncclComm_t exhume(void) {
  pthread_mutex_lock(&grave_lock);
  ncclComm_t comm = grave_count ? graves[--grave_count] : NULL;
  pthread_mutex_unlock(&grave_lock);
  return comm ? comm : calloc(1, sizeof(*comm));
}

ncclComm_t sim_comm_new(int nranks, int rank, const ncclConfig_t *config, ncclComm_t parent) {
  ncclComm_t comm = exhume();
  int *pidfd = malloc((size_t)nranks * sizeof(*pidfd));
  _Atomic uint8_t *p2p = calloc((size_t)nranks, 1);
  if (!comm || !pidfd || !p2p) {
    free(comm);
    free(pidfd);
    free(p2p);
    return NULL;
  }
  comm->magic = COMM_MAGIC;
  comm->nranks = nranks;
  comm->rank = rank;
  comm->device = parent ? parent->device : sim_device_current();
  comm->blocking = parent ? parent->blocking : true;
  read_config(comm, config);
  comm->pidfd = pidfd;
  comm->p2p_connected = p2p;
  for (int r = 0; r < nranks; r++)
    pidfd[r] = -1;
  atomic_init(&comm->refs, 1);
  pthread_mutex_init(&comm->lock, NULL);
  pthread_mutex_init(&comm->launch_lock, NULL);
  return comm;
}

void sim_comm_ref(ncclComm_t comm) {
  atomic_fetch_add_explicit(&comm->refs, 1, memory_order_relaxed);
}

void sim_comm_unref(ncclComm_t comm) {
  if (atomic_fetch_sub_explicit(&comm->refs, 1, memory_order_acq_rel) != 1)
    return;
  for (int r = 0; r < comm->nranks; r++) {
    if (comm->pidfd[r] >= 0)
      close(comm->pidfd[r]);
  }
  if (comm->shm)
    sim_shm_close(comm->shm);
  comm->shm = NULL;
  if (comm->last_stream)
    sim_stream_unref(comm->last_stream);
  comm->last_stream = NULL;
  bury(comm);
}

ncclResult_t sim_comm_check(ncclComm_t comm, const char *fn) {
  if (comm && comm->magic == COMM_MAGIC)
    return ncclSuccess;
  sim_nccl_warn("%s : comm argument is %s", fn, comm ? "corrupted or destroyed" : "NULL");
  return ncclInvalidArgument;
}

ncclResult_t sim_comm_check_ready(ncclComm_t comm, const char *fn) {
  ncclResult_t state, result = sim_comm_check(comm, fn);
  if (result != ncclSuccess)
    return result;
  if (comm->finalized)
    return ncclInvalidUsage;
  if ((result = ncclCommGetAsyncError(comm, &state)) != ncclSuccess)
    return result;
  if (state == ncclInProgress)
    sim_nccl_warn("%s : the previous operation has not returned ncclSuccess yet", fn);
  return state == ncclInProgress ? ncclInvalidArgument : state;
}

void sim_comm_set_error(ncclComm_t comm, ncclResult_t error) {
  int none = ncclSuccess;
  if (atomic_compare_exchange_strong(&comm->async, &none, error))
    sim_nccl_warn("rank %d: asynchronous error %d", comm->rank, error);
}

static bool peer_is_dead(ncclComm_t comm, int peer) {
  int pid = atomic_load(&comm->shm->rank[peer].pid);
  if (pid <= 0 || pid == (int)getpid())
    return false;
  pthread_mutex_lock(&comm->lock);
  if (comm->pidfd[peer] < 0)
    comm->pidfd[peer] = (int)syscall(SYS_pidfd_open, pid, 0);
  bool dead = comm->pidfd[peer] < 0 && errno == ESRCH;
  struct pollfd p = {.fd = comm->pidfd[peer], .events = POLLIN};
  if (comm->pidfd[peer] >= 0)
    dead = poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
  else if (!dead)
    dead = kill(pid, 0) && errno == ESRCH;
  pthread_mutex_unlock(&comm->lock);
  return dead;
}

bool sim_comm_wait(ncclComm_t comm, uint32_t seen, int peer) {
  if (atomic_load(&comm->aborted))
    return false;
  atomic_fetch_add(&comm->waiting, 1);
  if (!atomic_load(&comm->aborted))
    sim_shm_sleep(comm->shm, comm->rank, seen, peer >= 0 ? DEATH_CHECK_MS : -1);
  bool aborted = atomic_load(&comm->aborted);
  atomic_fetch_sub(&comm->waiting, 1);
  if (peer >= 0 && sim_shm_bell(comm->shm, comm->rank) == seen && peer_is_dead(comm, peer))
    sim_comm_set_error(comm, ncclRemoteError);
  return !aborted && !atomic_load(&comm->aborted);
}

static ncclResult_t run_init(void *arg) {
  struct init_job *job = arg;
  sim_device_select(job->device);
  ncclResult_t result = sim_boot_join(job->comm);
  sim_comm_unref(job->comm);
  free(job);
  return result;
}

static ncclResult_t init_rank(ncclComm_t *newcomm, int nranks, uint64_t key, int rank,
                              const ncclConfig_t *config, int device) {
  if (!newcomm || nranks < 1 || rank < 0 || rank >= nranks) {
    sim_nccl_warn("Invalid rank requested : %d/%d", rank, nranks);
    return ncclInvalidArgument;
  }
  if (config && (config->magic != NCCL_CONFIG_MAGIC || config->size < 16)) {
    sim_nccl_warn("ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    return ncclInvalidArgument;
  }
  if (device < 0 || device >= sim_device_count())
    return ncclUnhandledCudaError;
  struct init_job *job = malloc(sizeof(*job));
  ncclComm_t comm = sim_comm_new(nranks, rank, config, NULL);
  if (!comm || !job) {
    free(job);
    return ncclSystemError;
  }
  comm->device = device;
  comm->key = key;
  *newcomm = comm; /* early, as NCCL does: aborting a hung init needs the handle */
  *job = (struct init_job){.comm = comm, .device = device};
  sim_comm_ref(comm);
  sim_group_start();
  sim_group_add_job(comm, run_init, job);
  return sim_group_end();
}

static uint64_t id_key(const ncclUniqueId *ids, int count) {
  return sim_boot_hash(1, ids, (size_t)count * sizeof(*ids));
}

SIM_NCCL_API(ncclResult_t, CommInitRank, ncclComm_t *comm, int nranks, ncclUniqueId commId,
             int rank) {
  return sim_group_error(
      init_rank(comm, nranks, id_key(&commId, 1), rank, NULL, sim_device_current()));
}

SIM_NCCL_API(ncclResult_t, CommInitRankConfig, ncclComm_t *comm, int nranks, ncclUniqueId commId,
             int rank, ncclConfig_t *config) {
  return sim_group_error(
      init_rank(comm, nranks, id_key(&commId, 1), rank, config, sim_device_current()));
}

SIM_NCCL_API(ncclResult_t, CommInitRankScalable, ncclComm_t *newcomm, int nranks, int myrank,
             int nId, ncclUniqueId *commIds, ncclConfig_t *config) {
  if (nId < 1 || nId > nranks || !commIds)
    return sim_group_error(ncclInvalidArgument);
  return sim_group_error(
      init_rank(newcomm, nranks, id_key(commIds, nId), myrank, config, sim_device_current()));
}

SIM_NCCL_API(ncclResult_t, CommInitAll, ncclComm_t *comm, int ndev, const int *devlist) {
  ncclUniqueId id;
  ncclResult_t result;
  if (!comm || ndev < 1 || ndev > sim_device_count())
    return sim_group_error(ncclInvalidArgument);
  if ((result = ncclGetUniqueId(&id)) != ncclSuccess)
    return sim_group_error(result);
  sim_group_start();
  for (int i = 0; i < ndev; i++)
    sim_group_error(init_rank(comm + i, ndev, id_key(&id, 1), i, NULL, devlist ? devlist[i] : i));
  return sim_group_end();
}

static void wait_outstanding(ncclComm_t comm) {
  pthread_mutex_lock(&comm->launch_lock);
  struct sim_stream *s = comm->last_stream;
  uint64_t ticket = comm->last_ticket;
  if (s)
    sim_stream_ref(s);
  pthread_mutex_unlock(&comm->launch_lock);
  if (!s)
    return;
  sim_stream_sync_ticket(s, ticket);
  sim_stream_unref(s);
}

/* NCCL does not let go of a communicator while a graph could still use it. */
static void wait_graphs(ncclComm_t comm) {
  struct timespec pause = {.tv_nsec = 20000000};
  while (atomic_load(&comm->captured) && !atomic_load(&comm->aborted))
    nanosleep(&pause, NULL);
}

static ncclResult_t run_finalize(void *arg) {
  ncclComm_t comm = arg;
  wait_outstanding(comm);
  wait_graphs(comm);
  return sim_boot_exchange(comm, SIM_BOARD_FINALIZE, 0, 0, NULL);
}

SIM_NCCL_API(ncclResult_t, CommFinalize, ncclComm_t comm) {
  ncclResult_t result = sim_comm_check_ready(comm, "CommFinalize");
  if (result == ncclSuccess && comm->revoked)
    result = ncclInvalidUsage;
  if (result != ncclSuccess)
    return sim_group_error(result);
  comm->finalized = true;
  sim_group_start();
  sim_group_add_job(comm, run_finalize, comm);
  return sim_group_error(sim_group_end());
}

/* Job threads of this process may still be using the communicator. */
static void wait_jobs(ncclComm_t comm) {
  struct timespec pause = {.tv_nsec = 1000000};
  while (atomic_load(&comm->working))
    nanosleep(&pause, NULL);
}

static ncclResult_t run_destroy(void *arg) {
  ncclComm_t comm = arg;
  wait_outstanding(comm);
  wait_graphs(comm);
  wait_jobs(comm);
  comm->magic = 0;
  sim_comm_unref(comm);
  return ncclSuccess;
}

SIM_NCCL_API(ncclResult_t, CommDestroy, ncclComm_t comm) {
  if (!comm)
    return ncclSuccess;
  ncclResult_t result = sim_comm_check(comm, "CommDestroy");
  return sim_group_error(result == ncclSuccess ? run_destroy(comm) : result);
}

/* Ends every wait on the communicator, and returns when its running work has left the streams. What
 * is still queued will do nothing. */
static void interrupt(ncclComm_t comm) {
  struct timespec pause = {.tv_nsec = 50000};
  atomic_store(&comm->aborted, true);
  if (comm->shm)
    sim_shm_ring_bell(comm->shm, comm->rank);
  while (atomic_load(&comm->running))
    nanosleep(&pause, NULL);
}

SIM_NCCL_API(ncclResult_t, CommAbort, ncclComm_t comm) {
  if (!comm)
    return ncclSuccess;
  ncclResult_t result = sim_comm_check(comm, "CommAbort");
  if (result != ncclSuccess)
    return result;
  comm->magic = 0;
  interrupt(comm);
  wait_jobs(comm);
  sim_comm_unref(comm);
  return ncclSuccess;
}

void sim_comm_interrupt(ncclComm_t comm) {
  struct timespec pause = {.tv_nsec = 50000};
  atomic_fetch_add(&comm->epoch, 1);
  interrupt(comm);
  while (atomic_load(&comm->waiting))
    nanosleep(&pause, NULL);
  wait_jobs(comm);
  atomic_store(&comm->async, ncclSuccess);
  atomic_store(&comm->aborted, false);
}

SIM_NCCL_API(ncclResult_t, CommRevoke, ncclComm_t comm, int revokeFlags) {
  if (!comm)
    return ncclSuccess;
  ncclResult_t result = sim_comm_check(comm, "CommRevoke");
  if (result != ncclSuccess || revokeFlags || comm->revoked || comm->finalized)
    return result != ncclSuccess ? result : ncclInvalidArgument;
  comm->revoked = true;
  sim_comm_interrupt(comm);
  return ncclSuccess;
}

SIM_NCCL_API(ncclResult_t, CommGetAsyncError, ncclComm_t comm, ncclResult_t *asyncError) {
  ncclResult_t result = sim_comm_check(comm, "CommGetAsyncError");
  if (result != ncclSuccess || !asyncError)
    return ncclInvalidArgument;
  *asyncError = atomic_load(&comm->async);
  return ncclSuccess;
}

SIM_NCCL_API(ncclResult_t, CommCount, const ncclComm_t comm, int *count) {
  ncclResult_t result = sim_comm_check(comm, "CommCount");
  if (result != ncclSuccess || !count)
    return ncclInvalidArgument;
  *count = comm->nranks;
  return ncclSuccess;
}

SIM_NCCL_API(ncclResult_t, CommCuDevice, const ncclComm_t comm, int *device) {
  ncclResult_t result = sim_comm_check(comm, "CommCuDevice");
  if (result != ncclSuccess || !device)
    return ncclInvalidArgument;
  *device = comm->device;
  return ncclSuccess;
}

SIM_NCCL_API(ncclResult_t, CommUserRank, const ncclComm_t comm, int *rank) {
  ncclResult_t result = sim_comm_check(comm, "CommUserRank");
  if (result != ncclSuccess || !rank)
    return ncclInvalidArgument;
  *rank = comm->rank;
  return ncclSuccess;
}
