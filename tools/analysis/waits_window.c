/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows and device communicators: made by all members of a communicator together, in one order for each kind.
 *
 * They are counted here, which needs all calls. NCCL may answer at once where it cannot make one, so only a host that is
 * inside the call shows that it waits for the others.
 */
#include <stdlib.h>

#include "analysis/sequence.h"
#include "analysis/waits_parts.h"
#include "nccl/nccl_api.h"

static bool is_made(const struct nt_job *job, uint32_t rank, uint32_t index, uint8_t fn,
                    uint32_t view) {
  const struct nt_model_call *call = &job->model->ranks[rank].calls[index];
  return call->fn == fn && call->view == view && call->enter_ns <= job->cut_ns &&
         nt_call_counts(call);
}

/* The member's call at the position, NT_NONE; *count gets how many it made. */
static uint32_t call_at(const struct nt_job *job, const struct nt_member *member, uint8_t fn,
                        uint32_t position, uint32_t *count) {
  uint32_t found = NT_NONE;
  *count = 0;
  for (uint32_t i = 0; i < nt_member_rank(job, member)->call_count; i++)
    if (is_made(job, member->rank, i, fn, member->view) && ++*count == position)
      found = i;
  return found;
}

static bool is_whole(const struct nt_job *job, const struct nt_joint *joint) {
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_model_rank *rank = nt_member_rank(job, &joint->members[i]);
    if (rank->lost || rank->overwritten || rank->cut)
      return false;
  }
  return true;
}

static int stuck_window(struct nt_finder *f, uint32_t index, uint8_t fn) {
  const struct nt_joint *joint = &f->job->joints[index];
  uint32_t low = UINT32_MAX, high = 0, count;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    (void)call_at(f->job, &joint->members[i], fn, 0, &count);
    low = count < low ? count : low;
    high = count > high ? count : high;
  }
  if (!high || (low == high && !joint->absent))
    return 0;
  struct nt_stuck *stuck = nt_stuck_add(f, NT_STUCK_WINDOW, index, joint->member_count);
  if (!stuck)
    return -NT_ERR_MEMORY;
  stuck->absent = low == high;
  stuck->seq = stuck->absent ? high : low + 1;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    uint32_t call = call_at(f->job, member, fn, stuck->seq, &count);
    if (call != NT_NONE)
      nt_stuck_note(f, stuck, member->rank, call);
    else
      nt_stuck_note_laggard(stuck, member);
  }
  if (!stuck->open)
    nt_stuck_drop(f);
  else if (!stuck->absent)
    nt_stuck_note_movement(f, stuck);
  return 0;
}

int nt_stuck_windows(struct nt_finder *f) {
  bool *made = calloc((size_t)f->job->joint_count + 1, sizeof *made);
  int status = made ? 0 : -NT_ERR_MEMORY;
  for (uint32_t r = 0; r < f->job->model->rank_count && !status; r++) {
    const struct nt_model_rank *rank = &f->job->model->ranks[r];
    if (!nt_model_may_have(rank, NT_SHAPE_WINDOW))
      continue;
    for (uint32_t i = 0; i < rank->call_count; i++)
      if (nt_fn_shape(rank->calls[i].fn) == NT_SHAPE_WINDOW && rank->calls[i].view != NT_NONE &&
          f->job->places[r][rank->calls[i].view].joint != NT_NONE)
        made[f->job->places[r][rank->calls[i].view].joint] = true;
  }
  for (uint32_t j = 0; j < f->job->joint_count && !status; j++)
    if (made[j] && is_whole(f->job, &f->job->joints[j])) {
      status = stuck_window(f, j, NT_FN_CommWindowRegister);
      if (!status)
        status = stuck_window(f, j, NT_FN_DevCommCreate);
    }
  free(made);
  return status;
}
