/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every recorded function does, expanded from its row of nccl_api.def or cuda_api.def: in the exported wrappers (wrap.c)
 * and in the entries (entries.c).
 *
 * A wrapper for whose library there is no room (library.h) calls the function all the same, untraced. One that finds
 * nothing behind it answers ncclInvalidUsage or cudaErrorUnknown, the nearest to the symbol error that the process would have
 * met without us.
 */
#ifndef NT_WRAP_H
#define NT_WRAP_H

#include "preload/call.h"
#include "preload/resolve.h"

/* Which pair of functions records a shape. */
#define ENTER_UNIQUE_ID nt_enter_plain
#define EXIT_UNIQUE_ID nt_exit_plain
#define ENTER_COMM_INIT nt_enter_init
#define EXIT_COMM_INIT nt_exit_created
#define ENTER_COMM_INIT_ALL nt_enter_init
#define EXIT_COMM_INIT_ALL nt_exit_created
#define ENTER_COMM_SPLIT nt_enter_derive
#define EXIT_COMM_SPLIT nt_exit_created
#define ENTER_COMM_SHRINK nt_enter_derive
#define EXIT_COMM_SHRINK nt_exit_created
#define ENTER_COMM_GROW nt_enter_grow
#define EXIT_COMM_GROW nt_exit_created
#define ENTER_COMM_FINALIZE nt_enter_end
#define EXIT_COMM_FINALIZE nt_exit_end
#define ENTER_COMM_END nt_enter_end
#define EXIT_COMM_END nt_exit_end
#define ENTER_COMM_ABORT nt_enter_end
#define EXIT_COMM_ABORT nt_exit_end
#define ENTER_COMM_SYNC nt_enter_sync
#define EXIT_COMM_SYNC nt_exit_counted
#define ENTER_ASYNC_ERROR nt_enter_nothing
#define EXIT_ASYNC_ERROR nt_exit_async_error
#define ENTER_GROUP_START nt_enter_nothing
#define EXIT_GROUP_START nt_exit_group_start
#define ENTER_GROUP_END nt_enter_group_end
#define EXIT_GROUP_END nt_exit_group_end
#define ENTER_GROUP_SIMULATE nt_enter_group_end
#define EXIT_GROUP_SIMULATE nt_exit_group_end
#define ENTER_COLL nt_enter_collective
#define EXIT_COLL nt_exit_counted
#define ENTER_COLL_P2P nt_enter_collective
#define EXIT_COLL_P2P nt_exit_counted
#define ENTER_SEND nt_enter_p2p
#define EXIT_SEND nt_exit_counted
#define ENTER_RECV nt_enter_p2p
#define EXIT_RECV nt_exit_counted
#define ENTER_REDOP_NEW nt_enter_plain
#define EXIT_REDOP_NEW nt_exit_redop
#define ENTER_REDOP_END nt_enter_plain
#define EXIT_REDOP_END nt_exit_plain
#define ENTER_MEMORY nt_enter_plain
#define EXIT_MEMORY nt_exit_plain

#define ENTER_WINDOW nt_enter_plain
#define EXIT_WINDOW nt_exit_counted
#define ENTER_RMA nt_enter_rma
#define EXIT_RMA nt_exit_rma

#define ENTER_STREAM_SYNC nt_enter_stream_sync
#define EXIT_STREAM_SYNC nt_exit_cuda
#define ENTER_DEVICE_SYNC nt_enter_device_sync
#define EXIT_DEVICE_SYNC nt_exit_cuda
#define ENTER_EVENT_SYNC nt_enter_event_sync
#define EXIT_EVENT_SYNC nt_exit_cuda
#define ENTER_EVENT_RECORD nt_enter_event_record
#define EXIT_EVENT_RECORD nt_exit_cuda
#define ENTER_STREAM_WAIT nt_enter_stream_wait
#define EXIT_STREAM_WAIT nt_exit_cuda
#define ENTER_CAPTURE_END nt_enter_capture_end
#define EXIT_CAPTURE_END nt_exit_capture_end
#define ENTER_GRAPH_NEW nt_enter_nothing
#define EXIT_GRAPH_NEW nt_exit_graph_new
#define ENTER_GRAPH_UPDATE nt_enter_nothing
#define EXIT_GRAPH_UPDATE nt_exit_graph_update
#define ENTER_GRAPH_PART nt_enter_nothing
#define EXIT_GRAPH_PART nt_exit_graph_part
#define ENTER_GRAPH_END nt_enter_nothing
#define EXIT_GRAPH_END nt_exit_graph_end
#define ENTER_GRAPH_LAUNCH nt_enter_graph_launch
#define EXIT_GRAPH_LAUNCH nt_exit_graph_launch

#define STRIP(...) __VA_ARGS__

enum { CUDA_ERROR_UNKNOWN = 999 };

#define ENTER(shape) ENTER_##shape(&call, &args)
#define EXIT(shape) EXIT_##shape(&call, &args, result)

/* `begin` finds the function, `enter` and `exit` record the call. */
#define BODY(id, as, shape, params, arguments, fields, nothing, begin, enter, exit)                \
  const struct nt_args args = {STRIP fields};                                                      \
  struct nt_call call;                                                                             \
  int(*real) params;                                                                               \
  nt_call_clear(&call, NT_FN_##as, NT_SHAPE_##shape);                                              \
  *(void **)(&real) =                                                                              \
      begin(&call, id, args.comm, __builtin_return_address(0), __builtin_frame_address(0));        \
  if (NT_UNLIKELY(!real)) {                                                                        \
    nt_call_refused(&call);                                                                        \
    call.thread = NULL;                                                                            \
    if (!call.comm || !call.comm->library)                                                         \
      *(void **)(&real) = nt_resolve_untraced(id, __builtin_return_address(0));                    \
    if (!real)                                                                                     \
      return nothing;                                                                              \
  }                                                                                                \
  if (call.thread) {                                                                               \
    enter(shape);                                                                                  \
  }                                                                                                \
  int result = real arguments;                                                                     \
  if (NT_UNLIKELY(nt_call_is_parents(&call)))                                                      \
    return result;                                                                                 \
  if (call.thread) {                                                                               \
    exit(shape);                                                                                   \
  }

#endif
