/* SPDX-License-Identifier: Apache-2.0 */
/* Creation, split and end of communicators: operations of all members that move no data. */
#include "analysis/progress.h"
#include "analysis/sequence.h"
#include "analysis/waits_parts.h"
#include "nccl/nccl_api.h"

/* Its splits may be among the calls that are gone. */
static bool may_have_split(const struct nt_job *job, const struct nt_member *member) {
  const struct nt_model_rank *rank = nt_member_rank(job, member);
  return rank->lost || rank->overwritten;
}

/* Operations that are counted apart from collectives: those from which communicators come, and suspends. */
struct counted {
  enum nt_stuck_kind kind;
  uint32_t (*count)(const struct nt_member *member);
  uint32_t (*call)(const struct nt_member *member);
};

static uint32_t count_splits(const struct nt_member *member) {
  return member->splits;
}

static uint32_t split_call(const struct nt_member *member) {
  return member->split_call;
}

static uint32_t count_syncs(const struct nt_member *member) {
  return member->syncs;
}

static uint32_t sync_call(const struct nt_member *member) {
  return member->sync_call;
}

static const struct counted splits = {NT_STUCK_SPLIT, count_splits, split_call},
                            syncs = {NT_STUCK_SYNC, count_syncs, sync_call};

/* What moves data has ended there, but it can be split. */
static bool is_revoked(const struct nt_job *job, const struct nt_member *member) {
  return member->ended_ns &&
         (member->ended_fn == NT_FN_CommRevoke ||
          nt_fn_shape(member->ended_fn) == NT_SHAPE_COMM_SHRINK) &&
         nt_member_view(job, member)->state < NT_COMM_FINALIZED;
}

static int stuck_counted(struct nt_finder *f, uint32_t index, const struct counted *kind) {
  const struct nt_joint *joint = &f->job->joints[index];
  uint32_t low = UINT32_MAX, high = 0;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    uint32_t count = kind->count(&joint->members[i]);
    high = count > high ? count : high;
    if (!may_have_split(f->job, &joint->members[i]))
      low = count < low ? count : low;
  }
  low = low < high ? low : high;
  if (!high || (low == high && !joint->absent))
    return 0;
  struct nt_stuck *stuck = nt_stuck_add(f, kind->kind, index, joint->member_count);
  if (!stuck)
    return -NT_ERR_MEMORY;
  stuck->absent = low == high;
  stuck->seq = stuck->absent ? high : low + 1;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    if (kind->count(member) >= stuck->seq)
      nt_stuck_note(f, stuck, member->rank, kind->call(member));
    else if (!may_have_split(f->job, member) && is_revoked(f->job, member))
      stuck->laggards[stuck->laggard_count++] = member->rank;
    else if (!may_have_split(f->job, member))
      nt_stuck_note_laggard(stuck, member);
  }
  if (!stuck->absent)
    nt_stuck_note_movement(f, stuck);
  else if (!stuck->open)
    nt_stuck_drop(f);
  return 0;
}

int nt_stuck_split(struct nt_finder *f, uint32_t index) {
  int status = stuck_counted(f, index, &splits);
  return status ? status : stuck_counted(f, index, &syncs);
}

bool nt_stuck_lacks(const struct nt_stuck *stuck, const struct nt_member *member) {
  switch (stuck->kind) {
  case NT_STUCK_COLLECTIVE:
    return member->called < stuck->seq;
  case NT_STUCK_SPLIT:
    return member->splits < stuck->seq;
  case NT_STUCK_SYNC:
    return member->syncs < stuck->seq;
  case NT_STUCK_TEARDOWN:
    return !member->ended_ns;
  default:
    return false;
  }
}

int nt_stuck_init(struct nt_finder *f, const struct nt_creations *creations, uint32_t item) {
  const struct nt_creation *creation = &creations->list[item];
  uint32_t missing = nt_rank_set_count(&creation->missing);
  struct nt_stuck *stuck =
      nt_stuck_add(f, NT_STUCK_INIT, creation->joint, creation->creator_count + missing);
  if (!stuck)
    return -NT_ERR_MEMORY;
  stuck->item = item;
  stuck->seq = 1;
  stuck->since_ns = creation->since_ns;
  stuck->fn = NT_FN_CommInitRank;
  for (uint32_t i = 0; i < creation->creator_count; i++) {
    const struct nt_creator *creator = &creation->creators[i];
    if (creator->call != NT_NONE && !creator->refused)
      nt_stuck_note(f, stuck, creator->rank, creator->call);
    else if (!creator->refused && nt_stuck_is_alive(f, creator->rank))
      stuck->waiters[stuck->waiter_count++] = stuck->held[stuck->held_count++] = creator->rank;
  }
  for (uint32_t w = nt_rank_set_next(&creation->missing, 0); w < NT_RANK_MAX;
       w = nt_rank_set_next(&creation->missing, w + 1)) {
    uint32_t rank = nt_model_find(f->job->model, (int32_t)w);
    if (rank != NT_NONE)
      stuck->laggards[stuck->laggard_count++] = rank;
    else
      stuck->absent = true;
  }
  if (creation->problem == NT_CREATION_MISSING)
    nt_stuck_note_movement(f, stuck);
  return 0;
}

/* Its host is in the end of the communicator. An abort that has returned since was none that hangs. */
static bool is_in_end(const struct nt_finder *f, const struct nt_member *member) {
  if (!member->ended_ns || !nt_stuck_is_alive(f, member->rank) ||
      !nt_call_is_open(f->job, member->rank, member->ended_call))
    return false;
  const struct nt_model_call *call = &nt_member_rank(f->job, member)->calls[member->ended_call];
  return !nt_call_aborts(call) || !call->exit_ns;
}

/* Finalize or destroy that does not return, where nothing else holds the communicator. An abort waits for no member. */
int nt_stuck_teardown(struct nt_finder *f, uint32_t index) {
  const struct nt_joint *joint = &f->job->joints[index];
  uint32_t open = 0, aborts = 0;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    if (!is_in_end(f, member))
      continue;
    open++;
    aborts += nt_call_aborts(&nt_member_rank(f->job, member)->calls[member->ended_call]);
  }
  if (!open)
    return 0;
  for (uint32_t i = 0; i < f->out->count; i++)
    if (f->out->list[i].joint == index)
      return 0;
  struct nt_stuck *stuck = nt_stuck_add(f, NT_STUCK_TEARDOWN, index, joint->member_count);
  if (!stuck)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    if (!member->ended_ns && aborts < open)
      stuck->laggards[stuck->laggard_count++] = member->rank;
    const struct nt_model_rank *rank = nt_member_rank(f->job, member);
    if (!is_in_end(f, member))
      continue;
    if (rank->calls[member->ended_call].seq)
      stuck->seq = rank->calls[member->ended_call].seq;
    stuck->moving |= rank->moved;
    nt_stuck_note(f, stuck, member->rank, member->ended_call);
  }
  nt_stuck_note_movement(f, stuck);
  return 0;
}
