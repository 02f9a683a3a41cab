/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives, sends and receives: the path that matters. */
#include "preload/call_data.h"
#include "preload/call_transfer.h"

uint16_t nt_find_stream(uint64_t key, bool make, int device) {
  struct nt_area_header *header = nt_process.area.header;
  uint32_t count = header->stream_count, index = nt_stream_place(key);
  for (uint32_t tried = 0; tried < count; tried++, index++) {
    if (index == count)
      index = 0;
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
  return nt_find_stream(nt_stream_key(stream, device), true, device);
}

uint16_t nt_default_stream_known(cudaStream_t stream) {
  const struct nt_cuda_driver *driver = nt_cuda_driver_known();
  int device = -1;
  if (!driver || driver->ctx_get_device(&device) != NT_CU_SUCCESS)
    return 0;
  return nt_find_stream(nt_stream_key(stream, device), false, device);
}

uint8_t nt_normal_user_op(const struct nt_comm *comm, int op) {
  uint32_t made = comm ? comm->user_ops : 0,
           forgotten = made > NT_USER_OPS ? made - NT_USER_OPS : 0;
  for (uint32_t i = made; i-- > forgotten;)
    if (comm->user_op[i % NT_USER_OPS] == op)
      return (uint8_t)(NT_OP_USER + i % NT_OP_USERS);
  return nt_op_newer(op);
}

NT_CALL_CODE void nt_enter_collective(struct nt_call *call, const struct nt_args *args) {
  nt_collective_enter(call, args);
}

NT_CALL_CODE void nt_enter_p2p(struct nt_call *call, const struct nt_args *args) {
  nt_p2p_enter(call, args);
}

NT_CALL_CODE void nt_exit_counted(struct nt_call *call, const struct nt_args *args,
                                  ncclResult_t result) {
  nt_operation_exit(call, args, result);
}

/* ---- one-sided operations ------------------------------------------------------------------------ */

/* ncclWaitSignalDesc_t: four ints. */
struct signal_wait {
  int count, peer, signal, context;
};

static void fill_signal(struct nt_record *record, int peer, int signal, int context) {
  record->peer = peer;
  record->recv = (uint64_t)(uint32_t)context << 32 | (uint32_t)signal;
}

static void fill_wait(struct nt_record *record, const struct signal_wait *wait) {
  record->count = (uint64_t)(int64_t)wait->count;
  fill_signal(record, wait->peer, wait->signal, wait->context);
}

/* Signals are counted by the tools: their kinds are too many for counters of ours. */
void nt_enter_rma(struct nt_call *call, const struct nt_args *args) {
  struct nt_record *record = nt_record_begin(call);
  const struct signal_wait *waits = (const void *)args->list;
  uint16_t slot = nt_stream_slot_of(call, args);
  struct nt_cuda_capture capture = nt_capture_seen(call->thread, slot, args->stream);
  if (NT_UNLIKELY(!record))
    return;
  nt_record_fill(call, record);
  nt_fill_transfer(record, args, slot, 0);
  if (call->fn != NT_FN_WaitSignal)
    fill_signal(record, args->peer, args->key, args->nranks);
  else if (waits && args->nranks > 0)
    fill_wait(record, &waits[0]);
  nt_record_stack(call);
  nt_mark_launch(call, args, capture);
  nt_record_publish(call);
}

/* A wait for signals of several ranks is one record for each, complete but for the first: a refused call waits for
 * none of the others. */
void nt_exit_rma(struct nt_call *call, const struct nt_args *args, ncclResult_t result) {
  const struct signal_wait *waits = (const void *)args->list;
  const struct nt_record *first = call->record;
  int count =
      call->fn == NT_FN_WaitSignal && waits && first && nt_accepted(result) ? args->nranks : 0;
  uint32_t launch = first ? first->launch : 0;
  uint16_t slot = first ? first->stream : 0, flags = first ? first->flags : 0;
  nt_exit_counted(call, args, result);
  for (int i = 1; i < count; i++) {
    struct nt_record *record = nt_record_begin(call);
    if (!record)
      return;
    nt_record_fill(call, record);
    fill_wait(record, &waits[i]);
    record->launch = launch;
    record->stream = slot;
    record->flags = flags;
    nt_record_publish(call);
    nt_record_finish(call, result);
  }
}
