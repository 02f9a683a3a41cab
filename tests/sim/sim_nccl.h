/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the simulated libnccl share: communicators, tasks, plans. */
#ifndef SIM_NCCL_H_INTERNAL
#define SIM_NCCL_H_INTERNAL

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "nccl.h"
#include "sim_capture.h"
#include "sim_device.h"
#include "sim_shm.h"
#include "sim_stream.h"

#define SIM_MAX_REDOPS 64
#define SIM_NAME_ROOM 256

/* As in NCCL, pncclX is the strong symbol and ncclX its weak alias. */
#define SIM_NCCL_API(ret, name, ...)                                                               \
  __attribute__((weak, alias("pnccl" #name))) ret nccl##name(__VA_ARGS__);                         \
  ret pnccl##name(__VA_ARGS__)

struct sim_redop {
  bool used;
  int dtype;
  double scalar;          /* its value if known on the host */
  const void *device_ptr; /* else where it will be when the operation runs */
};

struct ncclComm {
  uint64_t magic;
  uint64_t key; /* the same on all ranks; names the shared area and orders groups */
  int rank, nranks, device;
  bool blocking;
  char name[64];
  struct sim_shm *shm;
  atomic_int refs;
  atomic_int async;               /* ncclResult_t */
  atomic_bool aborted;            /* waits on it end; for good, or until a revoke is done */
  atomic_bool revoked;            /* moves no more data, others may be made from it */
  atomic_uint epoch;              /* plans of an earlier one do nothing */
  atomic_int waiting;             /* threads in sim_comm_wait */
  atomic_int running;             /* plans that are at the head of a stream */
  atomic_int captured;            /* plans in living graphs */
  atomic_int working;             /* job threads of a non-blocking communicator */
  _Atomic uint32_t connected;     /* SIM_CONN_*, classes that are connected for certain */
  _Atomic uint8_t *p2p_connected; /* per peer: bit 0 sending, bit 1 receiving */
  uint64_t collectives;           /* how many were launched */
  uint64_t rounds[SIM_BOARD_COUNT];
  uint64_t splits, windows;
  uint64_t *waited; /* signals by source and kind that waits have been promised; launch_lock */
  struct {
    uint64_t list;
    int count;
  } shrinks[16];
  bool finalized;
  int *pidfd;                     /* per peer, -1 until needed */
  struct sim_stream *last_stream; /* where the last plan went; referenced */
  uint64_t last_ticket;
  struct sim_redop redop[SIM_MAX_REDOPS];
  pthread_mutex_t lock;        /* pidfd, redop */
  pthread_mutex_t launch_lock; /* collectives, last_stream, last_ticket */
};

/* One call, checked and waiting for the end of its group. */
struct sim_task {
  struct sim_task *next;
  unsigned int fn; /* enum sim_fn */
  const void *send;
  void *recv;
  size_t count;
  int dtype, op, peer; /* peer: root, or the other side of a p2p task */
  struct sim_redop redop;
  ncclComm_t comm;
  cudaStream_t stream;
  uint64_t ordinal;
};

enum sim_fn {
  SIM_ALLREDUCE = 1,
  SIM_BROADCAST,
  SIM_REDUCE,
  SIM_ALLGATHER,
  SIM_REDUCESCATTER,
  SIM_ALLTOALL,
  SIM_GATHER,
  SIM_SCATTER,
  SIM_SEND,
  SIM_RECV,
};

/* What one group does on one communicator: one piece of work on one stream. */
struct sim_plan {
  ncclComm_t comm;
  struct sim_task *collectives; /* in NCCL's order */
  struct sim_task *p2p;         /* sends and receives, in the order of the calls */
  unsigned int epoch;           /* of the communicator when it was launched */
};

/* sim_comm.c, sim_boot.c */
ncclComm_t sim_comm_new(int nranks, int rank, const ncclConfig_t *config, ncclComm_t parent);
void sim_comm_ref(ncclComm_t comm);
void sim_comm_unref(ncclComm_t comm);
ncclResult_t sim_comm_check(ncclComm_t comm, const char *fn);
/* Also refuses one that is still in progress or has failed. */
ncclResult_t sim_comm_check_ready(ncclComm_t comm, const char *fn);
void sim_comm_set_error(ncclComm_t comm, ncclResult_t error);
/* Ends what runs or waits on the communicator, which can be used again afterwards. */
void sim_comm_interrupt(ncclComm_t comm);
/* Sleeps after bell value `seen`; false once the communicator was aborted. peer >= 0: a process whose
 * end is an error for this one. */
bool sim_comm_wait(ncclComm_t comm, uint32_t seen, int peer);
ncclResult_t sim_boot_join(ncclComm_t comm);
/* Posts two values and waits for those of all ranks: values[2 * nranks], or NULL for a barrier. */
ncclResult_t sim_boot_exchange(ncclComm_t comm, enum sim_board board, int64_t a, int64_t b,
                               int64_t *values);
uint64_t sim_boot_hash(uint64_t seed, const void *data, size_t size);
/* The text of this thread's last warning. */
const char *sim_nccl_last_warning(void);
void sim_nccl_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* sim_group.c */
void sim_group_start(void);
ncclResult_t sim_group_end(void);
/* Ends a call: remembers its error for the enclosing group, and returns it. */
ncclResult_t sim_group_error(ncclResult_t result);
void sim_group_add_task(const struct sim_task *task);
typedef ncclResult_t sim_job_fn(void *arg);
/* Work that blocks, to be done at the end of the group; comm is the communicator it reports to. */
void sim_group_add_job(ncclComm_t comm, sim_job_fn *fn, void *arg);

/* sim_connect.c: lazy connections. Asking and waiting are apart so that a group can ask for the collectives of all
 * its communicators first. For messages sim_connect_ask only tells whether they need a connection, and
 * sim_connect_p2p makes those of a list. */
bool sim_connect_ask(ncclComm_t comm, const struct sim_task *task);
ncclResult_t sim_connect_wait(ncclComm_t comm, const struct sim_task *task);
ncclResult_t sim_connect_p2p(ncclComm_t comm, const struct sim_task *tasks);
/* Which connections an operation uses: SIM_CONN_* or 0 for p2p. */
uint32_t sim_connect_class(const struct sim_task *task);

/* sim_ring.c, sim_p2p.c: the data movement, on stream workers. false: aborted. */
bool sim_ring_run(const struct sim_task *task);
bool sim_p2p_run(ncclComm_t comm, struct sim_task *tasks);

/* sim_reduce.c */
size_t sim_dtype_size(int dtype);
/* acc[i] = acc[i] op in[i] */
void sim_reduce_apply(void *acc, const void *in, size_t count, int dtype, int op);
/* What an operator does beside combining: PreMulSum scales before, avg divides after. */
void sim_reduce_scale(void *data, size_t count, int dtype, double factor);
void sim_reduce_divide(void *data, size_t count, int dtype, int divisor);
double sim_reduce_read_scalar(const void *at, int dtype);

#endif
