/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated NCCL, as one of several copies that can be told apart: it counts its calls. Linked with libnccl_static.a. */
#include "nccl/nccl_types.h"

#define PUBLIC __attribute__((visibility("default")))
PUBLIC extern int numbered_calls;
int numbered_calls;

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
