/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a traced call costs over the bare call when nothing of it is in a cache, as after work that went through more
 * memory than the last-level cache holds.
 *
 * In front of each call a buffer of twice the largest cache is walked, in small pages, so that the translations are
 * gone as well. What the clock needs is read again behind the walk. The program runs itself in turns with and without
 * the library, against an NCCL that does nothing, and compares the medians.
 *
 *   bench_call_cold        prints NAME VALUE UNIT target VALUE ok|MISS lines
 *   bench_call_cold child  prints the median nanoseconds of a call, cold and warm
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "measure.h"
#include "nccl/nccl_types.h"

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

enum { ROUNDS = 61, TURNS = 9, LINE = 64, WARM_CALLS = 16 };
enum { LEAST_MIB = 64, MOST_MIB = 1024 };

/* Bytes of the largest cache: the kernel's word, since sysconf may count that of all sockets. */
static size_t largest_cache(void) {
  size_t largest = 0;
  for (int index = 0; index < 8; index++) {
    char path[80];
    unsigned long kib = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%luK", &kib) == 1 && kib * 1024 > largest)
      largest = kib * 1024;
    if (file)
      fclose(file);
  }
  return largest;
}

static volatile unsigned char *walked;
static size_t walked_size;

static bool make_buffer(void) {
  walked_size = 2 * largest_cache();
  if (walked_size < (size_t)LEAST_MIB << 20)
    walked_size = (size_t)LEAST_MIB << 20;
  if (walked_size > (size_t)MOST_MIB << 20)
    walked_size = (size_t)MOST_MIB << 20;
  void *memory =
      mmap(NULL, walked_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return false;
  madvise(memory, walked_size, MADV_NOHUGEPAGE);
  walked = memory;
  return true;
}

/* Written, so that no page is the zero page and other processors' copies go too. */
static void evict(void) {
  for (size_t at = 0; at < walked_size; at += LINE)
    walked[at]++;
}

static double one_call(ncclComm_t comm, int i) {
  static char buffer[64];
  (void)now_ns();
  const double start = now_ns();
  ncclAllReduce(buffer, buffer + i % 64, 1024, ncclFloat32, ncclSum, comm, NULL);
  return now_ns() - start;
}

static int child(void) {
  static double cold[ROUNDS], warm[ROUNDS];
  const ncclUniqueId id = {{1}};
  ncclComm_t comm;
  if (!make_buffer() || ncclCommInitRank(&comm, 8, id, 0) != ncclSuccess)
    return 1;
  for (int round = 0; round < ROUNDS; round++) {
    evict();
    cold[round] = one_call(comm, round);
    for (int i = 0; i < WARM_CALLS; i++)
      warm[round] = one_call(comm, i);
  }
  printf("%.3f\n%.3f\n", median(cold, ROUNDS), median(warm, ROUNDS));
  return 0;
}

int main(int argc, char **argv) {
  enum { COLD, WARM, KINDS };
  double times[2][KINDS][TURNS], values[KINDS];
  char command[2048], directory[] = "/tmp/nccltrace-bench-XXXXXX";
  bool ran = true;
  if (argc > 1)
    return child();
  const char *library = measured_library("bench_call_cold");
  if (!library)
    return 1;
  if (!mkdtemp(directory)) {
    perror("bench_call_cold: no temporary directory in /tmp");
    return 1;
  }
  for (int run = 0; ran && run < 2 * TURNS; run++) {
    const bool traced = run % 2;
    snprintf(command, sizeof command, "NCCLTRACE_DIR='%s' LD_PRELOAD='%s' '%s' child", directory,
             traced ? library : "", argv[0]);
    ran = numbers_of(command, values, KINDS);
    for (int kind = 0; ran && kind < KINDS; kind++)
      times[traced][kind][run / 2] = values[kind];
  }
  remove_tree(directory);
  if (!ran) {
    fprintf(stderr, "bench_call_cold: the measured program did not run\n");
    return 1;
  }
  const double bare = median(times[false][COLD], TURNS), all = median(times[true][COLD], TURNS);
  printf("call_allreduce_cold_bare %.2f ns target - ok\n", bare);
  return report("call_allreduce_cold_over_bare", all - bare, "ns", 2000);
}
