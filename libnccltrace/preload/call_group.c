/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: followed by depth, settled and launched at the outermost end. */
#include "preload/call_parts.h"

void nt_exit_group_start(struct nt_call *call, const struct nt_args *args, ncclResult_t result) {
  struct nt_thread *thread = call->thread;
  (void)args;
  thread->frame = 0;
  if (!nt_accepted(result))
    return;
  if (thread->group_depth++ == 0) {
    thread->group = thread->group % 65535 + 1;
    thread->pending_count = 0;
    thread->pending_creates = false;
    thread->capture_slot = 0;
  }
}

/* A child that was forked in the middle of a group has its parent's calls in its list, and their communicators are
 * none of its own: to give a number back would change the parent's area. */
static void forget_parents_calls(struct nt_thread *thread) {
  if (thread->incarnation != nt_process.incarnation || !nt_recording())
    thread->pending_count = 0;
}

/* Start marks on every stream that the group launches on. */
static void begin_launches(struct nt_thread *thread) {
  thread->launch_count = 0;
  if (!nt_gpu_on())
    return;
  for (uint32_t i = 0; i < thread->pending_count; i++) {
    const struct nt_pending *entry = &thread->pending[i];
    uint32_t seen = 0;
    while (seen < thread->launch_count && thread->launches[seen].slot != entry->stream_slot)
      seen++;
    if (!entry->stream_slot || seen < thread->launch_count || seen == NT_GROUP_STREAMS ||
        (entry->comm && entry->comm->launches_later))
      continue;
    struct nt_cuda_capture capture = nt_capture_seen(thread, entry->stream_slot, entry->stream);
    if (capture.state == NT_CU_CAPTURING)
      continue;
    struct nt_group_launch *launch = &thread->launches[thread->launch_count++];
    launch->slot = entry->stream_slot;
    launch->stream = entry->stream;
    launch->gpu = nt_gpu_begin(launch->slot, launch->stream, capture.state == NT_CU_NOT_CAPTURING);
  }
}

static void end_launches(struct nt_thread *thread) {
  for (uint32_t i = 0; i < thread->launch_count; i++)
    nt_gpu_end(thread->launches[i].gpu, thread->launches[i].stream);
  thread->launch_count = 0;
}

/* Only the outermost end launches anything, and only it is worth a record. */
void nt_enter_group_end(struct nt_call *call, const struct nt_args *args) {
  struct nt_thread *thread = call->thread;
  (void)args;
  forget_parents_calls(thread);
  thread->ends_group = thread->group_depth == 1;
  if (thread->group_depth != 1 || !thread->pending_count || !nt_recording())
    return;
  struct nt_record *record = nt_record_start(call);
  if (!record)
    return;
  record->count = thread->pending_count;
  if (call->shape == NT_SHAPE_GROUP_END)
    begin_launches(thread);
  nt_record_publish(call);
}

void nt_exit_group_end(struct nt_call *call, const struct nt_args *args, ncclResult_t result) {
  struct nt_thread *thread = call->thread;
  (void)args;
  bool simulated = call->shape == NT_SHAPE_GROUP_SIMULATE;
  thread->ends_group = false;
  forget_parents_calls(thread);
  end_launches(thread);
  nt_record_finish(call, result);
  if (!thread->group_depth || --thread->group_depth)
    return;
  bool given_back = simulated || !nt_accepted(result);
  uint32_t asked = given_back || thread->pending_creates ? thread->pending_count : 0;
  for (uint32_t i = asked; i-- > 0;) {
    const struct nt_pending *entry = &thread->pending[i];
    if (given_back)
      nt_give_back(entry);
    else if (result == ncclSuccess && entry->created)
      nt_comm_is_ready(entry->created);
  }
  thread->pending_count = 0;
  nt_comm_resolve_all();
}
