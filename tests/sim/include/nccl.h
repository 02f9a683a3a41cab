/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's public interface for tests on machines without NCCL: the types of nccl_types.h, the
 * prototypes of nccl_api.def, and the pure queries, which have no row there.
 */
#ifndef SIM_NCCL_H
#define SIM_NCCL_H

#include <cuda_runtime.h>

/* By their place, so that a program needs this directory alone. */
#include "../../../libnccltrace/nccl/nccl_types.h"

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_SUFFIX ""
#define NCCL_VERSION_CODE 22809
#define NCCL_VERSION(X, Y, Z) ((X)*10000 + (Y)*100 + (Z))

#define NCCL_CONFIG_UNDEF_INT (-2147483647 - 1)
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_CONFIG_MAGIC 0xcafebeefu
#define NCCL_SHRINK_DEFAULT 0
#define NCCL_REVOKE_DEFAULT 0
#define NCCL_SUSPEND_MEM 1

#define ncclNumOps 5
#define ncclNumTypes 12
#define ncclNumResults 9
/* NCCL's second names for the types of nccl_types.h. */
#define ncclChar ncclInt8
#define ncclInt ncclInt32
#define ncclHalf ncclFloat16
#define ncclFloat ncclFloat32
#define ncclDouble ncclFloat64
enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 };

/* Fields in NCCL 2.28's order; what lies beyond `size` bytes does not exist. */
struct ncclConfig {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking; /* offset 16 */
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char *netName;
  int splitShare; /* offset 40 */
  int trafficClass;
  const char *commName; /* offset 48 */
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
};

#define NCCL_CONFIG_INITIALIZER                                                                    \
  {                                                                                                \
    sizeof(ncclConfig_t), NCCL_CONFIG_MAGIC, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT,             \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                       \
        NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                       \
        NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                       \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT \
  }

/* The beginning of NCCL 2.31's settings of one call. */
struct ncclCollConfig {
  size_t size;
  unsigned int magic;
  unsigned int version;
};

/* What the simulator fills in of a device communicator: whose it is. */
struct ncclDevComm {
  int rank, nRanks;
  void *reserved[64];
};

struct ncclDevCommRequirements {
  size_t size;
};

struct ncclWaitSignalDesc {
  int opCnt, peer, sigIdx, ctx;
};

#define NCCL_WIN_DEFAULT 0
#define NCCL_WIN_COLL_SYMMETRIC 1

struct ncclSimInfo {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime;
};

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define NT_FN(id, name, shape, params, args, fields)                                               \
  ncclResult_t nccl##name params;                                                                  \
  ncclResult_t pnccl##name params;
#include "../../../libnccltrace/nccl/nccl_api.def"

/* Queries; SIM_QUERY(name, params). */
#define SIM_QUERIES                                                                                \
  SIM_QUERY(GetVersion, (int *version))                                                            \
  SIM_QUERY(CommCount, (const ncclComm_t comm, int *count))                                        \
  SIM_QUERY(CommCuDevice, (const ncclComm_t comm, int *device))                                    \
  SIM_QUERY(CommUserRank, (const ncclComm_t comm, int *rank))                                      \
  SIM_QUERY(MemAlloc, (void **ptr, size_t size))                                                   \
  SIM_QUERY(MemFree, (void *ptr))
#define SIM_QUERY(name, params)                                                                    \
  ncclResult_t nccl##name params;                                                                  \
  ncclResult_t pnccl##name params;
SIM_QUERIES
#undef SIM_QUERY
const char *ncclGetErrorString(ncclResult_t result);
const char *pncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
const char *pncclGetLastError(ncclComm_t comm);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
