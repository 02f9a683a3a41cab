/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows, device communicators and one-sided operations, for tests/cli/one_sided.sh: `rma_cases CASE RANK SIZE FILE` is
 * one rank, FILE is where rank 0 leaves the unique id. On the simulator. A rank that is to stand still does so for ever.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_runtime.h"
#include "nccl.h"

enum { COUNT = 4096, ROUNDS = 4 };

static int rank, size;
static ncclComm_t comm;
static cudaStream_t stream;
static ncclWindow_t window;
static int *memory; /* of the window */

static void check(int failed, const char *what) {
  if (!failed)
    return;
  printf("unexpected: rank %d: %s: %d\n", rank, what, failed);
  fflush(stdout);
  _exit(99);
}

static void stand_still(void) {
  for (;;)
    pause();
}

static void exchange_id(ncclUniqueId *id, const char *file) {
  char name[4096];
  FILE *from = NULL;
  snprintf(name, sizeof name, "%s.new", file);
  if (rank == 0) {
    check(ncclGetUniqueId(id), "ncclGetUniqueId");
    FILE *to = fopen(name, "w");
    check(!to || fwrite(id, sizeof *id, 1, to) != 1 || fclose(to) || rename(name, file), "id");
    return;
  }
  while (!(from = fopen(file, "r")))
    usleep(1000);
  check(fread(id, sizeof *id, 1, from) != 1, "id");
  fclose(from);
}

static void make_window(void) {
  check(ncclMemAlloc((void **)&memory, COUNT * sizeof *memory), "memory");
  check(ncclCommWindowRegister(comm, memory, COUNT * sizeof *memory, &window,
                               NCCL_WIN_COLL_SYMMETRIC),
        "window");
}

static void finish(void) {
  check(cudaStreamSynchronize(stream), "sync");
}

static void wait_for(int peer, int count, int signal) {
  ncclWaitSignalDesc_t wait = {.opCnt = count, .peer = peer, .sigIdx = signal};
  check(ncclWaitSignal(1, &wait, comm, stream), "wait");
}

/* Each puts a number into the window of the next, which may be a round behind. */
static void put_ring(int value) {
  static int from;
  from = value * 100 + rank;
  check(ncclPutSignal(&from, 1, ncclInt, (rank + 1) % size, window, (size_t)value * sizeof(int), 0,
                      0, 0, comm, stream),
        "put");
  wait_for((rank + size - 1) % size, 1, 0);
  finish();
  check(memory[value] != value * 100 + (rank + size - 1) % size, "what was put");
}

static void put_to_all(void) {
  static int from[64];
  ncclWaitSignalDesc_t waits[64];
  check(ncclGroupStart(), "group");
  for (int r = 0; r < size; r++) {
    from[r] = 7000 + rank;
    waits[r] = (ncclWaitSignalDesc_t){.opCnt = 1, .peer = r, .sigIdx = 1, .ctx = 1};
    check(ncclPutSignal(&from[r], 1, ncclInt, r, window, (size_t)(16 + rank) * sizeof(int), 1, 1, 0,
                        comm, stream),
          "put");
  }
  check(ncclGroupEnd(), "group");
  check(ncclWaitSignal(size, waits, comm, stream), "wait");
  finish();
  for (int r = 0; r < size; r++)
    check(memory[16 + r] != 7000 + r, "what was put");
}

static void replay_signals(void) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin");
  check(ncclSignal((rank + 1) % size, 2, 0, 0, comm, stream), "signal");
  check(ncclSignal((rank + 1) % size, 2, 0, 0, comm, stream), "signal");
  wait_for((rank + size - 1) % size, 2, 2);
  check(cudaStreamEndCapture(stream, &graph), "end");
  check(cudaGraphInstantiateWithFlags(&exec, graph, 0), "instantiate");
  for (int i = 0; i < ROUNDS; i++)
    check(cudaGraphLaunch(exec, stream), "launch");
  check(ncclSignal((rank + 1) % size, 2, 0, 0, comm, stream), "signal");
  wait_for((rank + size - 1) % size, 1, 2);
  finish();
  check(cudaGraphExecDestroy(exec), "destroy");
  check(cudaGraphDestroy(graph), "destroy");
}

static void device_comm(void) {
  ncclDevCommRequirements_t needs = {sizeof needs};
  ncclDevComm_t made;
  check(ncclDevCommCreate(comm, &needs, &made), "device communicator");
  check(made.rank != rank, "its rank");
  check(ncclDevCommDestroy(comm, &made), "destroy");
}

static void healthy(void) {
  make_window();
  for (int i = 1; i <= ROUNDS; i++)
    put_ring(i);
  put_to_all();
  replay_signals();
  device_comm();
  check(ncclCommWindowDeregister(comm, window), "deregister");
  check(memory[16] != 7000, "what the window held");
  check(ncclMemFree(memory), "free");
}

static void window_missing(void) {
  make_window();
  if (rank == 1)
    stand_still();
  make_window();
}

static void window_missing_in_a_group(void) {
  if (rank == 1)
    stand_still();
  check(ncclGroupStart(), "group");
  make_window();
  check(ncclGroupEnd(), "group");
}

static void device_comm_missing(void) {
  device_comm();
  if (rank == 2)
    stand_still();
  device_comm();
}

static void signal_missing(void) {
  for (int i = 1; i <= ROUNDS; i++) {
    if (rank == 1 && i == ROUNDS)
      stand_still();
    check(ncclSignal((rank + 1) % size, 0, 0, 0, comm, stream), "signal");
    wait_for((rank + size - 1) % size, 1, 0);
    finish();
  }
}

/* As many signals as are waited for, but one of another kind. */
static void other_signal(void) {
  if (rank == 1) {
    check(ncclSignal(0, 0, 0, 0, comm, stream), "signal");
    check(ncclSignal(0, 1, 0, 0, comm, stream), "signal");
  }
  if (rank == 0)
    wait_for(1, 2, 0);
  finish();
  if (rank)
    stand_still();
}

static void replay_missing(void) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin");
  check(ncclSignal((rank + 1) % size, 0, 0, 0, comm, stream), "signal");
  wait_for((rank + size - 1) % size, 1, 0);
  check(cudaStreamEndCapture(stream, &graph), "end");
  check(cudaGraphInstantiateWithFlags(&exec, graph, 0), "instantiate");
  for (int i = 1; i <= ROUNDS; i++) {
    if (rank == 1 && i == ROUNDS)
      stand_still();
    check(cudaGraphLaunch(exec, stream), "launch");
    finish();
  }
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void wait_at_gate(void *unused) {
  (void)unused;
  pthread_mutex_lock(&gate);
}

static void put_behind_other_work(void) {
  make_window();
  put_ring(1);
  pthread_mutex_lock(&gate);
  if (rank == 1)
    check(cudaLaunchHostFunc(stream, wait_at_gate, NULL), "host function");
  put_ring(2);
}

static void leave_before_the_signal(void) {
  if (rank == 1)
    exit(0);
  check(ncclSignal((rank + 1) % size, 0, 0, 0, comm, stream), "signal");
  wait_for((rank + size - 1) % size, 1, 0);
  finish();
  stand_still();
}

static const struct {
  const char *name;
  void (*run)(void);
} cases[] = {{"healthy", healthy},
             {"window", window_missing},
             {"group", window_missing_in_a_group},
             {"device", device_comm_missing},
             {"signal", signal_missing},
             {"other", other_signal},
             {"replay", replay_missing},
             {"behind", put_behind_other_work},
             {"left", leave_before_the_signal}};

int main(int argc, char **argv) {
  ncclUniqueId id;
  if (argc != 5)
    return 2;
  rank = atoi(argv[2]);
  size = atoi(argv[3]);
  exchange_id(&id, argv[4]);
  check(ncclCommInitRank(&comm, size, id, rank), "ncclCommInitRank");
  check(cudaStreamCreate(&stream), "stream");
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run();
      finish();
      check(ncclCommDestroy(comm), "destroy");
      return 0;
    }
  return 2;
}
