/* SPDX-License-Identifier: Apache-2.0 */
/* Sequence numbers, running sums and queue positions: given back (call_parts.h). */
#include "preload/call_parts.h"

void nt_give_back(const struct nt_pending *taken) {
  if (taken->created && taken->shape == NT_SHAPE_COMM_INIT_ALL)
    nt_comm_all_created(taken->created, NULL);
  else if (taken->created)
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
  case NT_SHAPE_COMM_SYNC:
    atomic_fetch_sub_explicit(&live->syncs, 1, memory_order_relaxed);
    break;
  default:
    break;
  }
}
