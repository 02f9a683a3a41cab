/* SPDX-License-Identifier: Apache-2.0 */
/* A collective as PyTorch's ProcessGroupNCCL issues it: NCCL's stream waits for the stream that has the data, then the
 * call. Built as the object of that name, by which the library knows it. */
#include "cuda_runtime.h"
#include "nccl.h"

int torch_allreduce(float *data, size_t count, ncclComm_t comm, cudaEvent_t event,
                    cudaStream_t computing, cudaStream_t stream);

/* 0 or an error of either. */
int torch_allreduce(float *data, size_t count, ncclComm_t comm, cudaEvent_t event,
                    cudaStream_t computing, cudaStream_t stream) {
  int error = (int)cudaEventRecord(event, computing);
  if (!error)
    error = (int)cudaStreamWaitEvent(stream, event, 0);
  return error ? error : (int)ncclAllReduce(data, data, count, ncclFloat, ncclSum, comm, stream);
}
