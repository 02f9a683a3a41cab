/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captured graphs: which capture a graph comes from, so that a launch can be recorded with it.
 *
 * CUDA numbers captures. The number goes into the record of every captured call, with the graph from the end of the
 * capture to the executable graph, and into the record of each launch. A graph into which others are put, or which
 * several captures fill, gets a number of ours and one record for each part. Graphs without operations of NCCL
 * pass unrecorded. Any thread.
 */
#include <errno.h>

#include "preload/call_parts.h"
#include "preload/dump_thread.h"
#include "preload/graph_table.h"

enum { CAPTURES = 64 /* power of two */ };

/* The latest captures with operations of NCCL. */
static _Atomic uint32_t captures[CAPTURES];

static void note_capture(uint32_t number) {
  if (NT_UNLIKELY(number != 0))
    atomic_store_explicit(&captures[number % CAPTURES], number, memory_order_relaxed);
}

struct nt_cuda_capture nt_capture_ask(struct nt_thread *thread, uint16_t slot,
                                      cudaStream_t stream) {
  struct nt_cuda_capture capture = nt_cuda_capture_of((nt_cu_stream)(void *)stream);
  note_capture(capture.number);
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

/* The graph holds what it held and what the other, by their numbers, holds: it gets a new number and a record, of the
 * call that returns just now. */
static void add_part(struct nt_call *call, const void *graph, uint32_t part) {
  uint32_t held = nt_graph_capture(graph);
  struct nt_record *record = nt_record_start(call);
  if (!record)
    return;
  record->launch = nt_graph_number();
  record->count = (uint64_t)held << 32 | part;
  record->recv = (uint64_t)(uintptr_t)graph;
  record->flags |= NT_CALL_CAPTURED;
  nt_graph_keep(graph, record->launch);
  nt_record_publish(call);
}

void nt_exit_capture_end(struct nt_call *call, const struct nt_args *args, int result) {
  const void *graph = result == 0 && args->out ? *(void *const *)args->out : NULL;
  /* One that holds something already was captured into (cudaStreamBeginCaptureToGraph). */
  if (call->term && nt_graph_capture(graph))
    add_part(call, graph, (uint32_t)call->term);
  else if (call->term)
    nt_graph_keep(graph, (uint32_t)call->term);
  nt_exit_cuda(call, args, result);
}

void nt_exit_graph_new(struct nt_call *call, const struct nt_args *args, int result) {
  if (result == 0 && args->out)
    nt_graph_keep(*(void *const *)args->out, nt_graph_capture(args->recv));
  nt_exit_cuda(call, args, result);
}

/* An executable graph stands for another graph from now on. */
void nt_exit_graph_update(struct nt_call *call, const struct nt_args *args, int result) {
  if (result == 0)
    nt_graph_keep(args->out, nt_graph_capture(args->recv));
  nt_exit_cuda(call, args, result);
}

void *nt_child_graph(size_t a, size_t b, size_t c) {
  /* (number of dependencies, node) up to CUDA 12, (data of edges, number of dependencies, node) after it. */
  enum { MOST_DEPENDENCIES = 65536, NODE_IS_GRAPH = 4 };
  struct {
    int type, reserved[3];
    void *graph;
  } node = {.graph = NULL};
  int saved_errno = errno;
  (void)a;
  /* More of them than that look like an address, and nothing lies there. */
  bool found =
      nt_recording() && ((b >= MOST_DEPENDENCIES && nt_dump_read(b, &node, sizeof(node))) ||
                         nt_dump_read(c, &node, sizeof(node)));
  errno = saved_errno;
  return found && node.type == NODE_IS_GRAPH ? node.graph : NULL;
}

void nt_exit_graph_part(struct nt_call *call, const struct nt_args *args, int result) {
  uint32_t part = nt_graph_capture(args->send);
  if (result == 0 && part)
    add_part(call, args->recv, part);
  nt_exit_cuda(call, args, result);
}

void nt_exit_graph_end(struct nt_call *call, const struct nt_args *args, int result) {
  nt_graph_keep(args->recv, 0);
  nt_exit_cuda(call, args, result);
}

/* A launch is one piece of work on its stream, with marks as any other. Under capture it is a part of that graph. */
void nt_enter_graph_launch(struct nt_call *call, const struct nt_args *args) {
  const struct nt_cuda_driver *driver = nt_cuda_driver_known();
  uint32_t capture = nt_graph_capture(args->recv);
  int device = -1;
  if (!capture) {
    /* Of a graph that found no room, for all we know. */
    if (nt_graphs_without_room())
      atomic_fetch_add_explicit(&nt_process.area.header->lost, 1, memory_order_relaxed);
    return;
  }
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
    note_capture(outer.number);
  } else {
    call->gpu = nt_gpu_begin(record->stream, args->stream, outer.state == NT_CU_NOT_CAPTURING);
    record->launch = call->gpu.number;
  }
  nt_record_publish(call);
}

void nt_exit_graph_launch(struct nt_call *call, const struct nt_args *args, int result) {
  nt_gpu_end(call->gpu, args->stream);
  nt_exit_cuda(call, args, result);
}
