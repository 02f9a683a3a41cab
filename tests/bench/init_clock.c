/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that notes when its constructor runs. Loaded in front of another one and, under a second name, behind it, it
 * tells what that one's constructors take: nothing is relocated any more when the first constructor runs.
 */
#include <time.h>

/* Each of the two writes its own. */
extern double init_clock_ns;
__attribute__((visibility("protected"))) double init_clock_ns;

__attribute__((constructor)) static void note(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  init_clock_ns = (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}
