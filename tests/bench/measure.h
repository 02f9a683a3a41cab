/* SPDX-License-Identifier: Apache-2.0 */
/* What benchmarks share: clock, median, the numbers of a child, a line of the result, and the end of a temporary
 * directory. */
#ifndef NT_MEASURE_H
#define NT_MEASURE_H

#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "trace/clock.h"

/* Nanoseconds of CLOCK_MONOTONIC. */
static inline double now_ns(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static inline int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sorts the values. */
static inline double median(double *values, int n) {
  qsort(values, (size_t)n, sizeof(*values), by_value);
  return values[n / 2];
}

/* One reading of the clock that a call reads twice. */
static inline double clock_reading_ns(void) {
  enum { READINGS = 200, ROUNDS = 101 };
  static double samples[ROUNDS];
  const enum nt_clock_kind kind = nt_clock_pick(); /* takes as long as many readings */
  for (int round = 0; round < ROUNDS; round++) {
    const double start = now_ns();
    for (int i = 0; i < READINGS; i++)
      (void)*(volatile uint64_t *)&(uint64_t){nt_clock_ticks(kind)};
    samples[round] = (now_ns() - start) / READINGS;
  }
  return median(samples, ROUNDS);
}

/* What tracing may add to a call, where a reading of the clock takes so long. */
static inline double call_target_ns(double reading_ns) {
  return reading_ns > 10 ? 80 : 60;
}

/* The library that is measured; NULL, which has been said, if $NCCLTRACE_LIBRARY names none. */
static inline const char *measured_library(const char *program) {
  const char *library = getenv("NCCLTRACE_LIBRARY");
  if (library && access(library, R_OK) == 0)
    return library;
  fprintf(stderr,
          "%s: NCCLTRACE_LIBRARY=%s is no library: NCCLTRACE_LIBRARY=build/libnccltrace.so\n",
          program, library ? library : "");
  return NULL;
}

/* The first `count` numbers that the command prints, one a line; false if there are fewer. */
static inline bool numbers_of(const char *command, double *out, int count) {
  char line[64];
  int got = 0;
  FILE *pipe = popen(command, "r");
  for (; pipe && got < count && fgets(line, sizeof line, pipe); got++)
    out[got] = atof(line);
  if (pipe)
    pclose(pipe);
  return got == count;
}

/* Prints a line; 1 if the value is above its target. */
static inline int report(const char *name, double value, const char *unit, double target) {
  const bool ok = value <= target;
  printf("%s %.2f %s target %g %s\n", name, value, unit, target, ok ? "ok" : "MISS");
  return !ok;
}

/* The same for a value that is to be large. */
static inline int report_least(const char *name, double value, const char *unit, double target) {
  const bool ok = value >= target;
  printf("%s %.0f %s target %.0f %s\n", name, value, unit, target, ok ? "ok" : "MISS");
  return !ok;
}

static inline int remove_one(const char *path, const struct stat *status, int type,
                             struct FTW *where) {
  (void)status, (void)type, (void)where;
  remove(path);
  return 0;
}

static inline void remove_tree(const char *directory) {
  nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
