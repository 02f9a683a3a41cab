/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls real NCCL in ways that need no GPU, and prints what it answers: for tests/abi/answers, which runs it bare and
 * traced. Compiled against the release's own nccl.h. Calls that make NCCL itself crash are left out.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <nccl.h>

#define TRY(call)                                                                                  \
  do {                                                                                             \
    errno = 5;                                                                                     \
    int answer = (call);                                                                           \
    printf("%s: %d, errno %s\n", #call, answer, errno == 5 ? "kept" : "changed");                  \
    fflush(stdout);                                                                                \
  } while (0)

static ncclUniqueId id;
static ncclComm_t comm, other;
static char data[64];

static void creations(void) {
  TRY(ncclGetUniqueId(&id));
  TRY(ncclCommInitRank(&comm, 1, id, 0));
  TRY(ncclCommInitRank(&comm, 2, id, 7));
  TRY(ncclCommInitRank(NULL, 1, id, 0));
  TRY(ncclCommInitAll(&comm, 1, NULL));
  TRY(ncclGroupStart());
  TRY(ncclCommInitRank(&comm, 1, id, 0));
  TRY(ncclGroupEnd());
#if NCCL_VERSION_CODE >= 21403
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  TRY(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  config.magic = 3;
  TRY(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  TRY(ncclCommFinalize(NULL));
#endif
#if NCCL_VERSION_CODE >= 22807
  TRY(ncclCommSplit(NULL, 0, 0, &other, NULL));
#endif
#if NCCL_VERSION_CODE >= 22304
  TRY(ncclCommInitRankScalable(&comm, 1, 0, 1, &id, NULL));
#endif
#if NCCL_VERSION_CODE >= 22807
  TRY(ncclCommRevoke(NULL, 0));
#endif
#if NCCL_VERSION_CODE >= 22902
  TRY(ncclCommGrow(NULL, 2, NULL, -1, &other, NULL));
#endif
}

static void operations(void) {
  ncclResult_t error;
  int version = 0;
  TRY(ncclAllReduce(data, data, 4, ncclFloat32, ncclSum, NULL, NULL));
  TRY(ncclReduceScatter(data, data, 4, ncclFloat32, ncclSum, NULL, NULL));
  TRY(ncclBroadcast(data, data, 4, (ncclDataType_t)77, 0, NULL, NULL));
  TRY(ncclSend(data, 4, ncclFloat32, 0, NULL, NULL));
  TRY(ncclRecv(data, 4, ncclFloat32, 0, NULL, NULL));
  TRY(ncclGroupEnd());
  TRY(ncclCommGetAsyncError(NULL, &error));
  TRY(ncclCommUserRank(NULL, &version));
#if NCCL_VERSION_CODE >= 21801
  ncclRedOp_t op;
  float scalar = 2;
  TRY(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, NULL));
  TRY(ncclRedOpDestroy((ncclRedOp_t)99, NULL));
#endif
#if NCCL_VERSION_CODE >= 22203
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  TRY(ncclGroupStart());
  TRY(ncclGroupSimulateEnd(&info));
#endif
#if NCCL_VERSION_CODE >= 22803
  TRY(ncclAlltoAll(data, data, 4, ncclFloat32, NULL, NULL));
  TRY(ncclGather(data, data, 4, ncclFloat32, 0, NULL, NULL));
#endif
#if NCCL_VERSION_CODE >= 23102
  TRY(ncclAllReduceConfig(data, data, 4, ncclFloat32, ncclSum, NULL, NULL, NULL));
  TRY(ncclScatterConfig(data, data, 4, ncclFloat32, 0, NULL, NULL, NULL));
#endif
}

int main(void) {
  int version = 0;
  TRY(ncclGetVersion(&version));
  printf("version %d\n", version);
  creations();
  operations();
  TRY(ncclCommDestroy(NULL));
  TRY(ncclCommAbort(NULL));
  return 0;
}
