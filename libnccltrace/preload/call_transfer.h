/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives, sends and receives: the path that matters. In line, so that each of their wrappers is one piece (wrap.c): what is
 * handed on by value lies in registers then. Entries, eight of each, call nt_enter_collective, nt_enter_p2p and
 * nt_exit_counted.
 */
#ifndef NT_CALL_TRANSFER_H
#define NT_CALL_TRANSFER_H

#include "nccl/signature.h"
#include "preload/call_parts.h"

/* cudaStreamLegacy is 1, cudaStreamPerThread 2, the default stream 0 (driver_types.h). */
enum { NT_STREAM_PER_THREAD = 2, NT_LAST_DEFAULT_STREAM = 2 };

/* Streams are few and live long: an open-addressed table in the area, filled by whoever comes first. The
 * default streams have the same handle on every device, that of each thread in every thread. */
NT_IN_LINE uint64_t nt_stream_key(cudaStream_t stream, int device) {
  uint64_t key = (uint64_t)(uintptr_t)stream + 1; /* so that the default stream is not 0 */
  if ((uintptr_t)stream == NT_STREAM_PER_THREAD)  /* no handle's: those are aligned */
    return ((uint64_t)(uint32_t)(device + 1) << 48) ^ ((uint64_t)(uintptr_t)&nt_thread | 3);
  if (key <= NT_LAST_DEFAULT_STREAM + 1)
    key |= (uint64_t)(uint32_t)(device + 1) << 32;
  return key;
}

/* The slot of a stream; `make`: a new one if it has none. 0 if there is none. */
uint16_t nt_find_stream(uint64_t key, bool make, int device);

/* Where a stream's slot is looked for first; slot 0 is never one. No division. */
NT_IN_LINE uint32_t nt_stream_place(uint64_t key) {
  const uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15) >> 32;
  return (uint32_t)(hash * nt_process.area.header->stream_count >> 32);
}

/* Of a default stream: which of the device's it is must be asked. */
uint16_t nt_default_stream_known(cudaStream_t stream);

/* Slot of a stream that has one already, 0 otherwise. */
NT_IN_LINE uint16_t nt_stream_known(cudaStream_t stream) {
  if (NT_UNLIKELY((uintptr_t)stream <= NT_LAST_DEFAULT_STREAM))
    return nt_default_stream_known(stream);
  const uint64_t key = nt_stream_key(stream, -1);
  const uint32_t place = nt_stream_place(key);
  const uint64_t found =
      atomic_load_explicit(&nt_process.area.streams[place].handle, memory_order_acquire);
  if (NT_LIKELY(found == key))
    return (uint16_t)place;
  return found || !place ? nt_find_stream(key, false, -1) : 0;
}

/* Of an operator that NCCL does not define. */
uint8_t nt_normal_user_op(const struct nt_comm *comm, int op);

/* The operator as all ranks would number it: user operators by their order of creation. */
NT_IN_LINE uint8_t nt_normal_op(const struct nt_comm *comm, int op) {
  if (NT_LIKELY(op < NT_REDOP_FIRST_USER))
    return (uint8_t)op; /* -1, none, is 255 */
  return nt_normal_user_op(comm, op);
}

/* A thread mostly stays on its stream. */
NT_IN_LINE uint16_t nt_stream_slot_of(const struct nt_call *call, const struct nt_args *args) {
  struct nt_thread *thread = call->thread;
  int device = call->comm ? call->comm->device : -1;
  uint64_t key = nt_stream_key(args->stream, device);
  if (NT_UNLIKELY(thread->last_stream != key)) {
    thread->last_stream_slot = nt_find_stream(key, true, device);
    thread->last_stream = key;
  }
  return thread->last_stream_slot;
}

NT_IN_LINE void nt_fill_transfer(struct nt_record *record, const struct nt_args *args,
                                 uint16_t slot, uint32_t seq) {
  record->seq = seq;
  record->count = args->count;
  record->send = (uint64_t)(uintptr_t)args->send;
  record->recv = (uint64_t)(uintptr_t)args->recv;
  record->peer = args->peer;
  record->dtype = nt_byte_of(args->dtype);
  record->stream = slot;
}

/* NCCL's notion: for gathers and scatters the smaller buffer lies at the rank's place in the larger. */
NT_IN_LINE bool nt_in_place(const struct nt_call *call, const struct nt_args *args) {
  uint64_t send = (uint64_t)(uintptr_t)args->send, recv = (uint64_t)(uintptr_t)args->recv;
  const unsigned fn = call->kind.canonical;
  if (NT_LIKELY(fn != NT_FN_AllGather && fn != NT_FN_ReduceScatter))
    return send == recv;
  int rank = call->comm ? call->comm->rank : -1;
  uint64_t offset = rank > 0 ? (uint64_t)rank * args->count * nt_dtype_size(args->dtype) : 0;
  if (rank < 0)
    return send == recv;
  return fn == NT_FN_AllGather ? send == recv + offset : recv == send + offset;
}

/* A launch of its own gets its marks; inside a group only the number that the group's launch will have. What is
 * captured launches nothing. A non-blocking communicator launches from another thread at its own time: not known. */
NT_IN_LINE void nt_mark_launch(struct nt_call *call, const struct nt_args *args,
                               struct nt_cuda_capture capture) {
  struct nt_record *record = call->record;
  if (NT_UNLIKELY(capture.state == NT_CU_CAPTURING)) {
    record->flags |= NT_CALL_CAPTURED;
    record->launch = capture.number;
    return;
  }
  if (!nt_gpu_on() || (call->comm && call->comm->launches_later))
    return;
  if (call->thread->group_depth) {
    record->launch = nt_gpu_next(record->stream);
    return;
  }
  call->gpu = nt_gpu_begin(record->stream, args->stream, capture.state == NT_CU_NOT_CAPTURING);
  record->launch = call->gpu.number;
}

/*
 * Numbers are taken at entry, so that a call that hangs inside NCCL already stands in its place, and
 * given back when the call is refused or its group discarded. All counters of a communicator are
 * atomic and relaxed: they are read by other processes at any time, and NCCL itself allows several
 * threads on one communicator only if they agree on an order.
 */
/* Position of the present group's first collective on this communicator. */
NT_IN_LINE uint32_t nt_group_position(struct nt_thread *thread, struct nt_comm *comm,
                                      uint32_t seq) {
  if (!thread->group_depth)
    return seq;
  uint64_t tag = (uint64_t)thread->ring.thread << 32 | thread->group;
  if (comm->group_tag != tag) {
    comm->group_tag = tag;
    comm->group_base = seq;
  }
  return comm->group_base;
}

NT_IN_LINE uint32_t nt_take_collective(struct nt_call *call, const struct nt_args *args,
                                       uint8_t op) {
  struct nt_comm *comm = call->comm;
  struct nt_comm_live *live = &comm->slot->live;
  uint32_t seq = atomic_fetch_add_explicit(&live->collectives, 1, memory_order_relaxed) + 1;
  uint64_t signature = nt_signature_of(call->kind, args->count, args->dtype, op, args->peer);
  call->term = nt_signature_mix(signature, nt_group_position(call->thread, comm, seq));
  if (call->shape == NT_SHAPE_COLL_P2P)
    atomic_fetch_add_explicit(&live->all_peer, 1, memory_order_relaxed);
  uint64_t sum =
      atomic_fetch_add_explicit(&live->sum, call->term, memory_order_relaxed) + call->term;
  /* Half of all positions are odd, a multiple of 2^0 only. */
  atomic_store_explicit(&live->sums[0][seq % NT_SUM_KEPT], sum, memory_order_relaxed);
  for (uint32_t j = 1, at = seq; j < NT_SUM_LEVELS && !(at & 1); j++) {
    at >>= 1;
    atomic_store_explicit(&live->sums[j][at % NT_SUM_KEPT], sum, memory_order_relaxed);
  }
  return seq;
}

NT_IN_LINE uint32_t nt_take_p2p(struct nt_comm *comm, enum nt_shape shape, int peer) {
  struct nt_comm_live *live = &comm->slot->live;
  bool sends = shape == NT_SHAPE_SEND;
  atomic_fetch_add_explicit(sends ? &live->sends : &live->recvs, 1, memory_order_relaxed);
  if (peer < 0 || (uint32_t)peer >= comm->peers)
    return 0;
  uint32_t *queue = sends ? &comm->sent[peer] : &comm->received[peer];
  return __atomic_add_fetch(queue, 1, __ATOMIC_RELAXED) +
         atomic_load_explicit(&live->all_peer, memory_order_relaxed);
}

NT_IN_LINE void nt_collective_enter(struct nt_call *call, const struct nt_args *args) {
  struct nt_record *record = nt_record_begin(call);
  uint8_t op = nt_normal_op(call->comm, args->op);
  uint32_t seq = call->comm ? nt_take_collective(call, args, op) : 0;
  if (NT_UNLIKELY(!record))
    return;
  uint16_t slot = nt_stream_slot_of(call, args);
  nt_record_fill(call, record);
  nt_fill_transfer(record, args, slot, seq);
  record->op = op;
  if (nt_in_place(call, args))
    record->flags |= NT_CALL_IN_PLACE;
  nt_record_stack(call);
  nt_mark_launch(call, args, nt_capture_seen(call->thread, slot, args->stream));
  nt_record_publish(call);
}

NT_IN_LINE void nt_p2p_enter(struct nt_call *call, const struct nt_args *args) {
  struct nt_record *record = nt_record_begin(call);
  uint16_t slot = nt_stream_slot_of(call, args);
  struct nt_cuda_capture capture = nt_capture_seen(call->thread, slot, args->stream);
  call->uncounted = capture.state == NT_CU_CAPTURING;
  uint32_t seq =
      call->comm && !call->uncounted ? nt_take_p2p(call->comm, call->shape, args->peer) : 0;
  if (NT_UNLIKELY(!record))
    return;
  nt_record_fill(call, record);
  nt_fill_transfer(record, args, slot, seq);
  nt_record_stack(call);
  nt_mark_launch(call, args, capture);
  nt_record_publish(call);
}

NT_IN_LINE void nt_operation_enter(struct nt_call *call, const struct nt_args *args) {
  if (call->shape == NT_SHAPE_SEND || call->shape == NT_SHAPE_RECV)
    nt_p2p_enter(call, args);
  else
    nt_collective_enter(call, args);
}

NT_IN_LINE void nt_operation_exit(struct nt_call *call, const struct nt_args *args,
                                  ncclResult_t result) {
  nt_gpu_end(call->gpu, args->stream);
  nt_record_finish(call, result);
  if (call->comm)
    nt_settle(call, args, result);
}

#endif
