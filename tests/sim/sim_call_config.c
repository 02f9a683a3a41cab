/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives with settings of one call, ncclAllReduceConfig and its kin: the plain ones, which none of the settings
 * changes here. Like NCCL they refuse a configuration that was not initialised.
 */
#include "sim_nccl.h"

static bool refused(const ncclCollConfig_t *config) {
  return config && config->magic != NCCL_CONFIG_MAGIC;
}

#define WITH_CONFIG(name, params, args)                                                            \
  SIM_NCCL_API(ncclResult_t, name##Config, STRIP params, const ncclCollConfig_t *config) {         \
    return refused(config) ? ncclInvalidArgument : pnccl##name args;                               \
  }
#define STRIP(...) __VA_ARGS__

WITH_CONFIG(AllReduce,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
             ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream),
            (sendbuff, recvbuff, count, datatype, op, comm, stream))
WITH_CONFIG(Broadcast,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
             ncclComm_t comm, cudaStream_t stream),
            (sendbuff, recvbuff, count, datatype, root, comm, stream))
WITH_CONFIG(Reduce,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
             ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream),
            (sendbuff, recvbuff, count, datatype, op, root, comm, stream))
WITH_CONFIG(AllGather,
            (const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
             ncclComm_t comm, cudaStream_t stream),
            (sendbuff, recvbuff, sendcount, datatype, comm, stream))
WITH_CONFIG(ReduceScatter,
            (const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
             ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream),
            (sendbuff, recvbuff, recvcount, datatype, op, comm, stream))
WITH_CONFIG(AlltoAll,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
             ncclComm_t comm, cudaStream_t stream),
            (sendbuff, recvbuff, count, datatype, comm, stream))
WITH_CONFIG(Gather,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
             ncclComm_t comm, cudaStream_t stream),
            (sendbuff, recvbuff, count, datatype, root, comm, stream))
WITH_CONFIG(Scatter,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
             ncclComm_t comm, cudaStream_t stream),
            (sendbuff, recvbuff, count, datatype, root, comm, stream))
