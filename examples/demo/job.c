/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small data-parallel job with a mistake that real jobs make. Each process is one rank: for every
 * batch of its share of the data it sums the gradients over all ranks, and at the end of the epoch
 * all ranks gather their metrics.
 *
 * The data does not divide evenly: the share of rank 2 is one batch short, so that rank 2 skips the
 * 7th all-reduce and goes straight to the all-gather. The others wait for it in the all-reduce, and
 * it waits for them in the all-gather, for ever and without an error.
 *
 *     job RANK RANKS ID_FILE      rank 0 writes NCCL's unique id to ID_FILE, the others read it
 *
 * Nothing here knows that it is traced. It compiles against NCCL's and CUDA's own headers too.
 */
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define GRADIENTS (1 << 20)
#define METRICS 16
#define BATCHES 7

#define CUDA(call) check(#call, (call) == cudaSuccess, "CUDA error")
#define NCCL(call)                                                                                 \
  do {                                                                                             \
    ncclResult_t result_ = (call);                                                                 \
    check(#call, result_ == ncclSuccess, ncclGetErrorString(result_));                             \
  } while (0)

static int rank;

static void check(const char *what, int good, const char *why) {
  if (good)
    return;
  fprintf(stderr, "rank %d: %s: %s\n", rank, what, why);
  exit(1);
}

/* The unique id travels through a file, as it would through MPI or a key-value store. */
static ncclUniqueId exchange_id(const char *path) {
  ncclUniqueId id;
  char temporary[4096];
  FILE *file = NULL;
  if (rank == 0) {
    NCCL(ncclGetUniqueId(&id));
    snprintf(temporary, sizeof temporary, "%s.new", path);
    file = fopen(temporary, "w");
    check(temporary, file && fwrite(&id, sizeof id, 1, file) == 1 && fclose(file) == 0, "write");
    check(path, rename(temporary, path) == 0, "rename");
    return id;
  }
  while (!(file = fopen(path, "r")))
    usleep(10000);
  check(path, fread(&id, sizeof id, 1, file) == 1, "read");
  fclose(file);
  return id;
}

static int batches_of_this_rank(void) {
  return rank == 2 ? BATCHES - 1 : BATCHES; /* the mistake */
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: job RANK RANKS ID_FILE\n");
    return 2;
  }
  rank = atoi(argv[1]);
  int ranks = atoi(argv[2]);
  setvbuf(stdout, NULL, _IOLBF, 0);
  alarm(300); /* a demonstration must not run for ever, whatever happens to its parent */

  int devices = 0;
  cudaStream_t stream;
  float *gradients, *metrics;
  CUDA(cudaGetDeviceCount(&devices));
  check("cudaGetDeviceCount", devices > 0, "no GPU");
  CUDA(cudaSetDevice(rank % devices));
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA(cudaMalloc((void **)&gradients, GRADIENTS * sizeof *gradients));
  CUDA(cudaMalloc((void **)&metrics, (size_t)ranks * METRICS * sizeof *metrics));

  ncclComm_t comm;
  NCCL(ncclCommInitRank(&comm, ranks, exchange_id(argv[3]), rank));

  for (int batch = 1; batch <= batches_of_this_rank(); batch++) {
    printf("rank %d: batch %d of %d\n", rank, batch, batches_of_this_rank());
    NCCL(ncclAllReduce(gradients, gradients, GRADIENTS, ncclFloat32, ncclSum, comm, stream));
  }

  printf("rank %d: end of the epoch, gathering metrics\n", rank);
  NCCL(
      ncclAllGather(metrics + (size_t)rank * METRICS, metrics, METRICS, ncclFloat32, comm, stream));
  CUDA(cudaStreamSynchronize(stream));

  printf("rank %d: done\n", rank);
  NCCL(ncclCommDestroy(comm));
  return 0;
}
