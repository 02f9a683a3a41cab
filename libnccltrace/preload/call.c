/* SPDX-License-Identifier: Apache-2.0 */
/* Starting and completing records, and calls that are only noted. */
#include "preload/call.h"

#include <dlfcn.h>
#include <errno.h>

#include "preload/call_parts.h"

/* The thread's open call never returned (longjmp, an exception, a cancelled thread): closes it. */
static void abandon(struct nt_thread *thread) {
  thread->frame = 0;
  thread->entered = NULL;
  if (thread->ends_group) { /* NCCL's own is over, whatever became of its calls */
    thread->ends_group = false;
    thread->group_depth = thread->pending_count = 0;
  }
  if (!thread->open || thread->incarnation != nt_process.incarnation || !nt_recording())
    return;
  thread->open->flags |= NT_CALL_ABANDONED;
  thread->open->duration = nt_duration_encode(nt_now() - thread->open->enter);
  thread->open = NULL;
  nt_ring_close(&thread->ring);
  atomic_fetch_add_explicit(&nt_process.area.header->abandoned, 1, memory_order_relaxed);
}

static const void *object_of(const void *address) {
  Dl_info info;
  return dladdr(address, &info) ? info.dli_fbase : NULL;
}

/* The open call's wrapper stands where it stood, farther up the stack. */
static bool still_stands(const struct nt_thread *thread, const void *frame) {
  /* The return address lies behind the saved frame pointer, on x86-64 as on aarch64. */
  return (uintptr_t)frame < thread->frame &&
         ((void *const *)thread->frame)[1] == thread->return_address;
}

/* A call is open: is this one made inside it? Its caller is NCCL; or the open call's wrapper still stands on the stack,
 * and the caller is something that NCCL may call (a plug-in, another interposer, whoever waits by the CUDA runtime).
 * The open call's own caller is not: what stands there then is left over from a wrapper that never returned. The loader
 * is asked only by others than NCCL. */
static bool is_nested(const struct nt_thread *thread, const struct nt_library *library, unsigned fn,
                      const void *caller, const void *frame) {
  if (thread->entered)
    library = thread->entered; /* what is open was called by its own entry */
  const bool known = library && library->high;
  if (known && nt_library_contains(library, caller))
    return true;
  if (!still_stands(thread, frame))
    return false;
  return !known || nt_fn_is_cuda(fn) || object_of(caller) != object_of(thread->return_address);
}

/* A handler of signals asks for errors wherever it finds the thread: that says nothing of the open call. */
static bool is_inside(const struct nt_call *call, const struct nt_library *library,
                      const void *caller, const void *frame) {
  return call->shape == NT_SHAPE_ASYNC_ERROR ||
         is_nested(&nt_thread, library, call->fn, caller, frame);
}

/* The call goes to `library`: sets call->thread if it is to be recorded. */
static void open_call(struct nt_call *call, bool recording, const void *frame,
                      const struct nt_library *library) {
  struct nt_thread *thread = &nt_thread;
  const enum nt_shape shape = call->shape;
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
      call->comm->library = thread->last_library = library;
    if (creates)
      nt_comm_library_hint(library);
  }
}

void *nt_call_begin_entered(struct nt_call *call, unsigned id, ncclComm_t handle,
                            const void *caller, const void *frame,
                            const struct nt_library *library) {
  struct nt_thread *thread = &nt_thread;
  call->thread = NULL;
  call->comm = NULL;
  if (NT_UNLIKELY(!nt_library_is_called(library))) {
    int saved_errno = errno;
    nt_library_call(library);
    (void)dlerror();
    errno = saved_errno;
  }
  if (NT_UNLIKELY(thread->frame != 0)) {
    /* What may go on below the open call depends on where that one went. */
    bool below = !thread->entered && (uintptr_t)frame < thread->frame;
    if (is_inside(call, below ? nt_resolve(id, thread->return_address) : NULL, caller, frame))
      return library->fn[id];
    abandon(thread);
  }
  if (NT_UNLIKELY(nt_library_contains(library, caller)))
    return library->fn[id];
  bool recording = nt_recording();
  if (handle && recording)
    call->comm = nt_comm_find(thread, handle, call->shape == NT_SHAPE_ASYNC_ERROR);
  open_call(call, recording, frame, library);
  if (call->thread)
    thread->entered = library;
  return library->fn[id];
}

void *nt_call_begin_slowly(struct nt_call *call, unsigned id, ncclComm_t handle, const void *caller,
                           const void *frame) {
  struct nt_thread *thread = &nt_thread;
  const struct nt_library *library;
  call->thread = NULL;
  call->comm = NULL;
  if (NT_UNLIKELY(thread->frame != 0)) {
    library = nt_resolve(id, caller);
    if (is_inside(call, library, caller, frame))
      return library ? library->fn[id] : NULL;
    abandon(thread);
  }
  bool recording = nt_recording();
  if (handle && recording)
    call->comm = nt_comm_find(thread, handle, call->shape == NT_SHAPE_ASYNC_ERROR);
  library = call->comm && call->comm->library ? call->comm->library : nt_resolve(id, caller);
  if (NT_UNLIKELY(!library))
    return NULL;
  if (NT_UNLIKELY(nt_library_contains(library, caller)))
    return library->fn[id];
  open_call(call, recording, frame, library);
  return library->fn[id];
}

/* The record may be in the file already, as that of a call that never returned, or its place another's. */
void nt_record_finish_abandoned(struct nt_thread *thread, struct nt_record *record, uint64_t enter,
                                ncclResult_t result) {
  struct nt_chunk *chunk = thread->ring.chunk;
  if (!chunk || thread->incarnation != nt_process.incarnation || !nt_recording() ||
      record < chunk->records || record >= chunk->records + thread->ring.next ||
      record->enter != enter || !(record->flags & NT_CALL_ABANDONED))
    return;
  record->duration = nt_duration_encode(nt_now() - record->enter);
  record->result = nt_byte_of(result);
  record->flags = (uint16_t)((record->flags & ~NT_CALL_ABANDONED) | nt_result_flags(result));
  atomic_fetch_sub_explicit(&nt_process.area.header->abandoned, 1, memory_order_relaxed);
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
      call->record->op = (uint8_t)(NT_OP_USER + (comm->user_ops - 1) % NT_OP_USERS);
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
  if (reported != ncclInProgress)
    nt_comm_resolve_all();
  struct nt_comm_live *live = &comm->slot->live;
  if (reported == ncclSuccess)
    nt_comm_is_ready(comm); /* what was in progress is done */
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
