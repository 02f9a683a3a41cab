/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dependencies between streams: events that are recorded, and waited for by another stream. In line, as call_transfer.h: programs
 * record more events than they call NCCL, and most have nothing to do with it.
 */
#ifndef NT_CALL_DEPENDENCY_H
#define NT_CALL_DEPENDENCY_H

#include "preload/call_transfer.h"
#include "preload/event_set.h"
#include "preload/torch_object.h"

/* `launch`: how far the stream had been launched on. */
NT_IN_LINE void nt_fill_wait(struct nt_record *record, const struct nt_args *args, uint16_t slot) {
  const uint32_t next = slot ? nt_gpu_next(slot) : 0;
  record->stream = slot;
  record->recv = (uint64_t)(uintptr_t)args->recv;
  record->launch = next ? next - 1 : 0;
}

/* Without a stack: PyTorch makes several for each collective, all from the collective's own line. */
NT_IN_LINE void nt_note_dependency(struct nt_call *call, const struct nt_args *args,
                                   uint16_t slot) {
  struct nt_record *record = nt_record_begin(call);
  if (NT_UNLIKELY(!record))
    return;
  nt_record_fill(call, record);
  nt_fill_wait(record, args, slot);
  nt_record_publish(call);
}

/* PyTorch has a stream wait before a launch on it by recording an event and waiting for it at once. */
NT_IN_LINE void nt_event_record_enter(struct nt_call *call, const struct nt_args *args) {
  struct nt_thread *thread = call->thread;
  const uint16_t slot = nt_stream_known(args->stream);
  thread->recorded = nt_torch_holds(thread->return_address) ? args->recv : NULL;
  thread->recorded_on = args->stream;
  if (!slot)
    return;
  nt_event_keep(args->recv);
  nt_note_dependency(call, args, slot);
}

NT_IN_LINE void nt_stream_wait_enter(struct nt_call *call, const struct nt_args *args) {
  struct nt_thread *thread = call->thread;
  const uint16_t slot = nt_stream_known(args->stream);
  thread->waits_to_launch =
      args->recv && args->recv == thread->recorded && nt_torch_holds(thread->return_address);
  thread->waiting = args->stream;
  thread->awaited = thread->recorded_on;
  thread->recorded = NULL;
  if (slot || nt_event_known(args->recv))
    nt_note_dependency(call, args, slot);
}

NT_IN_LINE void nt_dependency_enter(struct nt_call *call, const struct nt_args *args) {
  if (call->shape == NT_SHAPE_EVENT_RECORD)
    nt_event_record_enter(call, args);
  else
    nt_stream_wait_enter(call, args);
}

/* CUDA's errors go up to 999 and a record's result has one byte: the number itself is in count. */
NT_IN_LINE void nt_cuda_exit(struct nt_call *call, int result) {
  if (NT_UNLIKELY(result != 0) && call->record)
    call->record->count = (uint64_t)(unsigned)result;
  nt_record_finish(call, result == 0 ? ncclSuccess : ncclUnhandledCudaError);
}

#endif
