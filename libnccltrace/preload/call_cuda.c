/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host waits, and dependencies between streams.
 *
 * Only streams on which NCCL launches are of interest, and events recorded on them: everything else of
 * the runtime's traffic (allocators, timers) passes unrecorded. launch says how far the stream had been
 * launched on when it was waited for, or when the event was recorded.
 */
#include "preload/call_parts.h"
#include "preload/event_set.h"
#include "preload/torch_object.h"

static void fill(struct nt_call *call, const struct nt_args *args, uint16_t slot) {
  struct nt_record *record = call->record;
  if (!record)
    return;
  record->stream = slot;
  record->recv = (uint64_t)(uintptr_t)args->recv;
  record->launch = slot ? nt_gpu_next(slot) : 0;
  record->launch -= record->launch > 0;
  nt_record_publish(call);
}

/* A wait of the host: its stack says where the program stands. */
static void note_wait(struct nt_call *call, const struct nt_args *args, uint16_t slot) {
  nt_record_start(call);
  fill(call, args, slot);
}

/* Between streams. PyTorch makes several for each collective, all from the collective's own line. */
static void note_dependency(struct nt_call *call, const struct nt_args *args, uint16_t slot) {
  nt_record_start_bare(call);
  fill(call, args, slot);
}

void nt_enter_stream_sync(struct nt_call *call, const struct nt_args *args) {
  uint16_t slot = nt_stream_known(args->stream);
  if (slot)
    note_wait(call, args, slot);
}

void nt_enter_device_sync(struct nt_call *call, const struct nt_args *args) {
  note_wait(call, args, 0);
}

void nt_enter_event_sync(struct nt_call *call, const struct nt_args *args) {
  if (nt_event_known(args->recv))
    note_wait(call, args, 0);
}

/* PyTorch has a stream wait before a launch on it by recording an event and waiting for it at once. */
static void note_record(struct nt_thread *thread, const struct nt_args *args) {
  bool by_torch = nt_torch_holds(thread->return_address);
  thread->recorded = by_torch ? args->recv : NULL;
  thread->recorded_on = args->stream;
}

static void note_stream_wait(struct nt_thread *thread, const struct nt_args *args) {
  thread->waits_to_launch =
      args->recv && args->recv == thread->recorded && nt_torch_holds(thread->return_address);
  thread->waiting = args->stream;
  thread->awaited = thread->recorded_on;
  thread->recorded = NULL;
}

void nt_enter_event_record(struct nt_call *call, const struct nt_args *args) {
  uint16_t slot = nt_stream_known(args->stream);
  note_record(call->thread, args);
  if (!slot)
    return;
  nt_event_keep(args->recv);
  note_dependency(call, args, slot);
}

void nt_enter_stream_wait(struct nt_call *call, const struct nt_args *args) {
  uint16_t slot = nt_stream_known(args->stream);
  note_stream_wait(call->thread, args);
  if (slot || nt_event_known(args->recv))
    note_dependency(call, args, slot);
}

/* CUDA's errors go up to 999 and a record's result has one byte: the number itself is in count. */
void nt_exit_cuda(struct nt_call *call, const struct nt_args *args, int result) {
  (void)args;
  if (call->record && result != 0)
    call->record->count = (uint64_t)(unsigned)result;
  nt_record_finish(call, result == 0 ? ncclSuccess : ncclUnhandledCudaError);
}
