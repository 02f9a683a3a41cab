/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host waits, and dependencies between streams.
 *
 * Only streams on which NCCL launches are of interest, and events recorded on them: everything else of
 * the runtime's traffic (allocators, timers) passes unrecorded. launch says how far the stream had been
 * launched on when it was waited for, or when the event was recorded.
 */
#include "preload/call_dependency.h"

/* A wait of the host: its stack says where the program stands. */
static void note_wait(struct nt_call *call, const struct nt_args *args, uint16_t slot) {
  struct nt_record *record = nt_record_start(call);
  if (!record)
    return;
  nt_fill_wait(record, args, slot);
  nt_record_publish(call);
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

void nt_enter_event_record(struct nt_call *call, const struct nt_args *args) {
  nt_event_record_enter(call, args);
}

void nt_enter_stream_wait(struct nt_call *call, const struct nt_args *args) {
  nt_stream_wait_enter(call, args);
}

void nt_exit_cuda(struct nt_call *call, const struct nt_args *args, int result) {
  (void)args;
  nt_cuda_exit(call, result);
}
