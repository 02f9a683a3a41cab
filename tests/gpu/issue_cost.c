/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What it costs a host thread to issue ncclAllReduce: for each line on stdin one measurement, printed as
 * "value NANOSECONDS" per call. One rank, out of place: NCCL enqueues a copy, so that there is a launch to mark.
 * Started by tests/gpu/bench, several at a time, each with its own settings. Links to NCCL and the CUDA
 * runtime; the declarations below are their ABI.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct {
  char internal[128];
} ncclUniqueId;

enum { FLOAT32 = 7, SUM = 0, NON_BLOCKING = 1, COUNT = 1024, CALLS = 100, BATCHES = 21 };

int ncclGetUniqueId(ncclUniqueId *);
int ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
int ncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t);
int cudaSetDevice(int);
int cudaMalloc(void **, size_t);
int cudaStreamSynchronize(cudaStream_t);
int cudaStreamCreateWithFlags(cudaStream_t *, unsigned);

static ncclComm_t comm;
static cudaStream_t stream;
static void *from, *to;

static double now_ns(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Nanoseconds a call, without what the device needs; negative on an error. */
static double batch(void) {
  double start = now_ns();
  for (int i = 0; i < CALLS; i++)
    if (ncclAllReduce(from, to, COUNT, FLOAT32, SUM, comm, stream))
      return -1;
  double spent = now_ns() - start;
  return cudaStreamSynchronize(stream) ? -1 : spent / CALLS;
}

/* Median of batches. */
static double measure(void) {
  double samples[BATCHES];
  for (int i = 0; i < BATCHES; i++) {
    samples[i] = batch();
    if (samples[i] < 0)
      return -1;
  }
  qsort(samples, BATCHES, sizeof(*samples), compare);
  return samples[BATCHES / 2];
}

static int set_up(void) {
  ncclUniqueId id;
  return cudaSetDevice(0) || cudaMalloc(&from, COUNT * 4) || cudaMalloc(&to, COUNT * 4) ||
         cudaStreamCreateWithFlags(&stream, NON_BLOCKING) || ncclGetUniqueId(&id) ||
         ncclCommInitRank(&comm, 1, id, 0) || measure() < 0;
}

int main(void) {
  char line[64];
  if (set_up()) {
    fputs("issue_cost: NCCL or CUDA does not work here\n", stderr);
    return 1;
  }
  puts("value 0");
  fflush(stdout);
  while (fgets(line, sizeof(line), stdin)) {
    printf("value %.1f\n", measure());
    fflush(stdout);
  }
  return 0;
}
