/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls for tests/cli/call_path.sh, which counts what the library executes and stores in them. They go to the NCCL of the
 * benchmarks and to their CUDA runtime, whose calls do nothing.
 *
 *   path_calls KIND COUNT              calls inside path_measured: allreduce; send, in groups of eight; depend, an event of
 *                                      NCCL's stream recorded and waited for, in turns; foreign, an event of another stream
 *   path_calls threads                 two threads on communicators of their own; prints where the marks are
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/nccl_types.h"

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
int cudaEventRecord(void *event, cudaStream_t stream);
int cudaStreamWaitEvent(cudaStream_t stream, void *event, unsigned flags);
void path_allreduces(ncclComm_t comm, int count);
void path_sends(ncclComm_t comm, int count);
void path_dependencies(ncclComm_t comm, int count);
void path_foreign(ncclComm_t comm, int count);
void path_measured(void (*calls)(ncclComm_t, int), ncclComm_t comm, int count);

enum { RANKS = 8 };
static char buffer[4096], stream[2], event[2]; /* the second ones are not NCCL's */

__attribute__((noinline)) void path_allreduces(ncclComm_t comm, int count) {
  for (int i = 0; i < count; i++)
    ncclAllReduce(buffer, buffer + 64 * (i % 64), 1024, ncclFloat32, ncclSum, comm,
                  (cudaStream_t)(void *)&stream[0]);
}

__attribute__((noinline)) void path_sends(ncclComm_t comm, int count) {
  for (int i = 0; i < count; i += RANKS) {
    ncclGroupStart();
    for (int peer = 0; peer < RANKS; peer++)
      ncclSend(buffer, 1024, ncclFloat32, peer, comm, NULL);
    ncclGroupEnd();
  }
}

__attribute__((noinline)) void path_dependencies(ncclComm_t comm, int count) {
  (void)comm;
  for (int i = 0; i < count; i += 2) {
    cudaEventRecord(&event[0], (cudaStream_t)(void *)&stream[0]);
    cudaStreamWaitEvent((cudaStream_t)(void *)&stream[1], &event[0], 0);
  }
}

__attribute__((noinline)) void path_foreign(ncclComm_t comm, int count) {
  (void)comm;
  for (int i = 0; i < count; i++)
    cudaEventRecord(&event[1], (cudaStream_t)(void *)&stream[1]);
}

/* What the counting tools collect. */
__attribute__((noinline)) void path_measured(void (*calls)(ncclComm_t, int), ncclComm_t comm,
                                             int count) {
  calls(comm, count);
  __asm__ volatile("" ::: "memory");
}

/* ---- windows: which lines does one call touch, and which of them two threads write ---------------- */

enum { THREADS = 2, WINDOWS = 5 };

/* A store to one of the first two begins a window of that thread, a store to the third ends it. */
static struct { _Alignas(64) volatile int word; } marks[THREADS + 1];
static ncclComm_t comms[THREADS];
static pthread_barrier_t turn;

/* Threads take turns, so that each window is one thread's. The first call is what registers a thread. */
static void *run_thread(void *word) {
  const int self = (int)(intptr_t)word;
  path_allreduces(comms[self], RANKS);
  for (int i = 0; i < THREADS * WINDOWS; i++) {
    pthread_barrier_wait(&turn);
    if (i % THREADS != self)
      continue;
    marks[self].word = 1;
    path_measured(path_allreduces, comms[self], 1);
    marks[THREADS].word = 1;
  }
  return NULL;
}

static int run_threads(void) {
  pthread_t threads[THREADS];
  printf("%p %p %p\n", (void *)&marks[0], (void *)&marks[1], (void *)&marks[THREADS]);
  pthread_barrier_init(&turn, NULL, THREADS);
  for (intptr_t i = 0; i < THREADS; i++)
    if (pthread_create(&threads[i], NULL, run_thread, (void *)i))
      return 1;
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  return 0;
}

static const struct {
  const char *name;
  void (*calls)(ncclComm_t, int);
} kinds[] = {{"allreduce", path_allreduces},
             {"send", path_sends},
             {"depend", path_dependencies},
             {"foreign", path_foreign}};

int main(int argc, char **argv) {
  for (int i = 0; i < THREADS; i++) {
    const ncclUniqueId id = {{(char)(i + 1)}};
    if (ncclCommInitRank(&comms[i], RANKS, id, i) != ncclSuccess)
      return 1;
  }
  if (argc == 2 && !strcmp(argv[1], "threads"))
    return run_threads();
  if (argc != 3)
    return 2;
  path_allreduces(comms[0], RANKS); /* the first stream is NCCL's */
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (strcmp(argv[1], kinds[i].name))
      continue;
    kinds[i].calls(comms[0],
                   RANKS); /* what is found out once: the communicator, the caller, the stream */
    path_measured(kinds[i].calls, comms[0], atoi(argv[2]));
    return 0;
  }
  return 2;
}
