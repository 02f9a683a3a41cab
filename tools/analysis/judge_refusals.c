/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that NCCL refused because a peer could not be reached. The bootstrap's sockets notice at once that a process is
 * gone, so those that split a communicator or connect get ncclRemoteError where they would wait otherwise: the error is
 * the echo of somebody else's end.
 */
#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "cli/call_text.h"
#include "nccl/nccl_api.h"
#include "nccl/nccl_types.h"

static bool is_refusal(const struct nt_job *job, const struct nt_model_call *call) {
  return (call->flags & NT_CALL_VOID) && call->result == ncclRemoteError && call->exit_ns &&
         call->enter_ns <= job->cut_ns && call->view != NT_NONE;
}

/* The rank's first refusal on this communicator, or on any if `joint` is NT_NONE. */
static uint32_t refusal_of(const struct nt_job *job, uint32_t rank, uint32_t joint) {
  const struct nt_model_rank *model = &job->model->ranks[rank];
  for (uint32_t i = 0; i < model->call_count; i++)
    if (is_refusal(job, &model->calls[i])) {
      uint32_t at = job->places[rank][model->calls[i].view].joint;
      if (at != NT_NONE && (joint == NT_NONE || at == joint))
        return i;
    }
  return NT_NONE;
}

/* When the member had ended, or its part in the communicator, and how; 0 if it had not by `ns`. */
static int64_t gone_by(const struct nt_job *job, const struct nt_member *member, int64_t ns,
                       bool *dead) {
  const struct nt_model_rank *rank = nt_member_rank(job, member);
  const int64_t end = nt_model_is_over(rank) ? nt_model_end(rank) : 0;
  *dead = end && end <= ns && !nt_model_left(rank);
  if (*dead)
    return end;
  if (member->ended_ns && member->ended_ns <= ns)
    return member->ended_ns;
  return end && end <= ns ? end : 0;
}

static int name_gone(struct nt_inquiry *inquiry, struct nt_finding *finding, uint32_t joint_index,
                     int64_t ns) {
  const struct nt_joint *joint = &inquiry->job->joints[joint_index];
  int status = 0;
  for (int pass = 0; pass < 2 && !nt_rank_set_count(&finding->blame) && !status; pass++)
    for (uint32_t i = 0; i < joint->member_count && !status; i++) {
      const struct nt_member *member = &joint->members[i];
      bool dead;
      if (refusal_of(inquiry->job, member->rank, joint_index) != NT_NONE ||
          !gone_by(inquiry->job, member, ns, &dead) || dead != !pass)
        continue;
      finding->class = dead ? NT_CLASS_DEAD : NT_CLASS_LEFT;
      status = nt_finding_add(inquiry->job, &finding->blame, member->rank);
    }
  return status;
}

int nt_judge_refusals(struct nt_inquiry *inquiry) {
  const struct nt_job *job = inquiry->job;
  uint32_t first = NT_NONE, first_call = NT_NONE;
  if (nt_inquiry_explains(inquiry) || inquiry->freeze->why == NT_FREEZE_TOGETHER)
    return 0;
  for (uint32_t r = 0; r < job->model->rank_count; r++) {
    uint32_t call = refusal_of(job, r, NT_NONE);
    if (call != NT_NONE &&
        (first == NT_NONE || job->model->ranks[r].calls[call].exit_ns <
                                 job->model->ranks[first].calls[first_call].exit_ns)) {
      first = r;
      first_call = call;
    }
  }
  if (first == NT_NONE)
    return 0;
  const struct nt_model_call *call = &job->model->ranks[first].calls[first_call];
  const uint32_t joint = job->places[first][call->view].joint;
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_ERROR, joint);
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->fn = call->fn;
  finding->seq = call->seq;
  finding->since_ns = call->enter_ns;
  finding->confidence = NT_LIKELY;
  struct nt_rank_set refused = {0};
  int status = name_gone(inquiry, finding, joint, call->exit_ns);
  for (uint32_t i = 0; i < job->joints[joint].member_count && !status; i++) {
    const uint32_t rank = job->joints[joint].members[i].rank;
    if (refusal_of(job, rank, joint) != NT_NONE)
      status = nt_finding_add(job, &refused, rank);
  }
  char who[NT_DESCRIBE], gone[NT_DESCRIBE], place[NT_DESCRIBE];
  nt_describe_place(place, sizeof place, job, call->fn, call->seq, joint);
  nt_describe_ranks(who, sizeof who, &refused);
  nt_describe_ranks(gone, sizeof gone, &finding->blame);
  if (finding->class == NT_CLASS_ERROR)
    nt_finding_say(finding,
                   "%s got ncclRemoteError from %s; which peer could not be reached is not known",
                   who, place);
  else
    nt_finding_say(finding,
                   "%s %s before calling %s, and NCCL refused it to %s with ncclRemoteError", gone,
                   finding->class == NT_CLASS_DEAD ? "died" : "left", place, who);
  if (finding->class != NT_CLASS_ERROR) {
    nt_rank_set_free(&finding->waiting);
    finding->waiting = refused;
    return status;
  }
  nt_rank_set_free(&refused);
  return status;
}
