/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives, sends and receives: the path that matters. */
#include "preload/call_parts.h"

/* cudaStreamLegacy is 1, cudaStreamPerThread 2, the default stream 0 (driver_types.h). */
enum { LAST_DEFAULT_STREAM = 2 };

/* Streams are few and live long: an open-addressed table in the area, filled by whoever comes first. The
 * default streams have the same handle on every device. */
static uint64_t stream_key(cudaStream_t stream, int device) {
  uint64_t key = (uint64_t)(uintptr_t)stream + 1; /* so that the default stream is not 0 */
  if (key <= LAST_DEFAULT_STREAM + 1)
    key |= (uint64_t)(uint32_t)(device + 1) << 32;
  return key;
}

static inline uint32_t stream_place(uint64_t key, uint32_t tried, uint32_t count) {
  return ((uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 40) + tried) % count;
}

static uint16_t find_stream(uint64_t key, bool make, int device) {
  struct nt_area_header *header = nt_process.area.header;
  uint32_t count = header->stream_count;
  for (uint32_t tried = 0; tried < count; tried++) {
    uint32_t index = stream_place(key, tried, count);
    if (index == 0)
      continue;
    struct nt_stream_slot *slot = &nt_process.area.streams[index];
    uint64_t found = atomic_load_explicit(&slot->handle, memory_order_acquire);
    if (!found && !make)
      return 0;
    if (!found && atomic_compare_exchange_strong(&slot->handle, &found, key)) {
      slot->device = device;
      slot->number = atomic_fetch_add_explicit(&header->next_stream, 1, memory_order_relaxed) + 1;
      return (uint16_t)index;
    }
    if (found == key)
      return (uint16_t)index;
  }
  return 0;
}

uint16_t nt_stream_slot(cudaStream_t stream, int device) {
  return find_stream(stream_key(stream, device), true, device);
}

uint16_t nt_stream_known(cudaStream_t stream) {
  const struct nt_cuda_driver *driver = nt_cuda_driver_known();
  int device = -1;
  if ((uintptr_t)stream <= LAST_DEFAULT_STREAM &&
      (!driver || driver->ctx_get_device(&device) != NT_CU_SUCCESS))
    return 0;
  return find_stream(stream_key(stream, device), false, device);
}

uint8_t nt_normal_op(const struct nt_comm *comm, int op) {
  if (op < 0)
    return 255;
  if (op < NT_REDOP_FIRST_USER)
    return (uint8_t)op;
  uint32_t made = comm ? comm->user_ops : 0,
           forgotten = made > NT_USER_OPS ? made - NT_USER_OPS : 0;
  for (uint32_t i = made; i-- > forgotten;)
    if (comm->user_op[i % NT_USER_OPS] == op)
      return (uint8_t)(NT_OP_USER + i % NT_OP_USERS);
  return nt_op_newer(op);
}

static uint16_t stream_slot(const struct nt_call *call, const struct nt_args *args) {
  return nt_stream_slot(args->stream, call->comm ? call->comm->slot->def.device : -1);
}

static void fill_transfer(struct nt_call *call, const struct nt_args *args, uint16_t slot) {
  struct nt_record *record = call->record;
  record->count = args->count;
  record->send = (uint64_t)(uintptr_t)args->send;
  record->recv = (uint64_t)(uintptr_t)args->recv;
  record->peer = args->peer;
  record->dtype = nt_byte_of(args->dtype);
  record->stream = slot;
}

/* NCCL's notion: for gathers and scatters the smaller buffer lies at the rank's place in the larger. */
static bool in_place(const struct nt_call *call, const struct nt_args *args) {
  uint64_t send = (uint64_t)(uintptr_t)args->send, recv = (uint64_t)(uintptr_t)args->recv;
  int rank = call->comm ? call->comm->slot->def.rank : -1;
  uint64_t offset = rank > 0 ? (uint64_t)rank * args->count * nt_dtype_size(args->dtype) : 0;
  switch (nt_fn_canonical(call->fn)) {
  case NT_FN_AllGather:
    return rank >= 0 ? send == recv + offset : send == recv;
  case NT_FN_ReduceScatter:
    return rank >= 0 ? recv == send + offset : send == recv;
  default:
    return send == recv;
  }
}

/* A launch of its own gets its marks; inside a group only the number that the group's launch will have. What is
 * captured launches nothing. A non-blocking communicator launches from another thread at its own time: not known. */
static void mark_launch(struct nt_call *call, const struct nt_args *args,
                        struct nt_cuda_capture capture) {
  struct nt_record *record = call->record;
  if (NT_UNLIKELY(capture.state == NT_CU_CAPTURING)) {
    record->flags |= NT_CALL_CAPTURED;
    record->launch = capture.number;
    return;
  }
  if (call->comm && call->comm->slot->def.blocking == 0)
    return;
  if (call->thread->group_depth)
    record->launch = nt_gpu_next(record->stream);
  else
    record->launch = nt_gpu_begin(&call->gpu, record->stream, args->stream,
                                  capture.state == NT_CU_NOT_CAPTURING);
}

void nt_enter_collective(struct nt_call *call, const struct nt_args *args) {
  struct nt_record *record = nt_record_start(call);
  uint8_t op = nt_normal_op(call->comm, args->op);
  uint32_t seq = call->comm ? nt_take_collective(call, args, op) : 0;
  if (call->comm && nt_fn_shape(call->fn) == NT_SHAPE_COLL_P2P)
    atomic_fetch_add_explicit(&call->comm->slot->live.all_peer, 1, memory_order_relaxed);
  if (NT_UNLIKELY(!record))
    return;
  fill_transfer(call, args, stream_slot(call, args));
  record->op = op;
  record->seq = seq;
  if (in_place(call, args))
    record->flags |= NT_CALL_IN_PLACE;
  mark_launch(call, args, nt_capture_seen(call->thread, record->stream, args->stream));
  nt_record_publish(call);
}

void nt_enter_p2p(struct nt_call *call, const struct nt_args *args) {
  struct nt_record *record = nt_record_start(call);
  uint16_t slot = stream_slot(call, args);
  struct nt_cuda_capture capture = nt_capture_seen(call->thread, slot, args->stream);
  call->uncounted = capture.state == NT_CU_CAPTURING;
  uint32_t seq = call->comm && !call->uncounted
                     ? nt_take_p2p(call->comm, nt_fn_shape(call->fn), args->peer)
                     : 0;
  if (NT_UNLIKELY(!record))
    return;
  fill_transfer(call, args, slot);
  record->seq = seq;
  mark_launch(call, args, capture);
  nt_record_publish(call);
}

void nt_exit_counted(struct nt_call *call, const struct nt_args *args, ncclResult_t result) {
  nt_gpu_end(&call->gpu, args->stream);
  nt_record_finish(call, result);
  if (call->comm)
    nt_settle(call, args, result);
}
