/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators from communicators. A split exchanges colour and key with all ranks of the parent,
 * a shrink needs no exchange because every survivor knows the list. Both then rendezvous under a key
 * that all members compute alike, and store *newcomm only when that is done: in a group or with a
 * non-blocking communicator that is later, from another thread.
 */
#include <stdlib.h>

#include "sim_nccl.h"

struct derive_job {
  ncclComm_t parent, *newcomm;
  int color, key;
  uint64_t ordinal;
  ncclConfig_t config;
  bool has_config;
  int *excluded; /* of a shrink, sorted */
  int excluded_count;
};

static ncclResult_t join_child(struct derive_job *job, int nranks, int rank, uint64_t key) {
  ncclComm_t child = sim_comm_new(nranks, rank, job->has_config ? &job->config : NULL, job->parent);
  if (!child)
    return ncclSystemError;
  child->key = key;
  sim_device_select(child->device);
  ncclResult_t result = sim_boot_join(child);
  if (result == ncclSuccess)
    *job->newcomm = child;
  return result;
}

static ncclResult_t run_split(void *arg) {
  struct derive_job *job = arg;
  ncclComm_t parent = job->parent;
  int rank = 0, nranks = 0;
  int64_t *values = malloc((size_t)parent->nranks * 2 * sizeof(*values));
  ncclResult_t result =
      values ? sim_boot_exchange(parent, SIM_BOARD_SPLIT, job->color, job->key, values)
             : ncclSystemError;
  if (result != ncclSuccess || job->color == NCCL_SPLIT_NOCOLOR)
    goto out;
  for (int r = 0; r < parent->nranks; r++) {
    if (values[2 * r] != job->color)
      continue;
    nranks++;
    if (values[2 * r + 1] < job->key || (values[2 * r + 1] == job->key && r < parent->rank))
      rank++;
  }
  int64_t what[] = {(int64_t)parent->key, (int64_t)job->ordinal, job->color};
  result = join_child(job, nranks, rank, sim_boot_hash(2, what, sizeof(what)));
out:
  free(values);
  sim_comm_unref(parent);
  free(job);
  return result;
}

static struct derive_job *job_new(ncclComm_t parent, ncclComm_t *newcomm,
                                  const ncclConfig_t *config) {
  struct derive_job *job = calloc(1, sizeof(*job));
  if (!job)
    return NULL;
  job->parent = parent;
  job->newcomm = newcomm;
  if (config) {
    size_t size = config->size < sizeof(job->config) ? config->size : sizeof(job->config);
    __builtin_memcpy(&job->config, config, size);
    job->has_config = true;
  }
  *newcomm = NULL;
  sim_comm_ref(parent);
  return job;
}

static ncclResult_t start(struct derive_job *job, sim_job_fn *fn) {
  sim_group_start();
  sim_group_add_job(job->parent, fn, job);
  return sim_group_end();
}

SIM_NCCL_API(ncclResult_t, CommSplit, ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
             ncclConfig_t *config) {
  ncclResult_t result = sim_comm_check_ready(comm, "CommSplit");
  if (result != ncclSuccess)
    return sim_group_error(result);
  if (!newcomm || color < NCCL_SPLIT_NOCOLOR ||
      (config && (config->magic != NCCL_CONFIG_MAGIC || config->size < 16)))
    return sim_group_error(ncclInvalidArgument);
  struct derive_job *job = job_new(comm, newcomm, config);
  if (!job)
    return sim_group_error(ncclSystemError);
  job->color = color;
  job->key = key;
  job->ordinal = ++comm->splits;
  return sim_group_error(start(job, run_split));
}

static int compare_int(const void *a, const void *b) {
  int x = *(const int *)a, y = *(const int *)b;
  return (x > y) - (x < y);
}

static ncclResult_t run_shrink(void *arg) {
  struct derive_job *job = arg;
  ncclComm_t parent = job->parent;
  int rank = parent->rank;
  for (int i = 0; i < job->excluded_count; i++)
    rank -= job->excluded[i] < parent->rank;
  uint64_t key = sim_boot_hash(parent->key + 3, job->excluded,
                               (size_t)job->excluded_count * sizeof(*job->excluded));
  key = sim_boot_hash(key, &job->ordinal, sizeof(job->ordinal));
  ncclResult_t result = join_child(job, parent->nranks - job->excluded_count, rank, key);
  sim_comm_unref(parent);
  free(job->excluded);
  free(job);
  return result;
}

/* How often this list was used before, from 1: shrinks with equal lists must not meet. */
static uint64_t shrink_ordinal(ncclComm_t comm, const int *list, int count) {
  uint64_t hash = sim_boot_hash(4, list, (size_t)count * sizeof(*list)) | 1;
  for (int i = 0; i < 16; i++) {
    if (!comm->shrinks[i].list || comm->shrinks[i].list == hash) {
      comm->shrinks[i].list = hash;
      return (uint64_t)++comm->shrinks[i].count;
    }
  }
  return 0;
}

/* A sorted copy without repetitions, or NULL if a rank is out of range or is our own. */
static int *sorted_list(ncclComm_t comm, const int *list, int *count) {
  int *copy = malloc((size_t)*count * sizeof(*copy));
  int n = 0;
  if (!copy)
    return NULL;
  __builtin_memcpy(copy, list, (size_t)*count * sizeof(*copy));
  qsort(copy, (size_t)*count, sizeof(*copy), compare_int);
  for (int i = 0; i < *count; i++) {
    if (copy[i] < 0 || copy[i] >= comm->nranks || copy[i] == comm->rank) {
      free(copy);
      return NULL;
    }
    if (n == 0 || copy[n - 1] != copy[i])
      copy[n++] = copy[i];
  }
  *count = n;
  return copy;
}

SIM_NCCL_API(ncclResult_t, CommShrink, ncclComm_t comm, int *excludeRanksList,
             int excludeRanksCount, ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags) {
  ncclResult_t result = sim_comm_check(comm, "CommShrink");
  if (result != ncclSuccess || !newcomm || !excludeRanksList || excludeRanksCount < 1)
    return sim_group_error(ncclInvalidArgument);
  int *list = sorted_list(comm, excludeRanksList, &excludeRanksCount);
  if (!list)
    return sim_group_error(ncclInvalidArgument);
  if (shrinkFlags & NCCL_SHRINK_ABORT)
    sim_comm_interrupt(comm);
  result = sim_comm_check_ready(comm, "CommShrink");
  struct derive_job *job = result == ncclSuccess ? job_new(comm, newcomm, config) : NULL;
  if (!job) {
    free(list);
    return sim_group_error(result == ncclSuccess ? ncclSystemError : result);
  }
  job->excluded = list;
  job->excluded_count = excludeRanksCount;
  job->ordinal = shrink_ordinal(comm, list, excludeRanksCount);
  return sim_group_error(start(job, run_shrink));
}
