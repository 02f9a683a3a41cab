/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of comm_cases share: processes that meet, ids they agree on, streams and buffers by device. */
#ifndef COMM_CASES_H
#define COMM_CASES_H

#include <stdbool.h>

#include "cuda_runtime.h"
#include "nccl.h"

enum { COUNT = 1024, DEVICES = 4, IDS = 8 };

struct comm_case {
  const char *name;
  void (*run)(void);
  int procs;
};

extern const struct comm_case comm_call_cases[], comm_device_cases[],
    comm_derived_cases[]; /* end with a NULL name */

/* This process among those of the case. */
extern int proc, procs;

void check(int failed, const char *what);
/* All processes are here. */
void meet(void);
/* The id number `which`, made by process 0 when it first asks for it. All must ask. */
ncclUniqueId same_id(int which);
/* The same for an id that one process has. */
void give_id(int which, const ncclUniqueId *id);
/* Never returns: host code that does something else. */
void stay(void);
ncclComm_t init_rank(int which, int nranks, int rank);
/* A communicator of this process alone. */
ncclComm_t alone(void);
/* One all-reduce of COUNT floats on the device's own stream. */
void allreduce(ncclComm_t comm, int device);
void wait_for(int device);
cudaStream_t stream_of(int device);
float *buffer_of(int device);
ncclConfig_t named(const char *name, int blocking);
/* Until what was begun on it is done, without blocking; what NCCL says of it. */
ncclResult_t poll_done(ncclComm_t comm);
void in_threads(int count, void *(*fn)(void *));

#endif
