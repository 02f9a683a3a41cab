/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of comm_cases: arguments that differ from rank to rank and mean the same, or that mean another thing on each. */
#include <sys/mman.h>

#include "comm_cases.h"

/* What a device pointer of real CUDA is to the host: an address that cannot be read. */
static void *unreadable(void) {
  void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(page == MAP_FAILED, "mmap");
  return page;
}

static ncclRedOp_t scaled_sum(ncclComm_t comm, void *scalar, ncclScalarResidence_t residence) {
  ncclRedOp_t op;
  check(ncclRedOpCreatePreMulSum(&op, scalar, ncclFloat, residence, comm), "operator");
  return op;
}

/* The second of two operators: process 0 has destroyed the first by then, so that its value comes again. */
static void user_operators(void) {
  ncclComm_t comm = init_rank(0, procs, proc);
  float *buffer = buffer_of(0), factor = (float)(proc + 1);
  ncclRedOp_t first = scaled_sum(comm, unreadable(), ncclScalarDevice);
  if (proc == 0)
    check(ncclRedOpDestroy(first, comm), "destroy");
  ncclRedOp_t second = scaled_sum(comm, &factor, ncclScalarHostImmediate);
  check((second == first) != (proc == 0), "the values of the operators are alike");
  check(ncclAllReduce(buffer, buffer, COUNT, ncclFloat, second, comm, stream_of(0)), "allreduce");
  wait_for(0);
  meet();
  check(ncclCommDestroy(comm), "destroy");
}

/* An all-gather is in place at the rank's part of its result, a reduce-scatter at that of its source. */
static void in_place(void) {
  enum { PART = COUNT / 2 };
  ncclComm_t comm = init_rank(0, procs, proc);
  float *buffer = buffer_of(0), *part = buffer + proc * PART;
  cudaStream_t stream = stream_of(0);
  check(ncclAllGather(part, buffer, PART, ncclFloat, comm, stream), "allgather");
  check(ncclAllGather(buffer + COUNT, buffer, PART, ncclFloat, comm, stream), "allgather");
  check(ncclReduceScatter(buffer, part, PART, ncclFloat, ncclSum, comm, stream), "reducescatter");
  check(ncclReduceScatter(buffer, buffer + COUNT, PART, ncclFloat, ncclSum, comm, stream), "apart");
  check(ncclAllReduce(buffer, buffer, COUNT, ncclFloat, ncclSum, comm, stream), "allreduce");
  wait_for(0);
  meet();
  check(ncclCommDestroy(comm), "destroy");
}

const struct comm_case comm_call_cases[] = {
    {"user-operators", user_operators, 2},
    {"in-place", in_place, 2},
    {NULL, NULL, 0},
};
