/* SPDX-License-Identifier: Apache-2.0 */
/* Programs by stage, then one pass over events: a rank goes on until its operation lacks somebody. */
#include "job_plan.h"

#include <stdlib.h>

#include "nccl/nccl_api.h"
#include "nccl/nccl_types.h"

enum { LAYERS = 4, MICRO_BATCHES = 4, HIT_BEFORE_END = 3 };
enum { SIMULATED = 36, AGAIN = 32 }; /* steps: of a long job, and of these those that come again */
enum { GAP = 150, ISSUE = 80, COMPUTE = 4000, TRANSFER = 1500 }; /* 100 ns */

/* ---- layout -------------------------------------------------------------------------------------- */

/* rank = (stage * dp + d) * tp + t, and d = outer * ep + e. */
uint32_t job_stage(const struct job_plan *plan, uint32_t rank) {
  return rank / (plan->shape.tp * plan->shape.dp);
}

uint32_t job_comm_size(const struct job_plan *plan, enum job_comm comm) {
  const struct job_shape *s = &plan->shape;
  const uint32_t sizes[JOB_COMMS] = {plan->ranks, s->tp, s->pp, s->dp, s->ep};
  return sizes[comm];
}

uint32_t job_comm_color(const struct job_plan *plan, enum job_comm comm, uint32_t rank) {
  const struct job_shape *s = &plan->shape;
  const uint32_t t = rank % s->tp, d = rank / s->tp % s->dp, stage = job_stage(plan, rank);
  const uint32_t colors[JOB_COMMS] = {0, rank / s->tp, rank % (s->tp * s->dp), stage * s->tp + t,
                                      (stage * (s->dp / s->ep) + d / s->ep) * s->tp + t};
  return colors[comm];
}

uint32_t job_comm_rank(const struct job_plan *plan, enum job_comm comm, uint32_t rank) {
  const struct job_shape *s = &plan->shape;
  const uint32_t d = rank / s->tp % s->dp;
  const uint32_t ranks[JOB_COMMS] = {rank, rank % s->tp, job_stage(plan, rank), d, d % s->ep};
  return ranks[comm];
}

uint32_t job_comm_member(const struct job_plan *plan, enum job_comm comm, uint32_t color,
                         uint32_t comm_rank) {
  const struct job_shape *s = &plan->shape;
  const uint32_t t = color % s->tp, above = color / s->tp, outer = s->dp / s->ep;
  switch (comm) {
  case JOB_TP:
    return color * s->tp + comm_rank;
  case JOB_PP:
    return comm_rank * s->tp * s->dp + color;
  case JOB_DP:
    return (above * s->dp + comm_rank) * s->tp + t;
  case JOB_EP:
    return (above / outer * s->dp + above % outer * s->ep + comm_rank) * s->tp + t;
  default:
    return comm_rank;
  }
}

/* ---- programs ------------------------------------------------------------------------------------ */

struct program {
  const struct job_plan *plan;
  struct job_op *ops;
  uint32_t count, room, calls;
  uint32_t turns[JOB_COMMS];
  bool failed;
};

static struct job_op *add(struct program *p, enum job_kind kind, enum job_comm comm, uint8_t fn,
                          uint32_t count) {
  static struct job_op beyond;
  if (kind != JOB_SYNC && job_comm_size(p->plan, comm) < 2)
    return &beyond;
  if (p->count == p->room) {
    const uint32_t room = p->room ? 2 * p->room : 1024;
    struct job_op *grown = realloc(p->ops, room * sizeof *grown);
    p->failed |= !grown;
    if (!grown)
      return &beyond;
    p->ops = grown;
    p->room = room;
  }
  p->calls += kind == JOB_EXCHANGE ? 2 * job_comm_size(p->plan, comm) : kind != JOB_SYNC;
  struct job_op *op = &p->ops[p->count++];
  *op = (struct job_op){.kind = (uint8_t)kind,
                        .fn = fn,
                        .comm = (uint8_t)comm,
                        .dtype = ncclBfloat16,
                        .op = nt_fn_moves_bytes(fn) || fn == NT_FN_Send ? 255 : ncclSum,
                        .count = count,
                        .turn = p->turns[comm]++};
  return op;
}

static void add_layer(struct program *p, uint8_t layer, bool backward) {
  const uint32_t from = p->count;
  add(p, JOB_COLLECTIVE, JOB_DP, NT_FN_AllGather, 12582912 + layer);
  add(p, JOB_COLLECTIVE, JOB_TP, NT_FN_AllReduce, 8388608);
  if (p->plan->shape.ep > 1) {
    add(p, JOB_EXCHANGE, JOB_EP, NT_FN_Send, 262144);
    add(p, JOB_EXCHANGE, JOB_EP, NT_FN_Send, 262144);
  }
  add(p, JOB_COLLECTIVE, JOB_TP, NT_FN_AllReduce, 8388608);
  if (backward)
    add(p, JOB_COLLECTIVE, JOB_DP, NT_FN_ReduceScatter, 12582912 + layer);
  for (uint32_t i = from; i < p->count; i++) {
    p->ops[i].layer = layer;
    p->ops[i].backward = backward;
  }
}

static void add_micro_batch(struct program *p, uint32_t stage, bool backward) {
  const bool first = stage == 0, last = stage + 1 == p->plan->shape.pp;
  if (backward ? !last : !first)
    add(p, JOB_RECV, JOB_PP, NT_FN_Recv, 4194304)->backward = backward;
  for (uint8_t i = 0; i < LAYERS; i++)
    add_layer(p, backward ? (uint8_t)(LAYERS - 1 - i) : i, backward);
  if (backward ? !first : !last)
    add(p, JOB_SEND, JOB_PP, NT_FN_Send, 4194304)->backward = backward;
}

static void add_step(struct program *p, uint32_t stage) {
  for (int i = 0; i < 2 * MICRO_BATCHES; i++)
    add_micro_batch(p, stage, i >= MICRO_BATCHES);
  add(p, JOB_COLLECTIVE, JOB_WORLD, NT_FN_AllReduce, 1)->dtype = ncclFloat32;
  add(p, JOB_SYNC, JOB_WORLD, NT_FN_cudaStreamSynchronize, 0);
}

/* All stages make the same steps; what is left of `ops` is made up by all-reduces of one number. */
static int make_programs(struct job_plan *plan) {
  const struct job_shape *shape = &plan->shape;
  struct program probe = {.plan = plan};
  add_step(&probe, shape->pp / 2);
  const uint32_t each = probe.calls, steps = shape->ops / (each ? each : 1);
  const uint32_t rest = shape->ops - steps * each;
  plan->rest = rest;
  plan->repeated = steps > SIMULATED ? (steps - SIMULATED) / AGAIN * AGAIN : 0;
  free(probe.ops);
  for (uint32_t stage = 0; stage < shape->pp; stage++) {
    struct program p = {.plan = plan, .failed = probe.failed};
    for (uint32_t i = 0; i < rest; i++)
      add(&p, JOB_COLLECTIVE, JOB_WORLD, NT_FN_AllReduce, 1);
    for (uint32_t i = 0; i < steps; i++)
      add_step(&p, stage);
    plan->programs[stage] = p.ops;
    plan->lengths[stage] = p.count;
    plan->step[stage] = steps ? (p.count - rest) / steps : 0;
    if (p.failed)
      return -1;
  }
  return 0;
}

/* Who crosses does so with the last all-reduce: earlier ones have others of the same size behind them, in whose place it
 * would come. */
static void pick_hit(struct job_plan *plan) {
  plan->hit = plan->met = UINT32_MAX;
  if (plan->shape.faulty >= plan->ranks)
    return;
  const uint32_t stage = job_stage(plan, plan->shape.faulty);
  const uint32_t wanted = plan->shape.fault == JOB_CROSSES ? 1 : HIT_BEFORE_END;
  const struct job_op *ops = plan->programs[stage];
  uint32_t seen = 0;
  for (uint32_t i = plan->lengths[stage]; i-- > 0 && seen < wanted;) {
    if (ops[i].comm == JOB_WORLD && ops[i].kind == JOB_COLLECTIVE)
      plan->met = i;
    if (ops[i].comm == JOB_TP && ++seen == wanted)
      plan->hit = i;
  }
}

static bool has_fault(const struct job_plan *plan, uint32_t rank, enum job_fault fault) {
  return rank == plan->shape.faulty && fault == plan->shape.fault && plan->hit != UINT32_MAX;
}

bool job_skips(const struct job_plan *plan, uint32_t rank, uint32_t index) {
  return (has_fault(plan, rank, JOB_SKIPS) && index == plan->hit) ||
         (has_fault(plan, rank, JOB_STOPS) && index >= plan->hit);
}

const struct job_op *job_op_at(const struct job_plan *plan, uint32_t rank, uint32_t index) {
  const struct job_op *ops = plan->programs[job_stage(plan, rank)];
  if (!has_fault(plan, rank, JOB_CROSSES) || index < plan->hit || index > plan->met)
    return &ops[index];
  return index == plan->met ? &ops[plan->hit] : &ops[index + 1];
}

/* The operation that the rank is at is the one that does not end. */
static bool stalls(const struct job_plan *plan, uint32_t rank, enum job_comm comm) {
  const uint32_t faulty = plan->shape.faulty;
  return has_fault(plan, faulty, JOB_STALLS) && comm == JOB_TP && plan->at[rank] == plan->hit &&
         job_comm_color(plan, comm, rank) == job_comm_color(plan, comm, faulty);
}

/* ---- times ---------------------------------------------------------------------------------------

 * All ranks meet at the end of a step, and their hosts wait for it. So a step does not depend on those before, and the first
 * ones but one come again, later by what they take. */

/* Where the first step that is not simulated begins, and how many operations are not. */
static uint32_t first_left_out(const struct job_plan *plan, uint32_t stage) {
  return plan->rest + (1 + AGAIN) * plan->step[stage];
}

static uint32_t left_out(const struct job_plan *plan, uint32_t stage) {
  return plan->repeated * plan->step[stage];
}

/* The operation whose times it has, and how often these have come before. */
static uint32_t simulated(const struct job_plan *plan, uint32_t stage, uint32_t index,
                          uint32_t *turns) {
  const uint32_t from = first_left_out(plan, stage), count = left_out(plan, stage);
  const uint32_t block = AGAIN * plan->step[stage], begin = from - block;
  *turns = 0;
  if (!plan->repeated || index < from)
    return index;
  *turns = index < from + count ? (index - begin) / block : plan->repeated / AGAIN;
  return index - *turns * block;
}

/* From the end of the first step to that of the last that comes again. */
static uint64_t block_time(const struct job_plan *plan) {
  const uint32_t last = first_left_out(plan, 0) - 1;
  return plan->ends[0][last] - plan->ends[0][last - AGAIN * plan->step[0]];
}

static uint64_t time_of(const struct job_plan *plan, uint32_t *const *times, uint32_t rank,
                        uint32_t index) {
  uint32_t turns;
  const uint32_t at = simulated(plan, job_stage(plan, rank), index, &turns);
  return times[rank][at] + (turns ? turns * block_time(plan) : 0);
}

uint64_t job_enter(const struct job_plan *plan, uint32_t rank, uint32_t index) {
  return time_of(plan, plan->enters, rank, index);
}

uint64_t job_end(const struct job_plan *plan, uint32_t rank, uint32_t index) {
  return time_of(plan, plan->ends, rank, index);
}

/* ---- events -------------------------------------------------------------------------------------- */

struct events {
  struct job_plan *plan;
  uint32_t *host, *device; /* by rank: until when it is busy */
  bool *waits;             /* by rank: its device has come to the operation that it is at */
  uint32_t *ready, ready_count;
  struct {
    uint32_t here, latest;
  } * comms[JOB_COMMS]; /* by colour: of its present operation */
};

static uint32_t noise(uint32_t rank, uint32_t index, uint32_t scale) {
  uint64_t x = ((uint64_t)rank << 32 | index) * UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
  return (uint32_t)((x >> 40) * scale >> 24);
}

static const struct job_op *op_at(const struct job_plan *plan, uint32_t rank) {
  return job_op_at(plan, rank, plan->at[rank]);
}

static void set_time(const struct job_plan *plan, uint32_t **times, uint32_t rank, uint32_t index,
                     uint32_t time) {
  uint32_t turns;
  times[rank][simulated(plan, job_stage(plan, rank), index, &turns)] = time;
}

/* The operation behind it that is simulated. */
static void go_on(struct job_plan *plan, uint32_t rank) {
  const uint32_t stage = job_stage(plan, rank);
  if (++plan->at[rank] == first_left_out(plan, stage))
    plan->at[rank] += left_out(plan, stage);
}

/* The host calls the operation; a synchronisation returns with the device. */
static void issue(struct events *e, uint32_t rank, uint32_t index) {
  e->host[rank] += GAP + noise(rank, index, GAP / 4);
  set_time(e->plan, e->plan->enters, rank, index, e->host[rank]);
  e->host[rank] += ISSUE;
}

static void finish(struct events *e, uint32_t rank, uint32_t end) {
  set_time(e->plan, e->plan->ends, rank, e->plan->at[rank], end);
  go_on(e->plan, rank);
  e->device[rank] = end;
  e->waits[rank] = false;
  e->ready[e->ready_count++] = rank;
}

static void meet_all(struct events *e, uint32_t rank, enum job_comm comm) {
  const uint32_t color = job_comm_color(e->plan, comm, rank), size = job_comm_size(e->plan, comm);
  const uint32_t latest = e->comms[comm][color].latest;
  e->comms[comm][color].latest = e->device[rank] > latest ? e->device[rank] : latest;
  if (++e->comms[comm][color].here < size || stalls(e->plan, rank, comm))
    return;
  const uint32_t end = e->comms[comm][color].latest + TRANSFER;
  e->comms[comm][color].here = e->comms[comm][color].latest = 0;
  for (uint32_t i = 0; i < size; i++)
    finish(e, job_comm_member(e->plan, comm, color, i), end);
}

static void meet_peer(struct events *e, uint32_t rank, const struct job_op *op) {
  const uint32_t color = job_comm_color(e->plan, JOB_PP, rank), stage = job_stage(e->plan, rank);
  const bool up = (op->kind == JOB_SEND) != op->backward;
  const uint32_t peer = job_comm_member(e->plan, JOB_PP, color, up ? stage + 1 : stage - 1);
  if (!e->waits[peer])
    return;
  const struct job_op *other = op_at(e->plan, peer);
  if (other->comm != JOB_PP || other->kind == op->kind || other->backward != op->backward)
    return;
  const uint32_t end =
      (e->device[rank] > e->device[peer] ? e->device[rank] : e->device[peer]) + TRANSFER;
  finish(e, rank, end);
  finish(e, peer, end);
}

/* Until its device waits for somebody, or its program ends. */
static void advance(struct events *e, uint32_t rank) {
  struct job_plan *plan = e->plan;
  const uint32_t length = plan->lengths[job_stage(plan, rank)];
  for (; plan->at[rank] < length; go_on(plan, rank)) {
    const uint32_t index = plan->at[rank];
    const struct job_op *op = op_at(plan, rank);
    if (job_skips(plan, rank, index))
      continue;
    issue(e, rank, index);
    if (op->kind == JOB_SYNC) {
      if (e->host[rank] < e->device[rank])
        e->host[rank] = e->device[rank];
      set_time(plan, plan->ends, rank, index, e->host[rank]);
      continue;
    }
    if (e->device[rank] < e->host[rank])
      e->device[rank] = e->host[rank];
    e->device[rank] += COMPUTE + noise(rank, index, COMPUTE / 10);
    e->waits[rank] = true;
    if (op->kind == JOB_SEND || op->kind == JOB_RECV)
      meet_peer(e, rank, op);
    else
      meet_all(e, rank, (enum job_comm)op->comm);
    return;
  }
}

/* What hosts still call while their devices stand. Who leaves a call out does not come to its last synchronisation. */
static void run_ahead(struct events *e, uint32_t rank) {
  struct job_plan *plan = e->plan;
  const uint32_t stage = job_stage(plan, rank), length = plan->lengths[stage];
  uint32_t index = plan->at[rank];
  for (index += index < length; index < length; index++) {
    const bool sync = job_op_at(plan, rank, index)->kind == JOB_SYNC;
    if (sync && (has_fault(plan, rank, JOB_SKIPS) || has_fault(plan, rank, JOB_STOPS)))
      break;
    if (!job_skips(plan, rank, index))
      issue(e, rank, index);
    if (sync) {
      index++;
      break;
    }
  }
  plan->issued[rank] = index;
}

static int run(struct job_plan *plan) {
  struct events e = {.plan = plan};
  int status = 0;
  e.host = calloc(plan->ranks, sizeof *e.host);
  e.device = calloc(plan->ranks, sizeof *e.device);
  e.waits = calloc(plan->ranks, sizeof *e.waits);
  e.ready = calloc(2 * (size_t)plan->ranks + 2, sizeof *e.ready);
  for (int c = 0; c < JOB_COMMS; c++) {
    e.comms[c] = calloc(plan->ranks, sizeof *e.comms[c]);
    status |= e.comms[c] ? 0 : -1;
  }
  if (!e.host || !e.device || !e.waits || !e.ready)
    status = -1;
  for (uint32_t r = 0; r < plan->ranks && !status; r++)
    e.ready[e.ready_count++] = r;
  while (e.ready_count)
    advance(&e, e.ready[--e.ready_count]);
  for (uint32_t r = 0; r < plan->ranks && !status; r++)
    run_ahead(&e, r);
  for (int c = 0; c < JOB_COMMS; c++)
    free(e.comms[c]);
  free(e.host);
  free(e.device);
  free(e.waits);
  free(e.ready);
  return status;
}

int job_plan_make(const struct job_shape *shape, struct job_plan *out) {
  *out = (struct job_plan){.shape = *shape};
  if (!shape->tp || !shape->pp || !shape->dp || !shape->ep || shape->dp % shape->ep ||
      (uint64_t)shape->tp * shape->pp * shape->dp > 1u << 20)
    return -1;
  out->ranks = shape->tp * shape->pp * shape->dp;
  out->programs = calloc(shape->pp, sizeof *out->programs);
  out->lengths = calloc(shape->pp, sizeof *out->lengths);
  out->step = calloc(shape->pp, sizeof *out->step);
  out->enters = calloc(out->ranks, sizeof *out->enters);
  out->ends = calloc(out->ranks, sizeof *out->ends);
  out->issued = calloc(out->ranks, sizeof *out->issued);
  out->at = calloc(out->ranks, sizeof *out->at);
  if (!out->programs || !out->lengths || !out->step || !out->enters || !out->ends || !out->issued ||
      !out->at || make_programs(out))
    return -1;
  for (uint32_t r = 0; r < out->ranks; r++) {
    const uint32_t stage = job_stage(out, r);
    const size_t room = out->lengths[stage] + 1u - left_out(out, stage);
    out->enters[r] = calloc(room, sizeof **out->enters);
    out->ends[r] = calloc(room, sizeof **out->ends);
    if (!out->enters[r] || !out->ends[r])
      return -1;
  }
  pick_hit(out);
  return run(out);
}

void job_plan_free(struct job_plan *plan) {
  for (uint32_t r = 0; plan->enters && plan->ends && r < plan->ranks; r++) {
    free(plan->enters[r]);
    free(plan->ends[r]);
  }
  for (uint32_t i = 0; plan->programs && i < plan->shape.pp; i++)
    free(plan->programs[i]);
  free(plan->programs);
  free(plan->lengths);
  free(plan->step);
  free(plan->enters);
  free(plan->ends);
  free(plan->issued);
  free(plan->at);
}
