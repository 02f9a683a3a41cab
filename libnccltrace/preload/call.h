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
#include "preload/comms.h"
#include "preload/gpu_progress.h"
#include "preload/resolve.h"
#include "preload/thread_state.h"

/* A call's arguments under one set of names; nccl_api.def says which parameter is which. */
struct nt_args {
  ncclComm_t comm;
  cudaStream_t stream;
  const void *send;
  const void *recv;
  uint64_t count;
  int dtype, op;
  int peer; /* root, peer, rank or colour */
  int key;  /* key, flags */
  int nranks;
  const ncclUniqueId *ids;
  int nids;
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
  struct nt_gpu_launch gpu; /* its marks, when it is launched by itself */
  unsigned fn;
};

/* The thread's open call never returned (longjmp, an exception, a cancelled thread): closes it. */
void nt_call_abandon(struct nt_thread *thread);

/* A call is open: is this one NCCL's own, from inside it? Its caller is NCCL; where that cannot be told (NCCL linked
 * into somebody's library, another interposer), it is deeper on the stack than the open call's wrapper, and that
 * wrapper still stands there. Otherwise the wrapper left the stack without returning. */
static inline bool nt_call_is_nested(const struct nt_thread *thread,
                                     const struct nt_library *library, const void *caller,
                                     const void *frame) {
  if (thread->entered)
    library = thread->entered; /* what is open was called by its own entry */
  if (library && library->high)
    return nt_library_contains(library, caller);
  /* The return address lies behind the saved frame pointer, on x86-64 as on aarch64. */
  return (uintptr_t)frame < thread->frame &&
         ((void *const *)thread->frame)[1] == thread->return_address;
}

static inline void nt_call_clear(struct nt_call *call, unsigned fn) {
  call->fn = fn;
  call->thread = NULL;
  call->record = NULL;
  call->comm = call->created = NULL;
  call->term = 0;
  call->uncounted = false;
  call->gpu.track = NULL;
}

/* The call goes to `library`: sets call->thread if it is to be recorded. */
static inline void nt_call_open(struct nt_call *call, enum nt_shape shape, bool recording,
                                const void *frame, const struct nt_library *library) {
  struct nt_thread *thread = &nt_thread;
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
}

/* Finds the communicator and the real function; sets call->thread if the call is to be recorded.
 * `frame` is the wrapper's stack frame, `caller` its return address. NULL: no NCCL has this function. */
static inline void *nt_call_begin(struct nt_call *call, unsigned fn, enum nt_shape shape,
                                  ncclComm_t handle, const void *caller, const void *frame) {
  struct nt_thread *thread = &nt_thread;
  const struct nt_library *library;
  nt_call_clear(call, fn);
  if (NT_UNLIKELY(thread->frame != 0)) {
    library = nt_resolve(fn, caller);
    if (nt_call_is_nested(thread, library, caller, frame))
      return library ? library->fn[fn] : NULL;
    nt_call_abandon(thread);
  }
  bool recording = nt_recording();
  if (handle && recording)
    call->comm = nt_comm_find(thread, handle);
  library = call->comm && call->comm->library ? call->comm->library : nt_resolve(fn, caller);
  if (NT_UNLIKELY(!library))
    return NULL;
  if (NT_UNLIKELY(nt_library_contains(library, caller)))
    return library->fn[fn];
  nt_call_open(call, shape, recording, frame, library);
  return library->fn[fn];
}

/* The same for an entry, which calls its own library whatever the communicator. */
void *nt_call_begin_entered(struct nt_call *call, unsigned fn, enum nt_shape shape,
                            ncclComm_t handle, const void *caller, const void *frame,
                            const struct nt_library *library);

/* The function has returned to its entry. */
static inline void nt_call_entered_end(struct nt_call *call) {
  if (call->thread)
    call->thread->entered = NULL;
}

/* One pair per group of shapes. All are called by the wrappers only, with call->thread set. */
void nt_enter_collective(struct nt_call *call, const struct nt_args *args);
void nt_enter_p2p(struct nt_call *call, const struct nt_args *args);
void nt_enter_plain(struct nt_call *call, const struct nt_args *args);
void nt_enter_init(struct nt_call *call, const struct nt_args *args);
void nt_enter_derive(struct nt_call *call, const struct nt_args *args);
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
void nt_exit_graph_end(struct nt_call *call, const struct nt_args *args, int result);
void nt_exit_graph_launch(struct nt_call *call, const struct nt_args *args, int result);
void nt_exit_cuda(struct nt_call *call, const struct nt_args *args, int result);
void nt_exit_counted(struct nt_call *call, const struct nt_args *args, ncclResult_t result);
void nt_exit_plain(struct nt_call *call, const struct nt_args *args, ncclResult_t result);
void nt_exit_created(struct nt_call *call, const struct nt_args *args, ncclResult_t result);
void nt_exit_end(struct nt_call *call, const struct nt_args *args, ncclResult_t result);
void nt_exit_group_start(struct nt_call *call, const struct nt_args *args, ncclResult_t result);
void nt_exit_group_end(struct nt_call *call, const struct nt_args *args, ncclResult_t result);
void nt_exit_async_error(struct nt_call *call, const struct nt_args *args, ncclResult_t result);
void nt_exit_redop(struct nt_call *call, const struct nt_args *args, ncclResult_t result);

#endif
