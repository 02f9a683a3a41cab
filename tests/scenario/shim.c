/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL and CUDA for a scenario's Python code: plain C functions that ctypes can call.
 *
 * The library links directly to libnccl and libcudart, and Python opens it with RTLD_LOCAL: so NCCL
 * is where PyTorch has it, behind a local scope, and every call made here goes through the PLT as an
 * application's would. No NCCL or CUDA header is needed; the few declarations below are their ABI.
 * One process runs one rank on one device; the caller keeps handles as integers. ctypes drops the GIL around every
 * call, as PyTorch does, so a thread that is stuck in here holds up no other.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct {
  char internal[128];
} ncclUniqueId;

/* The configuration as of NCCL 2.27.3; `size` tells older libraries what they may ignore. */
struct config {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size, min_ctas, max_ctas;
  const char *net_name;
  int split_share, traffic_class;
  const char *comm_name;
  int collnet_enable, cta_policy, shrink_share, nvls_ctas;
};

enum {
  CONFIG_MAGIC = (int)0xcafebeef,
  CONFIG_VERSION = 22703,
  STREAM_NON_BLOCKING = 1,
  EVENT_DISABLE_TIMING = 2,
  MEMCPY_DEFAULT = 4,
  WAIT_VALUE_GEQ = 0,
  CAPTURE_GLOBAL = 0,
  NOT_IN_THIS_NCCL = -1,
};

int ncclGetUniqueId(ncclUniqueId *);
int ncclCommInitRankConfig(ncclComm_t *, int, ncclUniqueId, int, struct config *);
int ncclCommSplit(ncclComm_t, int, int, ncclComm_t *, struct config *);
int ncclCommGetAsyncError(ncclComm_t, int *);
int ncclCommAbort(ncclComm_t);
int ncclCommFinalize(ncclComm_t);
int ncclCommDestroy(ncclComm_t);
int ncclGroupStart(void);
int ncclGroupEnd(void);
const char *ncclGetErrorString(int);
int ncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t);
int ncclReduce(const void *, void *, size_t, int, int, int, ncclComm_t, cudaStream_t);
int ncclBroadcast(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t);
int ncclAllGather(const void *, void *, size_t, int, ncclComm_t, cudaStream_t);
int ncclReduceScatter(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t);
int ncclSend(const void *, size_t, int, int, ncclComm_t, cudaStream_t);
int ncclRecv(void *, size_t, int, int, ncclComm_t, cudaStream_t);
/* Since 2.28 */
#pragma weak ncclAlltoAll
#pragma weak ncclGather
#pragma weak ncclScatter
int ncclAlltoAll(const void *, void *, size_t, int, ncclComm_t, cudaStream_t);
int ncclGather(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t);
int ncclScatter(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t);

int cudaSetDevice(int);
int cudaMalloc(void **, size_t);
int cudaMemcpyAsync(void *, const void *, size_t, int, cudaStream_t);
int cudaStreamCreateWithFlags(cudaStream_t *, unsigned);
int cudaStreamSynchronize(cudaStream_t);
int cudaStreamQuery(cudaStream_t);
int cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned);
int cudaDeviceSynchronize(void);
int cudaEventCreateWithFlags(cudaEvent_t *, unsigned);
int cudaEventRecord(cudaEvent_t, cudaStream_t);
int cudaStreamBeginCapture(cudaStream_t, int);
int cudaStreamEndCapture(cudaStream_t, cudaGraph_t *);
int cudaGraphInstantiate(cudaGraphExec_t *, cudaGraph_t, unsigned long long, void *, size_t);
int cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
int cudaGraphDestroy(cudaGraph_t);
const char *cudaGetErrorString(int);

#define API __attribute__((visibility("default")))

/* ---- CUDA ---- */

API int scn_set_device(int device) {
  return cudaSetDevice(device);
}
API int scn_malloc(void **memory, size_t size) {
  return cudaMalloc(memory, size);
}
API int scn_stream(cudaStream_t *stream) {
  return cudaStreamCreateWithFlags(stream, STREAM_NON_BLOCKING);
}
API int scn_event(cudaEvent_t *event) {
  return cudaEventCreateWithFlags(event, EVENT_DISABLE_TIMING);
}
API int scn_record(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecord(event, stream);
}
API int scn_wait(cudaStream_t stream, cudaEvent_t event) {
  return cudaStreamWaitEvent(stream, event, 0);
}
/* In the mode that PyTorch takes by default: one that any thread's unsafe call breaks. */
API int scn_capture(cudaStream_t stream) {
  return cudaStreamBeginCapture(stream, CAPTURE_GLOBAL);
}
API int scn_capture_end(cudaStream_t stream, cudaGraph_t *graph) {
  return cudaStreamEndCapture(stream, graph);
}
/* Takes the graph. CUDA 11 has three arguments more than CUDA 12; all of them are zero. */
API int scn_instantiate(cudaGraphExec_t *exec, cudaGraph_t graph) {
  int err = cudaGraphInstantiate(exec, graph, 0, NULL, 0);
  return err ? err : cudaGraphDestroy(graph);
}
API int scn_launch(cudaGraphExec_t exec, cudaStream_t stream) {
  return cudaGraphLaunch(exec, stream);
}
API int scn_sync(cudaStream_t stream) {
  return cudaStreamSynchronize(stream);
}
API int scn_query(cudaStream_t stream) {
  return cudaStreamQuery(stream);
}
API int scn_device_sync(void) {
  return cudaDeviceSynchronize();
}
API const char *scn_cuda_error(int code) {
  return cudaGetErrorString(code);
}

/* Copies between host and device, in either direction, on a stream of the driver's own. */
API int scn_copy(void *to, const void *from, size_t size, cudaStream_t stream) {
  int err = cudaMemcpyAsync(to, from, size, MEMCPY_DEFAULT, stream);
  return err ? err : cudaStreamSynchronize(stream);
}

/* Work that never ends: a stream wait for a value that nobody writes to `word`, which holds 0. */
API int scn_gpu_spin(cudaStream_t stream, void *word) {
  typedef int wait_value_fn(cudaStream_t, unsigned long long, uint32_t, unsigned);
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
  if (!driver)
    return NOT_IN_THIS_NCCL;
  void *found = dlsym(driver, "cuStreamWaitValue32_v2");
  if (!found)
    found = dlsym(driver, "cuStreamWaitValue32");
  wait_value_fn *wait_value;
  *(void **)&wait_value = found;
  return found ? wait_value(stream, (uintptr_t)word, 1, WAIT_VALUE_GEQ) : NOT_IN_THIS_NCCL;
}

/* ---- communicators ---- */

static struct config config_for(int blocking, const char *name) {
  struct config c = {
      .size = sizeof(struct config),
      .magic = (unsigned)CONFIG_MAGIC,
      .version = CONFIG_VERSION,
      .blocking = blocking,
      .cga_cluster_size = INT_MIN,
      .min_ctas = INT_MIN,
      .max_ctas = INT_MIN,
      .split_share = INT_MIN,
      .traffic_class = INT_MIN,
      .comm_name = name,
      .collnet_enable = INT_MIN,
      .cta_policy = INT_MIN,
      .shrink_share = INT_MIN,
      .nvls_ctas = INT_MIN,
  };
  return c;
}

API int scn_unique_id(ncclUniqueId *id) {
  return ncclGetUniqueId(id);
}

API int scn_init(ncclComm_t *comm, int size, const ncclUniqueId *id, int rank, int blocking,
                 const char *name) {
  struct config config = config_for(blocking, name);
  return ncclCommInitRankConfig(comm, size, *id, rank, &config);
}

API int scn_split(ncclComm_t parent, int color, int key, ncclComm_t *comm, int blocking,
                  const char *name) {
  struct config config = config_for(blocking, name);
  return ncclCommSplit(parent, color, key, comm, &config);
}

API int scn_async_error(ncclComm_t comm, int *error) {
  return ncclCommGetAsyncError(comm, error);
}
API int scn_abort(ncclComm_t comm) {
  return ncclCommAbort(comm);
}
API int scn_finalize(ncclComm_t comm) {
  return ncclCommFinalize(comm);
}
API int scn_destroy(ncclComm_t comm) {
  return ncclCommDestroy(comm);
}
API int scn_group_start(void) {
  return ncclGroupStart();
}
API int scn_group_end(void) {
  return ncclGroupEnd();
}
API const char *scn_nccl_error(int code) {
  return code == NOT_IN_THIS_NCCL ? "not in this NCCL" : ncclGetErrorString(code);
}

/* ---- operations: one signature for all, each takes what it needs ---- */

#define OPERATION(name)                                                                            \
  API int scn_##name(const void *send, void *recv, size_t count, int type, int op, int root,       \
                     ncclComm_t comm, cudaStream_t stream)
#define UNUSED(x) (void)(x)

OPERATION(allreduce) {
  UNUSED(root);
  return ncclAllReduce(send, recv, count, type, op, comm, stream);
}
OPERATION(reduce) {
  return ncclReduce(send, recv, count, type, op, root, comm, stream);
}
OPERATION(broadcast) {
  UNUSED(op);
  return ncclBroadcast(send, recv, count, type, root, comm, stream);
}
OPERATION(allgather) {
  UNUSED(op), UNUSED(root);
  return ncclAllGather(send, recv, count, type, comm, stream);
}
OPERATION(reducescatter) {
  UNUSED(root);
  return ncclReduceScatter(send, recv, count, type, op, comm, stream);
}
OPERATION(alltoall) {
  UNUSED(op), UNUSED(root);
  return ncclAlltoAll ? ncclAlltoAll(send, recv, count, type, comm, stream) : NOT_IN_THIS_NCCL;
}
OPERATION(gather) {
  UNUSED(op);
  return ncclGather ? ncclGather(send, recv, count, type, root, comm, stream) : NOT_IN_THIS_NCCL;
}
OPERATION(scatter) {
  UNUSED(op);
  return ncclScatter ? ncclScatter(send, recv, count, type, root, comm, stream) : NOT_IN_THIS_NCCL;
}
OPERATION(send) {
  UNUSED(recv), UNUSED(op);
  return ncclSend(send, count, type, root, comm, stream);
}
OPERATION(recv) {
  UNUSED(send), UNUSED(op);
  return ncclRecv(recv, count, type, root, comm, stream);
}
