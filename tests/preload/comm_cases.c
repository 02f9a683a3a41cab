/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How communicators come and go: programs that tests/cli/communicators.sh runs traced, on the simulator.
 *
 *     comm_cases CASE
 *
 * A case has one process or several, forked before the first communicator; with LAUNCHED=1 each gets rank and size of
 * a launcher, one process a rank. A process may hold several ranks, one a device. Cases that hang do so until
 * they are killed.
 */
#include "comm_cases.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
  pthread_barrier_t all;
  ncclUniqueId id[IDS];
  atomic_int known[IDS];
} * shared;

int proc, procs;

void check(int failed, const char *what) {
  if (!failed)
    return;
  printf("unexpected in process %d: %s: %d\n", proc, what, failed);
  fflush(stdout);
  _exit(99);
}

void meet(void) {
  pthread_barrier_wait(&shared->all);
}

void give_id(int which, const ncclUniqueId *id) {
  shared->id[which] = *id;
  atomic_store(&shared->known[which], 1);
}

ncclUniqueId same_id(int which) {
  if (proc == 0 && !atomic_load(&shared->known[which])) {
    ncclUniqueId id;
    check(ncclGetUniqueId(&id), "id");
    give_id(which, &id);
  }
  while (!atomic_load(&shared->known[which]))
    sched_yield();
  return shared->id[which];
}

void stay(void) {
  for (;;)
    pause();
}

ncclComm_t init_rank(int which, int nranks, int rank) {
  ncclComm_t comm;
  check(ncclCommInitRank(&comm, nranks, same_id(which), rank), "init");
  return comm;
}

static pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  cudaStream_t stream;
  float *buffer;
} devices[DEVICES];

static void prepare(int device) {
  check(cudaSetDevice(device), "device");
  pthread_mutex_lock(&device_lock);
  if (!devices[device].buffer) {
    check(cudaStreamCreate(&devices[device].stream), "stream");
    check(cudaMalloc((void **)&devices[device].buffer, 2 * COUNT * sizeof(float)), "memory");
  }
  pthread_mutex_unlock(&device_lock);
}

cudaStream_t stream_of(int device) {
  prepare(device);
  return devices[device].stream;
}

float *buffer_of(int device) {
  prepare(device);
  return devices[device].buffer;
}

void allreduce(ncclComm_t comm, int device) {
  float *buffer = buffer_of(device);
  ncclResult_t result =
      ncclAllReduce(buffer, buffer + COUNT, COUNT, ncclFloat, ncclSum, comm, stream_of(device));
  check(result != ncclInProgress ? (int)result : 0, "allreduce");
}

ncclComm_t alone(void) {
  ncclUniqueId id;
  ncclComm_t comm;
  check(ncclGetUniqueId(&id), "id");
  check(ncclCommInitRank(&comm, 1, id, 0), "init");
  return comm;
}

void wait_for(int device) {
  check(cudaStreamSynchronize(stream_of(device)), "sync");
}

ncclConfig_t named(const char *name, int blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = name;
  config.blocking = blocking;
  return config;
}

ncclResult_t poll_done(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    check(ncclCommGetAsyncError(comm, &state), "state");
    usleep(1000);
  }
  return state;
}

void in_threads(int count, void *(*fn)(void *)) {
  pthread_t threads[64];
  for (int i = 0; i < count; i++)
    check(pthread_create(&threads[i], NULL, fn, (void *)(size_t)i), "thread");
  for (int i = 0; i < count; i++)
    check(pthread_join(threads[i], NULL), "join");
}

static const struct comm_case *find(const char *name) {
  const struct comm_case *tables[] = {comm_call_cases, comm_device_cases, comm_derived_cases};
  for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
    for (const struct comm_case *c = tables[i]; c->name; c++)
      if (strcmp(c->name, name) == 0)
        return c;
  return NULL;
}

static void as_process(const struct comm_case *c, int number) {
  char text[16];
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  proc = number;
  const char *launched = getenv("LAUNCHED");
  if (launched && *launched == '1') {
    snprintf(text, sizeof(text), "%d", number);
    setenv("RANK", text, 1);
    snprintf(text, sizeof(text), "%d", c->procs);
    setenv("WORLD_SIZE", text, 1);
    setenv("TORCHELASTIC_RUN_ID", c->name, 1);
  }
  c->run();
  exit(0);
}

int main(int argc, char **argv) {
  const struct comm_case *c = argc == 2 ? find(argv[1]) : NULL;
  int status, failed = 0;
  if (!c) {
    fprintf(stderr, "usage: comm_cases CASE\n");
    return 2;
  }
  procs = c->procs;
  shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pthread_barrierattr_t attr;
  pthread_barrierattr_init(&attr);
  pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->all, &attr, (unsigned)c->procs);
  for (int i = 0; i < c->procs; i++)
    if (fork() == 0)
      as_process(c, i);
  while (wait(&status) > 0)
    failed |= status;
  return failed ? 1 : 0;
}
