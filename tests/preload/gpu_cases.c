/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs whose GPU progress tests/cli/gpu_progress.sh looks at, one per sub-command, on the simulator.
 *
 * Where the script is to look at a moment, the program says so with a line and goes on when it gets one.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"

enum { COUNT = 1024 };

static void allreduce(ncclComm_t comm, cudaStream_t stream) {
  check(ncclAllReduce(buffer, buffer + COUNT, COUNT, ncclFloat, ncclSum, comm, stream),
        "allreduce");
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

/* Work of the application that lasts until the gate opens. */
static void wait_at_gate(void *unused) {
  (void)unused;
  pthread_mutex_lock(&gate);
  pthread_mutex_unlock(&gate);
}

/* NCCL runs the calls of one communicator one after the other, on whatever streams they are. */
static int streams(void) {
  ncclComm_t first = one_rank(), second = one_rank();
  cudaStream_t a, b;
  check(cudaStreamCreate(&a), "stream");
  check(cudaStreamCreate(&b), "stream");
  for (int i = 0; i < 3; i++) {
    allreduce(first, a);
    allreduce(second, b);
  }
  allreduce(second, b);
  /* Behind work that does not end: the next on b is not reached, what is on a goes on. */
  pthread_mutex_lock(&gate);
  check(cudaLaunchHostFunc(b, wait_at_gate, NULL), "host function");
  allreduce(second, b);
  allreduce(first, a);
  check(cudaStreamSynchronize(a), "sync");
  pause_for_script("blocked");
  pthread_mutex_unlock(&gate);
  check(cudaStreamSynchronize(b), "sync");
  return 0;
}

/* More than has marks at a time, behind work that does not end and, later, behind nothing. */
static int crowd(void) {
  ncclComm_t comm = one_rank();
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");
  pthread_mutex_lock(&gate);
  check(cudaLaunchHostFunc(stream, wait_at_gate, NULL), "host function");
  for (int i = 0; i < 300; i++)
    allreduce(comm, stream);
  pause_for_script("blocked");
  pthread_mutex_unlock(&gate);
  check(cudaStreamSynchronize(stream), "sync");
  pause_for_script("done");
  allreduce(comm, stream);
  check(cudaStreamSynchronize(stream), "sync");
  return 0;
}

static int devices(void) {
  enum { DEVICES = 2 };
  ncclComm_t comms[DEVICES];
  cudaStream_t on[DEVICES];
  float *buffers[DEVICES];
  check(ncclCommInitAll(comms, DEVICES, NULL), "ncclCommInitAll");
  for (int i = 0; i < DEVICES; i++) {
    check(cudaSetDevice(i), "device");
    check(cudaStreamCreate(&on[i]), "stream");
    check(cudaMalloc((void **)&buffers[i], 2 * COUNT * sizeof(float)), "cudaMalloc");
  }
  for (int k = 0; k < 5; k++) {
    check(ncclGroupStart(), "start");
    for (int i = 0; i < DEVICES; i++) {
      check(cudaSetDevice(i), "device");
      check(ncclAllReduce(buffers[i], buffers[i], COUNT, ncclFloat, ncclSum, comms[i], on[i]),
            "call");
      check(ncclAllReduce(buffers[i], buffers[i], COUNT, ncclFloat, ncclSum, comms[i], on[i]),
            "call");
    }
    check(ncclGroupEnd(), "end");
  }
  for (int i = 0; i < DEVICES; i++) {
    check(cudaSetDevice(i), "device");
    check(cudaStreamSynchronize(on[i]), "sync");
  }
  return 0;
}

static void to_itself(ncclComm_t comm, cudaStream_t stream) {
  check(ncclGroupStart(), "start");
  check(ncclSend(buffer, 8, ncclFloat, 0, comm, stream), "send");
  check(ncclRecv(buffer + COUNT, 8, ncclFloat, 0, comm, stream), "receive");
  check(ncclGroupEnd(), "end");
}

static int captures(void) {
  ncclComm_t comm = one_rank(), another = one_rank();
  cudaStream_t stream, other;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamCreate(&stream), "stream");
  check(cudaStreamCreate(&other), "stream");
  allreduce(comm, stream);
  to_itself(comm, stream);
  /* Something outstanding, so that the gpu thread asks all the time while the capture goes on. */
  pthread_mutex_lock(&gate);
  check(cudaLaunchHostFunc(other, wait_at_gate, NULL), "host function");
  allreduce(another, other);
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin");
  check(ncclGroupStart(), "start");
  allreduce(comm, stream);
  allreduce(comm, stream);
  check(ncclGroupEnd(), "end");
  allreduce(comm, stream);
  to_itself(comm, stream);
  pause_for_script("capturing");
  check(cudaStreamEndCapture(stream, &graph), "end");
  pthread_mutex_unlock(&gate);
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  check(cudaGraphDestroy(graph), "destroy");
  for (int i = 0; i < 3; i++)
    check(cudaGraphLaunch(exec, stream), "launch");
  /* A graph without NCCL, most likely at the address of the one that is gone. */
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin");
  check(cudaStreamEndCapture(stream, &graph), "end");
  check(cudaGraphInstantiateWithFlags(&exec, graph, 0), "instantiate");
  check(cudaGraphLaunch(exec, stream), "launch");
  allreduce(comm, stream);
  to_itself(comm, stream);
  check(cudaStreamSynchronize(stream), "sync");
  check(cudaStreamSynchronize(other), "sync");
  puts("captured");
  return 0;
}

static int errors(void) {
  ncclComm_t comm = one_rank();
  cudaStream_t stream;
  void (*illegal_access)(cudaStream_t);
  check(cudaStreamCreate(&stream), "stream");
  allreduce(comm, stream);
  check(cudaStreamSynchronize(stream), "sync");
  /* An error of the application's own stays its own whatever we ask meanwhile. */
  int wanted = (int)cudaSetDevice(99);
  allreduce(comm, stream);
  pause_for_script("failed");
  printf("last error %s\n", (int)cudaGetLastError() == wanted && wanted ? "kept" : "lost");
  *(void **)&illegal_access = dlsym(RTLD_DEFAULT, "ntsim_illegal_access");
  check(!illegal_access, "ntsim_illegal_access");
  pthread_mutex_lock(&gate);
  check(cudaLaunchHostFunc(stream, wait_at_gate, NULL), "host function");
  allreduce(comm, stream);
  illegal_access(stream);
  pthread_mutex_unlock(&gate);
  pause_for_script("faulty");
  printf("sync says %d\n", (int)cudaStreamSynchronize(stream));
  return 0;
}

/* In torch_calls.c. */
int torch_allreduce(float *data, size_t count, ncclComm_t comm, cudaEvent_t event,
                    cudaStream_t computing, cudaStream_t stream);

/* The gate is shut while the script looks, and `held` is behind it; then everything on `stream` is waited for. */
static void look(const char *what, cudaStream_t held, cudaStream_t stream,
                 void (*launch)(cudaStream_t)) {
  pthread_mutex_lock(&gate);
  check(cudaLaunchHostFunc(held, wait_at_gate, NULL), "host function");
  launch(stream);
  pause_for_script(what);
  pthread_mutex_unlock(&gate);
  check(cudaStreamSynchronize(stream), "sync");
}

static ncclComm_t torch_comm;
static cudaStream_t computing;
static cudaEvent_t computed;

static void by_torch(cudaStream_t stream) {
  check(torch_allreduce(buffer, COUNT, torch_comm, computed, computing, stream), "allreduce");
}

static void by_another(cudaStream_t stream) {
  check(cudaEventRecord(computed, computing), "event");
  check(cudaStreamWaitEvent(stream, computed, 0), "wait");
  allreduce(torch_comm, stream);
}

/* A mark on the launch's own stream is not passed while that stream is held; one on the stream that it waits for is. */
static int torch(void) {
  cudaStream_t streams[3];
  torch_comm = one_rank();
  check(cudaStreamCreate(&computing), "stream");
  check(cudaEventCreateWithFlags(&computed, cudaEventDisableTiming), "event");
  for (int i = 0; i < 3; i++)
    check(cudaStreamCreate(&streams[i]), "stream");
  look("computing", computing, streams[0], by_torch);
  look("first", streams[1], streams[1], by_torch);
  for (int i = 1; i < 64; i++)
    by_torch(streams[1]);
  look("later", streams[1], streams[1], by_torch);
  look("another", streams[2], streams[2], by_another);
  return 0;
}

static const struct named_case cases[] = {{"streams", streams}, {"crowd", crowd},
                                          {"devices", devices}, {"captures", captures},
                                          {"errors", errors},   {"torch", torch}};

int main(int argc, char **argv) {
  return RUN_CASE(cases, argc == 2 ? argv[1] : NULL);
}
