/* SPDX-License-Identifier: Apache-2.0 */
/* An NCCL of a few functions that carries nothing out: in the middle of an all-reduce it calls whatever it is told to, as
 * NCCL calls its plug-ins. */
#include "nccl/nccl_types.h"

#define PUBLIC __attribute__((visibility("default")))

PUBLIC void (*calling_hook)(void);
PUBLIC ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
PUBLIC ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank);
PUBLIC ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
PUBLIC ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

static char made[16];

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  *id = (ncclUniqueId){{7}};
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank) {
  (void)id;
  *comm = (ncclComm_t)(void *)made;
  return nranks == 1 && rank == 0 ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
  (void)comm;
  *error = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  (void)send, (void)recv, (void)count, (void)type, (void)op, (void)comm, (void)stream;
  if (calling_hook)
    calling_hook();
  return ncclSuccess;
}
