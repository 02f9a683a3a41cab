/* SPDX-License-Identifier: Apache-2.0 */
/* What benchmarks share: the clock, the median, and the end of a temporary directory. */
#ifndef NT_MEASURE_H
#define NT_MEASURE_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

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
