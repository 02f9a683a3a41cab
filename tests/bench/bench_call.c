/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a traced call costs over the bare call: the time of a call with the library preloaded, less the time of
 * the same call without it.
 *
 * The program runs itself against an NCCL that does nothing, in turns with and without the library
 * preloaded, and compares the medians of both. Reported per call: enter and exit, default
 * configuration and with native stacks, at a pace the helper keeps up with.
 *
 *   bench_call            parent: prints NAME VALUE UNIT target VALUE ok|MISS lines
 * What two readings of the clock take is a large part of it and none of ours to reduce: clock_reading is measured in the
 * same turns, and where it exceeds 10 ns the clock counts as slow, and 80 ns are allowed instead of 60.
 *
 *   bench_call child [slow [cuda]]   prints the median nanoseconds of each kind of call; cuda: with a driver that
 *                                    does nothing, so that launches get their marks
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"
#include "nccl/nccl_types.h"

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

enum { BATCH = 200, ROUNDS = 400, SLOW_ROUNDS = 30, TURNS = 5, DEPTH = 12 };

enum kind { ALLREDUCE, SEND_GROUP, CLOCK, KINDS };

static void batch(enum kind kind, ncclComm_t comm) {
  char *buffer = (char *)0x1000;
  if (kind == ALLREDUCE) {
    for (int i = 0; i < BATCH; i++)
      ncclAllReduce(buffer, buffer + 4096 * i, 1024, ncclFloat32, ncclSum, comm, NULL);
    return;
  }
  for (int i = 0; i < BATCH; i += 8) {
    ncclGroupStart();
    for (int j = 0; j < 8; j++)
      ncclSend(buffer, 1024, ncclFloat32, j, comm, NULL);
    ncclGroupEnd();
  }
}

/* Native stacks are as deep as they are in a program. */
static __attribute__((noinline)) void batch_below(int depth, enum kind kind, ncclComm_t comm) {
  if (depth)
    batch_below(depth - 1, kind, comm);
  else
    batch(kind, comm);
  __asm__ volatile("" ::: "memory");
}

/* `slow`: at a pace at which every launch finds room for its marks, of which a stream has 256 and which are looked at
 * every 20 ms. Else about 200,000 calls a second, the pace that the helper must keep up with. */
static int child(bool slow) {
  static double samples[ROUNDS];
  const struct timespec pause = {0, slow ? 30000000 : 1000000};
  const int rounds = slow ? SLOW_ROUNDS : ROUNDS;
  ncclUniqueId id = {{1}};
  ncclComm_t comm;
  ncclCommInitRank(&comm, 8, id, 0);
  for (int kind = 0; kind < CLOCK; kind++) {
    for (int round = 0; round < rounds; round++) {
      double start = now_ns();
      batch_below(DEPTH, (enum kind)kind, comm);
      samples[round] = (now_ns() - start) / BATCH;
      nanosleep(&pause, NULL);
    }
    printf("%.3f\n", median(samples, rounds));
  }
  printf("%.3f\n", clock_reading_ns());
  return 0;
}

enum mode { BARE, TRACED, NATIVE, SLOW, MARKED, MODES };

/* One run of the child; false if it did not print its numbers. */
static bool measure(const char *self, const char *directory, enum mode mode, double out[KINDS]) {
  char command[2048];
  const char *library = mode != BARE ? getenv("NCCLTRACE_LIBRARY") : "";
  snprintf(command, sizeof(command),
           "NCCLTRACE_NATIVE=%d NCCLTRACE_DIR='%s' LD_PRELOAD='%s' '%s' child %s", mode == NATIVE,
           directory, library, self,
           mode == MARKED ? "slow cuda"
           : mode == SLOW ? "slow"
                          : "");
  return numbers_of(command, out, KINDS);
}

/* All turns; nonzero if one of them did not run. */
static int run(const char *self, const char *directory, double out[MODES][KINDS][TURNS]) {
  double values[KINDS];
  for (int turn = 0; turn < TURNS; turn++) {
    for (int mode = 0; mode < MODES; mode++) {
      if (!measure(self, directory, (enum mode)mode, values)) {
        fprintf(stderr, "bench_call: the measured program did not run\n");
        return 1;
      }
      for (int kind = 0; kind < KINDS; kind++)
        out[mode][kind][turn] = values[kind];
    }
  }
  return 0;
}

int main(int argc, char **argv) {
  /* The library follows the GPU through a driver that the process has loaded. */
  if (argc > 3 && !dlopen("libcuda.so.1", RTLD_NOW))
    return 1;
  if (argc > 1 && !strcmp(argv[1], "child"))
    return child(argc > 2);
  static const char *const names[CLOCK] = {"call_allreduce_over_bare",
                                           "call_grouped_send_over_bare"};
  if (!measured_library("bench_call"))
    return 1;
  double times[MODES][KINDS][TURNS];
  char directory[] = "/tmp/nccltrace-bench-XXXXXX";
  if (!mkdtemp(directory)) {
    perror("bench_call: no temporary directory in /tmp");
    return 1;
  }
  int missed = run(argv[0], directory, times);
  remove_tree(directory);
  if (missed)
    return 1;
  const double reading = median(times[BARE][CLOCK], TURNS);
  const double target = call_target_ns(reading);
  printf("clock_reading %.2f ns target - ok\n", reading);
  for (int kind = 0; kind < CLOCK; kind++)
    missed |=
        report(names[kind], median(times[TRACED][kind], TURNS) - median(times[BARE][kind], TURNS),
               "ns", target);
  double marked = median(times[MARKED][ALLREDUCE], TURNS);
  missed |= report("call_allreduce_gpu_progress", marked - median(times[SLOW][ALLREDUCE], TURNS),
                   "ns", 500);
  missed |= report("call_allreduce_default_over_bare",
                   marked - median(times[BARE][ALLREDUCE], TURNS), "ns", 800);
  missed |= report(
      "call_allreduce_native_over_traced",
      median(times[NATIVE][ALLREDUCE], TURNS) - median(times[TRACED][ALLREDUCE], TURNS), "ns", 800);
  return missed;
}
