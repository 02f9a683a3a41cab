/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What calls cost a host thread: for each line on stdin one measurement, printed as "value NANOSECONDS" per call. "issue":
 * ncclAllReduce with one rank, out of place, for which NCCL enqueues a copy, so that there is a launch to mark. "depend":
 * recording an event on NCCL's stream, and having that stream wait for one, in turns.
 * Started by tests/gpu/bench, several at a time, each with its own settings. Links to NCCL and the CUDA
 * runtime; the declarations below are their ABI.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct {
  char internal[128];
} ncclUniqueId;

enum {
  FLOAT32 = 7,
  SUM = 0,
  NON_BLOCKING = 1,
  NO_TIMING = 2,
  COUNT = 1024,
  CALLS = 100,
  BATCHES = 21
};

int ncclGetUniqueId(ncclUniqueId *);
int ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
int ncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t);
int cudaSetDevice(int);
int cudaMalloc(void **, size_t);
int cudaStreamSynchronize(cudaStream_t);
int cudaStreamCreateWithFlags(cudaStream_t *, unsigned);
int cudaEventCreateWithFlags(void **, unsigned);
int cudaEventRecord(void *, cudaStream_t);
int cudaStreamWaitEvent(cudaStream_t, void *, unsigned);

static ncclComm_t comm;
static cudaStream_t stream;
static void *from, *to, *event;

static double now_ns(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int issue(int i) {
  (void)i;
  return ncclAllReduce(from, to, COUNT, FLOAT32, SUM, comm, stream);
}

static int depend(int i) {
  return i % 2 ? cudaStreamWaitEvent(stream, event, 0) : cudaEventRecord(event, stream);
}

/* Nanoseconds a call, without what the device needs; negative on an error. */
static double batch(int (*call)(int)) {
  double start = now_ns();
  for (int i = 0; i < CALLS; i++)
    if (call(i))
      return -1;
  double spent = now_ns() - start;
  return cudaStreamSynchronize(stream) ? -1 : spent / CALLS;
}

/* Median of batches. */
static double measure(int (*call)(int)) {
  double samples[BATCHES];
  for (int i = 0; i < BATCHES; i++) {
    samples[i] = batch(call);
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
         ncclCommInitRank(&comm, 1, id, 0) || cudaEventCreateWithFlags(&event, NO_TIMING) ||
         measure(issue) < 0 || measure(depend) < 0;
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
    printf("value %.1f\n", measure(strncmp(line, "depend", 6) ? issue : depend));
    fflush(stdout);
  }
  return 0;
}
