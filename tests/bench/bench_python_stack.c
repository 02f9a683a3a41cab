/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the Python stack of a call costs at 16 frames, with every interpreter that is installed.
 *
 * The measuring is done inside the interpreters, by tests/python/bench.py; this is its place among the
 * benchmarks.
 */
#include <stdio.h>
#include <unistd.h>

int main(void) {
  execl("tests/python/run", "tests/python/run", "bench", (char *)NULL);
  perror("bench_python_stack: tests/python/run");
  return 1;
}
