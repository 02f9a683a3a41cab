/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A C program in the manner of NVIDIA's nccl-tests: each process has one or more GPUs, all communicators of a process
 * are made in one group, each operation is issued for all of its GPUs in a group and timed by events. What it does is
 * what job.py does.
 *
 *     perf PROCESS PROCESSES GPUS DEVICE MEET [CULPRIT]
 *
 * GPUS ranks in each of PROCESSES processes, on devices from DEVICE on; MEET is a directory that all share. Rank CULPRIT
 * leaves out one step.
 */
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEPS = 10, FAULT_STEP = 6, MOST_GPUS = 8, MOST_FLOATS = 2048 };

#define CUDA(call) check(#call, (call) == cudaSuccess)
#define NCCL(call) check(#call, (call) == ncclSuccess)

struct gpu {
  int device, rank;
  ncclComm_t comm;
  cudaStream_t stream;
  cudaEvent_t begin, end;
  float *given, *taken;
};

static struct gpu gpus[MOST_GPUS];
static int gpu_count, rank_count;

#define EACH(g) for (struct gpu *g = gpus; g < gpus + gpu_count; g++)

static void check(const char *what, int good) {
  if (good)
    return;
  fprintf(stderr, "%s failed\n", what);
  exit(1);
}

static ncclUniqueId exchange_id(int process, const char *directory) {
  ncclUniqueId id;
  char path[4096], temporary[4104];
  FILE *file = NULL;
  snprintf(path, sizeof path, "%s/unique_id", directory);
  snprintf(temporary, sizeof temporary, "%s.new", path);
  if (process == 0) {
    NCCL(ncclGetUniqueId(&id));
    file = fopen(temporary, "w");
    check(temporary, file && fwrite(&id, sizeof id, 1, file) == 1 && fclose(file) == 0);
    check(path, rename(temporary, path) == 0);
    return id;
  }
  while (!(file = fopen(path, "r")))
    usleep(10000);
  check(path, fread(&id, sizeof id, 1, file) == 1);
  fclose(file);
  return id;
}

static void set_up(int process, int device, const char *directory) {
  const ncclUniqueId id = exchange_id(process, directory);
  EACH(g) {
    g->device = device + (int)(g - gpus);
    g->rank = process * gpu_count + (int)(g - gpus);
    CUDA(cudaSetDevice(g->device));
    CUDA(cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&g->begin));
    CUDA(cudaEventCreate(&g->end));
    CUDA(cudaMalloc((void **)&g->given, MOST_FLOATS * sizeof(float)));
    CUDA(cudaMalloc((void **)&g->taken, MOST_FLOATS * sizeof(float)));
  }
  NCCL(ncclGroupStart());
  EACH(g) {
    CUDA(cudaSetDevice(g->device));
    NCCL(ncclCommInitRank(&g->comm, rank_count, id, g->rank));
  }
  NCCL(ncclGroupEnd());
}

static void fill(const struct gpu *g, size_t count) {
  float host[MOST_FLOATS];
  for (size_t i = 0; i < count; i++)
    host[i] = (float)g->rank + 1;
  CUDA(cudaMemcpy(g->given, host, count * sizeof(float), cudaMemcpyHostToDevice));
}

static void expect(const char *what, const float *device, size_t count, float wanted) {
  float host[MOST_FLOATS];
  CUDA(cudaMemcpy(host, device, count * sizeof(float), cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < count; i++)
    check(what, host[i] == wanted);
}

/* Waits for what stands between the events of all GPUs. */
static void synchronize(void) {
  EACH(g) {
    float milliseconds;
    CUDA(cudaSetDevice(g->device));
    CUDA(cudaStreamSynchronize(g->stream));
    CUDA(cudaEventElapsedTime(&milliseconds, g->begin, g->end));
  }
}

#define TIMED(g, call)                                                                             \
  do {                                                                                             \
    CUDA(cudaSetDevice((g)->device));                                                              \
    NCCL(call);                                                                                    \
  } while (0)

static void record(int at_end) {
  EACH(g) {
    CUDA(cudaSetDevice(g->device));
    CUDA(cudaEventRecord(at_end ? g->end : g->begin, g->stream));
  }
}

static void step(int number, int culprit) {
  const size_t count = 1000 + (size_t)number;
  const float sum = (float)rank_count * (float)(rank_count + 1) / 2;
  EACH(g) fill(g, count);
  record(0);
  NCCL(ncclGroupStart());
  EACH(g) {
    if (g->rank != culprit || number != FAULT_STEP)
      TIMED(g, ncclAllReduce(g->given, g->taken, count, ncclFloat, ncclSum, g->comm, g->stream));
  }
  NCCL(ncclGroupEnd());
  record(1);
  synchronize();
  if (number != FAULT_STEP || culprit < 0)
    EACH(g) expect("all-reduce", g->taken, count, sum);
  record(0);
  NCCL(ncclGroupStart());
  EACH(g) {
    const int after = (g->rank + 1) % rank_count, before = (g->rank + rank_count - 1) % rank_count;
    TIMED(g, ncclSend(g->given, count, ncclFloat, after, g->comm, g->stream));
    TIMED(g, ncclRecv(g->taken, count, ncclFloat, before, g->comm, g->stream));
  }
  NCCL(ncclGroupEnd());
  record(1);
  synchronize();
  EACH(g) {
    expect("exchange", g->taken, count, (float)((g->rank + rank_count - 1) % rank_count + 1));
  }
}

static void last_calls(void) {
  const int root = rank_count > 1;
  EACH(g) fill(g, 8);
  NCCL(ncclGroupStart());
  EACH(g) TIMED(g, ncclBroadcast(g->given, g->given, 8, ncclFloat, root, g->comm, g->stream));
  NCCL(ncclGroupEnd());
  NCCL(ncclGroupStart());
  EACH(g) TIMED(g, ncclAllGather(g->given, g->taken, 8, ncclFloat, g->comm, g->stream));
  NCCL(ncclGroupEnd());
  synchronize();
  EACH(g) expect("all-gather", g->taken, 8 * (size_t)rank_count, (float)root + 1);
}

int main(int argc, char **argv) {
  if (argc < 6)
    return 2;
  const int process = atoi(argv[1]), culprit = argc > 6 ? atoi(argv[6]) : -1;
  gpu_count = atoi(argv[3]);
  rank_count = atoi(argv[2]) * gpu_count;
  check("GPUS", gpu_count > 0 && gpu_count <= MOST_GPUS && 8 * rank_count <= MOST_FLOATS);
  set_up(process, atoi(argv[4]), argv[5]);
  for (int number = 0; number < STEPS; number++) {
    if (gpu_count == 1 && gpus[0].rank == culprit && number == FAULT_STEP)
      continue;
    step(number, culprit);
  }
  last_calls();
  EACH(g) NCCL(ncclCommDestroy(g->comm));
  printf("the results are right\n");
  return 0;
}
