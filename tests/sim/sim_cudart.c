/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcudart: the runtime's functions over the state in libcuda.so.1. What it adds is the thread's
 * last error, and which calls block the host: a copy with a pageable side waits for the stream,
 * cudaFree waits for the device. Error numbers are the driver's: those in use are equal in both.
 */
#include "cuda_runtime_api.h"

#include <stdlib.h>

#include "sim_capture.h"
#include "sim_device.h"
#include "sim_stream.h"

static _Thread_local cudaError_t last_error;

static cudaError_t note(CUresult result) {
  if (result != CUDA_SUCCESS)
    last_error = result;
  return result;
}

cudaError_t cudaGetDeviceCount(int *count) {
  if (!count)
    return note(cudaErrorInvalidValue);
  *count = sim_device_count();
  return note(*count ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
  return note(sim_device_select(device));
}

cudaError_t cudaGetDevice(int *device) {
  if (!device)
    return note(cudaErrorInvalidValue);
  *device = sim_device_current();
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
  CUresult refused = sim_capture_unsafe_call();
  if (refused != CUDA_SUCCESS)
    return note(refused);
  sim_stream_sync_device(sim_device_current());
  return cudaSuccess;
}

cudaError_t cudaDeviceReset(void) {
  return cudaDeviceSynchronize();
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int device) {
  return note(sim_device_pci(id, len, device));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  if (least)
    *least = 0;
  if (greatest)
    *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  return note(cuDriverGetVersion(version));
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  return note(cuDriverGetVersion(version));
}

cudaError_t cudaGetLastError(void) {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError(void) {
  return last_error;
}

const char *cudaGetErrorString(cudaError_t error) {
  const char *text;
  cuGetErrorString(error, &text);
  return text;
}

const char *cudaGetErrorName(cudaError_t error) {
  switch (error) {
  case cudaSuccess:
    return "cudaSuccess";
  case cudaErrorInvalidValue:
    return "cudaErrorInvalidValue";
  case cudaErrorMemoryAllocation:
    return "cudaErrorMemoryAllocation";
  case cudaErrorNoDevice:
    return "cudaErrorNoDevice";
  case cudaErrorInvalidDevice:
    return "cudaErrorInvalidDevice";
  case cudaErrorInvalidResourceHandle:
    return "cudaErrorInvalidResourceHandle";
  case cudaErrorNotReady:
    return "cudaErrorNotReady";
  default:
    return "unrecognized error code";
  }
}

cudaError_t cudaMalloc(void **ptr, size_t size) {
  CUresult refused = sim_capture_unsafe_call();
  if (refused != CUDA_SUCCESS)
    return note(refused);
  return note(sim_memory_alloc(ptr, size));
}

cudaError_t cudaFree(void *ptr) {
  if (!ptr)
    return cudaSuccess;
  sim_stream_sync_device(sim_device_current());
  return note(sim_memory_free(ptr));
}

cudaError_t cudaHostAlloc(void **ptr, size_t size, unsigned int flags) {
  (void)flags;
  return note(sim_memory_alloc(ptr, size));
}

cudaError_t cudaMallocHost(void **ptr, size_t size) {
  return note(sim_memory_alloc(ptr, size));
}

cudaError_t cudaFreeHost(void *ptr) {
  return cudaFree(ptr);
}

cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int flags) {
  (void)flags;
  return note(sim_memory_register(ptr, size));
}

cudaError_t cudaHostUnregister(void *ptr) {
  return note(sim_memory_unregister(ptr));
}

cudaError_t cudaHostGetDevicePointer(void **dev, void *host, unsigned int flags) {
  (void)flags;
  if (!dev || !sim_memory_is_known(host))
    return note(cudaErrorInvalidValue);
  *dev = host;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *avail, size_t *total) {
  if (!avail || !total)
    return note(cudaErrorInvalidValue);
  *avail = *total = (size_t)8 << 30;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  (void)kind;
  struct sim_stream *s = sim_stream_find(stream);
  CUresult result = sim_stream_copy(stream, dst, src, size);
  if (result == CUDA_SUCCESS && !sim_capture_is_active(s) &&
      !(sim_memory_is_known(dst) && sim_memory_is_known(src)))
    result = sim_stream_sync_handle(stream);
  return note(result);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t size, enum cudaMemcpyKind kind) {
  (void)kind;
  CUresult result = sim_stream_copy(NULL, dst, src, size);
  return note(result ? result : sim_stream_sync_handle(NULL));
}

cudaError_t cudaMemset(void *dst, int value, size_t size) {
  CUresult result = sim_stream_fill(NULL, dst, value, size);
  return note(result ? result : sim_stream_sync_handle(NULL));
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t size, cudaStream_t stream) {
  return note(sim_stream_fill(stream, dst, value, size));
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  return note(sim_stream_create(stream, CU_STREAM_DEFAULT));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
  return note(sim_stream_create(stream, flags));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority) {
  (void)priority;
  return note(sim_stream_create(stream, flags));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return note(sim_stream_destroy(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return note(cuStreamQuery(stream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return note(sim_stream_sync_handle(stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  (void)flags;
  return note(sim_event_stream_wait(stream, event));
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int *flags) {
  return note(cuStreamGetFlags(stream, flags));
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id) {
  return note(cuStreamGetId(stream, id));
}

struct host_node {
  cudaHostFn_t fn;
  void *arg;
};

static void launch_host(struct sim_stream *s, void *arg) {
  const struct host_node *node = arg;
  sim_stream_enqueue(s, node->fn, node->arg);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *arg) {
  struct sim_stream *s = sim_stream_find(stream);
  if (!s || !fn)
    return note(s ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle);
  if (!sim_capture_is_active(s)) {
    sim_stream_enqueue(s, fn, arg);
    return cudaSuccess;
  }
  struct host_node *node = malloc(sizeof(*node));
  if (!node)
    return note(cudaErrorMemoryAllocation);
  *node = (struct host_node){.fn = fn, .arg = arg};
  struct sim_node captured = {.launch = launch_host, .drop = free, .arg = node};
  sim_capture_add(s, captured);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  return note(sim_capture_begin(stream, (CUstreamCaptureMode)mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  return note(sim_capture_end(stream, graph));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  CUstreamCaptureStatus now = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult result = sim_capture_info(stream, status ? &now : NULL, NULL, NULL);
  if (status)
    *status = (enum cudaStreamCaptureStatus)now;
  return note(result);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  CUstreamCaptureMode value = mode ? (CUstreamCaptureMode)*mode : 0;
  CUresult result = sim_capture_exchange_mode(mode ? &value : NULL);
  if (mode)
    *mode = (enum cudaStreamCaptureMode)value;
  return note(result);
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const void *deps,
                                          const void *edges, size_t count,
                                          enum cudaStreamCaptureMode mode) {
  (void)deps;
  (void)edges;
  (void)count;
  return note(sim_capture_begin_to(stream, graph, (CUstreamCaptureMode)mode));
}

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned int flags) {
  return note(flags ? cudaErrorInvalidValue : sim_graph_create(graph));
}

cudaError_t cudaGraphClone(cudaGraph_t *clone, cudaGraph_t graph) {
  return note(sim_graph_clone(clone, graph));
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                       const cudaGraphNode_t *deps, size_t count,
                                       cudaGraph_t child) {
  (void)deps;
  (void)count;
  if (!node)
    return note(cudaErrorInvalidValue);
  *node = (cudaGraphNode_t)(void *)child;
  return note(sim_graph_nest(graph, child));
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *deps,
                             const void *edges, size_t count, struct cudaGraphNodeParams *params) {
  (void)edges;
  if (!params || params->type != cudaGraphNodeTypeGraph)
    return note(cudaErrorInvalidValue);
  (void)deps;
  (void)count;
  if (!node)
    return note(cudaErrorInvalidValue);
  *node = (cudaGraphNode_t)(void *)params->graph.graph;
  return note(sim_graph_nest(graph, params->graph.graph));
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, void *info) {
  (void)info;
  return note(sim_graph_update(exec, graph));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  return note(exec && sim_stream_find(stream) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  (void)flags;
  return note(sim_graph_instantiate(exec, graph));
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long flags) {
  (void)flags;
  return note(sim_graph_instantiate(exec, graph));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return note(sim_graph_launch(exec, stream));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return note(sim_graph_destroy(graph));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return note(sim_graph_destroy_exec(exec));
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
  return note(sim_event_create(event, CU_EVENT_DEFAULT));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
  return note(sim_event_create(event, flags));
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return note(sim_event_destroy(event));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return note(sim_event_record(event, stream));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  (void)flags;
  return cudaEventRecord(event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return note(sim_event_query(event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return note(sim_event_sync(event));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
  return note(sim_event_elapsed(ms, start, end));
}

/* For programs whose default streams are those of each thread. */
static cudaStream_t own(cudaStream_t stream) {
  return stream ? stream : cudaStreamPerThread;
}

cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t stream) {
  return note(sim_stream_sync_handle(own(stream)));
}

cudaError_t cudaStreamWaitEvent_ptsz(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  (void)flags;
  return note(sim_event_stream_wait(own(stream), event));
}

cudaError_t cudaEventRecord_ptsz(cudaEvent_t event, cudaStream_t stream) {
  return note(sim_event_record(event, own(stream)));
}

cudaError_t cudaStreamBeginCapture_ptsz(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  return note(sim_capture_begin(own(stream), (CUstreamCaptureMode)mode));
}

cudaError_t cudaStreamEndCapture_ptsz(cudaStream_t stream, cudaGraph_t *graph) {
  return note(sim_capture_end(own(stream), graph));
}

cudaError_t cudaGraphLaunch_ptsz(cudaGraphExec_t exec, cudaStream_t stream) {
  return note(sim_graph_launch(exec, own(stream)));
}
