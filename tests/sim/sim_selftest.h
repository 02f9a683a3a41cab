/* SPDX-License-Identifier: Apache-2.0 */
/* The self test's cases and what a case can use. A case runs once per rank, each in its process. */
#ifndef SIM_SELFTEST_H
#define SIM_SELFTEST_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda_runtime_api.h"
#include "nccl.h"

struct st_rank {
  int rank, nranks;
  ncclUniqueId id, second_id;
  ncclComm_t comm, other;
  cudaStream_t stream, side;
};

struct st_case {
  const char *name;
  int nranks;
  /* One letter per rank: D its streams are idle, H they are not, C it is inside a call, R and U it
   * hangs with an asynchronous remote error or invalid usage, X its process has ended with 0. */
  const char *expect;
  void (*body)(struct st_rank *t);
  bool cold; /* no communicator is made, nothing is connected */
};

extern const struct st_case st_data_cases[], st_comm_cases[], st_hang_cases[];

/* Ends the process, and the case, with a message. */
void st_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
#define ST_CHECK(call)                                                                             \
  do {                                                                                             \
    int st_result = (call);                                                                        \
    if (st_result)                                                                                 \
      st_fail("%s:%d: %s = %d", __FILE__, __LINE__, #call, st_result);                             \
  } while (0)
#define ST_TRUE(condition)                                                                         \
  do {                                                                                             \
    if (!(condition))                                                                              \
      st_fail("%s:%d: not true: %s", __FILE__, __LINE__, #condition);                              \
  } while (0)

/* All ranks meet outside NCCL. */
void st_meet(void);
/* Polls until the condition holds; fails after ten seconds. */
#define ST_WAIT(condition)                                                                         \
  do {                                                                                             \
    for (int st_turn = 0; !(condition); st_turn++) {                                               \
      if (st_turn > 10000)                                                                         \
        st_fail("%s:%d: never true: %s", __FILE__, __LINE__, #condition);                          \
      st_pause();                                                                                  \
    }                                                                                              \
  } while (0)
void st_pause(void);
void *st_buffer(size_t bytes);

/* A send buffer with values that depend on rank and index, a receive buffer, and a host copy. */
struct st_buffers {
  char *host;
  void *send, *recv;
  size_t bytes;
};
struct st_buffers st_buffers_new(struct st_rank *t, ncclDataType_t type, size_t elements);
/* Waits for the rank's stream, then copies to the host. */
void st_fetch(struct st_rank *t, struct st_buffers *b, const void *from);
void st_release(struct st_buffers *b);
void st_expect(ncclDataType_t type, const struct st_buffers *b, size_t i, double v,
               const char *what);
/* What element i is after a reduction of n ranks' send buffers. */
double st_reduced(int n, size_t i, ncclRedOp_t op);
void st_check_moves(struct st_rank *t, ncclDataType_t type, size_t count);
void st_check_reductions(struct st_rank *t, ncclDataType_t type, size_t count, ncclRedOp_t op);
/* One checked all-reduce. */
void st_use(struct st_rank *t, ncclComm_t comm);

#endif
