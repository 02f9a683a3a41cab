/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in that links NCCL and the CUDA runtime; reloader loads and unloads it. It does not stay loaded by itself. */
#include "cuda_runtime.h"
#include "nccl.h"

__attribute__((visibility("default"))) int plugin_use(void);

int plugin_use(void) {
  ncclUniqueId id;
  ncclComm_t comm;
  cudaStream_t stream;
  void *memory;
  int failed = ncclGetUniqueId(&id) != ncclSuccess ||
               ncclCommInitRank(&comm, 1, id, 0) != ncclSuccess ||
               cudaMalloc(&memory, 64) != cudaSuccess || cudaStreamCreate(&stream) != cudaSuccess;
  for (int i = 0; i < 10 && !failed; i++)
    failed = ncclAllReduce(memory, memory, 1, ncclFloat, ncclSum, comm, stream) != ncclSuccess ||
             cudaStreamSynchronize(stream) != cudaSuccess;
  return failed || ncclCommDestroy(comm) != ncclSuccess || cudaStreamDestroy(stream) != cudaSuccess;
}
