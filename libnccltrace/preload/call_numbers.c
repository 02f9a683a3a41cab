/* SPDX-License-Identifier: Apache-2.0 */
/* Sequence numbers, running sums and queue positions: taken, given back, settled (call_parts.h). */
#include "preload/call_parts.h"

/* Position of the present group's first collective on this communicator. */
static uint32_t group_position(struct nt_thread *thread, struct nt_comm *comm, uint32_t seq) {
  if (!thread->group_depth)
    return seq;
  uint64_t tag = (uint64_t)thread->ring.thread << 32 | thread->group;
  if (comm->group_tag != tag) {
    comm->group_tag = tag;
    comm->group_base = seq;
  }
  return comm->group_base;
}

uint32_t nt_take_collective(struct nt_call *call, const struct nt_args *args, uint8_t op) {
  struct nt_comm *comm = call->comm;
  struct nt_comm_live *live = &comm->slot->live;
  uint32_t seq = atomic_fetch_add_explicit(&live->collectives, 1, memory_order_relaxed) + 1;
  uint64_t signature = nt_signature(call->fn, args->count, args->dtype, op, args->peer);
  call->term = nt_signature_mix(signature, group_position(call->thread, comm, seq));
  uint64_t sum =
      atomic_fetch_add_explicit(&live->sum, call->term, memory_order_relaxed) + call->term;
  int levels = __builtin_ctz(seq | 1u << (NT_SUM_LEVELS - 1));
  for (int j = 0; j <= levels; j++)
    atomic_store_explicit(&live->sums[j][(seq >> j) % NT_SUM_KEPT], sum, memory_order_relaxed);
  return seq;
}

uint32_t nt_take_p2p(struct nt_comm *comm, enum nt_shape shape, int peer) {
  struct nt_comm_live *live = &comm->slot->live;
  bool sends = shape == NT_SHAPE_SEND;
  atomic_fetch_add_explicit(sends ? &live->sends : &live->recvs, 1, memory_order_relaxed);
  if (peer < 0 || (uint32_t)peer >= comm->peers)
    return 0;
  uint32_t *queue = sends ? &comm->sent[peer] : &comm->received[peer];
  return __atomic_add_fetch(queue, 1, __ATOMIC_RELAXED) +
         atomic_load_explicit(&live->all_peer, memory_order_relaxed);
}

void nt_give_back(const struct nt_pending *taken) {
  if (taken->created)
    nt_comm_failed(taken->created);
  if (!taken->comm)
    return;
  struct nt_comm_live *live = &taken->comm->slot->live;
  switch ((enum nt_shape)taken->shape) {
  case NT_SHAPE_COLL_P2P:
    atomic_fetch_sub_explicit(&live->all_peer, 1, memory_order_relaxed);
    /* fall through */
  case NT_SHAPE_COLL:
    atomic_fetch_sub_explicit(&live->sum, taken->term, memory_order_relaxed);
    atomic_fetch_sub_explicit(&live->collectives, 1, memory_order_relaxed);
    break;
  case NT_SHAPE_SEND:
    atomic_fetch_sub_explicit(&live->sends, 1, memory_order_relaxed);
    if (taken->peer >= 0 && (uint32_t)taken->peer < taken->comm->peers)
      __atomic_fetch_sub(&taken->comm->sent[taken->peer], 1, __ATOMIC_RELAXED);
    break;
  case NT_SHAPE_RECV:
    atomic_fetch_sub_explicit(&live->recvs, 1, memory_order_relaxed);
    if (taken->peer >= 0 && (uint32_t)taken->peer < taken->comm->peers)
      __atomic_fetch_sub(&taken->comm->received[taken->peer], 1, __ATOMIC_RELAXED);
    break;
  case NT_SHAPE_COMM_SPLIT:
  case NT_SHAPE_COMM_GROW:
    atomic_fetch_sub_explicit(&live->splits, 1, memory_order_relaxed);
    break;
  default:
    break;
  }
}

void nt_settle(struct nt_call *call, const struct nt_args *args, ncclResult_t result) {
  struct nt_pending taken = {.comm = call->comm,
                             .created = call->created,
                             .term = call->term,
                             .peer = args->peer,
                             .shape = call->uncounted ? (uint16_t)NT_SHAPE_NONE
                                                      : (uint16_t)nt_fn_shape(call->fn),
                             .stream_slot = call->record ? call->record->stream : 0,
                             .stream = args->stream};
  if (!nt_accepted(result)) {
    nt_give_back(&taken);
  } else if (call->thread->group_depth) {
    struct nt_pending *entry = nt_thread_pend(call->thread);
    if (entry)
      *entry = taken;
  }
}
