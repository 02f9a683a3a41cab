/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators that get more ranks, and those whose memory is given back for a while.
 *
 * Ranks of the parent compute the key of the grown communicator from the parent's, new ranks find it in the unique id
 * that one rank of the parent made. As with NCCL *newcomm is there at once, and a unique id counts on being used
 * by the parent's next grow. Suspend and resume move nothing here: what stays of them is that all ranks meet.
 */
#include <stdlib.h>
#include <string.h>

#include "sim_nccl.h"

struct grow_job {
  ncclComm_t comm, parent;
};

static uint64_t grow_magic(ncclComm_t parent, uint64_t ordinal) {
  return sim_boot_hash(parent->key + 5, &ordinal, sizeof(ordinal));
}

SIM_NCCL_API(ncclResult_t, CommGetUniqueId, ncclComm_t comm, ncclUniqueId *uniqueId) {
  ncclResult_t result = sim_comm_check_ready(comm, "CommGetUniqueId");
  if (result != ncclSuccess || !uniqueId)
    return result != ncclSuccess ? result : ncclInvalidArgument;
  if (getenv("NCCL_COMM_ID"))
    return ncclInvalidUsage;
  if ((result = ncclGetUniqueId(uniqueId)) != ncclSuccess)
    return result;
  uint64_t magic = grow_magic(comm, comm->splits + 1);
  memcpy(uniqueId->internal, &magic, sizeof(magic));
  return ncclSuccess;
}

static ncclResult_t run_grow(void *arg) {
  struct grow_job *job = arg;
  sim_device_select(job->comm->device);
  ncclResult_t result = sim_boot_join(job->comm);
  sim_comm_unref(job->comm);
  if (job->parent)
    sim_comm_unref(job->parent);
  free(job);
  return result;
}

static ncclResult_t start_grow(ncclComm_t parent, uint64_t magic, int nranks, int rank,
                               const ncclConfig_t *config, ncclComm_t *newcomm) {
  struct grow_job *job = malloc(sizeof(*job));
  ncclComm_t comm = sim_comm_new(nranks, rank, config, parent);
  if (!comm || !job) {
    free(job);
    return ncclSystemError;
  }
  comm->key = sim_boot_hash(magic, &nranks, sizeof(nranks));
  *newcomm = comm;
  *job = (struct grow_job){.comm = comm, .parent = parent};
  sim_comm_ref(comm);
  if (parent)
    sim_comm_ref(parent);
  sim_group_start();
  sim_group_add_job(comm, run_grow, job);
  return sim_group_end();
}

SIM_NCCL_API(ncclResult_t, CommGrow, ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId,
             int rank, ncclComm_t *newcomm, ncclConfig_t *config) {
  uint64_t magic;
  if (!newcomm || nRanks <= 0)
    return ncclInvalidArgument;
  *newcomm = NULL;
  if (!comm) {
    if (rank < 0 || rank >= nRanks || !uniqueId)
      return sim_group_error(ncclInvalidArgument);
    memcpy(&magic, uniqueId->internal, sizeof(magic));
    return sim_group_error(start_grow(NULL, magic, nRanks, rank, config, newcomm));
  }
  ncclResult_t result = sim_comm_check_ready(comm, "CommGrow");
  if (result == ncclSuccess && (rank != -1 || nRanks <= comm->nranks))
    result = ncclInvalidArgument;
  if (result != ncclSuccess)
    return sim_group_error(result);
  magic = grow_magic(comm, ++comm->splits);
  return sim_group_error(start_grow(comm, magic, nRanks, comm->rank, config, newcomm));
}

static ncclResult_t run_meeting(void *arg) {
  return sim_boot_exchange(arg, SIM_BOARD_SYNC, 0, 0, NULL);
}

static ncclResult_t meet(ncclComm_t comm, const char *fn) {
  ncclResult_t result = sim_comm_check_ready(comm, fn);
  if (result != ncclSuccess)
    return sim_group_error(result);
  sim_group_start();
  sim_group_add_job(comm, run_meeting, comm);
  return sim_group_error(sim_group_end());
}

SIM_NCCL_API(ncclResult_t, CommSuspend, ncclComm_t comm, int flags) {
  return flags & NCCL_SUSPEND_MEM ? meet(comm, "CommSuspend") : ncclSuccess;
}

SIM_NCCL_API(ncclResult_t, CommResume, ncclComm_t comm) {
  return meet(comm, "CommResume");
}
