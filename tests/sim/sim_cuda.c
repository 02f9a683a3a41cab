/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcuda.so.1: the driver's entry points over the simulated devices and streams. Thin: each checks
 * its arguments as CUDA does and calls sim_device, sim_stream or sim_event.
 */
#include "cuda.h"

#include <stdio.h>
#include <string.h>

#include "sim_capture.h"
#include "sim_device.h"
#include "sim_stream.h"

CUresult cuInit(unsigned int flags) {
  if (flags)
    return CUDA_ERROR_INVALID_VALUE;
  return sim_device_count() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version) {
  if (!version)
    return CUDA_ERROR_INVALID_VALUE;
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  if (!device || ordinal < 0 || ordinal >= sim_device_count())
    return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
  if (!count)
    return CUDA_ERROR_INVALID_VALUE;
  *count = sim_device_count();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev) {
  if (!name || len <= 0 || dev < 0 || dev >= sim_device_count())
    return CUDA_ERROR_INVALID_VALUE;
  snprintf(name, (size_t)len, "Simulated GPU");
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev) {
  return sim_device_uuid(uuid, dev);
}

#undef cuDeviceGetUuid
SIM_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev);
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev) {
  return sim_device_uuid(uuid, dev);
}

CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice dev) {
  return sim_device_pci(id, len, dev);
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice dev) {
  enum { PCI_BUS_ID = 33, PCI_DEVICE_ID = 34, PCI_DOMAIN_ID = 50, MAJOR = 75, MINOR = 76 };
  if (!value || dev < 0 || dev >= sim_device_count())
    return CUDA_ERROR_INVALID_VALUE;
  *value = attribute == PCI_BUS_ID ? 0x10 + 3 * dev : attribute == MAJOR ? 9 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx) {
  if (!ctx)
    return CUDA_ERROR_INVALID_VALUE;
  *ctx = sim_device_context(sim_device_current());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  if (!ctx)
    return CUDA_SUCCESS;
  return sim_device_select(sim_device_of_context(ctx)) ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

/* One level of push and pop is what callers use around a call. */
static _Thread_local int pushed_over;

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  pushed_over = sim_device_current();
  return cuCtxSetCurrent(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx) {
  if (ctx)
    *ctx = sim_device_context(sim_device_current());
  return sim_device_select(pushed_over);
}

CUresult cuCtxGetDevice(CUdevice *dev) {
  if (!dev)
    return CUDA_ERROR_INVALID_VALUE;
  *dev = sim_device_current();
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
  sim_stream_sync_device(sim_device_current());
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev) {
  if (!ctx || dev < 0 || dev >= sim_device_count())
    return CUDA_ERROR_INVALID_VALUE;
  *ctx = sim_device_context(dev);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  return dev >= 0 && dev < sim_device_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active) {
  if (!flags || !active || dev < 0 || dev >= sim_device_count())
    return CUDA_ERROR_INVALID_VALUE;
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}

/* Of memory it is only known that it is the device's; which one, its user must know. */
CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr ptr) {
  enum { CONTEXT = 1, MEMORY_TYPE = 2, DEVICE_POINTER = 3, IS_MANAGED = 8, DEVICE_ORDINAL = 9 };
  const int device = sim_device_current();
  if (!data || !sim_memory_is_known((const void *)(uintptr_t)ptr))
    return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
  case CONTEXT:
    *(CUcontext *)data = sim_device_context(device);
    return CUDA_SUCCESS;
  case MEMORY_TYPE:
    *(unsigned int *)data = 2; /* CU_MEMORYTYPE_DEVICE */
    return CUDA_SUCCESS;
  case DEVICE_POINTER:
    *(CUdeviceptr *)data = ptr;
    return CUDA_SUCCESS;
  case IS_MANAGED:
    *(unsigned int *)data = 0;
    return CUDA_SUCCESS;
  case DEVICE_ORDINAL:
    *(int *)data = device;
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t size) {
  return size ? sim_memory_alloc((void **)ptr, size) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFree_v2(CUdeviceptr ptr) {
  sim_stream_sync_device(sim_device_current());
  return sim_memory_free((void *)(uintptr_t)ptr);
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
  return sim_stream_create(stream, flags);
}

/* There is one priority. */
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  if (least)
    *least = 0;
  if (greatest)
    *greatest = 0;
  return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority) {
  (void)priority;
  return sim_stream_create(stream, flags);
}

CUresult cuStreamGetPriority(CUstream stream, int *priority) {
  if (!priority || !sim_stream_find(stream))
    return CUDA_ERROR_INVALID_HANDLE;
  *priority = 0;
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  return sim_stream_destroy(stream);
}

CUresult cuStreamQuery(CUstream stream) {
  struct sim_stream *s = sim_stream_find(stream);
  if (!s)
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = sim_capture_break(s, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  if (result != CUDA_SUCCESS)
    return result;
  return sim_stream_is_idle(s) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamSynchronize(CUstream stream) {
  return sim_stream_sync_handle(stream);
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *ctx) {
  struct sim_stream *s = sim_stream_find(stream);
  if (!s || !ctx)
    return CUDA_ERROR_INVALID_HANDLE;
  *ctx = sim_device_context(sim_stream_device(s));
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *id) {
  struct sim_stream *s = sim_stream_find(stream);
  if (!s || !id)
    return CUDA_ERROR_INVALID_HANDLE;
  *id = sim_stream_id(s);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream stream, unsigned int *flags) {
  struct sim_stream *s = sim_stream_find(stream);
  if (!s || !flags)
    return CUDA_ERROR_INVALID_HANDLE;
  *flags = (uintptr_t)stream <= 2 ? 0 : sim_stream_flags(s);
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  (void)flags;
  return sim_event_stream_wait(stream, event);
}

#define SIM_VALUE_OPS(bits, type)                                                                  \
  CUresult cuStreamWaitValue##bits##_v2(CUstream stream, CUdeviceptr addr, type value,             \
                                        unsigned int flags) {                                      \
    return sim_stream_wait_value(stream, (void *)(uintptr_t)addr, value, bits / 8, flags);         \
  }                                                                                                \
  CUresult cuStreamWriteValue##bits##_v2(CUstream stream, CUdeviceptr addr, type value,            \
                                         unsigned int flags) {                                     \
    (void)flags;                                                                                   \
    return sim_stream_write_value(stream, (void *)(uintptr_t)addr, value, bits / 8);               \
  }
SIM_VALUE_OPS(32, cuuint32_t)
SIM_VALUE_OPS(64, cuuint64_t)

CUresult cuEventCreate(CUevent *event, unsigned int flags) {
  return sim_event_create(event, flags);
}

CUresult cuEventDestroy_v2(CUevent event) {
  return sim_event_destroy(event);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return sim_event_record(event, stream);
}

CUresult cuEventQuery(CUevent event) {
  return sim_event_query(event);
}

CUresult cuEventSynchronize(CUevent event) {
  return sim_event_sync(event);
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end) {
  return sim_event_elapsed(ms, start, end);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  return sim_capture_exchange_mode(mode);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return sim_capture_begin(stream, mode);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  return sim_capture_end(stream, graph);
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  return sim_capture_info(stream, status, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const void **deps, size_t *dep_count) {
  if (deps)
    *deps = NULL;
  if (dep_count)
    *dep_count = 0;
  return sim_capture_info(stream, status, id, graph);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const void **deps, const void **edges,
                                   size_t *dep_count) {
  if (edges)
    *edges = NULL;
  return cuStreamGetCaptureInfo_v2(stream, status, id, graph, deps, dep_count);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const void *deps,
                                     const void *edges, size_t count, CUstreamCaptureMode mode) {
  (void)deps;
  (void)edges;
  (void)count;
  return sim_capture_begin_to(stream, graph, mode);
}

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags) {
  return flags ? CUDA_ERROR_INVALID_VALUE : sim_graph_create(graph);
}

CUresult cuGraphAddChildGraphNode(void **node, CUgraph graph, const void *deps, size_t count,
                                  CUgraph child) {
  (void)deps;
  (void)count;
  if (!node)
    return CUDA_ERROR_INVALID_VALUE;
  *node = child;
  return sim_graph_nest(graph, child);
}

CUresult cuGraphClone(CUgraph *clone, CUgraph graph) {
  return sim_graph_clone(clone, graph);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, cuuint64_t flags) {
  (void)flags;
  return sim_graph_instantiate(exec, graph);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void *info) {
  (void)info;
  return sim_graph_update(exec, graph);
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return exec && sim_stream_find(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return sim_graph_launch(exec, stream);
}

CUresult cuGraphDestroy(CUgraph graph) {
  return sim_graph_destroy(graph);
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  return sim_graph_destroy_exec(exec);
}

/* For programs whose default streams are those of each thread. */
static CUstream own(CUstream stream) {
  return stream ? stream : CU_STREAM_PER_THREAD;
}

CUresult cuStreamSynchronize_ptsz(CUstream stream) {
  return sim_stream_sync_handle(own(stream));
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
  return sim_graph_launch(exec, own(stream));
}

CUresult cuGetErrorName(CUresult error, const char **name) {
  return cuGetErrorString(error, name);
}

CUresult cuGetErrorString(CUresult error, const char **text) {
  if (!text)
    return CUDA_ERROR_INVALID_VALUE;
  *text = error == CUDA_SUCCESS                ? "no error"
          : error == CUDA_ERROR_NOT_READY      ? "device not ready"
          : error == CUDA_ERROR_INVALID_HANDLE ? "invalid resource handle"
          : error == CUDA_ERROR_INVALID_VALUE  ? "invalid argument"
          : error >= 900 && error <= 908       ? "operation not permitted by a stream capture"
                                               : "unknown error";
  return CUDA_SUCCESS;
}

#define SIM_ENTRY(public_name, function)                                                           \
  { #public_name, (void *)(function) }

/* By table and not by dlsym: a preloaded library may have its own view of dlsym. */
static const struct {
  const char *name;
  void *function;
} entries[] = {
    SIM_ENTRY(cuInit, cuInit),
    SIM_ENTRY(cuDriverGetVersion, cuDriverGetVersion),
    SIM_ENTRY(cuDeviceGet, cuDeviceGet),
    SIM_ENTRY(cuDeviceGetCount, cuDeviceGetCount),
    SIM_ENTRY(cuDeviceGetName, cuDeviceGetName),
    {"cuDeviceGetUuid", (void *)cuDeviceGetUuid_v2},
    {"cuDeviceGetUuid_v2", (void *)cuDeviceGetUuid_v2},
    SIM_ENTRY(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId),
    SIM_ENTRY(cuDeviceGetAttribute, cuDeviceGetAttribute),
    SIM_ENTRY(cuCtxGetCurrent, cuCtxGetCurrent),
    SIM_ENTRY(cuCtxSetCurrent, cuCtxSetCurrent),
    {"cuCtxPushCurrent", (void *)cuCtxPushCurrent_v2},
    {"cuCtxPopCurrent", (void *)cuCtxPopCurrent_v2},
    SIM_ENTRY(cuCtxGetDevice, cuCtxGetDevice),
    SIM_ENTRY(cuCtxSynchronize, cuCtxSynchronize),
    SIM_ENTRY(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain),
    {"cuDevicePrimaryCtxRelease", (void *)cuDevicePrimaryCtxRelease_v2},
    SIM_ENTRY(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState),
    SIM_ENTRY(cuPointerGetAttribute, cuPointerGetAttribute),
    {"cuMemAlloc", (void *)cuMemAlloc_v2},
    {"cuMemFree", (void *)cuMemFree_v2},
    SIM_ENTRY(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange),
    SIM_ENTRY(cuStreamCreate, cuStreamCreate),
    SIM_ENTRY(cuStreamCreateWithPriority, cuStreamCreateWithPriority),
    SIM_ENTRY(cuStreamGetPriority, cuStreamGetPriority),
    {"cuStreamDestroy", (void *)cuStreamDestroy_v2},
    SIM_ENTRY(cuStreamQuery, cuStreamQuery),
    SIM_ENTRY(cuStreamSynchronize, cuStreamSynchronize),
    SIM_ENTRY(cuStreamGetCtx, cuStreamGetCtx),
    SIM_ENTRY(cuStreamGetId, cuStreamGetId),
    SIM_ENTRY(cuStreamGetFlags, cuStreamGetFlags),
    SIM_ENTRY(cuStreamWaitEvent, cuStreamWaitEvent),
    {"cuStreamWaitValue32", (void *)cuStreamWaitValue32_v2},
    {"cuStreamWaitValue64", (void *)cuStreamWaitValue64_v2},
    {"cuStreamWriteValue32", (void *)cuStreamWriteValue32_v2},
    {"cuStreamWriteValue64", (void *)cuStreamWriteValue64_v2},
    SIM_ENTRY(cuEventCreate, cuEventCreate),
    {"cuEventDestroy", (void *)cuEventDestroy_v2},
    SIM_ENTRY(cuEventRecord, cuEventRecord),
    SIM_ENTRY(cuEventQuery, cuEventQuery),
    SIM_ENTRY(cuEventSynchronize, cuEventSynchronize),
    SIM_ENTRY(cuEventElapsedTime, cuEventElapsedTime),
    SIM_ENTRY(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode),
    {"cuStreamBeginCapture", (void *)cuStreamBeginCapture_v2},
    SIM_ENTRY(cuStreamEndCapture, cuStreamEndCapture),
    SIM_ENTRY(cuStreamIsCapturing, cuStreamIsCapturing),
    {"cuStreamGetCaptureInfo", (void *)cuStreamGetCaptureInfo_v3},
    SIM_ENTRY(cuGraphCreate, cuGraphCreate),
    SIM_ENTRY(cuGraphAddChildGraphNode, cuGraphAddChildGraphNode),
    SIM_ENTRY(cuGraphClone, cuGraphClone),
    SIM_ENTRY(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags),
    {"cuGraphExecUpdate", (void *)cuGraphExecUpdate_v2},
    SIM_ENTRY(cuGraphUpload, cuGraphUpload),
    SIM_ENTRY(cuGraphLaunch, cuGraphLaunch),
    SIM_ENTRY(cuGraphDestroy, cuGraphDestroy),
    SIM_ENTRY(cuGraphExecDestroy, cuGraphExecDestroy),
    SIM_ENTRY(cuGetErrorName, cuGetErrorName),
    SIM_ENTRY(cuGetErrorString, cuGetErrorString),
    {"cuGetProcAddress", (void *)cuGetProcAddress_v2},
};

CUresult cuGetProcAddress_v2(const char *symbol, void **fn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
  (void)version;
  (void)flags;
  if (!symbol || !fn)
    return CUDA_ERROR_INVALID_VALUE;
  *fn = NULL;
  for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
    if (strcmp(entries[i].name, symbol) == 0)
      *fn = entries[i].function;
  }
  if (status)
    *status = *fn ? 0 : 1;
  return *fn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

#undef cuGetProcAddress
SIM_EXPORT CUresult cuGetProcAddress(const char *symbol, void **fn, int version, cuuint64_t flags);
CUresult cuGetProcAddress(const char *symbol, void **fn, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, fn, version, flags, NULL);
}
