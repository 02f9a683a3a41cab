/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases in which calls do not match: who hangs, who finishes, who stays inside the call, as measured
 * on real NCCL. Rank 1 deviates unless the case says otherwise.
 */
#include <pthread.h>
#include "sim_selftest.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define F32 ncclFloat32
#define BYTES ((size_t)64 << 20)

static void *a, *b;

extern int cuStreamWaitValue32_v2(cudaStream_t, unsigned long long, unsigned int, unsigned int);

static void alloc(void) {
  ST_CHECK(cudaMalloc(&a, BYTES));
  ST_CHECK(cudaMalloc(&b, BYTES));
}

static void allreduce(struct st_rank *t, size_t count) {
  ST_CHECK(ncclAllReduce(a, b, count, F32, ncclSum, t->comm, t->stream));
}

/* Rank `who` reduces one count, the others another. */
static void counts(struct st_rank *t, int who, size_t one, size_t others) {
  alloc();
  allreduce(t, t->rank == who ? one : others);
}

static void ar_512(struct st_rank *t) {
  counts(t, 1, 512, 1024);
}

static void ar_2048(struct st_rank *t) {
  counts(t, 1, 2048, 1024);
}

static void ar_4096(struct st_rank *t) {
  counts(t, 2, 4096, 1024);
}

static void ar_1(struct st_rank *t) {
  counts(t, 1, 1, 1024);
}

static void ar_0(struct st_rank *t) {
  counts(t, 1, 0, 1024);
}

static void ar_5_4(struct st_rank *t) {
  counts(t, 1, 5, 4);
}

static void ar_1m_2m(struct st_rank *t) {
  counts(t, 1, 1 << 20, 2 << 20);
}

static void ar_dtype(struct st_rank *t) {
  alloc();
  ST_CHECK(
      ncclAllReduce(a, b, 1024, t->rank == 1 ? ncclFloat16 : F32, ncclSum, t->comm, t->stream));
}

static void ar_same_bytes(struct st_rank *t) {
  alloc();
  if (t->rank == 1)
    ST_CHECK(ncclAllReduce(a, b, 512, ncclFloat64, ncclSum, t->comm, t->stream));
  else
    allreduce(t, 1024);
}

static void ar_op(struct st_rank *t) {
  alloc();
  ST_CHECK(ncclAllReduce(a, b, 1024, F32, t->rank == 1 ? ncclMax : ncclSum, t->comm, t->stream));
}

/* Another root, whichever rank deviates and whatever it takes for the root. */
static void roots(struct st_rank *t) {
  alloc();
  for (int who = 0; who < t->nranks; who++) {
    for (int root = 1; root < t->nranks; root++) {
      int mine = t->rank == who ? root : 0;
      ST_CHECK(ncclBroadcast(a, b, 1024, F32, mine, t->comm, t->stream));
      ST_CHECK(ncclReduce(a, b, 1024, F32, ncclSum, mine, t->comm, t->stream));
      ST_CHECK(ncclBroadcast(a, b, 1 << 20, F32, mine, t->comm, t->stream));
    }
  }
  allreduce(t, 1024);
}

static void many_roots(struct st_rank *t) {
  alloc();
  for (int i = 0; i < 100; i++) {
    ST_CHECK(ncclBroadcast(a, b, 64, F32, 0, t->comm, t->stream));
    ST_CHECK(ncclReduce(a, b, 64, F32, ncclSum, i % t->nranks, t->comm, t->stream));
    if (i % 10 == 0)
      allreduce(t, 1);
  }
}

static void bc_instead(struct st_rank *t) {
  alloc();
  if (t->rank == 1)
    ST_CHECK(ncclBroadcast(a, b, 1024, F32, 0, t->comm, t->stream));
  else
    allreduce(t, 1024);
}

static void ag_instead(struct st_rank *t) {
  alloc();
  if (t->rank == 1)
    ST_CHECK(ncclAllGather(a, b, 1024, F32, t->comm, t->stream));
  else
    allreduce(t, 1024);
}

static void rs_instead(struct st_rank *t) {
  alloc();
  if (t->rank == 1)
    ST_CHECK(ncclReduceScatter(a, b, 1024, F32, ncclSum, t->comm, t->stream));
  else
    allreduce(t, 1024);
}

static void swapped(struct st_rank *t, int who, size_t one, size_t two) {
  alloc();
  if (t->rank == who)
    allreduce(t, two);
  ST_CHECK(ncclBroadcast(a, b, one, F32, 0, t->comm, t->stream));
  if (t->rank != who)
    allreduce(t, two);
}

static void swap_512_64k(struct st_rank *t) {
  swapped(t, 1, 512, 65536);
}

static void swap_equal(struct st_rank *t) {
  swapped(t, 1, 1024, 1024);
}

static void swap_last(struct st_rank *t) {
  swapped(t, t->nranks - 1, 16, 16);
}

static void ag_smaller(struct st_rank *t) {
  alloc();
  ST_CHECK(ncclAllGather(a, b, t->rank == 1 ? 512 : 1024, F32, t->comm, t->stream));
}

static void send_recv(struct st_rank *t, size_t sent, size_t received) {
  alloc();
  if (t->rank == 0)
    ST_CHECK(ncclSend(a, sent, F32, 1, t->comm, t->stream));
  else
    ST_CHECK(ncclRecv(a, received, F32, 0, t->comm, t->stream));
}

static void send_3_5(struct st_rank *t) {
  send_recv(t, 3, 5);
}

static void send_5_3(struct st_rank *t) {
  send_recv(t, 5, 3);
}

static void send_1m_2m(struct st_rank *t) {
  send_recv(t, 1 << 20, 2 << 20);
}

static void send_2m_1m(struct st_rank *t) {
  send_recv(t, 2 << 20, 1 << 20);
}

static void send_first(struct st_rank *t, size_t count) {
  alloc();
  ST_CHECK(ncclSend(a, count, F32, (t->rank + 1) % t->nranks, t->comm, t->stream));
  ST_CHECK(ncclRecv(b, count, F32, (t->rank + t->nranks - 1) % t->nranks, t->comm, t->stream));
}

static void send_first_16(struct st_rank *t) {
  send_first(t, 16);
}

static void send_first_16m(struct st_rank *t) {
  send_first(t, 4 << 20);
}

static void group_swapped(struct st_rank *t) {
  alloc();
  ST_CHECK(ncclGroupStart());
  for (int i = 0; i < 2; i++) {
    bool first = (i == 0) == (t->rank != 1);
    ST_CHECK(ncclAllReduce(a, b, first ? 1024 : 64, F32, ncclSum, t->comm, t->stream));
  }
  ST_CHECK(ncclGroupEnd());
}

static void two_comms(struct st_rank *t, cudaStream_t second_stream, bool grouped) {
  alloc();
  if (grouped)
    ST_CHECK(ncclGroupStart());
  for (int i = 0; i < 2; i++) {
    bool first = (i == 0) == (t->rank != 1);
    ST_CHECK(ncclAllReduce(a, b, 1024, F32, ncclSum, first ? t->comm : t->other,
                           first ? t->stream : second_stream));
  }
  if (grouped)
    ST_CHECK(ncclGroupEnd());
}

static void comms_one_stream(struct st_rank *t) {
  two_comms(t, t->stream, false);
}

static void comms_two_streams(struct st_rank *t) {
  two_comms(t, t->side, false);
}

static void comms_group(struct st_rank *t) {
  two_comms(t, t->stream, true);
}

static void send_in_alltoall(struct st_rank *t) {
  alloc();
  if (t->rank == 1)
    ST_CHECK(ncclSend(a, 16, F32, 0, t->comm, t->stream));
  else
    ST_CHECK(ncclAlltoAll(a, b, 16, F32, t->comm, t->stream));
}

static void skip_and_exit(struct st_rank *t) {
  alloc();
  if (t->rank == 1)
    exit(0);
  allreduce(t, 1024);
}

static void skip_and_destroy(struct st_rank *t) {
  alloc();
  if (t->rank != 1) {
    allreduce(t, 1024);
  } else {
    ST_CHECK(ncclCommDestroy(t->comm));
    t->comm = NULL;
  }
}

static void early_finish(struct st_rank *t) {
  alloc();
  if (t->rank != 2)
    ST_CHECK(ncclBroadcast(a, b, 1024, F32, 0, t->comm, t->stream));
}

static void reduce_leaf(struct st_rank *t) {
  alloc();
  if (t->rank != 2)
    ST_CHECK(ncclReduce(a, b, 1024, F32, ncclSum, 0, t->comm, t->stream));
}

static void abort_ends(struct st_rank *t) {
  alloc();
  allreduce(t, t->rank == 1 ? 512 : 1024);
  st_meet();
  ncclComm_t part;
  int list[] = {t->nranks - 1};
  if (t->rank != list[0]) {
    ST_CHECK(ncclCommShrink(t->comm, list, 1, &part, NULL, NCCL_SHRINK_ABORT));
    st_use(t, part);
  }
  ST_CHECK(ncclCommAbort(t->comm));
  t->comm = NULL;
  ST_CHECK(cudaStreamSynchronize(t->stream));
}

/* With hung work on the stream a process can still end. */
static void exit_hung(struct st_rank *t) {
  alloc();
  allreduce(t, t->rank == 1 ? 512 : 1024);
  st_meet();
  exit(0);
}

static void finalize_missing(struct st_rank *t) {
  if (t->rank != 1)
    ST_CHECK(ncclCommFinalize(t->comm));
}

static void gpu_spin(struct st_rank *t) {
  alloc();
  ST_CHECK(cudaMemset(b, 0, 4));
  if (t->rank == 1) {
    ST_CHECK(cuStreamWaitValue32_v2(t->stream, (unsigned long long)(size_t)b, 1, 1));
  }
  allreduce(t, 1024);
}

/* One rank replays once more than the others. */
static void graph_extra(struct st_rank *t) {
  cudaGraph_t g;
  cudaGraphExec_t exec;
  alloc();
  ST_CHECK(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeRelaxed));
  allreduce(t, 1024);
  ST_CHECK(cudaStreamEndCapture(t->stream, &g));
  ST_CHECK(cudaGraphInstantiate(&exec, g, 0));
  for (int i = 0; i < (t->rank == 1 ? 4 : 3); i++)
    ST_CHECK(cudaGraphLaunch(exec, t->stream));
}

/* Each rank replays the graph of its own size. */
static void graph_other(struct st_rank *t) {
  cudaGraph_t g;
  cudaGraphExec_t exec[2];
  alloc();
  for (int i = 0; i < 2; i++) {
    ST_CHECK(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeRelaxed));
    allreduce(t, i ? 512 : 1024);
    ST_CHECK(cudaStreamEndCapture(t->stream, &g));
    ST_CHECK(cudaGraphInstantiate(&exec[i], g, 0));
  }
  for (int i = 0; i < 2; i++)
    ST_CHECK(cudaGraphLaunch(exec[i], t->stream));
  ST_CHECK(cudaGraphLaunch(exec[t->rank == 1], t->stream));
}

/* A launch joins the queue of a stream that is busy for ever, and returns. */
static void graph_behind(struct st_rank *t) {
  cudaGraph_t g;
  cudaGraphExec_t exec;
  alloc();
  ST_CHECK(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeRelaxed));
  allreduce(t, 1024);
  ST_CHECK(cudaStreamEndCapture(t->stream, &g));
  ST_CHECK(cudaGraphInstantiate(&exec, g, 0));
  if (t->rank == 1)
    ST_CHECK(cuStreamWaitValue32_v2(t->stream, (unsigned long long)(size_t)b, 1, 1));
  ST_CHECK(cudaGraphLaunch(exec, t->stream));
}

static void *fill_queue(void *arg) {
  struct st_rank *t = arg;
  ST_CHECK(cudaSetDevice(t->rank % 8));
  for (int i = 0; i < 1200; i++)
    ST_CHECK(ncclAllReduce(a, b, 64, ncclFloat32, ncclSum, t->comm, t->stream));
  return NULL;
}

/* A thread whose stream takes no more launches is stuck in its call; another one with its own communicator and
 * stream is not. Rank 1 never joins in the first. */
static void full_queue(struct st_rank *t) {
  pthread_t thread;
  alloc();
  if (t->rank != 1)
    ST_TRUE(pthread_create(&thread, NULL, fill_queue, t) == 0);
  for (int i = 0; i < 20; i++)
    ST_CHECK(ncclAllReduce(a, b, 64, ncclFloat32, ncclSum, t->other, t->side));
  ST_CHECK(cudaStreamSynchronize(t->side));
  if (t->rank != 1)
    ST_TRUE(pthread_join(thread, NULL) == 0);
}

/* Nothing connected yet. */
static void cold_comm(struct st_rank *t) {
  alloc();
  ST_CHECK(ncclCommInitRank(&t->comm, t->nranks, t->id, t->rank));
}

static void cold_count_0(struct st_rank *t) {
  cold_comm(t);
  allreduce(t, t->rank == 1 ? 0 : 1024);
}

static void cold_1(struct st_rank *t) {
  cold_comm(t);
  allreduce(t, t->rank == 1 ? 1 : 1024);
}

static void cold_comms(struct st_rank *t) {
  cold_comm(t);
  ST_CHECK(ncclCommInitRank(&t->other, t->nranks, t->second_id, t->rank));
  two_comms(t, t->side, false);
}

static void cold_send_first(struct st_rank *t) {
  cold_comm(t);
  send_first(t, 16);
}

/* Rank 0 waits for rank 1 in its first round, rank 1 for rank 0 in its second. */
static void cold_send_in_alltoall(struct st_rank *t) {
  cold_comm(t);
  send_in_alltoall(t);
}

/* Peers connect in rounds: rank 2 waits for rank 1 before it answers rank 0, whose message rank 1 awaits. */
static void cold_group_of_peers(struct st_rank *t) {
  cold_comm(t);
  ncclGroupStart();
  if (t->rank == 0) {
    ST_CHECK(ncclSend(a, 1024, F32, 1, t->comm, t->stream));
    ST_CHECK(ncclSend(a, 1024, F32, 2, t->comm, t->stream));
  } else {
    ST_CHECK(ncclRecv(b, 1024, F32, 0, t->comm, t->stream));
  }
  if (t->rank == 2)
    ST_CHECK(ncclRecv(b, 1024, F32, 1, t->comm, t->stream));
  ST_CHECK(ncclGroupEnd());
  ST_CHECK(cudaStreamSynchronize(t->stream));
  if (t->rank == 1)
    ST_CHECK(ncclSend(a, 1024, F32, 2, t->comm, t->stream));
}

static void init_missing(struct st_rank *t) {
  if (t->rank != 1)
    ST_CHECK(ncclCommInitRank(&t->comm, t->nranks, t->id, t->rank));
}

static void init_size(struct st_rank *t) {
  int n = t->rank == 1 ? t->nranks + 1 : t->nranks;
  ST_CHECK(ncclCommInitRank(&t->comm, n, t->id, t->rank));
}

static void init_duplicate(struct st_rank *t) {
  ST_CHECK(ncclCommInitRank(&t->comm, t->nranks, t->id, t->rank == 1 ? 0 : t->rank));
}

/* A fault of transport on rank 1: the data are there, and its operation does not end. */
static void stall_of_one(struct st_rank *t) {
  if (t->rank == 1)
    setenv("NTSIM_STALL", "2", 1);
  cold_comm(t);
  allreduce(t, 1024);
  allreduce(t, 1024);
}

static void stall_in_a_launch(struct st_rank *t) {
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  stall_of_one(t);
}

static void split_missing(struct st_rank *t) {
  ncclComm_t part;
  if (t->rank != 1)
    ST_CHECK(ncclCommSplit(t->comm, 0, 0, &part, NULL));
}

const struct st_case st_hang_cases[] = {
    {"allreduce-512", 3, "HHH", ar_512, false},
    {"allreduce-2048", 3, "HHH", ar_2048, false},
    {"allreduce-4096-of-8", 8, "HHHHHHHH", ar_4096, false},
    {"allreduce-2048-of-2", 2, "HH", ar_2048, false},
    {"allreduce-1", 3, "HHH", ar_1, false},
    {"allreduce-0", 3, "HDH", ar_0, false},
    {"allreduce-5-of-4", 5, "DHDDD", ar_5_4, false},
    {"allreduce-f16", 3, "HHH", ar_dtype, false},
    {"allreduce-1m-2m", 3, "DDD", ar_1m_2m, false},
    {"allreduce-1m-2m-of-2", 2, "DD", ar_1m_2m, false},
    {"allreduce-same-bytes", 3, "DDD", ar_same_bytes, false},
    {"allreduce-other-op", 3, "DDD", ar_op, false},
    {"other-root-2", 2, "DD", roots, false},
    {"other-root-3", 3, "DDD", roots, false},
    {"other-root-5", 5, "DDDDD", roots, false},
    {"many-roots", 4, "DDDD", many_roots, false},
    {"broadcast-instead", 3, "HHH", bc_instead, false},
    {"allgather-instead", 3, "HHH", ag_instead, false},
    {"reducescatter-instead", 3, "HHH", rs_instead, false},
    {"swapped-512-65536", 3, "HHH", swap_512_64k, false},
    {"swapped-equal", 3, "HHH", swap_equal, false},
    {"swapped-by-the-last", 4, "HHHH", swap_last, false},
    {"allgather-smaller", 4, "HDHH", ag_smaller, false},
    {"send-3-recv-5", 2, "DD", send_3_5, false},
    {"send-5-recv-3", 2, "DU", send_5_3, false},
    {"send-1m-recv-2m", 2, "DH", send_1m_2m, false},
    {"send-2m-recv-1m", 2, "DD", send_2m_1m, false},
    {"send-first-16", 3, "DDD", send_first_16, false},
    {"send-first-16m", 3, "HHH", send_first_16m, false},
    {"group-swapped", 3, "DDD", group_swapped, false},
    {"comms-one-stream", 3, "HHH", comms_one_stream, false},
    {"comms-two-streams", 3, "DDD", comms_two_streams, false},
    {"comms-in-a-group", 3, "DDD", comms_group, false},
    {"send-in-alltoall", 3, "DDH", send_in_alltoall, false},
    {"skip-and-exit", 3, "HXR", skip_and_exit, false},
    {"skip-and-destroy", 3, "HDH", skip_and_destroy, false},
    {"broadcast-root-first", 3, "DDD", early_finish, false},
    {"reduce-leaf-first", 3, "HDD", reduce_leaf, false},
    {"abort-ends-hang", 3, "DDD", abort_ends, false},
    {"exit-hung", 3, "XXX", exit_hung, false},
    {"finalize-missing", 3, "CDC", finalize_missing, false},
    {"gpu-spin", 3, "HHH", gpu_spin, false},
    {"graph-extra-replay", 3, "DHD", graph_extra, false},
    {"graph-other", 2, "HH", graph_other, false},
    {"graph-behind-other-work", 3, "HHH", graph_behind, false},
    {"full-queue-of-one-thread", 3, "CDC", full_queue, false},
    {"stall-of-one", 3, "DHD", stall_of_one, true},
    {"stall-in-a-launch", 3, "DCD", stall_in_a_launch, true},
    {"cold-count-0", 3, "CDC", cold_count_0, true},
    {"cold-1", 3, "CCC", cold_1, true},
    {"cold-comms-crossed", 3, "CCC", cold_comms, true},
    {"cold-send-first", 3, "CCC", cold_send_first, true},
    {"cold-send-in-alltoall", 3, "CCC", cold_send_in_alltoall, true},
    {"cold-group-of-peers", 3, "CCC", cold_group_of_peers, true},
    {"init-missing", 3, "CDC", init_missing, true},
    {"init-size", 3, "CCC", init_size, true},
    {"init-duplicate", 3, "CCC", init_duplicate, true},
    {"split-missing", 3, "CDC", split_missing, false},
    {NULL, 0, NULL, NULL, false},
};
