/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that cannot finish because their calls differ: who is in one waits, and for nobody. Calls of different kinds may
 * finish on some members all the same, which then wait in a later one: what became of that is due to the difference too.
 */
#include "analysis/progress.h"
#include "analysis/sequence.h"
#include "analysis/waits_parts.h"

bool nt_stuck_counts_behind(const struct nt_divergence *divergence, uint32_t low) {
  return !divergence->position ||
         (nt_divergence_only_changed(divergence) && low != divergence->position);
}

/* The position up to which all have called. */
static uint32_t common_of(const struct nt_joint *joint) {
  uint32_t low = joint->members[0].called;
  for (uint32_t i = 1; i < joint->member_count; i++)
    low = joint->members[i].called < low ? joint->members[i].called : low;
  return low;
}

uint32_t nt_stuck_differs_from(const struct nt_divergence *divergence) {
  uint32_t from = divergence->position;
  for (uint32_t i = 0; i < divergence->deviation_count; i++)
    if (divergence->deviations[i].position < from)
      from = divergence->deviations[i].position;
  return from;
}

/* The member's call at the position, NT_NONE if it made none or that is gone. */
static uint32_t call_at(const struct nt_member *member, uint32_t position) {
  return position < member->first || position > member->called
             ? NT_NONE
             : member->call[position - member->first];
}

/* Who waits in the operation at the position, or in a later one up to `last`. */
static int stuck_from(struct nt_finder *f, uint32_t index, uint32_t position, uint32_t last) {
  const struct nt_joint *joint = &f->job->joints[index];
  struct nt_stuck *stuck = nt_stuck_add(f, NT_STUCK_DIVERGED, index, joint->member_count);
  if (!stuck)
    return -NT_ERR_MEMORY;
  stuck->seq = position;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const uint32_t call = call_at(&joint->members[i], position);
    if (call != NT_NONE)
      nt_stuck_note(f, stuck, joint->members[i].rank, call);
  }
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    const uint32_t call = call_at(member, position);
    const bool noted = call != NT_NONE && nt_call_unfinished(f->job, member->rank, call);
    if (!noted && nt_stuck_is_alive(f, member->rank))
      nt_stuck_note_later(f, stuck, member, position, last);
  }
  return 0;
}

static int stuck_divergence(struct nt_finder *f, uint32_t index,
                            const struct nt_divergence *divergence) {
  const uint32_t low = common_of(&f->job->joints[index]);
  return stuck_from(f, index, nt_stuck_differs_from(divergence),
                    nt_stuck_counts_behind(divergence, low) ? low : UINT32_MAX);
}

int nt_stuck_uneven(struct nt_finder *f, uint32_t index) {
  return stuck_from(f, index, f->out->replays.uneven[index].seq, UINT32_MAX);
}

bool nt_stuck_is_past_hidden(const struct nt_finder *f, uint32_t index,
                             const struct nt_divergence *divergence) {
  return !divergence->position &&
         f->unfinished[index].first > divergence->hidden_high + NT_PASSED_CALLS;
}

/* They differ in calls that are gone: who waits in one of later ones waits for nobody that is known, unless all have called it
 * and devices were through with many in front of it. */
static int stuck_hidden(struct nt_finder *f, uint32_t index,
                        const struct nt_divergence *divergence) {
  const struct nt_joint *joint = &f->job->joints[index];
  struct nt_stuck *stuck = nt_stuck_add(f, NT_STUCK_DIVERGED, index, joint->member_count);
  if (!stuck)
    return -NT_ERR_MEMORY;
  const uint32_t told =
      nt_stuck_is_past_hidden(f, index, divergence) ? f->unfinished[index].low : 0;
  stuck->seq = divergence->hidden_low + 1;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    uint32_t p = member->first > stuck->seq ? member->first : stuck->seq;
    for (; p <= member->called; p++) {
      const uint32_t call = member->call[p - member->first];
      if (call == NT_NONE || !nt_call_outstanding(f->job, member->rank, call))
        continue;
      if (p > told)
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
