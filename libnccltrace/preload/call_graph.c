/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captured graphs: which capture a graph comes from, so that a launch can be recorded with it.
 *
 * CUDA numbers captures. The number goes into the record of every captured call, with the graph from the end of the
 * capture to the executable graph, and into the record of each launch. Graphs without operations of NCCL
 * pass unrecorded. Any thread; a collision in a table forgets the older entry, which costs records of launches.
 */
#include "preload/call_parts.h"

enum { GRAPHS = 2048, CAPTURES = 64 /* powers of two */ };

/* Graphs and executable graphs alike. `capture` is 0 while the place is being changed. */
struct place {
  _Atomic uint32_t capture;
  _Atomic uintptr_t handle;
};

static struct place places[GRAPHS];
/* The latest captures with operations of NCCL. */
static _Atomic uint32_t captures[CAPTURES];

static struct place *place_of(const void *handle) {
  uint64_t hash = (uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15);
  return &places[hash >> 53 & (GRAPHS - 1)];
}

static uint32_t find(const void *handle) {
  struct place *place = place_of(handle);
  uint32_t capture = atomic_load_explicit(&place->capture, memory_order_acquire);
  uintptr_t found = atomic_load_explicit(&place->handle, memory_order_acquire);
  bool same = atomic_load_explicit(&place->capture, memory_order_relaxed) == capture;
  return same && found == (uintptr_t)handle ? capture : 0;
}

/* Acquire loads in find pair with these: whoever sees the handle sees that the old number is gone. */
static void keep(const void *handle, uint32_t capture) {
  struct place *place = place_of(handle);
  if (!capture && find(handle) == 0)
    return;
  atomic_store_explicit(&place->capture, 0, memory_order_relaxed);
  atomic_store_explicit(&place->handle, (uintptr_t)handle, memory_order_release);
  atomic_store_explicit(&place->capture, capture, memory_order_release);
}

struct nt_cuda_capture nt_capture_seen(struct nt_thread *thread, uint16_t slot,
                                       cudaStream_t stream) {
  if (thread->group_depth && slot && thread->capture_slot == slot)
    return thread->capture;
  struct nt_cuda_capture capture = nt_cuda_capture_of((nt_cu_stream)(void *)stream);
  if (NT_UNLIKELY(capture.number != 0))
    atomic_store_explicit(&captures[capture.number % CAPTURES], capture.number,
                          memory_order_relaxed);
  thread->capture_slot = slot;
  thread->capture = capture;
  return capture;
}

/* Before the capture ends: later the stream no longer tells. The number travels in `term`. */
void nt_enter_capture_end(struct nt_call *call, const struct nt_args *args) {
  uint32_t number = nt_cuda_capture_of((nt_cu_stream)(void *)args->stream).number;
  if (atomic_load_explicit(&captures[number % CAPTURES], memory_order_relaxed) == number)
    call->term = number;
}

void nt_exit_capture_end(struct nt_call *call, const struct nt_args *args, int result) {
  if (result == 0 && args->out)
    keep(*(void *const *)args->out, (uint32_t)call->term);
  nt_exit_cuda(call, args, result);
}

void nt_exit_graph_new(struct nt_call *call, const struct nt_args *args, int result) {
  if (result == 0 && args->out)
    keep(*(void *const *)args->out, find(args->recv));
  nt_exit_cuda(call, args, result);
}

void nt_exit_graph_end(struct nt_call *call, const struct nt_args *args, int result) {
  keep(args->recv, 0);
  nt_exit_cuda(call, args, result);
}

/* A launch is one piece of work on its stream, with marks as any other. */
void nt_enter_graph_launch(struct nt_call *call, const struct nt_args *args) {
  const struct nt_cuda_driver *driver = nt_cuda_driver_known();
  uint32_t capture = find(args->recv);
  int device = -1;
  if (!capture)
    return;
  struct nt_record *record = nt_record_start(call);
  if (!record)
    return;
  if (driver && driver->ctx_get_device(&device) != 0)
    device = -1;
  struct nt_cuda_capture outer = nt_cuda_capture_of((nt_cu_stream)(void *)args->stream);
  record->count = capture;
  record->recv = (uint64_t)(uintptr_t)args->recv;
  record->stream = nt_stream_slot(args->stream, device);
  if (outer.state == NT_CU_CAPTURING) {
    record->flags |= NT_CALL_CAPTURED;
    record->launch = outer.number;
  } else {
    record->launch =
        nt_gpu_begin(&call->gpu, record->stream, args->stream, outer.state == NT_CU_NOT_CAPTURING);
  }
  nt_record_publish(call);
}

void nt_exit_graph_launch(struct nt_call *call, const struct nt_args *args, int result) {
  nt_gpu_end(&call->gpu, args->stream);
  nt_exit_cuda(call, args, result);
}
