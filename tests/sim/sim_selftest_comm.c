/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases in which everything finishes: communicators and their life, threads, graphs, events.
 */
#include "sim_selftest.h"

#include <pthread.h>
#include <stdlib.h>

void st_use(struct st_rank *t, ncclComm_t comm) {
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
    st_use(t, part);
    ST_CHECK(ncclGroupStart());
    ST_CHECK(ncclCommSplit(part, 0, 0, &again[0], NULL));
    ST_CHECK(ncclCommSplit(t->other, 5, t->rank, &again[1], NULL));
    ST_TRUE(again[0] == NULL && again[1] == NULL);
    ST_CHECK(ncclGroupEnd());
    st_use(t, again[0]);
  } else {
    ST_CHECK(ncclCommSplit(t->other, 5, t->rank, &again[1], NULL));
  }
  st_use(t, again[1]);
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
    st_use(t, small);
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
  st_use(t, comm[1]);
  st_use(t, comm[0]);
  ST_CHECK(ncclCommInitRankScalable(&scalable, t->nranks, t->rank, 2, ids, NULL));
  st_use(t, scalable);
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
  struct st_buffers b = st_buffers_new(t, ncclFloat32, 100);
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
  st_fetch(t, &b, b.recv);
  st_expect(ncclFloat32, &b, 3, 2.0 * t->nranks * t->nranks, "replay");
  ST_CHECK(cudaGraphExecDestroy(exec));
  ST_CHECK(ncclCommDestroy(t->comm));
  t->comm = NULL;
}

struct user {
  struct st_rank *t;
  ncclComm_t comm;
  cudaStream_t stream;
};

static void *user_main(void *arg) {
  struct user *u = arg;
  ST_CHECK(cudaSetDevice(u->t->rank % 8));
  float *a = st_buffer(4096);
  for (int i = 0; i < 200; i++) {
    ST_CHECK(ncclAllReduce(a, a, 1000, ncclFloat32, ncclSum, u->comm, u->stream));
    if (i % 10 == 0)
      ST_CHECK(cudaStreamSynchronize(u->stream));
  }
  ST_CHECK(cudaStreamSynchronize(u->stream));
  return NULL;
}

/* Two threads with a communicator each, and a third that shares one of them. */
static void threads(struct st_rank *t) {
  pthread_t thread[2];
  cudaStream_t third;
  ST_CHECK(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking));
  struct user users[] = {{t, t->comm, t->stream}, {t, t->other, t->side}, {t, t->comm, third}};
  for (int i = 0; i < 2; i++)
    ST_TRUE(pthread_create(&thread[i], NULL, user_main, &users[i + 1]) == 0);
  user_main(&users[0]);
  for (int i = 0; i < 2; i++)
    ST_TRUE(pthread_join(thread[i], NULL) == 0);
}

static void many_ranks(struct st_rank *t) {
  st_use(t, t->comm);
  st_check_moves(t, ncclFloat32, 10);
  st_check_reductions(t, ncclFloat64, 1000, ncclSum);
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

static void *end_capture(void *arg) {
  cudaGraph_t g;
  ST_TRUE(cudaStreamEndCapture(arg, &g) == cudaErrorStreamCaptureWrongThread);
  return NULL;
}

/* A stream that was drawn into a capture has to come back, and the thread that began ends it. */
static void capture_joins(struct st_rank *t) {
  cudaGraph_t g;
  cudaEvent_t e;
  pthread_t thread;
  float *a = st_buffer(4096);
  ST_CHECK(cudaEventCreate(&e));
  for (int joined = 0; joined < 2; joined++) {
    ST_CHECK(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeThreadLocal));
    ST_CHECK(cudaEventRecord(e, t->stream));
    ST_CHECK(cudaStreamWaitEvent(t->side, e, 0));
    ST_CHECK(cudaMemsetAsync(a, 0, 4096, t->side));
    ST_CHECK(cudaEventRecord(e, t->side));
    if (joined)
      ST_CHECK(cudaStreamWaitEvent(t->stream, e, 0));
    ST_TRUE(cudaStreamEndCapture(t->stream, &g) ==
            (joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined));
  }
  ST_CHECK(cudaGraphDestroy(g));
  ST_CHECK(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeGlobal));
  ST_TRUE(pthread_create(&thread, NULL, end_capture, t->stream) == 0);
  ST_TRUE(pthread_join(thread, NULL) == 0);
  ST_CHECK(cudaStreamEndCapture(t->stream, &g));
  ST_CHECK(cudaGraphDestroy(g));
}

static void wait_at(void *gate) {
  pthread_mutex_lock(gate);
  pthread_mutex_unlock(gate);
}

/* A graph runs once at a time: its second launch waits for the first, on whatever stream. */
static void graph_alone(struct st_rank *t) {
  static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
  cudaGraph_t g;
  cudaGraphExec_t exec, other;
  char *a = st_buffer(4096), *host = malloc(4096);
  ST_CHECK(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeThreadLocal));
  ST_CHECK(cudaMemsetAsync(a, 7, 4096, t->stream));
  ST_CHECK(cudaStreamEndCapture(t->stream, &g));
  ST_CHECK(cudaGraphInstantiate(&exec, g, 0));
  ST_CHECK(cudaGraphInstantiateWithFlags(&other, g, 0));
  ST_CHECK(cudaGraphDestroy(g));
  pthread_mutex_lock(&gate);
  ST_CHECK(cudaLaunchHostFunc(t->stream, wait_at, &gate));
  ST_CHECK(cudaGraphLaunch(exec, t->stream));
  ST_CHECK(cudaGraphLaunch(other, t->side));
  ST_CHECK(cudaStreamSynchronize(t->side));
  ST_CHECK(cudaMemcpy(host, a, 4096, cudaMemcpyDefault));
  ST_TRUE(host[4095] == 7);
  ST_CHECK(cudaGraphLaunch(exec, t->side));
  ST_TRUE(cudaStreamQuery(t->side) == cudaErrorNotReady);
  pthread_mutex_unlock(&gate);
  ST_CHECK(cudaStreamSynchronize(t->side));
  ST_CHECK(cudaStreamQuery(t->stream));
  ST_CHECK(cudaGraphExecDestroy(exec));
  ST_CHECK(cudaGraphExecDestroy(other));
  free(host);
}

const struct st_case st_comm_cases[] = {
    {"split", 5, "DDDDD", split, false},
    {"shrink", 5, "DDDDD", shrink, false},
    {"nonblocking", 3, "DDD", nonblocking, true},
    {"life-cycle", 3, "DDD", life_cycle, true},
    {"init-all", 1, "D", init_all, true},
    {"graph", 3, "DDD", graph, false},
    {"threads", 3, "DDD", threads, false},
    {"sixteen-ranks", 16, "DDDDDDDDDDDDDDDD", many_ranks, false},
    {"capture-errors", 1, "D", capture_errors, true},
    {"capture-joins", 1, "D", capture_joins, true},
    {"graph-alone", 1, "D", graph_alone, true},
    {"events", 1, "D", events, true},
    {NULL, 0, NULL, NULL, false},
};
