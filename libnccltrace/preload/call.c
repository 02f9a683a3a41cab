/* SPDX-License-Identifier: Apache-2.0 */
/* Starting and completing records, and calls that are only noted. */
#include "preload/call.h"

#include "preload/call_parts.h"

/* The thread's open call never returned (longjmp, an exception, a cancelled thread): closes it. */
static void abandon(struct nt_thread *thread) {
  thread->frame = 0;
  if (!thread->open || thread->incarnation != nt_process.incarnation || !nt_recording())
    return;
  thread->open->flags |= NT_CALL_ABANDONED;
  thread->open->duration = nt_duration_encode(nt_now() - thread->open->enter);
  thread->open = NULL;
  nt_ring_close(&thread->ring);
  atomic_fetch_add_explicit(&nt_process.area.header->abandoned, 1, memory_order_relaxed);
}

/* A call is open: is this one NCCL's own, from inside it? Its caller is NCCL; where that cannot be told (NCCL linked
 * into somebody's library, another interposer, the CUDA runtime in between), it is deeper on the stack than the open
 * call's wrapper, and that wrapper still stands there. Otherwise the wrapper left the stack without returning. */
static bool is_nested(const struct nt_thread *thread, const struct nt_library *library, unsigned fn,
                      const void *caller, const void *frame) {
  if (library && library->high && (!nt_fn_is_driver(fn) || nt_library_contains(library, caller)))
    return nt_library_contains(library, caller);
  /* The return address lies behind the saved frame pointer, on x86-64 as on aarch64. */
  return (uintptr_t)frame < thread->frame &&
         ((void *const *)thread->frame)[1] == thread->return_address;
}

void *nt_call_begin_slowly(struct nt_call *call, ncclComm_t handle, const void *caller,
                           const void *frame) {
  struct nt_thread *thread = &nt_thread;
  const struct nt_library *library;
  const unsigned fn = call->fn;
  const enum nt_shape shape = call->shape;
  call->thread = NULL;
  call->comm = NULL;
  if (NT_UNLIKELY(thread->frame != 0)) {
    library = nt_resolve(fn, caller);
    if (is_nested(thread, library, fn, caller, frame))
      return library ? library->fn[fn] : NULL;
    abandon(thread);
  }
  bool recording = nt_recording();
  if (handle && recording)
    call->comm = nt_comm_find(thread, handle);
  library = call->comm && call->comm->library ? call->comm->library : nt_resolve(fn, caller);
  if (NT_UNLIKELY(!library))
    return NULL;
  if (NT_UNLIKELY(nt_library_contains(library, caller)))
    return library->fn[fn];
  bool creates =
      shape == NT_SHAPE_COMM_INIT || shape == NT_SHAPE_COMM_INIT_ALL || shape == NT_SHAPE_COMM_GROW;
  /* Groups are followed before the first communicator too: it may be created inside one. */
  bool groups = shape == NT_SHAPE_GROUP_START || shape == NT_SHAPE_GROUP_END ||
                shape == NT_SHAPE_GROUP_SIMULATE;
  if (recording || creates || groups) {
    call->thread = thread;
    thread->frame = (uintptr_t)frame;
    thread->return_address = ((void *const *)frame)[1];
    if (call->comm && NT_UNLIKELY(!call->comm->library))
      call->comm->library = library;
    if (creates)
      call->comm = NULL, nt_comm_library_hint(library);
  }
  return library->fn[fn];
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
