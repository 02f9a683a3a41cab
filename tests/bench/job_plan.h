/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training job on paper: who is in which communicator, what each rank calls, and when.
 *
 * Tensor, pipeline and data parallelism with FSDP, and expert parallelism as a part of the data-parallel
 * ranks. A device works on its operations one after the other, an operation ends when all its ranks are
 * at it; the host runs ahead until it synchronises, once a step. Near the end something may be wrong with one rank's
 * tensor-parallel group (enum job_fault): then the job hangs, and what hangs follows from the rules above.
 */
#ifndef NT_JOB_PLAN_H
#define NT_JOB_PLAN_H

#include <stdbool.h>
#include <stdint.h>

enum job_comm { JOB_WORLD, JOB_TP, JOB_PP, JOB_DP, JOB_EP, JOB_COMMS };

/* What becomes of one all-reduce of the group. */
enum job_fault {
  JOB_SKIPS, /* the rank leaves it out */
  JOB_STOPS, /* the rank leaves it out, and all calls after it */
  JOB_CROSSES, /* the rank makes the step's all-reduce of all ranks first, which the others make after it */
  JOB_STALLS /* all make it, and it does not end */
};

struct job_shape {
  uint32_t tp, pp, dp, ep; /* ep divides dp; 1: no experts */
  uint32_t ops;            /* calls of NCCL on communicators that an inner stage makes */
  uint32_t faulty;         /* the rank with the fault, UINT32_MAX: none */
  enum job_fault fault;
};

enum job_kind { JOB_COLLECTIVE, JOB_SEND, JOB_RECV, JOB_EXCHANGE, JOB_SYNC };

struct job_op {
  uint8_t kind, fn, comm, dtype, op;
  uint8_t layer;
  bool backward;
  uint32_t count;
  uint32_t turn; /* how many of its kind came before: picks a buffer */
};

struct job_plan {
  struct job_shape shape;
  uint32_t ranks;
  struct job_op **programs; /* by pipeline stage */
  uint32_t *lengths;
  /* Of a long job the times of some steps come again and again: those are simulated once. */
  uint32_t rest, *step; /* operations in front of the first step; of a step, by pipeline stage */
  uint32_t repeated;    /* steps that are not simulated, a multiple of those that come again */
  /* By rank and index of the operation, less those that are not simulated (job_enter); 100 ns since the start. */
  uint32_t **enters, **ends;
  uint32_t *issued; /* by rank: operations that its host called, skipped ones included */
  uint32_t *at;     /* by rank: the operation that its device is at; its program's length: none */
  uint32_t hit;     /* index of the operation that the fault is about; UINT32_MAX: none */
  uint32_t met;     /* of the step's all-reduce of all ranks behind it */
};

/* Returns 0, or -1 when there is no memory or the shape makes no sense. Free it either way. */
int job_plan_make(const struct job_shape *shape, struct job_plan *out);
void job_plan_free(struct job_plan *plan);

uint32_t job_stage(const struct job_plan *plan, uint32_t rank);
uint32_t job_comm_size(const struct job_plan *plan, enum job_comm comm);
/* Which of the communicators of its kind the rank is in, and as which rank. */
uint32_t job_comm_color(const struct job_plan *plan, enum job_comm comm, uint32_t rank);
uint32_t job_comm_rank(const struct job_plan *plan, enum job_comm comm, uint32_t rank);
/* World rank of a member. */
uint32_t job_comm_member(const struct job_plan *plan, enum job_comm comm, uint32_t color,
                         uint32_t comm_rank);
/* What the rank calls in this place. */
const struct job_op *job_op_at(const struct job_plan *plan, uint32_t rank, uint32_t index);
/* When the rank's host called the operation, and when its device was done with it; 100 ns since the start. */
uint64_t job_enter(const struct job_plan *plan, uint32_t rank, uint32_t index);
uint64_t job_end(const struct job_plan *plan, uint32_t rank, uint32_t index);
/* The rank does not make this call. */
bool job_skips(const struct job_plan *plan, uint32_t rank, uint32_t index);

#endif
