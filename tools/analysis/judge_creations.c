/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creations of communicators that all have called, and in the middle of which a process ended.
 *
 * Nobody lacks the call, so the wait-for graph is silent; who is still inside it waits for the one that is gone. Where none is
 * gone the creation is slow, or stuck (judge_outside.c).
 */
#include "analysis/creation.h"
#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "cli/text.h"
#include "nccl/nccl_api.h"

/* The member's last creation of that kind: the one that made its part, or the last split of it. */
static uint32_t creation_of(const struct nt_member *member, bool split) {
  if (split)
    return member->splits ? member->split_call : NT_NONE;
  return member->create_call;
}

static bool is_inside(const struct nt_inquiry *inquiry, uint32_t rank, uint32_t call) {
  return nt_call_is_open(inquiry->job, rank, call) ||
         nt_creation_in_progress(inquiry->job, rank, call);
}

/* Sorts the members; false if one has not called it, or has not done so by the cut. */
static bool sort_members(const struct nt_inquiry *inquiry, uint32_t index, bool split,
                         struct nt_rank_set *gone, struct nt_rank_set *waiting, int *status) {
  const struct nt_job *job = inquiry->job;
  const struct nt_joint *joint = &job->joints[index];
  for (uint32_t i = 0; i < joint->member_count && !*status; i++) {
    const struct nt_member *member = &joint->members[i];
    const struct nt_model_rank *rank = nt_member_rank(job, member);
    const struct nt_fate *fate = &inquiry->freeze->fates[member->rank];
    const uint32_t call = creation_of(member, split);
    if (call == NT_NONE || rank->calls[call].enter_ns > job->cut_ns ||
        (split && member->splits != joint->members[0].splits))
      return false;
    if (!is_inside(inquiry, member->rank, call))
      continue;
    if (fate->kind == NT_FATE_ALIVE)
      *status = nt_finding_add(job, waiting, member->rank);
    else if (!fate->lives)
      *status = nt_finding_add(job, gone, member->rank);
  }
  return nt_rank_set_count(gone) && nt_rank_set_count(waiting);
}

/* Takes over both sets. */
static int tell(struct nt_inquiry *inquiry, uint32_t index, bool split,
                const struct nt_rank_set *gone, const struct nt_rank_set *waiting) {
  const struct nt_joint *joint = &inquiry->job->joints[index];
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_LEFT, index);
  char who[NT_DESCRIBE], place[NT_DESCRIBE], wait[NT_DESCRIBE + 64], line[2 * NT_DESCRIBE];
  char state[NT_FATE_TEXT], time[NT_TIME_TEXT];
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->blame = *gone;
  finding->waiting = *waiting;
  finding->confidence = NT_LIKELY;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    const struct nt_model_rank *rank = nt_member_rank(inquiry->job, member);
    const struct nt_model_call *call = &rank->calls[creation_of(member, split)];
    if (!finding->since_ns || call->enter_ns < finding->since_ns) {
      finding->since_ns = call->enter_ns;
      finding->fn = call->fn;
      finding->seq = split ? call->seq : 0;
    }
    if (rank->world < 0 || !nt_rank_set_has(gone, (uint32_t)rank->world))
      continue;
    if (inquiry->freeze->fates[member->rank].kind == NT_FATE_DEAD)
      finding->class = NT_CLASS_DEAD;
    nt_lines_add(&finding->evidence, "%s",
                 nt_inquiry_rank(line, sizeof line, inquiry, member->rank));
    nt_lines_add(&finding->evidence, "rank %d %s at %s", rank->world,
                 nt_describe_end(state, sizeof state, rank),
                 nt_time_short(time, inquiry->freeze->fates[member->rank].ns));
  }
  nt_describe_place(place, sizeof place, inquiry->job, finding->fn, finding->seq, index);
  nt_finding_say(finding, "%s %s in the middle of %s, which all members called%s",
                 nt_describe_ranks(who, sizeof who, &finding->blame),
                 finding->class == NT_CLASS_DEAD ? "died" : "left", place,
                 nt_inquiry_waiting(wait, sizeof wait, finding));
  return 0;
}

int nt_judge_creations(struct nt_inquiry *inquiry) {
  int status = 0;
  const uint32_t before = inquiry->verdict->count;
  for (uint32_t i = 0; i < inquiry->job->joint_count && !before && !status; i++)
    for (int split = 0; split < 2 && !status && !inquiry->job->joints[i].absent; split++) {
      struct nt_rank_set gone = {0}, waiting = {0};
      if (sort_members(inquiry, i, split, &gone, &waiting, &status) && !status) {
        status = tell(inquiry, i, split, &gone, &waiting);
        if (!status)
          continue;
      }
      nt_rank_set_free(&gone);
      nt_rank_set_free(&waiting);
    }
  return status;
}
