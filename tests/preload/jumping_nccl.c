/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another interposer in front of NCCL: it leaves an all-reduce of 666 elements by longjmp, as an
 * exception thrown through C code would, and passes everything else on.
 */
#include <dlfcn.h>
#include <setjmp.h>

#include "nccl/nccl_types.h"

__attribute__((visibility("default"))) jmp_buf *jumping_target;

__attribute__((visibility("default"))) ncclResult_t ncclAllReduce(const void *send, void *recv,
                                                                  size_t count, ncclDataType_t type,
                                                                  ncclRedOp_t op, ncclComm_t comm,
                                                                  cudaStream_t stream);

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t (*next)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                       cudaStream_t);
  if (count == 666 && jumping_target)
    longjmp(*jumping_target, 1);
  *(void **)&next = dlsym(RTLD_NEXT, "ncclAllReduce");
  return next(send, recv, count, type, op, comm, stream);
}
