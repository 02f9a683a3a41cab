/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flood THREADS COUNT: so many threads make so many calls each, as fast as they can, and print how many that were.
 *
 * For tests/cli/losses.sh. The calls go to the NCCL of the benchmarks, which does nothing: no trace can keep up.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "nccl/nccl_types.h"

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

enum { MOST = 64 };

static ncclComm_t comms[MOST];
static int count;

/* Arguments that nobody can foretell: each call takes its room in the file. */
static void *run_thread(void *word) {
  uint64_t random = 88172645463325252u;
  for (int i = 0; i < count; i++) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    ncclAllReduce((void *)random, (void *)~random, random, ncclFloat32, ncclSum,
                  comms[(intptr_t)word], NULL);
  }
  return NULL;
}

int main(int argc, char **argv) {
  const int threads = argc == 3 ? atoi(argv[1]) : 0;
  pthread_t started[MOST];
  if (threads < 1 || threads > MOST)
    return 2;
  count = atoi(argv[2]);
  for (int i = 0; i < threads; i++) {
    const ncclUniqueId id = {{(char)(i + 1)}};
    if (ncclCommInitRank(&comms[i], MOST, id, i) != ncclSuccess)
      return 1;
  }
  for (intptr_t i = 0; i < threads; i++)
    if (pthread_create(&started[i], NULL, run_thread, (void *)i))
      return 1;
  for (int i = 0; i < threads; i++)
    pthread_join(started[i], NULL);
  printf("%d\n", threads + threads * count);
  return 0;
}
