/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of communicators in which no place is known, since members without a trace may stand anywhere (identify_peers.c).
 *
 * Such a message has no known other side, but who is in one waits: without it, whoever it is would stand as a rank that waits
 * for nothing, and be blamed for all that it does not call meanwhile.
 */
#include "analysis/progress.h"
#include "analysis/sequence.h"
#include "analysis/waits_parts.h"
#include "nccl/nccl_api.h"

static bool is_unplaced(const struct nt_job *job, uint32_t rank, const struct nt_model_call *call) {
  const enum nt_shape shape = nt_fn_shape(call->fn);
  if ((shape != NT_SHAPE_SEND && shape != NT_SHAPE_RECV) || call->view == NT_NONE ||
      call->enter_ns > job->cut_ns || !nt_call_counts(call) || (call->flags & NT_CALL_CAPTURED))
    return false;
  const struct nt_place place = job->places[rank][call->view];
  return place.joint != NT_NONE && !job->joints[place.joint].size_known &&
         !job->joints[place.joint].numbered;
}

/* It is known to be what the rank's host or device stands at. */
static bool is_stuck(const struct nt_job *job, uint32_t rank, uint32_t index) {
  const struct nt_model_call *call = &job->model->ranks[rank].calls[index];
  return nt_call_is_open(job, rank, index) || call->progress == NT_PROGRESS_REACHED ||
         call->progress == NT_PROGRESS_UNFINISHED;
}

static bool any_unplaced(const struct nt_job *job) {
  for (uint32_t j = 0; j < job->joint_count; j++)
    if (!job->joints[j].size_known && !job->joints[j].numbered)
      return true;
  return false;
}

int nt_stuck_unplaced(struct nt_finder *f) {
  if (!any_unplaced(f->job))
    return 0;
  for (uint32_t r = 0; r < f->job->model->rank_count; r++) {
    const struct nt_model_rank *rank = &f->job->model->ranks[r];
    uint32_t found = NT_NONE;
    if (f->freeze->fates[r].kind != NT_FATE_ALIVE)
      continue;
    for (uint32_t i = 0; i < rank->call_count; i++)
      if (is_unplaced(f->job, r, &rank->calls[i]) && is_stuck(f->job, r, i) &&
          (found == NT_NONE || rank->calls[i].enter_ns < rank->calls[found].enter_ns))
        found = i;
    if (found == NT_NONE)
      continue;
    const struct nt_model_call *call = &rank->calls[found];
    struct nt_stuck *stuck =
        nt_stuck_add(f, NT_STUCK_UNPLACED, f->job->places[r][call->view].joint, 1);
    if (!stuck)
      return -NT_ERR_MEMORY;
    stuck->seq = call->seq;
    stuck->absent = true;
    nt_stuck_note(f, stuck, r, found);
    const int64_t now =
        f->freeze->ns < f->job->model->now_ns ? f->freeze->ns : f->job->model->now_ns;
    const int64_t young = nt_model_is_over(rank) ? NT_YOUNG_ENDED_NS : NT_YOUNG_NS;
    stuck->moving = rank->moved || (now && now - stuck->since_ns < young);
  }
  return 0;
}
