/* SPDX-License-Identifier: Apache-2.0 */
/* A library that calls NCCL as its linker has bound it. Linked in the ways that users do: tests/preload/preload.mk. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/nccl_types.h"

#define NT_FN(id, name, shape, params, args, fields) ncclResult_t nccl##name params;
#include "nccl/nccl_api.def"

/* Communicator, all-reduce of `count` floats, destruction; 0 if the sums are right. */
__attribute__((visibility("default"))) int user_run(int count);
/* One call without a communicator. */
__attribute__((visibility("default"))) int user_ask(void);

int user_ask(void) {
  ncclUniqueId id;
  return ncclGetUniqueId(&id);
}

int user_run(int count) {
  ncclUniqueId id;
  ncclComm_t comm;
  float *send = calloc((size_t)count, sizeof(float)), *recv = calloc((size_t)count, sizeof(float));
  for (int i = 0; i < count; i++)
    send[i] = (float)i + 0.5f;
  int failed = ncclGetUniqueId(&id) || ncclCommInitRank(&comm, 1, id, 0) ||
               ncclAllReduce(send, recv, (size_t)count, ncclFloat32, ncclSum, comm, NULL) ||
               ncclCommFinalize(comm) || ncclCommDestroy(comm);
  failed = failed || memcmp(send, recv, (size_t)count * sizeof(float)) != 0;
  free(send);
  free(recv);
  return failed;
}

/* Runs when libraries that were loaded after this one have ended already. */
__attribute__((destructor)) static void call_late(void) {
  if (getenv("USER_LATE")) {
    printf("late %d\n", user_run(3));
    fflush(stdout);
  }
}
