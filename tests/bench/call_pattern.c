/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FSDP (all-gather and reduce-scatter of every layer), tensor parallelism (two all-reduces a layer), pipeline sends and
 * receives in groups, tokens to experts in every fourth layer, and a global all-reduce, with ten per cent timing noise on
 * every distance.
 */
#include "call_pattern.h"

#include <math.h>

#include "nccl/nccl_api.h"

enum { LAYERS = 24, EXPERT_PEERS = 4, EXPERTS_EVERY = 4 /* layers */ };

static uint64_t random_state = 88172645463325252u;

static double uniform(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (double)(random_state >> 11) / 9007199254740992.0;
}

static double normal(void) {
  return sqrt(-2 * log(uniform() + 1e-300)) * cos(6.283185307179586 * uniform());
}

static struct nt_record *call(struct call_pattern *p, unsigned fn, uint32_t comm, uint32_t stream,
                              double gap_us, double issue_us) {
  static struct nt_batch_call beyond;
  struct nt_batch_call *out = p->used < p->room ? &p->calls[p->used++] : &beyond;
  const double gap = fmax(0.5, gap_us * (p->slower > 0 ? p->slower : 1) * (1 + 0.1 * normal()));
  const double issue = fmax(0.3, issue_us * (1 + 0.1 * normal()));
  p->now += (uint64_t)(gap * CALL_PATTERN_TICKS_PER_US);
  *out =
      (struct nt_batch_call){.comm = comm,
                             .stream = stream,
                             .record = {.enter = p->now,
                                        .duration = (uint32_t)(issue * CALL_PATTERN_TICKS_PER_US),
                                        .peer = -1,
                                        .fn = (uint8_t)fn,
                                        .dtype = 9,
                                        .op = 255,
                                        .group = p->group}};
  p->now += out->record.duration;
  if (stream)
    out->record.launch = ++p->launch[stream];
  if (nt_fn_is_collective(fn))
    out->record.seq = ++p->seq[comm];
  out->record.stack = 1 + fn * 4 + comm;
  return &out->record;
}

static void layer(struct call_pattern *p, unsigned i, bool backward) {
  struct nt_record *r = call(p, NT_FN_AllGather, 1, 1, 30, 7);
  r->count = 12582912 / 8;
  r->send = 0x7f0000000000u + (uint64_t)i * 0x1800000;
  r->recv = 0x7f1000000000u + (uint64_t)(i & 1) * 0x8000000;
  for (int k = 0; k < 2; k++) {
    r = call(p, NT_FN_AllReduce, 2, 2, 90, 9);
    r->count = 8388608;
    r->op = 0;
    r->flags = NT_CALL_IN_PLACE;
    /* an activation: the allocator hands out one of a few blocks */
    r->send = r->recv = 0x7f2000000000u + (uint64_t)(uniform() * 6) * 0x1000000;
  }
  if (backward) {
    r = call(p, NT_FN_ReduceScatter, 1, 1, 25, 8);
    r->count = 12582912 / 8;
    r->op = 4;
    r->send = 0x7f3000000000u + (uint64_t)(i & 1) * 0x8000000;
    r->recv = 0x7f4000000000u + (uint64_t)i * 0x1800000;
  }
}

static void exchange(struct call_pattern *p, int next, int previous) {
  p->group++;
  call(p, NT_FN_GroupStart, 0, 0, 15, 0.3)->peer = -1;
  struct nt_record *r = call(p, NT_FN_Send, 3, 3, 1.5, 0.8);
  r->peer = next;
  r->count = 4194304;
  r->seq = ++p->sends;
  r->send = 0x7f5000000000u + (uint64_t)(uniform() * 4) * 0x800000;
  r = call(p, NT_FN_Recv, 3, 3, 1.5, 0.8);
  r->peer = previous;
  r->count = 4194304;
  r->seq = ++p->recvs;
  r->recv = 0x7f5800000000u + (uint64_t)(uniform() * 4) * 0x800000;
  call(p, NT_FN_GroupEnd, 0, 0, 1.5, 12)->count = 2;
  const uint16_t group = p->group;
  p->group = 0;
  p->group = group;
}

/* Tokens to the experts of each peer: counts that nobody can foretell, in rows of the hidden size. */
static void experts(struct call_pattern *p) {
  p->group++;
  call(p, NT_FN_GroupStart, 0, 0, 15, 0.3)->peer = -1;
  for (int i = 0; i < 2 * EXPERT_PEERS; i++) {
    const int peer = i / 2;
    struct nt_record *r = call(p, i % 2 ? NT_FN_Recv : NT_FN_Send, 5, 4, 1, 0.6);
    r->peer = peer;
    r->count = (uint64_t)(512 * (1 + 0.3 * normal())) * 4096;
    r->seq = p->expert_calls + 1;
    *(i % 2 ? &r->recv : &r->send) = 0x7f7000000000u + (uint64_t)peer * 0x2000000;
  }
  p->expert_calls++;
  call(p, NT_FN_GroupEnd, 0, 0, 1.5, 12)->count = 2 * EXPERT_PEERS;
}

void call_pattern_fill(struct call_pattern *p) {
  while (p->used < p->room) {
    for (int micro = 0; micro < 4; micro++) {
      const uint16_t keep = p->group;
      exchange(p, 1, 0);
      uint16_t group = p->group;
      p->group = 0;
      for (unsigned i = 0; i < LAYERS; i++) {
        layer(p, i, false);
        if (i % EXPERTS_EVERY)
          continue;
        p->group = group;
        experts(p);
        group = p->group;
        p->group = 0;
      }
      for (unsigned i = LAYERS; i-- > 0;)
        layer(p, i, true);
      p->group = group;
      (void)keep;
    }
    const uint16_t group = p->group;
    p->group = 0;
    struct nt_record *r = call(p, NT_FN_AllReduce, 4, 1, 400, 8);
    r->count = 1;
    r->dtype = 7;
    r->op = 0;
    r->send = r->recv = 0x7f6000000000u;
    p->group = group;
  }
}
