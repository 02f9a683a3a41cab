/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a look-up by name costs over the bare one, with the library preloaded: of a name that is none of ours, of one that
 * begins like them, and of one of NCCL's.
 *
 * The program runs itself in turns with and without the library and compares the medians.
 *
 *   bench_dlsym              parent: prints NAME VALUE UNIT target VALUE ok|MISS lines
 *   bench_dlsym child        prints the median nanoseconds of each kind of look-up
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "measure.h"
#include "nccl/nccl_types.h"

ncclResult_t ncclGroupStart(void);

enum { BATCH = 500, ROUNDS = 200, TURNS = 5, KINDS = 3 };

static const char *const names[KINDS] = {"malloc", "cudaGetErrorName", "ncclAllReduce"};

/* Found or not: a handle's scope is small, so that the search itself takes little. */
static int child(void) {
  static double samples[ROUNDS];
  Dl_info info;
  if (!dladdr((void *)ncclGroupStart, &info))
    return 1;
  void *nccl = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
  for (int kind = 0; nccl && kind < KINDS; kind++) {
    for (int round = 0; round < ROUNDS; round++) {
      double start = now_ns();
      for (int i = 0; i < BATCH; i++)
        (void)dlsym(nccl, names[kind]);
      samples[round] = (now_ns() - start) / BATCH;
    }
    printf("%.3f\n", median(samples, ROUNDS));
  }
  return !nccl;
}

static bool measure(const char *self, const char *library, double out[KINDS]) {
  char command[2048];
  snprintf(command, sizeof(command), "LD_PRELOAD='%s' '%s' child", library, self);
  return numbers_of(command, out, KINDS);
}

int main(int argc, char **argv) {
  static const char *const labels[KINDS] = {"dlsym_other_over_bare", "dlsym_similar_over_bare",
                                            "dlsym_nccl_over_bare"};
  static const double targets[KINDS] = {50, 150, 2000};
  double bare[KINDS][TURNS], traced[KINDS][TURNS], values[KINDS];
  int missed = 0;
  if (argc > 1)
    return child();
  const char *library = measured_library("bench_dlsym");
  if (!library)
    return 1;
  for (int turn = 0; turn < TURNS; turn++) {
    for (int mode = 0; mode < 2; mode++) {
      if (!measure(argv[0], mode ? library : "", values)) {
        fprintf(stderr, "bench_dlsym: the measured program did not run\n");
        return 1;
      }
      for (int kind = 0; kind < KINDS; kind++)
        (mode ? traced : bare)[kind][turn] = values[kind];
    }
  }
  for (int kind = 0; kind < KINDS; kind++)
    missed |= report(labels[kind], median(traced[kind], TURNS) - median(bare[kind], TURNS), "ns",
                     targets[kind]);
  return missed;
}
