/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that hold several ranks of a communicator, as one thread for each GPU does.
 *
 * Such a process can wait in an operation by one of its ranks and lack the call of another. The wait says nothing of
 * the thread that should call: what that one does counts.
 */
#include <stdio.h>

#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "analysis/progress.h"

/* The rank's last call on a view, NT_NONE if it made none. */
static uint32_t last_on(const struct nt_model_rank *rank, uint32_t view, int64_t cut_ns) {
  uint32_t last = NT_NONE;
  for (uint32_t i = 0; i < rank->call_count; i++)
    if (rank->calls[i].view == view && rank->calls[i].enter_ns <= cut_ns &&
        (last == NT_NONE || rank->calls[i].enter_ns >= rank->calls[last].enter_ns))
      last = i;
  return last;
}

static bool waits_elsewhere(const struct nt_job *job, uint32_t rank, uint32_t thread) {
  const struct nt_model_rank *model = &job->model->ranks[rank];
  for (uint32_t i = 0; i < model->call_count; i++)
    if (model->calls[i].thread == thread && model->calls[i].view != NT_NONE &&
        model->calls[i].enter_ns <= job->cut_ns && nt_call_outstanding(job, rank, i))
      return true;
  return false;
}

/* Of a thread that drives several devices: it has called for another of them, and waits for that. */
static bool waits_for_itself(const struct nt_inquiry *inquiry, const struct nt_stuck *stuck,
                             uint32_t rank, const struct nt_member *lacking, uint32_t last) {
  const struct nt_joint *joint = &inquiry->job->joints[stuck->joint];
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    if (member->rank != rank || member == lacking || nt_stuck_lacks(stuck, member))
      continue;
    const uint32_t own = last_on(model, member->view, inquiry->job->cut_ns);
    if (own != NT_NONE &&
        (last == NT_NONE || model->calls[own].thread == model->calls[last].thread))
      return true;
  }
  return false;
}

static bool is_counted(const struct nt_stuck *stuck) {
  return stuck->kind == NT_STUCK_COLLECTIVE || stuck->kind == NT_STUCK_SPLIT ||
         stuck->kind == NT_STUCK_SYNC || stuck->kind == NT_STUCK_TEARDOWN;
}

bool nt_is_idle_sibling(const struct nt_inquiry *inquiry, const struct nt_stuck *stuck,
                        uint32_t rank) {
  const struct nt_joint *joint = &inquiry->job->joints[stuck->joint];
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  if (!nt_stuck_has_sibling(stuck, rank))
    return false;
  if (stuck->kind == NT_STUCK_INIT)
    return true;
  if (!is_counted(stuck))
    return false;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    if (member->rank != rank || !nt_stuck_lacks(stuck, member))
      continue;
    uint32_t last = last_on(model, member->view, inquiry->job->cut_ns);
    if ((last != NT_NONE && !waits_elsewhere(inquiry->job, rank, model->calls[last].thread)) ||
        waits_for_itself(inquiry, stuck, rank, member, last))
      return true;
  }
  return false;
}

char *nt_unclaimed_text(char *out, size_t size, const struct nt_creation *creation) {
  struct nt_rank_set claimed = {0}, free_ranks = {0};
  char numbers[NT_DESCRIBE];
  int status = 0;
  for (uint32_t i = 0; i < creation->creator_count && !status; i++)
    if (creation->creators[i].comm_rank >= 0)
      status = nt_rank_set_add(&claimed, (uint32_t)creation->creators[i].comm_rank);
  for (int32_t r = 0; r < creation->size && r < (int32_t)NT_RANK_MAX && !status; r++)
    if (!nt_rank_set_has(&claimed, (uint32_t)r))
      status = nt_rank_set_add(&free_ranks, (uint32_t)r);
  snprintf(out, size, "communicator rank%s %s", nt_rank_set_count(&free_ranks) == 1 ? "" : "s",
           nt_rank_set_text(numbers, sizeof numbers, &free_ranks));
  nt_rank_set_free(&claimed);
  nt_rank_set_free(&free_ranks);
  return out;
}

/* "communicator rank 2 (cuda:2, thread 3) of rank 0" */
char *nt_sibling_text(char *out, size_t size, const struct nt_inquiry *inquiry,
                      const struct nt_stuck *stuck, uint32_t rank) {
  const struct nt_joint *joint = &inquiry->job->joints[stuck->joint];
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  struct nt_rank_set behind = {0};
  char numbers[NT_DESCRIBE], detail[64] = "", thread[24] = "";
  if (stuck->kind == NT_STUCK_INIT) {
    nt_unclaimed_text(numbers, sizeof numbers, &inquiry->creations.list[stuck->item]);
    snprintf(out, size, "%s of rank %d", numbers, model->world);
    return out;
  }
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    if (member->rank != rank || !nt_stuck_lacks(stuck, member) || member->comm_rank < 0 ||
        nt_rank_set_add(&behind, (uint32_t)member->comm_rank) < 0)
      continue;
    const uint32_t last = last_on(model, member->view, inquiry->job->cut_ns);
    if (last != NT_NONE && model->calls[last].thread)
      snprintf(thread, sizeof thread, ", thread %u", model->calls[last].thread);
    snprintf(detail, sizeof detail, " (cuda:%d%s)", nt_member_view(inquiry->job, member)->device,
             thread);
  }
  const bool one = nt_rank_set_count(&behind) == 1;
  snprintf(out, size, "communicator rank%s %s%s of rank %d", one ? "" : "s",
           nt_rank_set_text(numbers, sizeof numbers, &behind), one ? detail : "", model->world);
  nt_rank_set_free(&behind);
  return out;
}

void nt_say_siblings(struct nt_inquiry *inquiry, struct nt_finding *finding,
                     const struct nt_stuck *stuck, uint32_t rank) {
  const struct nt_joint *joint = &inquiry->job->joints[stuck->joint];
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  char call[NT_DESCRIBE];
  if (!is_counted(stuck) || !nt_stuck_has_sibling(stuck, rank))
    return;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    if (member->rank != rank || !nt_stuck_lacks(stuck, member))
      continue;
    uint32_t last = last_on(model, member->view, inquiry->job->cut_ns);
    if (!finding->thread && last != NT_NONE)
      finding->thread = model->calls[last].thread;
    const char *site = last == NT_NONE ? NULL : nt_model_site(model, model->calls[last].at);
    nt_lines_add(&finding->evidence,
                 "rank %d holds several ranks of it, communicator rank %d has not called; its last "
                 "call there was %s%s%s",
                 model->world, member->comm_rank,
                 last == NT_NONE ? "none"
                                 : nt_describe_call(call, sizeof call, inquiry->job, rank, last),
                 site ? " at " : "", site ? site : "");
  }
}
