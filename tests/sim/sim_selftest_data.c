/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases in which everything finishes: data of all collectives, types and operators, point-to-point
 * patterns, groups, communicators and errors. Device memory is reached by copies only, so that the
 * same program tells the truth about real NCCL.
 */
#include "sim_selftest.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ncclDataType_t types[] = {ncclInt8,    ncclUint8,   ncclInt32,   ncclUint32,
                                       ncclInt64,   ncclUint64,  ncclFloat16, ncclFloat32,
                                       ncclFloat64, ncclBfloat16};
static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

static void put(ncclDataType_t type, void *at, size_t i, double v) {
  float f = (float)v;
  uint32_t bits;
  switch (type) {
  case ncclInt8:
  case ncclUint8:
    ((uint8_t *)at)[i] = (uint8_t)(int64_t)v;
    break;
  case ncclInt32:
  case ncclUint32:
    ((uint32_t *)at)[i] = (uint32_t)(int64_t)v;
    break;
  case ncclInt64:
  case ncclUint64:
    ((int64_t *)at)[i] = (int64_t)v;
    break;
  case ncclFloat16:
    ((_Float16 *)at)[i] = (_Float16)f;
    break;
  case ncclFloat32:
    ((float *)at)[i] = f;
    break;
  case ncclFloat64:
    ((double *)at)[i] = v;
    break;
  default:
    memcpy(&bits, &f, sizeof(bits));
    ((uint16_t *)at)[i] = (uint16_t)(bits >> 16);
  }
}

static double get(ncclDataType_t type, const void *at, size_t i) {
  float f;
  uint32_t bits;
  switch (type) {
  case ncclInt8:
    return ((const int8_t *)at)[i];
  case ncclUint8:
    return ((const uint8_t *)at)[i];
  case ncclInt32:
    return ((const int32_t *)at)[i];
  case ncclUint32:
    return ((const uint32_t *)at)[i];
  case ncclInt64:
    return (double)((const int64_t *)at)[i];
  case ncclUint64:
    return (double)((const uint64_t *)at)[i];
  case ncclFloat16:
    return (double)((const _Float16 *)at)[i];
  case ncclFloat32:
    return (double)((const float *)at)[i];
  case ncclFloat64:
    return ((const double *)at)[i];
  default:
    bits = (uint32_t)((const uint16_t *)at)[i] << 16;
    memcpy(&f, &bits, sizeof(f));
    return (double)f;
  }
}

static double value(int rank, size_t i) {
  return 1 + (double)(((size_t)rank + i) % 2);
}

static double reduced(int n, size_t i, ncclRedOp_t op) {
  double r = value(0, i);
  for (int k = 1; k < n; k++) {
    double v = value(k, i);
    r = op == ncclProd ? r * v : op == ncclMax ? fmax(r, v) : op == ncclMin ? fmin(r, v) : r + v;
  }
  return op == ncclAvg ? r / n : r;
}

struct buffers {
  char *host;
  void *send, *recv;
  size_t bytes;
};

static struct buffers buffers(struct st_rank *t, ncclDataType_t type, size_t elements) {
  struct buffers b = {.bytes = elements * sizes[type]};
  b.host = malloc(b.bytes + 1);
  b.send = st_buffer(b.bytes);
  b.recv = st_buffer(b.bytes);
  for (size_t i = 0; i < elements; i++)
    put(type, b.host, i, value(t->rank, i));
  ST_CHECK(cudaMemcpy(b.send, b.host, b.bytes, cudaMemcpyHostToDevice));
  return b;
}

static void fetch(struct st_rank *t, struct buffers *b, const void *from) {
  ST_CHECK(cudaStreamSynchronize(t->stream));
  ST_CHECK(cudaMemcpy(b->host, from, b->bytes, cudaMemcpyDeviceToHost));
}

static void release(struct buffers *b) {
  ST_CHECK(cudaFree(b->send));
  ST_CHECK(cudaFree(b->recv));
  free(b->host);
}

static void expect(ncclDataType_t type, const struct buffers *b, size_t i, double v,
                   const char *what) {
  char one[16];
  put(type, one, 0, v);
  double want = get(type, one, 0), have = get(type, b->host, i);
  if (fabs(have - want) > (sizes[type] == 2 ? 0.02 : 1e-6) * fabs(want))
    st_fail("%s type %d element %zu: %g instead of %g", what, type, i, have, want);
}

static void check_reductions(struct st_rank *t, ncclDataType_t type, size_t count, ncclRedOp_t op) {
  int n = t->nranks, root = n / 2;
  struct buffers b = buffers(t, type, count * (size_t)n);
  ST_CHECK(ncclAllReduce(b.send, b.recv, count, type, op, t->comm, t->stream));
  fetch(t, &b, b.recv);
  for (size_t i = 0; i < count; i++)
    expect(type, &b, i, reduced(n, i, op), "allreduce");
  ST_CHECK(ncclReduce(b.send, b.recv, count, type, op, root, t->comm, t->stream));
  fetch(t, &b, b.recv);
  for (size_t i = 0; i < count; i++)
    expect(type, &b, i, reduced(n, i, op), "reduce");
  ST_CHECK(ncclReduceScatter(b.send, b.recv, count, type, op, t->comm, t->stream));
  fetch(t, &b, b.recv);
  for (size_t i = 0; i < count; i++)
    expect(type, &b, i, reduced(n, (size_t)t->rank * count + i, op), "reducescatter");
  ST_CHECK(ncclAllReduce(b.send, b.send, count, type, op, t->comm, t->stream));
  fetch(t, &b, b.send);
  for (size_t i = 0; i < count; i++)
    expect(type, &b, i, reduced(n, i, op), "allreduce in place");
  release(&b);
}

static void check_moves(struct st_rank *t, ncclDataType_t type, size_t count) {
  int n = t->nranks, root = n - 1;
  size_t all = count * (size_t)n;
  struct buffers b = buffers(t, type, all);
  ST_CHECK(ncclBroadcast(b.send, b.recv, count, type, root, t->comm, t->stream));
  fetch(t, &b, b.recv);
  for (size_t i = 0; i < count; i++)
    expect(type, &b, i, value(root, i), "broadcast");
  ST_CHECK(ncclAllGather(b.send, b.recv, count, type, t->comm, t->stream));
  fetch(t, &b, b.recv);
  for (size_t i = 0; i < all; i++)
    expect(type, &b, i, value((int)(i / count), i % count), "allgather");
  ST_CHECK(ncclAlltoAll(b.send, b.recv, count, type, t->comm, t->stream));
  fetch(t, &b, b.recv);
  for (size_t i = 0; i < all; i++)
    expect(type, &b, i, value((int)(i / count), (size_t)t->rank * count + i % count), "alltoall");
  ST_CHECK(cudaMemset(b.recv, 0, b.bytes));
  ST_CHECK(ncclGather(b.send, b.recv, count, type, root, t->comm, t->stream));
  fetch(t, &b, b.recv);
  for (size_t i = 0; t->rank == root && i < all; i++)
    expect(type, &b, i, value((int)(i / count), i % count), "gather");
  ST_CHECK(ncclScatter(b.send, b.recv, count, type, root, t->comm, t->stream));
  fetch(t, &b, b.recv);
  for (size_t i = 0; i < count; i++)
    expect(type, &b, i, value(root, (size_t)t->rank * count + i), "scatter");
  ST_CHECK(ncclBcast(b.send, count, type, root, t->comm, t->stream));
  fetch(t, &b, b.send);
  for (size_t i = 0; i < count; i++)
    expect(type, &b, i, value(root, i), "bcast");
  release(&b);
}

static void all_types(struct st_rank *t) {
  static const size_t counts[] = {1, 7, 33, 1000};
  for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++) {
    for (size_t c = 0; c < 4; c++) {
      check_moves(t, types[k], counts[c]);
      for (ncclRedOp_t op = ncclSum; op <= ncclAvg; op++)
        check_reductions(t, types[k], counts[c], op);
    }
  }
}

static void large(struct st_rank *t) {
  check_moves(t, ncclFloat32, 300001);
  check_reductions(t, ncclFloat32, 300001, ncclSum);
  check_reductions(t, ncclFloat64, 700001, ncclMax);
}

/* A ring of messages of many sizes, each rank sending to the next inside a group. */
static void p2p_ring(struct st_rank *t) {
  static const size_t counts[] = {0, 1, 5, 16384, 40000, 3000000};
  int next = (t->rank + 1) % t->nranks, prev = (t->rank + t->nranks - 1) % t->nranks;
  for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
    struct buffers b = buffers(t, ncclFloat32, counts[c]);
    ST_CHECK(ncclGroupStart());
    ST_CHECK(ncclSend(b.send, counts[c], ncclFloat32, next, t->comm, t->stream));
    ST_CHECK(ncclRecv(b.recv, counts[c], ncclFloat32, prev, t->comm, t->stream));
    ST_CHECK(ncclGroupEnd());
    fetch(t, &b, b.recv);
    for (size_t i = 0; i < counts[c]; i++)
      expect(ncclFloat32, &b, i, value(prev, i), "ring");
    release(&b);
  }
}

/* First in, first out between two ranks, in a group and over several calls. */
static void p2p_fifo(struct st_rank *t) {
  struct buffers b = buffers(t, ncclInt32, 64);
  int32_t *send = b.send, *recv = b.recv, host[64];
  for (int i = 0; i < 64; i++)
    host[i] = 100 * t->rank + i;
  ST_CHECK(cudaMemcpy(send, host, sizeof(host), cudaMemcpyHostToDevice));
  for (int i = 0; i < 64; i++) {
    if (i == 32)
      ST_CHECK(ncclGroupStart());
    if (t->rank == 0)
      ST_CHECK(ncclSend(send + i, 1, ncclInt32, 1, t->comm, t->stream));
    else
      ST_CHECK(ncclRecv(recv + i, 1, ncclInt32, 0, t->comm, t->stream));
  }
  ST_CHECK(ncclGroupEnd());
  fetch(t, &b, b.recv);
  for (size_t i = 0; t->rank == 1 && i < 64; i++)
    expect(ncclInt32, &b, i, (double)i, "fifo");
}

/* Two streams in one group, the second behind slow work; later work of both waits for the group. */
static void group_streams(struct st_rank *t) {
  struct buffers a = buffers(t, ncclFloat32, 5000), b = buffers(t, ncclFloat32, 100);
  ST_CHECK(ncclGroupStart());
  ST_CHECK(ncclAllReduce(a.send, a.recv, t->rank ? 5000 : 5000, ncclFloat32, ncclSum, t->comm,
                         t->stream));
  ST_CHECK(ncclAllReduce(b.send, b.recv, 100, ncclFloat32, ncclSum, t->comm, t->side));
  ST_CHECK(ncclAllReduce(b.send, b.send, 50, ncclFloat32, ncclMax, t->other, t->side));
  ST_CHECK(ncclGroupEnd());
  ST_CHECK(cudaStreamSynchronize(t->side));
  fetch(t, &a, a.recv);
  fetch(t, &b, b.recv);
  expect(ncclFloat32, &a, 4999, reduced(t->nranks, 4999, ncclSum), "first");
  expect(ncclFloat32, &b, 99, reduced(t->nranks, 99, ncclSum), "second");
}

/* A refused call poisons its group, a simulated group does nothing; neither counts anywhere. */
static void group_errors(struct st_rank *t) {
  struct buffers b = buffers(t, ncclFloat32, 100);
  ncclSimInfo_t info = {.size = sizeof(info)};
  if (t->rank == 0) {
    ST_CHECK(ncclGroupStart());
    ST_CHECK(ncclAllReduce(b.send, b.recv, 100, ncclFloat32, ncclSum, t->comm, t->stream));
    ST_TRUE(ncclBroadcast(b.send, b.recv, 1, ncclFloat32, 99, t->comm, t->stream) ==
            ncclInvalidArgument);
    ST_TRUE(ncclGroupEnd() == ncclInvalidArgument);
    ST_CHECK(ncclGroupStart());
    ST_CHECK(ncclAllReduce(b.send, b.recv, 100, ncclFloat32, ncclSum, t->comm, t->stream));
    ST_CHECK(ncclGroupSimulateEnd(&info));
  }
  ST_TRUE(ncclGroupEnd() == ncclInvalidUsage);
  ST_TRUE(ncclAllReduce(b.send, b.recv, 1, ncclFloat32, ncclSum, NULL, t->stream) ==
          ncclInvalidArgument);
  ST_TRUE(ncclAllReduce(b.send, b.recv, 1, 77, ncclSum, t->comm, t->stream) == ncclInvalidArgument);
  ST_TRUE(ncclAllReduce(b.send, b.recv, 1, ncclFloat32, 9, t->comm, t->stream) ==
          ncclInvalidArgument);
  ST_TRUE(ncclSend(b.send, 1, ncclFloat32, t->nranks, t->comm, t->stream) == ncclInvalidArgument);
  ST_CHECK(ncclAllReduce(b.send, b.recv, 100, ncclFloat32, ncclSum, t->comm, t->stream));
  fetch(t, &b, b.recv);
  expect(ncclFloat32, &b, 5, reduced(t->nranks, 5, ncclSum), "after errors");
}

static void premul(struct st_rank *t) {
  struct buffers b = buffers(t, ncclFloat32, 10);
  ncclRedOp_t op;
  float factor = 3;
  ST_CHECK(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, t->comm));
  ST_CHECK(ncclAllReduce(b.send, b.recv, 10, ncclFloat32, op, t->comm, t->stream));
  ST_CHECK(ncclRedOpDestroy(op, t->comm));
  fetch(t, &b, b.recv);
  for (size_t i = 0; i < 10; i++)
    expect(ncclFloat32, &b, i, 3 * reduced(t->nranks, i, ncclSum), "premul");
}

static void use(struct st_rank *t, ncclComm_t comm) {
  float *a = st_buffer(400), one = 1;
  int n;
  ST_CHECK(ncclCommCount(comm, &n));
  ST_CHECK(cudaMemcpy(a, &one, sizeof(one), cudaMemcpyHostToDevice));
  ST_CHECK(ncclAllReduce(a, a, 100, ncclFloat32, ncclSum, comm, t->stream));
  ST_CHECK(cudaStreamSynchronize(t->stream));
  ST_CHECK(cudaMemcpy(&one, a, sizeof(one), cudaMemcpyDeviceToHost));
  ST_TRUE((int)one == n);
  ST_CHECK(cudaFree(a));
}

/* Colours, a reversing key, a rank without colour; then a split of a split, in a group. */
static void split(struct st_rank *t) {
  ncclComm_t part, again[2] = {NULL, NULL};
  int rank, n, last = t->nranks - 1;
  int color = t->rank == last ? NCCL_SPLIT_NOCOLOR : t->rank % 2;
  ST_CHECK(ncclCommSplit(t->comm, color, -t->rank, &part, NULL));
  ST_TRUE((part == NULL) == (t->rank == last));
  if (part) {
    ST_CHECK(ncclCommCount(part, &n));
    ST_CHECK(ncclCommUserRank(part, &rank));
    ST_TRUE(n == (last + 1 - t->rank % 2) / 2 && rank == n - 1 - t->rank / 2);
    use(t, part);
    ST_CHECK(ncclGroupStart());
    ST_CHECK(ncclCommSplit(part, 0, 0, &again[0], NULL));
    ST_CHECK(ncclCommSplit(t->other, 5, t->rank, &again[1], NULL));
    ST_TRUE(again[0] == NULL && again[1] == NULL);
    ST_CHECK(ncclGroupEnd());
    use(t, again[0]);
  } else {
    ST_CHECK(ncclCommSplit(t->other, 5, t->rank, &again[1], NULL));
  }
  use(t, again[1]);
}

static void shrink(struct st_rank *t) {
  int list[] = {2, 0, 2}, n;
  ncclComm_t small = NULL;
  if (t->rank == 0 || t->rank == 2)
    return;
  for (int i = 0; i < 2; i++) {
    ST_CHECK(ncclCommShrink(t->comm, list, 3, &small, NULL, NCCL_SHRINK_DEFAULT));
    ST_CHECK(ncclCommCount(small, &n));
    ST_TRUE(n == t->nranks - 2);
    use(t, small);
  }
}

static ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  ST_CHECK(ncclCommGetAsyncError(comm, &state));
  return state;
}

static void wait_ready(ncclComm_t comm) {
  ST_WAIT(state_of(comm) != ncclInProgress);
  ST_CHECK(state_of(comm));
}

/* Everything that blocks is in progress elsewhere; a call meanwhile is refused. */
static void nonblocking(struct st_rank *t) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm = NULL, part = NULL;
  float *a = st_buffer(4096);
  config.blocking = 0;
  config.commName = "tp";
  if (t->rank == 0) {
    ST_TRUE(ncclCommInitRankConfig(&comm, t->nranks, t->id, 0, &config) == ncclInProgress);
    ST_TRUE(comm != NULL);
    ST_TRUE(ncclAllReduce(a, a, 100, ncclFloat32, ncclSum, comm, t->stream) == ncclInvalidArgument);
  }
  st_meet();
  if (t->rank)
    ST_TRUE(ncclCommInitRankConfig(&comm, t->nranks, t->id, t->rank, &config) == ncclInProgress);
  wait_ready(comm);
  ST_TRUE(ncclAllReduce(a, a, 100, ncclFloat32, ncclSum, comm, t->stream) == ncclInProgress);
  wait_ready(comm);
  ST_CHECK(ncclAllReduce(a, a, 100, ncclFloat32, ncclSum, comm, t->stream));
  ST_CHECK(cudaStreamSynchronize(t->stream));
  ST_TRUE(ncclCommSplit(comm, 0, t->rank, &part, NULL) == ncclInProgress);
  wait_ready(comm);
  ST_TRUE(part != NULL);
  wait_ready(part);
  ST_TRUE(ncclCommFinalize(comm) == ncclInProgress);
  wait_ready(comm);
  ST_CHECK(ncclCommDestroy(comm));
}

static void life_cycle(struct st_rank *t) {
  ncclComm_t comm[2], scalable;
  ncclUniqueId ids[2] = {t->id, t->second_id};
  int version, device;
  ST_CHECK(ncclGetVersion(&version));
  ST_TRUE(version >= 22809);
  ST_TRUE(ncclCommInitRank(&comm[0], t->nranks, t->id, t->nranks) == ncclInvalidArgument);
  ST_CHECK(ncclGroupStart());
  ST_CHECK(ncclCommInitRank(&comm[t->rank % 2], t->nranks, ids[t->rank % 2], t->rank));
  ST_CHECK(ncclCommInitRank(&comm[1 - t->rank % 2], t->nranks, ids[1 - t->rank % 2], t->rank));
  ST_CHECK(ncclGroupEnd());
  use(t, comm[1]);
  use(t, comm[0]);
  ST_CHECK(ncclCommInitRankScalable(&scalable, t->nranks, t->rank, 2, ids, NULL));
  use(t, scalable);
  ST_CHECK(ncclCommCuDevice(scalable, &device));
  ST_TRUE(device == t->rank % 8);
  ST_CHECK(ncclCommFinalize(comm[0]));
  ST_CHECK(ncclCommDestroy(comm[0]));
  ST_CHECK(ncclCommDestroy(comm[1]));
  ST_TRUE(ncclCommDestroy(comm[1]) == ncclInvalidArgument);
  ST_CHECK(ncclCommAbort(scalable));
}

/* Several devices in one process. */
static void init_all(struct st_rank *t) {
  ncclComm_t comms[4];
  cudaStream_t streams[4];
  float *a[4], v;
  ST_CHECK(ncclCommInitAll(comms, 4, NULL));
  ST_CHECK(ncclGroupStart());
  for (int i = 0; i < 4; i++) {
    v = (float)i;
    ST_CHECK(cudaSetDevice(i));
    ST_CHECK(cudaStreamCreate(&streams[i]));
    a[i] = st_buffer(4);
    ST_CHECK(cudaMemcpy(a[i], &v, 4, cudaMemcpyHostToDevice));
    ST_CHECK(ncclAllReduce(a[i], a[i], 1, ncclFloat32, ncclSum, comms[i], streams[i]));
  }
  ST_CHECK(ncclGroupEnd());
  for (int i = 0; i < 4; i++) {
    ST_CHECK(cudaStreamSynchronize(streams[i]));
    ST_CHECK(cudaMemcpy(&v, a[i], 4, cudaMemcpyDeviceToHost));
    ST_TRUE((int)v == 6);
  }
  (void)t;
}

static void events(struct st_rank *t) {
  cudaEvent_t e, f;
  ST_CHECK(cudaEventCreate(&e));
  ST_CHECK(cudaEventCreateWithFlags(&f, cudaEventDisableTiming));
  ST_CHECK(cudaEventQuery(e));
  ST_CHECK(cudaEventRecord(e, t->stream));
  ST_CHECK(cudaStreamWaitEvent(t->side, e, 0));
  ST_CHECK(cudaEventRecord(f, t->side));
  ST_CHECK(cudaEventSynchronize(f));
  ST_CHECK(cudaEventQuery(e));
  ST_CHECK(cudaEventDestroy(e));
  ST_TRUE(cudaEventRecord(NULL, t->stream) == cudaErrorInvalidResourceHandle);
  ST_TRUE(cudaGetLastError() == cudaErrorInvalidResourceHandle);
  ST_CHECK(cudaGetLastError());
  ST_CHECK(cudaDeviceSynchronize());
}

/* Captured on two streams joined by an event, replayed between eager calls. */
static void graph(struct st_rank *t) {
  struct buffers b = buffers(t, ncclFloat32, 100);
  cudaGraph_t g;
  cudaGraphExec_t exec;
  cudaEvent_t e;
  enum cudaStreamCaptureStatus status;
  ST_CHECK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  ST_CHECK(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeThreadLocal));
  ST_CHECK(ncclAllReduce(b.send, b.recv, 100, ncclFloat32, ncclSum, t->comm, t->stream));
  ST_CHECK(cudaEventRecord(e, t->stream));
  ST_CHECK(cudaStreamWaitEvent(t->side, e, 0));
  ST_CHECK(ncclAllReduce(b.recv, b.recv, 100, ncclFloat32, ncclSum, t->other, t->side));
  ST_CHECK(cudaStreamIsCapturing(t->side, &status));
  ST_TRUE(status == cudaStreamCaptureStatusActive);
  ST_TRUE(cudaEventQuery(e) == cudaErrorCapturedEvent);
  ST_CHECK(cudaEventRecord(e, t->side));
  ST_CHECK(cudaStreamWaitEvent(t->stream, e, 0));
  ST_CHECK(cudaStreamEndCapture(t->stream, &g));
  ST_CHECK(cudaGraphInstantiate(&exec, g, 0));
  ST_CHECK(cudaGraphDestroy(g));
  ST_CHECK(ncclAllReduce(b.send, b.send, 100, ncclFloat32, ncclMax, t->comm, t->stream));
  for (int i = 0; i < 20; i++) {
    ST_CHECK(cudaGraphLaunch(exec, t->stream));
    ST_CHECK(ncclAllReduce(b.send, b.send, 100, ncclFloat32, ncclMax, t->comm, t->side));
  }
  ST_CHECK(cudaStreamSynchronize(t->side));
  fetch(t, &b, b.recv);
  expect(ncclFloat32, &b, 3, 2.0 * t->nranks * t->nranks, "replay");
  ST_CHECK(cudaGraphExecDestroy(exec));
  ST_CHECK(ncclCommDestroy(t->comm));
  t->comm = NULL;
}

/* What must not be done to a capturing stream costs the capture, not the process. */
static void capture_errors(struct st_rank *t) {
  enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaGraph_t g;
  cudaEvent_t e;
  ST_CHECK(cudaEventCreate(&e));
  ST_CHECK(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeGlobal));
  ST_TRUE(cudaStreamQuery(t->stream) == cudaErrorStreamCaptureUnsupported);
  ST_TRUE(cudaStreamEndCapture(t->stream, &g) == cudaErrorStreamCaptureInvalidated);
  ST_CHECK(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeGlobal));
  ST_TRUE(cudaEventQuery(e) == cudaErrorStreamCaptureUnsupported);
  ST_TRUE(cudaStreamEndCapture(t->stream, &g) == cudaErrorStreamCaptureInvalidated);
  ST_CHECK(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeGlobal));
  ST_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  ST_CHECK(cudaEventQuery(e));
  ST_CHECK(cudaStreamEndCapture(t->stream, &g));
  ST_CHECK(cudaGraphDestroy(g));
}

const struct st_case st_data_cases[] = {
    {"types-1", 1, "D", all_types, false},
    {"types-2", 2, "DD", all_types, false},
    {"types-3", 3, "DDD", all_types, false},
    {"types-4", 4, "DDDD", all_types, false},
    {"types-8", 8, "DDDDDDDD", all_types, false},
    {"large-1", 1, "D", large, false},
    {"large-2", 2, "DD", large, false},
    {"large-3", 3, "DDD", large, false},
    {"large-8", 8, "DDDDDDDD", large, false},
    {"p2p-ring-1", 1, "D", p2p_ring, false},
    {"p2p-ring-2", 2, "DD", p2p_ring, false},
    {"p2p-ring-4", 4, "DDDD", p2p_ring, false},
    {"p2p-fifo", 2, "DD", p2p_fifo, false},
    {"group-streams", 3, "DDD", group_streams, false},
    {"group-errors", 2, "DD", group_errors, false},
    {"premul", 3, "DDD", premul, false},
    {"split", 5, "DDDDD", split, false},
    {"shrink", 5, "DDDDD", shrink, false},
    {"nonblocking", 3, "DDD", nonblocking, true},
    {"life-cycle", 3, "DDD", life_cycle, true},
    {"init-all", 1, "D", init_all, true},
    {"graph", 3, "DDD", graph, false},
    {"capture-errors", 1, "D", capture_errors, true},
    {"events", 1, "D", events, true},
    {NULL, 0, NULL, NULL, false},
};
