/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lazy connections. NCCL connects an algorithm's neighbours, or a pair of peers, when they are first
 * used, and the host waits for the other side inside the call. Here each side sets a mark in shared
 * memory and waits for the mark of the other: nothing more is needed, but the waiting is real. Peers of messages
 * are connected in rounds, as NCCL does it: those at distance 1, then 2, and so on, each round waiting.
 * NTSIM_LAZY=0 makes everything connected from the start. Runs in the application's thread or in
 * the job thread of a non-blocking communicator.
 */
#include <stdlib.h>
#include <string.h>

#include "sim_nccl.h"

/* All-reduces up to this size use the tree, as NCCL prefers it for tiny sizes. */
#define TREE_BYTES 256

static bool is_lazy(void) {
  const char *text = getenv("NTSIM_LAZY");
  return !text || strcmp(text, "0");
}

uint32_t sim_connect_class(const struct sim_task *task) {
  if (task->fn >= SIM_ALLTOALL)
    return 0;
  return task->fn == SIM_ALLREDUCE && task->count * sim_dtype_size(task->dtype) <= TREE_BYTES
             ? SIM_CONN_TREE
             : SIM_CONN_RING;
}

static int p2p_bit(const struct sim_task *task) {
  return task->fn == SIM_SEND ? 1 : 2;
}

static _Atomic uint8_t *p2p_mark(ncclComm_t comm, const struct sim_task *task) {
  return task->fn == SIM_SEND ? sim_shm_p2p_mark(comm->shm, comm->rank, task->peer)
                              : sim_shm_p2p_mark(comm->shm, task->peer, comm->rank);
}

static bool is_p2p_connected(ncclComm_t comm, const struct sim_task *task) {
  return task->peer == comm->rank || (comm->p2p_connected[task->peer] & p2p_bit(task));
}

bool sim_connect_ask(ncclComm_t comm, const struct sim_task *task) {
  if (comm->nranks == 1 || !is_lazy())
    return false;
  uint32_t class = sim_connect_class(task);
  if (class) {
    if (comm->connected & class)
      return false;
    if (!(atomic_fetch_or(&comm->shm->rank[comm->rank].connected, class) & class))
      sim_shm_ring_all(comm->shm);
    return true;
  }
  return !is_p2p_connected(comm, task); /* asked for in its round */
}

static ncclResult_t wait_class(ncclComm_t comm, uint32_t class, int peer) {
  for (;;) {
    uint32_t seen = sim_shm_bell(comm->shm, comm->rank);
    if (atomic_load(&comm->shm->rank[peer].connected) & class)
      return ncclSuccess;
    if (!sim_comm_wait(comm, seen, -1))
      return ncclInternalError;
  }
}

static ncclResult_t wait_p2p(ncclComm_t comm, const struct sim_task *task) {
  _Atomic uint8_t *mark = p2p_mark(comm, task);
  for (;;) {
    uint32_t seen = sim_shm_bell(comm->shm, comm->rank);
    if (atomic_load(mark) == 3)
      break;
    if (!sim_comm_wait(comm, seen, -1))
      return ncclInternalError;
  }
  comm->p2p_connected[task->peer] |= (uint8_t)p2p_bit(task);
  return ncclSuccess;
}

ncclResult_t sim_connect_wait(ncclComm_t comm, const struct sim_task *task) {
  uint32_t class = sim_connect_class(task);
  ncclResult_t result = ncclSuccess;
  if (comm->nranks == 1 || !is_lazy() || !class || (comm->connected & class))
    return ncclSuccess;
  if (class == SIM_CONN_RING) {
    result = wait_class(comm, class, (comm->rank + comm->nranks - 1) % comm->nranks);
    if (result == ncclSuccess)
      result = wait_class(comm, class, (comm->rank + 1) % comm->nranks);
  } else {
    for (int r = 0; r < comm->nranks && result == ncclSuccess; r++) {
      bool parent = r != comm->rank && (int)sim_shm_up(comm->shm, comm->rank)->dst == r;
      bool child = r != comm->rank && (int)sim_shm_up(comm->shm, r)->dst == comm->rank;
      if (parent || child)
        result = wait_class(comm, class, r);
    }
  }
  if (result == ncclSuccess)
    comm->connected |= class;
  return result;
}

/* How far the receiver is from the sender, around the communicator. */
static int distance(ncclComm_t comm, const struct sim_task *task) {
  int ahead = (task->peer - comm->rank + comm->nranks) % comm->nranks;
  return task->fn == SIM_SEND ? ahead : (comm->nranks - ahead) % comm->nranks;
}

ncclResult_t sim_connect_p2p(ncclComm_t comm, const struct sim_task *tasks) {
  if (comm->nranks == 1 || !is_lazy())
    return ncclSuccess;
  for (int round = 1; round < comm->nranks; round++) {
    for (const struct sim_task *t = tasks; t; t = t->next) {
      if (distance(comm, t) != round || is_p2p_connected(comm, t))
        continue;
      atomic_fetch_or(p2p_mark(comm, t), (uint8_t)p2p_bit(t));
      sim_shm_ring_bell(comm->shm, t->peer);
    }
    for (const struct sim_task *t = tasks; t; t = t->next) {
      ncclResult_t result = distance(comm, t) == round && !is_p2p_connected(comm, t)
                                ? wait_p2p(comm, t)
                                : ncclSuccess;
      if (result != ncclSuccess)
        return result;
    }
  }
  return ncclSuccess;
}
