/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that cannot finish because their calls differ: who is in one waits, and for nobody. */
#include "analysis/progress.h"
#include "analysis/sequence.h"
#include "analysis/waits_parts.h"

/* Calls or time after a difference that show that it did not stop the job. */
#define PASSED_CALLS 16
#define PASSED_NS INT64_C(1000000000)

/* The difference is behind everybody: the job went on with whatever came of it. */
static bool has_passed(const struct nt_job *job, const struct nt_joint *joint, uint32_t position) {
  int64_t first = INT64_MAX, last = 0;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    const struct nt_model_call *at = nt_member_call(job, member, position);
    const struct nt_model_call *end = nt_member_call(job, member, member->called);
    if (member->called <= position)
      return false;
    if (member->called >= position + PASSED_CALLS)
      continue;
    if (at && at->enter_ns < first)
      first = at->enter_ns;
    if (end && end->enter_ns > last)
      last = end->enter_ns;
  }
  return first == INT64_MAX || last - first > PASSED_NS;
}

static int stuck_divergence(struct nt_finder *f, uint32_t index,
                            const struct nt_divergence *divergence) {
  const struct nt_joint *joint = &f->job->joints[index];
  struct nt_stuck *stuck = nt_stuck_add(f, NT_STUCK_DIVERGED, index, joint->member_count);
  if (!stuck)
    return -NT_ERR_MEMORY;
  stuck->seq = divergence->position;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    if (member->called < divergence->position || divergence->position < member->first)
      continue;
    uint32_t call = member->call[divergence->position - member->first];
    if (call != NT_NONE)
      nt_stuck_note(f, stuck, member->rank, call);
  }
  if (has_passed(f->job, joint, divergence->position))
    stuck->waiter_count = stuck->held_count = stuck->reached_count = 0; /* it stopped nobody */
  return 0;
}

/* They differ in calls that are gone: who waits in one of later ones waits for nobody that is known. */
static int stuck_hidden(struct nt_finder *f, uint32_t index,
                        const struct nt_divergence *divergence) {
  const struct nt_joint *joint = &f->job->joints[index];
  struct nt_stuck *stuck = nt_stuck_add(f, NT_STUCK_DIVERGED, index, joint->member_count);
  if (!stuck)
    return -NT_ERR_MEMORY;
  stuck->seq = divergence->hidden_low + 1;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    uint32_t p = member->first > stuck->seq ? member->first : stuck->seq;
    for (; p <= member->called; p++) {
      const uint32_t call = member->call[p - member->first];
      if (call == NT_NONE || !nt_call_outstanding(f->job, member->rank, call))
        continue;
      nt_stuck_note(f, stuck, member->rank, call);
      break;
    }
  }
  return 0;
}

int nt_stuck_divergence(struct nt_finder *f, uint32_t joint,
                        const struct nt_divergence *divergence) {
  if (divergence->position)
    return stuck_divergence(f, joint, divergence);
  return divergence->hidden_high ? stuck_hidden(f, joint, divergence) : 0;
}
