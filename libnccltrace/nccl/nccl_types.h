/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of NCCL's binary interface that a wrapper has to know.
 *
 * The library is built without NCCL and CUDA installed, and one binary serves every NCCL from 2.10
 * on, so nothing here depends on a release: handles are opaque, enumerations are ints (their size
 * in NCCL's C ABI), and structures are only what crosses a call by value. `make check-api` compares all of it with
 * a real nccl.h.
 */
#ifndef NT_NCCL_TYPES_H
#define NT_NCCL_TYPES_H

#ifdef NT_WITH_REAL_NCCL_H
#include <nccl.h>
#else

#include <stddef.h>
#include <stdint.h>

typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef struct ncclConfig ncclConfig_t;
typedef struct ncclCollConfig ncclCollConfig_t;
typedef struct ncclSimInfo ncclSimInfo_t;
typedef struct ncclDevComm ncclDevComm_t;
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;
typedef struct ncclWaitSignalDesc ncclWaitSignalDesc_t;

/* By value in ncclCommInitRank: 128 bytes, passed in memory on x86-64 and aarch64. */
#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef int ncclResult_t;
typedef int ncclDataType_t;
typedef int ncclRedOp_t;
typedef int ncclScalarResidence_t;

/* ncclResult_t, in NCCL's numbering. */
enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclTimeout = 8,
};

/* ncclDataType_t. */
enum {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
};

/* ncclRedOp_t; values from 5 on are handles made by ncclRedOpCreatePreMulSum. */
enum { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4, NT_REDOP_FIRST_USER = 5 };

/* The colour of a rank that takes part in a split without joining a new communicator. */
#define NCCL_SPLIT_NOCOLOR (-1)

/* Flag of a shrink: what runs on the parent is ended first. */
#define NCCL_SHRINK_ABORT 1

#endif /* NT_WITH_REAL_NCCL_H */
#endif
