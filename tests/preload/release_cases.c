/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an application of some release of NCCL calls, compiled by tests/cli/nccl_releases.sh with that release's
 * NT_API_LEVEL, so that it needs only what that release has.
 *
 *   calls   one rank, each kind of call once
 *   lacks   a function that the process's NCCL may lack, between others
 *   wrong   calls with wrong arguments: prints what NCCL answers, which must be the same bare and traced
 */
#include <stdio.h>
#include <string.h>

#include <nccl.h>

/* In no header: a function of a later NCCL, which calls what is traced. */
ncclResult_t ncclFutureReduce(const char *what, ncclComm_t comm, void *buffer, double value);

enum { COUNT = 16, NO_SUCH = 14 };

static float *buffer;
static ncclComm_t comm;

#define TRY(call)                                                                                  \
  do {                                                                                             \
    ncclResult_t answer = (call);                                                                  \
    printf("%s: %d\n", #call, answer);                                                             \
    fflush(stdout);                                                                                \
  } while (0)

static void begin(void) {
  ncclUniqueId id;
  int version;
  TRY(ncclGetVersion(&version));
  printf("version %d\n", version);
  TRY(ncclGetUniqueId(&id));
  TRY(ncclCommInitRank(&comm, 1, id, 0));
  cudaMalloc((void **)&buffer, 4096);
}

static void calls(void) {
  ncclComm_t other;
  ncclUniqueId id;
  (void)other, (void)id;
  TRY(ncclGroupStart());
  TRY(ncclSend(buffer, COUNT, ncclFloat32, 0, comm, NULL));
  TRY(ncclRecv(buffer + COUNT, COUNT, ncclFloat32, 0, comm, NULL));
  TRY(ncclGroupEnd());
  TRY(ncclAllReduce(buffer, buffer, COUNT, ncclFloat32, ncclSum, comm, NULL));
  TRY(ncclFutureReduce("sum", comm, buffer, 0.5));
#if NT_API_LEVEL >= 21104
  ncclRedOp_t op;
  float scalar = 2;
  TRY(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, comm));
  TRY(ncclAllReduce(buffer, buffer, COUNT, ncclFloat32, op, comm, NULL));
  TRY(ncclRedOpDestroy(op, comm));
#endif
#if NT_API_LEVEL >= 21403
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.version = NT_API_LEVEL;
  config.minCTAs = 3;
  TRY(ncclGetUniqueId(&id));
  TRY(ncclCommInitRankConfig(&other, 1, id, 0, &config));
  TRY(ncclAllReduce(buffer, buffer, COUNT, ncclFloat32, ncclMax, other, NULL));
  TRY(ncclCommFinalize(other));
  TRY(ncclCommDestroy(other));
#endif
#if NT_API_LEVEL >= 21801
  TRY(ncclCommSplit(comm, 0, 0, &other, NULL));
  TRY(ncclAllReduce(buffer, buffer, COUNT, ncclFloat32, ncclMin, other, NULL));
  TRY(ncclCommDestroy(other));
#endif
#if NT_API_LEVEL >= 22304
  TRY(ncclGetUniqueId(&id));
  TRY(ncclCommInitRankScalable(&other, 1, 0, 1, &id, NULL));
  TRY(ncclCommDestroy(other));
#endif
#if NT_API_LEVEL >= 22803
  TRY(ncclAlltoAll(buffer, buffer + COUNT, COUNT, ncclFloat32, comm, NULL));
#endif
#if NT_API_LEVEL >= 23102
  TRY(ncclAllReduceConfig(buffer, buffer, COUNT, ncclFloat32, ncclSum, comm, NULL, NULL));
#endif
  cudaStreamSynchronize(NULL);
}

static void lacks(void) {
  TRY(ncclAllReduce(buffer, buffer, 1, ncclFloat32, ncclSum, comm, NULL));
#if NT_API_LEVEL >= 22803
  TRY(ncclAlltoAll(buffer, buffer + COUNT, COUNT, ncclFloat32, comm, NULL));
  TRY(ncclAlltoAll(buffer, buffer + COUNT, COUNT, ncclFloat32, comm, NULL));
#endif
  TRY(ncclAllReduce(buffer, buffer, 2, ncclFloat32, ncclSum, comm, NULL));
  cudaStreamSynchronize(NULL);
}

/* What NCCL refuses for its arguments, each time before it looks at the rest. */
static void wrong(void) {
  ncclUniqueId id;
  ncclComm_t other = NULL;
  ncclResult_t error;
  void *const nowhere = (void *)16;
  memset(&id, 0, sizeof(id));
  (void)nowhere, (void)other;
  TRY(ncclGetUniqueId(NULL));
  TRY(ncclCommInitRank(NULL, 1, id, 0));
  TRY(ncclCommInitRank(&other, 0, id, 0));
  TRY(ncclCommInitRank(&other, -5, id, 0));
  TRY(ncclCommInitRank(&other, 1 << 30, id, 1 << 30));
  TRY(ncclCommInitRank(&other, 1, id, -1));
  TRY(ncclCommInitAll(NULL, 1, NULL));
  TRY(ncclCommInitAll(&other, -1, NULL));
  TRY(ncclCommGetAsyncError(NULL, &error));
  TRY(ncclCommGetAsyncError(comm, NULL));
  TRY(ncclAllReduce(buffer, buffer, COUNT, ncclFloat32, ncclSum, NULL, NULL));
  TRY(ncclAllReduce(buffer, buffer, COUNT, NO_SUCH, ncclSum, comm, NULL));
  TRY(ncclAllReduce(buffer, buffer, COUNT, 256, ncclSum, comm, NULL));
  TRY(ncclAllReduce(buffer, buffer, COUNT, -1, ncclSum, comm, NULL));
  TRY(ncclAllReduce(buffer, buffer, COUNT, ncclFloat32, 9, comm, NULL));
  TRY(ncclAllReduce(buffer, buffer, COUNT, ncclFloat32, -1, comm, NULL));
  TRY(ncclAllReduce(buffer, buffer, (size_t)-1, ncclFloat32, 1 << 30, comm, NULL));
  TRY(ncclBroadcast(buffer, buffer, COUNT, ncclFloat32, 77, comm, NULL));
  TRY(ncclReduce(buffer, buffer, COUNT, ncclFloat32, ncclSum, -3, comm, NULL));
  TRY(ncclAllGather(buffer, buffer, COUNT, ncclFloat32, NULL, NULL));
  TRY(ncclReduceScatter(buffer, buffer, COUNT, ncclFloat32, ncclSum, NULL, NULL));
  TRY(ncclSend(buffer, COUNT, ncclFloat32, 1 << 30, comm, NULL));
  TRY(ncclRecv(buffer, COUNT, ncclFloat32, -1 << 30, comm, NULL));
  TRY(ncclSend(buffer, COUNT, ncclFloat32, 0, NULL, NULL));
  TRY(ncclGroupEnd());
#if NT_API_LEVEL >= 21104
  ncclRedOp_t op;
  TRY(ncclRedOpCreatePreMulSum(NULL, buffer, ncclFloat32, 7, comm));
  TRY(ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat32, ncclScalarHostImmediate, NULL));
  TRY(ncclRedOpDestroy(99, comm));
#endif
#if NT_API_LEVEL >= 21801
  TRY(ncclCommSplit(NULL, 0, 0, &other, nowhere));
  TRY(ncclCommSplit(comm, -7, 0, &other, NULL));
  TRY(ncclCommSplit(comm, 0, 0, NULL, nowhere));
#endif
#if NT_API_LEVEL >= 22304
  TRY(ncclCommInitRankScalable(&other, 1, 0, -1, NULL, NULL));
  TRY(ncclCommInitRankScalable(NULL, 1, 0, 1 << 30, NULL, nowhere));
#endif
#if NT_API_LEVEL >= 22703
  int list[2] = {0, 1};
  TRY(ncclCommShrink(NULL, list, 2, &other, NULL, 0));
  TRY(ncclCommShrink(comm, NULL, 1, &other, NULL, 0));
  TRY(ncclCommShrink(comm, list, -1, &other, NULL, 0));
  TRY(ncclCommShrink(comm, list, 2, NULL, nowhere, 0));
  TRY(ncclCommShrink(comm, nowhere, 3, NULL, NULL, 0));
  TRY(ncclCommShrink(comm, list, 1 << 30, NULL, NULL, 0));
  TRY(ncclCommShrink(comm, list, -2147483647 - 1, NULL, NULL, 0));
#endif
#if NT_API_LEVEL >= 22902
  TRY(ncclCommGrow(NULL, -1, NULL, -1, NULL, NULL));
  TRY(ncclCommGetUniqueId(NULL, NULL));
#endif
  TRY(ncclCommDestroy(NULL));
  TRY(ncclCommAbort(NULL));
}

int main(int argc, char **argv) {
  begin();
  if (argc == 2 && !strcmp(argv[1], "wrong"))
    wrong();
  else if (argc == 2 && !strcmp(argv[1], "lacks"))
    lacks();
  else
    calls();
  TRY(ncclCommDestroy(comm));
  return 0;
}
