/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated NCCL, as one of several copies that can be told apart: it counts its calls. Linked with libnccl_static.a. */
#include <pthread.h>

#include "nccl/nccl_types.h"

#define PUBLIC __attribute__((visibility("default")))
PUBLIC int *numbered_count(
    void); /* a function, since the loader would make one variable of those of all copies */
static int numbered_calls;

int *numbered_count(void) {
  return &numbered_calls;
}

ncclResult_t pncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclGetUniqueId(ncclUniqueId *id);
PUBLIC ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
PUBLIC ncclResult_t ncclGetUniqueId(ncclUniqueId *id);

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  numbered_calls++;
  return pncclAllReduce(send, recv, count, type, op, comm, stream);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  numbered_calls++;
  return pncclGetUniqueId(id);
}

/* As NCCL's threads do: it calls its own function by way of the loader. */
PUBLIC int numbered_thread(void);

static void *call_itself(void *id) {
  ncclGetUniqueId(id);
  return NULL;
}

int numbered_thread(void) {
  ncclUniqueId id;
  pthread_t thread;
  return pthread_create(&thread, NULL, call_itself, &id) || pthread_join(thread, NULL);
}
