/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that the recorders of all shapes share: start a record, make it visible, complete it; take
 * numbers and settle them. Used by the call_*.c files only, in the calling application thread.
 */
#ifndef NT_CALL_PARTS_H
#define NT_CALL_PARTS_H

#include "preload/call.h"
#include "preload/native_stack.h"
#include "preload/python_stack.h"

static inline bool nt_accepted(ncclResult_t result) {
  return result == ncclSuccess || result == ncclInProgress;
}

static inline uint64_t nt_now(void) {
  return nt_clock_ticks(nt_process.clock);
}

/* Finds room for the call's record and reads the clock; writes nothing yet, so that numbers can be taken before:
 * a locked instruction waits for all stores in front of it. NULL if there is no room: the call is counted as lost. */
NT_IN_LINE struct nt_record *nt_record_begin(struct nt_call *call) {
  struct nt_thread *thread = call->thread;
  if (NT_UNLIKELY(thread->incarnation != nt_process.incarnation))
    nt_thread_register(thread);
  call->record = nt_ring_next(&nt_process.area, &thread->ring);
  call->enter = nt_now();
  return call->record;
}

/* Everything that all shapes share but a stack; not visible until nt_record_publish. `record` is the call's. Read first,
 * then written field by field: what a shape writes itself is not written here then. */
NT_IN_LINE void nt_record_fill(const struct nt_call *call, struct nt_record *record) {
  const struct nt_thread *thread = call->thread;
  const uint64_t enter = call->enter;
  const uint16_t comm = call->comm ? (uint16_t)call->comm->index : 0;
  const uint16_t group = thread->group_depth ? (uint16_t)thread->group : 0;
  const uint8_t fn = (uint8_t)call->fn;
  record->enter = enter;
  record->duration = record->seq = 0;
  record->count = record->send = record->recv = 0;
  record->peer = -1;
  record->stack = record->launch = 0;
  record->comm = comm;
  record->stream = 0;
  record->group = group;
  record->fn = fn;
  record->dtype = record->op = 255;
  record->result = NT_RESULT_OPEN;
  record->flags = 0;
}

NT_IN_LINE void nt_record_stack(const struct nt_call *call) {
  struct nt_record *record = call->record;
  record->stack = nt_python_stack(&record->flags);
  if (NT_UNLIKELY(nt_native_on))
    record->stack = nt_native_stack(record->stack, &record->flags);
}

/* Both at once: a record without a stack, for what is too frequent and of too little interest. */
static inline struct nt_record *nt_record_start_bare(struct nt_call *call) {
  if (NT_LIKELY(nt_record_begin(call) != NULL))
    nt_record_fill(call, call->record);
  return call->record;
}

/* The same with a stack. */
static inline struct nt_record *nt_record_start(struct nt_call *call) {
  if (NT_LIKELY(nt_record_start_bare(call) != NULL))
    nt_record_stack(call);
  return call->record;
}

/* Makes the call's record visible as open. */
NT_IN_LINE void nt_record_publish(struct nt_call *call) {
  if (call->comm)
    atomic_store_explicit(&call->comm->slot->live.last_enter, call->record->enter,
                          memory_order_relaxed);
  call->thread->open = call->record;
  nt_ring_publish(&call->thread->ring);
}

static inline uint16_t nt_result_flags(ncclResult_t result) {
  return result == ncclSuccess ? 0 : result == ncclInProgress ? NT_CALL_IN_PROGRESS : NT_CALL_VOID;
}

/* The same for a record that another call has closed as abandoned; `enter` is the call's. */
void nt_record_finish_abandoned(struct nt_thread *thread, struct nt_record *record, uint64_t enter,
                                ncclResult_t result);

/* Completes the record, if there is one, and leaves the call. */
NT_IN_LINE void nt_record_finish(struct nt_call *call, ncclResult_t result) {
  struct nt_thread *thread = call->thread;
  struct nt_record *record = call->record;
  thread->frame = 0;
  if (!record)
    return;
  if (NT_UNLIKELY(thread->open != record)) {
    nt_record_finish_abandoned(thread, record, call->enter, result);
    return;
  }
  record->duration = nt_duration_encode(nt_now() - record->enter);
  record->result = nt_byte_of(result);
  record->flags |= nt_result_flags(result);
  thread->open = NULL;
  nt_ring_close(&thread->ring);
}

/* Slot of a stream in the area, 0 if there is no room. `device` tells default streams apart, which have
 * the same handle on every device; -1 if not known. */
uint16_t nt_stream_slot(cudaStream_t stream, int device);

/* Whether what the thread launches on the stream is being captured; asked once a stream of a group. A capture that is
 * seen here is one with operations of NCCL. */
struct nt_cuda_capture nt_capture_ask(struct nt_thread *thread, uint16_t slot, cudaStream_t stream);

NT_IN_LINE struct nt_cuda_capture nt_capture_seen(struct nt_thread *thread, uint16_t slot,
                                                  cudaStream_t stream) {
  if (!nt_cuda_driver_known())
    return (struct nt_cuda_capture){NT_CU_NOT_CAPTURING, 0};
  if (thread->group_depth && slot && thread->capture_slot == slot)
    return thread->capture;
  return nt_capture_ask(thread, slot, stream);
}

NT_IN_LINE void nt_pending_fill(struct nt_pending *taken, const struct nt_call *call,
                                const struct nt_args *args) {
  taken->comm = call->comm;
  taken->created = call->created;
  taken->term = call->term;
  taken->peer = args->peer;
  taken->shape = call->uncounted ? (uint16_t)NT_SHAPE_NONE : (uint16_t)call->shape;
  taken->stream_slot = call->record ? call->record->stream : 0;
  taken->stream = args->stream;
}

/* The group decides of a call that took numbers. */
NT_IN_LINE void nt_pend(const struct nt_call *call, const struct nt_args *args) {
  struct nt_pending *entry = nt_thread_pend(call->thread);
  if (NT_UNLIKELY(!entry))
    return;
  nt_pending_fill(entry, call, args);
  if (NT_UNLIKELY(call->created != NULL))
    call->thread->pending_creates = true;
}

/* Takes back what a call has taken. */
void nt_give_back(const struct nt_pending *taken);

/* A call that took numbers has returned: keep them, give them back, or let the group decide. */
NT_IN_LINE void nt_settle(const struct nt_call *call, const struct nt_args *args,
                          ncclResult_t result) {
  struct nt_pending refused;
  if (NT_UNLIKELY(!nt_accepted(result))) {
    nt_pending_fill(&refused, call, args);
    nt_give_back(&refused);
  } else if (call->thread->group_depth) {
    nt_pend(call, args);
  }
}

#endif
