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

bool nt_is_idle_sibling(const struct nt_inquiry *inquiry, const struct nt_stuck *stuck,
                        uint32_t rank) {
  const struct nt_joint *joint = &inquiry->job->joints[stuck->joint];
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  if (stuck->kind != NT_STUCK_COLLECTIVE || !nt_stuck_has_sibling(stuck, rank))
    return false;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    uint32_t last = last_on(model, member->view, inquiry->job->cut_ns);
    if (member->rank == rank && member->called < stuck->seq && last != NT_NONE &&
        !waits_elsewhere(inquiry->job, rank, model->calls[last].thread))
      return true;
  }
  return false;
}

/* "communicator rank 2 (cuda:2, thread 3) of rank 0" */
char *nt_sibling_text(char *out, size_t size, const struct nt_inquiry *inquiry,
                      const struct nt_stuck *stuck, uint32_t rank) {
  const struct nt_joint *joint = &inquiry->job->joints[stuck->joint];
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  struct nt_rank_set behind = {0};
  char numbers[NT_DESCRIBE], detail[64] = "", thread[24] = "";
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    if (member->rank != rank || member->called >= stuck->seq || member->comm_rank < 0 ||
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
  if (stuck->kind != NT_STUCK_COLLECTIVE || !nt_stuck_has_sibling(stuck, rank))
    return;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    if (member->rank != rank || member->called >= stuck->seq)
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
