/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of captured graphs that do not finish: some member has not launched as much, or all have. */
#include "analysis/progress.h"
#include "analysis/waits_parts.h"
#include "nccl/nccl_api.h"

static uint32_t count_of(const struct nt_finder *f, uint32_t joint, uint32_t member) {
  return f->out->replays.rows[joint][member].count;
}

/* The oldest launch on any member that is known to be unfinished; 0 if there is none. */
static uint32_t first_outstanding(const struct nt_finder *f, uint32_t index) {
  const struct nt_joint *joint = &f->job->joints[index];
  uint32_t found = 0;
  for (uint32_t i = 0; i < joint->member_count; i++)
    for (uint32_t p = 1; p <= count_of(f, index, i) && (!found || p < found); p++)
      if (nt_call_outstanding(f->job, joint->members[i].rank,
                              nt_replay_at(&f->out->replays, index, i, p)->call))
        found = p;
  return found;
}

/* Those that launched it wait in it; those whose part of it is done, in the next that is not. */
static void note_launched(struct nt_finder *f, struct nt_stuck *stuck, uint32_t member) {
  uint32_t rank = f->job->joints[stuck->joint].members[member].rank;
  uint32_t call = nt_replay_at(&f->out->replays, stuck->joint, member, stuck->seq)->call;
  nt_stuck_note(f, stuck, rank, call);
  stuck->fn = NT_FN_cudaGraphLaunch;
  if (stuck->kind == NT_STUCK_REPLAY)
    nt_stuck_note_device(f, stuck, rank, call);
}

/* Where some live: of those that launched it and are gone, whose death it may be that the others wait for. */
static void note_gone_members(struct nt_finder *f, struct nt_stuck *stuck, int64_t last) {
  enum { HUNG_S = 1 };
  const struct nt_joint *joint = &f->job->joints[stuck->joint];
  bool remains = false;
  for (uint32_t i = 0; i < joint->member_count; i++)
    remains |= f->freeze->fates[joint->members[i].rank].kind == NT_FATE_ALIVE;
  for (uint32_t i = 0; i < joint->member_count && remains; i++) {
    const struct nt_fate *fate = &f->freeze->fates[joint->members[i].rank];
    const struct nt_replay *replay = nt_replay_at(&f->out->replays, stuck->joint, i, stuck->seq);
    if (replay && fate->kind == NT_FATE_DEAD && !fate->lives)
      nt_stuck_note_gone(f, stuck, joint->members[i].rank, replay->call,
                         fate->ns > last + HUNG_S * INT64_C(1000000000));
  }
}

static int add(struct nt_finder *f, uint32_t index, enum nt_stuck_kind kind, uint32_t position) {
  const struct nt_joint *joint = &f->job->joints[index];
  struct nt_stuck *stuck = nt_stuck_add(f, kind, index, joint->member_count);
  if (!stuck)
    return -NT_ERR_MEMORY;
  stuck->seq = position;
  int64_t last = 0;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_replay *replay = nt_replay_at(&f->out->replays, index, i, position);
    if (replay)
      note_launched(f, stuck, i);
    else if (kind == NT_STUCK_REPLAY)
      nt_stuck_note_laggard(stuck, &joint->members[i]);
    last = replay && replay->enter_ns > last ? replay->enter_ns : last;
  }
  if (!stuck->waiter_count) {
    nt_stuck_drop(f);
    return 0;
  }
  if (kind != NT_STUCK_REPLAY)
    return 0;
  note_gone_members(f, stuck, last);
  stuck->absent = joint->absent && !stuck->laggard_count && !stuck->leaver_count;
  nt_stuck_note_movement(f, stuck);
  if (!stuck->laggard_count && !stuck->leaver_count)
    for (uint32_t i = 0; i < joint->member_count; i++)
      stuck->moving |= nt_stuck_is_young(f, joint->members[i].rank, last);
  return 0;
}

int nt_stuck_replay(struct nt_finder *f, uint32_t index, const struct nt_divergence *divergence) {
  const struct nt_joint *joint = &f->job->joints[index];
  if (!f->out->replays.rows[index] || divergence->position || divergence->hidden_high ||
      divergence->mixed)
    return 0;
  uint32_t low = UINT32_MAX, high = 0, diverged = f->out->replays.diverged[index];
  for (uint32_t i = 0; i < joint->member_count; i++) {
    low = count_of(f, index, i) < low ? count_of(f, index, i) : low;
    high = count_of(f, index, i) > high ? count_of(f, index, i) : high;
  }
  uint32_t oldest = first_outstanding(f, index);
  if (diverged && (!oldest || diverged <= oldest))
    return add(f, index, NT_STUCK_DIVERGED, diverged);
  int status = oldest && oldest <= low ? add(f, index, NT_STUCK_REPLAY, oldest) : 0;
  return !status && low < high ? add(f, index, NT_STUCK_REPLAY, low + 1) : status;
}
