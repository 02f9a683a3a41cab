/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs whose fate tests/cli/fate.sh looks at, on the simulator: how a process ends or does not, and what goes on
 * while the thread that polls the GPU is stuck in the driver.
 *
 *     fate_cases alone HOW               one rank
 *     fate_cases pair HOW RANK ID_FILE   two ranks; both make three calls before HOW
 *
 * Where the script is to look or act, the program says so with a line and goes on when it gets one.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cases.h"

enum { COUNT = 1024, CALLS = 3 };

static char *program;

static ncclComm_t join(int rank, int size, const ncclUniqueId *id) {
  ncclComm_t comm;
  check(ncclCommInitRank(&comm, size, *id, rank), "ncclCommInitRank");
  if (!buffer)
    check(cudaMalloc((void **)&buffer, BUFFER_FLOATS * sizeof *buffer), "cudaMalloc");
  return comm;
}

static void allreduce(ncclComm_t comm, cudaStream_t stream) {
  check(ncclAllReduce(buffer, buffer + COUNT, COUNT, ncclFloat, ncclSum, comm, stream),
        "allreduce");
}

/* ---- a driver that a stuck call holds: NTSIM_DRIVER_LOCK=1 -------------------------------------- */

static void never_ends(void *unused) {
  (void)unused;
  for (;;)
    pause();
}

static void *free_memory(void *memory) {
  cudaFree(memory);
  return NULL;
}

/* Work that never ends is in front of an operation, and a thread waits for it with the driver's lock held. */
static ncclComm_t block_driver(void) {
  ncclComm_t comm = one_rank();
  cudaStream_t stream;
  pthread_t thread;
  void *memory;
  check(cudaMalloc(&memory, 64), "cudaMalloc");
  check(cudaStreamCreate(&stream), "stream");
  check(cudaLaunchHostFunc(stream, never_ends, NULL), "host function");
  allreduce(comm, stream);
  check(pthread_create(&thread, NULL, free_memory, memory), "create");
  pause_for_script("stuck");
  return comm;
}

static int blocked(void) {
  ncclComm_t comm = block_driver(), other = one_rank();
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");
  for (int i = 0; i < 100; i++)
    allreduce(other, stream);
  pause_for_script("called");
  check(ncclCommAbort(comm), "abort");
  pause_for_script("aborted");
  return 0;
}

/* ---- ways to end ------------------------------------------------------------------------------------ */

static void for_ever(void) {
  for (;;)
    pause();
}

/* A handler that the application registers after the first communicator runs before all others. */
static int in_handler(void) {
  ncclComm_t comm = one_rank();
  allreduce(comm, NULL);
  check(cudaStreamSynchronize(NULL), "sync");
  atexit(for_ever);
  exit(3);
}

static int parts(void) {
  ncclComm_t comm = one_rank();
  allreduce(comm, NULL);
  check(cudaStreamSynchronize(NULL), "sync");
  check(ncclCommDestroy(comm), "destroy");
  for_ever();
  return 0;
}

/* Itself again, in the same process: what frameworks do that restart a worker in place. */
static int again(void) {
  ncclComm_t comm = one_rank();
  allreduce(comm, NULL);
  allreduce(comm, NULL);
  check(cudaStreamSynchronize(NULL), "sync");
  pause_for_script("first");
  execl(program, program, "alone", "stays", (char *)NULL);
  return 99;
}

static int stays(void) {
  ncclComm_t comm = one_rank();
  allreduce(comm, NULL);
  check(cudaStreamSynchronize(NULL), "sync");
  pause_for_script("stays");
  return 0;
}

/* So much memory that the kernel takes a while to take it down. */
static int large(void) {
  const size_t size = (size_t)2 << 30;
  one_rank();
  char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(memory == MAP_FAILED, "mmap");
  madvise(memory, size, MADV_NOHUGEPAGE);
  for (size_t at = 0; at < size; at += 4096)
    memory[at] = 1;
  pause_for_script("large");
  return 0;
}

static int main_thread_ends(void) {
  pthread_t thread;
  ncclComm_t comm = one_rank();
  allreduce(comm, NULL);
  check(pthread_create(&thread, NULL, (void *(*)(void *))(void *)for_ever, NULL), "create");
  pthread_exit(NULL);
}

/* ---- two ranks ------------------------------------------------------------------------------------------ */

/* The unique id travels through a file. */
static ncclUniqueId exchange_id(int rank, const char *path) {
  ncclUniqueId id;
  char temporary[4096];
  FILE *file;
  if (rank == 0) {
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    snprintf(temporary, sizeof temporary, "%s.new", path);
    file = fopen(temporary, "w");
    check(!file || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) != 0, "write");
    check(rename(temporary, path), "rename");
    return id;
  }
  while (!(file = fopen(path, "r")))
    usleep(10000);
  check(fread(&id, sizeof id, 1, file) != 1, "read");
  fclose(file);
  return id;
}

/* Takes memory without end once there is a file PATH.hoard. */
static void hoard(const char *path) {
  enum { STEP = 1 << 20, STEPS = 4096 };
  char order[4096];
  snprintf(order, sizeof order, "%s.hoard", path);
  while (access(order, F_OK) != 0)
    usleep(10000);
  for (int i = 0; i < STEPS; i++) {
    char *memory = malloc(STEP);
    check(!memory, "malloc");
    memset(memory, 1, STEP);
  }
}

static int pair(const char *how, int rank, const char *path) {
  ncclUniqueId id = exchange_id(rank, path);
  ncclComm_t comm = join(rank, 2, &id);
  for (int i = 0; i < CALLS; i++) {
    allreduce(comm, NULL);
    check(cudaStreamSynchronize(NULL), "sync");
  }
  if (!strcmp(how, "hoards"))
    hoard(path);
  allreduce(comm, NULL);
  check(cudaStreamSynchronize(NULL), "sync");
  return 0;
}

static const struct named_case cases[] = {
    {"blocked", blocked}, {"handler", in_handler},         {"parts", parts}, {"again", again},
    {"stays", stays},     {"main-ends", main_thread_ends}, {"large", large}};

int main(int argc, char **argv) {
  program = argv[0];
  if (argc == 5 && strcmp(argv[1], "pair") == 0)
    return pair(argv[2], atoi(argv[3]), argv[4]);
  return RUN_CASE(cases, argc == 3 ? argv[2] : NULL);
}
