/* SPDX-License-Identifier: Apache-2.0 */
/* Names and meanings of NCCL's functions, types and results, for records, reports and reasoning. */
#ifndef NT_NCCL_API_H
#define NT_NCCL_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a call is recorded. Values are local to one build: files hold function ids, never shapes. */
enum nt_shape {
  NT_SHAPE_NONE,
  NT_SHAPE_UNIQUE_ID,
  NT_SHAPE_COMM_INIT,
  NT_SHAPE_COMM_INIT_ALL,
  NT_SHAPE_COMM_SPLIT,
  NT_SHAPE_COMM_SHRINK,
  NT_SHAPE_COMM_GROW,
  NT_SHAPE_COMM_FINALIZE,
  NT_SHAPE_COMM_END,
  NT_SHAPE_COMM_ABORT,
  NT_SHAPE_COMM_SYNC,
  NT_SHAPE_ASYNC_ERROR,
  NT_SHAPE_GROUP_START,
  NT_SHAPE_GROUP_END,
  NT_SHAPE_GROUP_SIMULATE,
  NT_SHAPE_COLL,     /* a collective */
  NT_SHAPE_COLL_P2P, /* a collective that NCCL carries out as sends and receives */
  NT_SHAPE_SEND,
  NT_SHAPE_RECV,
  NT_SHAPE_REDOP_NEW,
  NT_SHAPE_REDOP_END,
  NT_SHAPE_MEMORY,
  NT_SHAPE_WINDOW,
  NT_SHAPE_RMA,
  /* CUDA */
  NT_SHAPE_STREAM_SYNC,
  NT_SHAPE_DEVICE_SYNC,
  NT_SHAPE_EVENT_SYNC,
  NT_SHAPE_EVENT_RECORD,
  NT_SHAPE_STREAM_WAIT,
  NT_SHAPE_CAPTURE_END,
  NT_SHAPE_GRAPH_NEW,
  NT_SHAPE_GRAPH_UPDATE,
  NT_SHAPE_GRAPH_PART,
  NT_SHAPE_GRAPH_END,
  NT_SHAPE_GRAPH_LAUNCH,
  NT_SHAPE_LIMIT,
};

enum nt_fn {
  NT_FN_NONE = 0,
#define NT_FN(id, name, shape, params, args, fields) NT_FN_##name = id,
#include "nccl/nccl_api.def"
#define NT_CUDA_FN(id, symbol, as, shape, params, args, fields) NT_FN_##symbol = id,
#include "nccl/cuda_api.def"
  NT_FN_FIRST_DRIVER = 150,
  NT_FN_FIRST_RUNTIME = 200,
  NT_FN_LIMIT = 256,
};

/* "AllReduce" for NT_FN_AllReduce, "cudaStreamSynchronize" for NT_FN_cudaStreamSynchronize and
 * NT_FN_cudaStreamSynchronize_ptsz; NULL for an id that this build does not know. */
const char *nt_fn_name(unsigned fn);
/* The name that the function has in its library: "ncclAllReduce". */
const char *nt_fn_symbol(unsigned fn);
extern const uint8_t nt_fn_shapes[NT_FN_LIMIT] __attribute__((visibility("hidden")));
static inline enum nt_shape nt_fn_shape(unsigned fn) {
  return fn < NT_FN_LIMIT ? (enum nt_shape)nt_fn_shapes[fn] : NT_SHAPE_NONE;
}

/* A collective or a message: what moves data between all or two ranks of a communicator. */
static inline bool nt_shape_is_operation(enum nt_shape shape) {
  return shape == NT_SHAPE_COLL || shape == NT_SHAPE_COLL_P2P || shape == NT_SHAPE_SEND ||
         shape == NT_SHAPE_RECV;
}

/* What streams have to do with each other: programs record events and wait for them all the time. */
static inline bool nt_shape_is_dependency(enum nt_shape shape) {
  return shape == NT_SHAPE_EVENT_RECORD || shape == NT_SHAPE_STREAM_WAIT;
}

/* Inside a group NCCL only notes it: it begins at the group's end, or never if the group fails or is simulated. All else,
 * an abort or a unique id, takes effect at once. */
static inline bool nt_shape_is_deferred(enum nt_shape shape) {
  switch (shape) {
  case NT_SHAPE_COMM_INIT:
  case NT_SHAPE_COMM_INIT_ALL:
  case NT_SHAPE_COMM_SPLIT:
  case NT_SHAPE_COMM_SHRINK:
  case NT_SHAPE_COMM_GROW:
  case NT_SHAPE_COMM_FINALIZE:
  case NT_SHAPE_COMM_END:
  case NT_SHAPE_COMM_SYNC:
  case NT_SHAPE_WINDOW:
  case NT_SHAPE_RMA:
    return true;
  default:
    return nt_shape_is_operation(shape);
  }
}

/* A collective in the sense of sequence numbers: AllReduce … Scatter. */
static inline bool nt_fn_is_collective(unsigned fn) {
  return nt_fn_shape(fn) == NT_SHAPE_COLL || nt_fn_shape(fn) == NT_SHAPE_COLL_P2P;
}
/* A function of the CUDA runtime or driver, not of NCCL. */
static inline bool nt_fn_is_cuda(unsigned fn) {
  return nt_fn_shape(fn) >= NT_SHAPE_STREAM_SYNC;
}
/* Of the driver. */
static inline bool nt_fn_is_driver(unsigned fn) {
  return fn - NT_FN_FIRST_DRIVER < NT_FN_FIRST_RUNTIME - NT_FN_FIRST_DRIVER;
}
/* The host waits in it for a stream, an event or the device. */
static inline bool nt_fn_is_host_wait(unsigned fn) {
  return nt_fn_shape(fn) >= NT_SHAPE_STREAM_SYNC && nt_fn_shape(fn) <= NT_SHAPE_EVENT_SYNC;
}
/* What makes calls of two functions comparable. */
struct nt_fn_kind {
  /* Bcast and Broadcast are one operation, and AllReduceConfig and AllReduce; most are their own. */
  uint8_t canonical;
  /* Without reducing, so that only count × size must agree between ranks. */
  bool moves_bytes;
};

/* A switch and no table: the call path has constants of it. */
static inline struct nt_fn_kind nt_fn_kind(unsigned fn) {
  switch (fn) {
  case NT_FN_Broadcast:
  case NT_FN_Bcast:
  case NT_FN_BroadcastConfig:
    return (struct nt_fn_kind){NT_FN_Broadcast, true};
  case NT_FN_AllGather:
  case NT_FN_AllGatherConfig:
    return (struct nt_fn_kind){NT_FN_AllGather, true};
  case NT_FN_AlltoAll:
  case NT_FN_AlltoAllConfig:
    return (struct nt_fn_kind){NT_FN_AlltoAll, true};
  case NT_FN_Gather:
  case NT_FN_GatherConfig:
    return (struct nt_fn_kind){NT_FN_Gather, true};
  case NT_FN_Scatter:
  case NT_FN_ScatterConfig:
    return (struct nt_fn_kind){NT_FN_Scatter, true};
  case NT_FN_Send:
  case NT_FN_Recv:
    return (struct nt_fn_kind){(uint8_t)fn, true};
  case NT_FN_AllReduceConfig:
    return (struct nt_fn_kind){NT_FN_AllReduce, false};
  case NT_FN_ReduceConfig:
    return (struct nt_fn_kind){NT_FN_Reduce, false};
  case NT_FN_ReduceScatterConfig:
    return (struct nt_fn_kind){NT_FN_ReduceScatter, false};
  default:
    return (struct nt_fn_kind){(uint8_t)fn, false};
  }
}

static inline unsigned nt_fn_canonical(unsigned fn) {
  return fn < NT_FN_LIMIT ? nt_fn_kind(fn).canonical : fn;
}

static inline bool nt_fn_moves_bytes(unsigned fn) {
  return nt_fn_kind(fn).moves_bytes;
}

/* Short NCCL names ("f32", "sum", "ncclInvalidUsage"); NULL for values this build does not know. */
const char *nt_dtype_name(int dtype);
const char *nt_redop_name(int op);
const char *nt_result_name(int result);
/* Bytes of one element; 0 for an unknown type. */
#define NT_DTYPES 12
extern const uint8_t nt_dtype_sizes[NT_DTYPES] __attribute__((visibility("hidden")));
static inline size_t nt_dtype_size(int dtype) {
  return (unsigned)dtype < NT_DTYPES ? nt_dtype_sizes[dtype] : 0;
}

#endif
