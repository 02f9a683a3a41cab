/* SPDX-License-Identifier: Apache-2.0 */
/* Starting and completing records, and calls that are only noted. */
#include "preload/call.h"

#include <dlfcn.h>
#include <errno.h>

#include "preload/call_parts.h"
#include "preload/native_stack.h"
#include "preload/python_stack.h"

void nt_call_abandon(struct nt_thread *thread) {
  thread->frame = 0;
  thread->entered = NULL;
  if (!thread->open || thread->incarnation != nt_process.incarnation || !nt_recording())
    return;
  thread->open->flags |= NT_CALL_ABANDONED;
  thread->open->duration = nt_duration_encode(nt_now() - thread->open->enter);
  thread->open = NULL;
  nt_ring_close(&thread->ring);
  atomic_fetch_add_explicit(&nt_process.area.header->abandoned, 1, memory_order_relaxed);
}

/* What may go on below the open call depends on where that one went. */
static bool is_nested(const struct nt_thread *thread, unsigned fn, const void *caller,
                      const void *frame) {
  const struct nt_library *open = thread->entered;
  if (!open && (uintptr_t)frame < thread->frame)
    open = nt_resolve(fn, thread->return_address);
  return nt_call_is_nested(thread, open, caller, frame);
}

void *nt_call_begin_entered(struct nt_call *call, unsigned fn, enum nt_shape shape,
                            ncclComm_t handle, const void *caller, const void *frame,
                            const struct nt_library *library) {
  struct nt_thread *thread = &nt_thread;
  nt_call_clear(call, fn);
  if (NT_UNLIKELY(!nt_library_is_called(library))) {
    int saved_errno = errno;
    nt_library_call(library);
    (void)dlerror();
    errno = saved_errno;
  }
  if (NT_UNLIKELY(thread->frame != 0)) {
    if (is_nested(thread, fn, caller, frame))
      return library->fn[fn];
    nt_call_abandon(thread);
  }
  if (NT_UNLIKELY(nt_library_contains(library, caller)))
    return library->fn[fn];
  bool recording = nt_recording();
  if (handle && recording)
    call->comm = nt_comm_find(thread, handle);
  nt_call_open(call, shape, recording, frame, library);
  if (call->thread)
    thread->entered = library;
  return library->fn[fn];
}

struct nt_record *nt_record_start_bare(struct nt_call *call) {
  struct nt_thread *thread = call->thread;
  if (NT_UNLIKELY(thread->incarnation != nt_process.incarnation)) {
    int saved_errno = errno;
    nt_thread_register(thread);
    errno = saved_errno;
  }
  struct nt_record *record = nt_ring_next(&nt_process.area, &thread->ring);
  call->record = record;
  if (NT_UNLIKELY(!record))
    return NULL;
  record->enter = nt_now();
  record->duration = 0;
  record->seq = 0;
  record->count = 0;
  record->send = record->recv = 0;
  record->peer = -1;
  record->launch = 0;
  record->comm = call->comm ? (uint16_t)call->comm->index : 0;
  record->stream = 0;
  record->group = thread->group_depth ? (uint16_t)thread->group : 0;
  record->fn = (uint8_t)call->fn;
  record->dtype = record->op = 255;
  record->result = NT_RESULT_OPEN;
  record->flags = 0;
  record->stack = 0;
  return record;
}

struct nt_record *nt_record_start(struct nt_call *call) {
  struct nt_record *record = nt_record_start_bare(call);
  if (NT_UNLIKELY(!record))
    return NULL;
  record->stack = nt_python_stack(&record->flags);
  if (NT_UNLIKELY(nt_native_on))
    record->stack = nt_native_stack(record->stack, &record->flags);
  return record;
}

void nt_record_publish(struct nt_call *call) {
  struct nt_area_header *header = nt_process.area.header;
  if (call->comm)
    atomic_store_explicit(&call->comm->slot->live.last_enter, call->record->enter,
                          memory_order_relaxed);
  atomic_fetch_add_explicit(&header->calls, 1, memory_order_relaxed);
  call->thread->open = call->record;
  nt_ring_publish(&call->thread->ring);
}

void nt_record_finish(struct nt_call *call, ncclResult_t result) {
  struct nt_thread *thread = call->thread;
  struct nt_record *record = call->record;
  thread->frame = 0;
  /* The record is gone if the thread forked inside the call, or another call abandoned it. */
  if (!record || thread->open != record)
    return;
  record->duration = nt_duration_encode(nt_now() - record->enter);
  record->result = (uint8_t)result;
  if (result == ncclInProgress)
    record->flags |= NT_CALL_IN_PROGRESS;
  else if (result != ncclSuccess)
    record->flags |= NT_CALL_VOID;
  thread->open = NULL;
  nt_ring_close(&thread->ring);
}

void nt_enter_nothing(struct nt_call *call, const struct nt_args *args) {
  (void)call;
  (void)args;
}

void nt_enter_plain(struct nt_call *call, const struct nt_args *args) {
  struct nt_record *record = nt_record_start(call);
  if (!record)
    return;
  record->count = args->count;
  record->recv = (uint64_t)(uintptr_t)args->recv;
  nt_record_publish(call);
}

void nt_exit_plain(struct nt_call *call, const struct nt_args *args, ncclResult_t result) {
  (void)args;
  nt_record_finish(call, result);
}

void nt_exit_redop(struct nt_call *call, const struct nt_args *args, ncclResult_t result) {
  struct nt_comm *comm = call->comm;
  if (comm && result == ncclSuccess && args->out) {
    comm->user_op[comm->user_ops % NT_USER_OPS] = *(const int *)args->out;
    comm->user_ops++;
    if (call->record)
      call->record->op = (uint8_t)(NT_REDOP_FIRST_USER + (comm->user_ops - 1) % 200);
  }
  nt_record_finish(call, result);
}

/* Polled all the time: a record only when the answer is an error and has changed. */
void nt_exit_async_error(struct nt_call *call, const struct nt_args *args, ncclResult_t result) {
  struct nt_comm *comm = call->comm;
  call->thread->frame = 0;
  if (!comm || result != ncclSuccess || !args->out)
    return;
  int reported = *(const int *)args->out;
  struct nt_comm_live *live = &comm->slot->live;
  if (reported == ncclSuccess &&
      atomic_load_explicit(&live->state, memory_order_relaxed) == NT_COMM_CREATING)
    nt_comm_set_state(comm, NT_COMM_LIVE); /* what was in progress is done */
  if (NT_LIKELY(reported == ncclInProgress ||
                (uint32_t)reported ==
                    atomic_load_explicit(&live->async_error, memory_order_relaxed)))
    return;
  atomic_store_explicit(&live->async_error, (uint32_t)reported, memory_order_relaxed);
  if (!nt_record_start(call))
    return;
  call->record->count = (uint64_t)(unsigned)reported;
  nt_record_publish(call);
  nt_record_finish(call, result);
}
