/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path of one call: begin, enter, the real function, exit.
 *
 * wrap.c expands one wrapper per row of nccl_api.def from these pieces. begin finds the real function and
 * decides whether the call is to be recorded at all; enter_SHAPE writes the record before NCCL is
 * entered; exit_SHAPE completes it and commits or takes back the numbers that the call took.
 * No lock, no allocation, no system call and no CUDA call on the way of a collective or a send.
 */
#ifndef NT_CALL_H
#define NT_CALL_H

#include "nccl/nccl_types.h"
#include "preload/call_data.h"
#include "preload/comms.h"
#include "preload/gpu_progress.h"
#include "preload/resolve.h"
#include "preload/thread_state.h"

/* A call's arguments under one set of names; nccl_api.def says which parameter is which. What most calls have comes first:
 * as long as what is left is no more than 80 bytes, GCC clears it by stores, else by an instruction of 30 cycles. */
struct nt_args {
  ncclComm_t comm;
  cudaStream_t stream;
  uint64_t count;
  const void *send;
  const void *recv;
  int dtype, op;
  int peer;   /* root, peer, rank or colour */
  int key;    /* key, flags, signal */
  int nranks; /* or the signal's context, or the number of descriptors in `list` */
  int nids;
  const ncclUniqueId *ids;
  ncclComm_t *newcomm;
  const int *list;
  const void *config;
  void *out;
};

struct nt_call {
  struct nt_thread *thread; /* NULL: this call is not recorded */
  struct nt_record *record; /* NULL: no room, counted as lost */
  struct nt_comm *comm;     /* the call's communicator, NULL if none or not known */
  struct nt_comm *created;  /* the communicator it makes */
  uint64_t term;            /* added to the running sum */
  bool uncounted;           /* a captured message: it takes no place in its queue */
  unsigned fn; /* under which it is recorded; beside `shape` GCC would load both from a table */
  struct nt_gpu_launch gpu; /* its marks, when it is launched by itself */
  uint64_t enter;           /* clock ticks */
  struct nt_fn_kind kind;   /* of `fn` */
  enum nt_shape shape;
};

NT_IN_LINE void nt_call_clear(struct nt_call *call, unsigned fn, enum nt_shape shape) {
  call->fn = fn;
  call->shape = shape;
  call->record = NULL;
  call->created = NULL;
  call->term = 0;
  call->uncounted = false;
  call->gpu.track = NULL;
  if (nt_shape_is_operation(shape)) { /* byte by byte: as a whole GCC would load it */
    call->kind.canonical = nt_fn_kind(fn).canonical;
    call->kind.moves_bytes = nt_fn_kind(fn).moves_bytes;
  }
}

/* Asks at once for all that the call will come upon, each of which the program would only come to by another: for calls of
 * which nothing is in a cache. The answers are not waited for, and an address that is no more or NULL does no harm. */
NT_IN_LINE void nt_call_ahead(const struct nt_thread *thread) {
  const uintptr_t chunk = (uintptr_t)thread->ring.chunk,
                  record = chunk + offsetof(struct nt_chunk, records) +
                           thread->ring.next * sizeof(struct nt_record);
  __builtin_prefetch(nt_guard);
  __builtin_prefetch(thread->last_live, 1);
  __builtin_prefetch(thread->last_library);
  __builtin_prefetch((const void *)chunk, 1);
  __builtin_prefetch((const void *)record, 1);
}

/* What nt_call_begin does where something is not as it was in the call before. */
void *nt_call_begin_slowly(struct nt_call *call, unsigned id, ncclComm_t handle, const void *caller,
                           const void *frame);

/* By another call of the same kind: one whose address nobody else has lies in registers. */
NT_IN_LINE void *nt_call_begin_changed(struct nt_call *call, unsigned id, ncclComm_t handle,
                                       const void *caller, const void *frame) {
  struct nt_call other;
  nt_call_clear(&other, call->fn, call->shape);
  void *real = nt_call_begin_slowly(&other, id, handle, caller, frame);
  call->thread = other.thread;
  call->comm = other.comm;
  return real;
}

/* The same for what has no communicator: the caller's place tells the library. */
NT_IN_LINE void *nt_call_begin_at(struct nt_call *call, unsigned id, const void *caller,
                                  const void *frame) {
  struct nt_thread *thread = &nt_thread;
  const struct nt_library *library = nt_resolve_at_once(id, caller);
  if (NT_UNLIKELY(!library || thread->frame || !nt_recording()) ||
      NT_UNLIKELY(nt_library_contains(library, caller)))
    return nt_call_begin_changed(call, id, NULL, caller, frame);
  call->comm = NULL;
  call->thread = thread;
  thread->frame = (uintptr_t)frame;
  thread->return_address = ((void *const *)frame)[1];
  return library->fn[id];
}

/* Finds the communicator and the real function, which is `id` of its library; sets call->thread if the call is to be
 * recorded. `frame` is the wrapper's stack frame, `caller` its return address. NULL: no NCCL has this function. */
NT_IN_LINE void *nt_call_begin(struct nt_call *call, unsigned id, ncclComm_t handle,
                               const void *caller, const void *frame) {
  struct nt_thread *thread = &nt_thread;
  const enum nt_shape shape = call->shape;
  if (shape == NT_SHAPE_COLL || shape == NT_SHAPE_COLL_P2P)
    nt_call_ahead(thread); /* messages mostly come in groups, one hard upon the other */
  struct nt_comm *comm = thread->last_comm;
  if (nt_shape_is_dependency(shape))
    return nt_call_begin_at(call, id, caller, frame);
  if (!nt_shape_is_operation(shape))
    return nt_call_begin_slowly(call, id, handle, caller, frame);
  if (NT_UNLIKELY(!comm || !handle || thread->frame) ||
      NT_UNLIKELY(atomic_load_explicit(&comm->handle, memory_order_relaxed) != handle) ||
      NT_UNLIKELY(!comm->library || nt_library_contains(comm->library, caller)) ||
      NT_UNLIKELY(!nt_recording()))
    return nt_call_begin_changed(call, id, handle, caller, frame);
  call->comm = comm;
  call->thread = thread;
  thread->frame = (uintptr_t)frame;
  thread->return_address = ((void *const *)frame)[1];
  return comm->library->fn[id];
}

/* The same for an entry, which calls its own library whatever the communicator. */
void *nt_call_begin_entered(struct nt_call *call, unsigned id, ncclComm_t handle,
                            const void *caller, const void *frame,
                            const struct nt_library *library);

/* No function was called. */
static inline void nt_call_refused(struct nt_call *call) {
  if (!call->thread)
    return;
  call->thread->frame = 0;
  call->thread->entered = NULL;
}

/* The function has returned to its entry. */
static inline void nt_call_entered_end(struct nt_call *call) {
  if (call->thread)
    call->thread->entered = NULL;
}

/* The graph that cudaGraphAddNode nests, of its arguments from the fourth on; NULL if its node is of another kind. */
void *nt_child_graph(size_t a, size_t b, size_t c);

/* The process forked inside the call, and this is the child: the record and the numbers are the parent's, in an area
 * that both have mapped. */
static inline bool nt_call_is_parents(struct nt_call *call) {
  if (NT_LIKELY(nt_recording()) || (!call->record && !call->comm && !call->created))
    return false;
  call->thread->frame = 0;
  call->thread->entered = NULL;
  call->thread->open = NULL;
  return true;
}

/* One pair per group of shapes. All are called by the wrappers only, with call->thread set. */
void nt_enter_collective(struct nt_call *call, const struct nt_args *args);
void nt_enter_p2p(struct nt_call *call, const struct nt_args *args);
void nt_enter_rma(struct nt_call *call, const struct nt_args *args);
void nt_enter_plain(struct nt_call *call, const struct nt_args *args);
void nt_enter_init(struct nt_call *call, const struct nt_args *args);
void nt_enter_derive(struct nt_call *call, const struct nt_args *args);
void nt_enter_grow(struct nt_call *call, const struct nt_args *args);
void nt_enter_sync(struct nt_call *call, const struct nt_args *args);
void nt_enter_end(struct nt_call *call, const struct nt_args *args);
void nt_enter_group_end(struct nt_call *call, const struct nt_args *args);
void nt_enter_nothing(struct nt_call *call, const struct nt_args *args);

void nt_enter_stream_sync(struct nt_call *call, const struct nt_args *args);
void nt_enter_device_sync(struct nt_call *call, const struct nt_args *args);
void nt_enter_event_sync(struct nt_call *call, const struct nt_args *args);
void nt_enter_event_record(struct nt_call *call, const struct nt_args *args);
void nt_enter_stream_wait(struct nt_call *call, const struct nt_args *args);

void nt_enter_capture_end(struct nt_call *call, const struct nt_args *args);
void nt_enter_graph_launch(struct nt_call *call, const struct nt_args *args);

void nt_exit_capture_end(struct nt_call *call, const struct nt_args *args, int result);
void nt_exit_graph_new(struct nt_call *call, const struct nt_args *args, int result);
void nt_exit_graph_update(struct nt_call *call, const struct nt_args *args, int result);
void nt_exit_graph_part(struct nt_call *call, const struct nt_args *args, int result);
void nt_exit_graph_end(struct nt_call *call, const struct nt_args *args, int result);
void nt_exit_graph_launch(struct nt_call *call, const struct nt_args *args, int result);
void nt_exit_cuda(struct nt_call *call, const struct nt_args *args, int result);
void nt_exit_counted(struct nt_call *call, const struct nt_args *args, ncclResult_t result);
void nt_exit_rma(struct nt_call *call, const struct nt_args *args, ncclResult_t result);
void nt_exit_plain(struct nt_call *call, const struct nt_args *args, ncclResult_t result);
void nt_exit_created(struct nt_call *call, const struct nt_args *args, ncclResult_t result);
void nt_exit_end(struct nt_call *call, const struct nt_args *args, ncclResult_t result);
void nt_exit_group_start(struct nt_call *call, const struct nt_args *args, ncclResult_t result);
void nt_exit_group_end(struct nt_call *call, const struct nt_args *args, ncclResult_t result);
void nt_exit_async_error(struct nt_call *call, const struct nt_args *args, ncclResult_t result);
void nt_exit_redop(struct nt_call *call, const struct nt_args *args, ncclResult_t result);

#endif
