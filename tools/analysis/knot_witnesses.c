/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rank of a knot went another way than all that were at the same place of the program and are not in it.
 *
 * First who lacks a collective that these made there, or made it one turn late; then who made a message that none of them
 * made, and who left one out that all of them made.
 */
#include "analysis/foretell.h"
#include "analysis/knot_parts.h"
#include "analysis/passages.h"
#include "analysis/witnesses.h"
#include "cli/text.h"
#include "nccl/nccl_api.h"

/* Such a call has come right behind such another one before. */
static bool has_come_so(const struct nt_job *job, uint32_t rank, const struct nt_model_call *call) {
  const struct nt_model_call *calls = job->model->ranks[rank].calls, *last = NULL, *before = NULL;
  const uint64_t kind = nt_kind_of_call(job, rank, call);
  for (const struct nt_model_call *own = call; own-- > calls && !last;)
    last = nt_kind_of_call(job, rank, own) == NT_KIND_NONE ? NULL : own;
  for (const struct nt_model_call *own = calls; last && own < call; own++) {
    const uint64_t other = nt_kind_of_call(job, rank, own);
    if (other == NT_KIND_NONE)
      continue;
    if (before && other == kind && own->at == call->at && before->at == last->at &&
        nt_kind_of_call(job, rank, before) == nt_kind_of_call(job, rank, last))
      return true;
    before = own;
  }
  return !last;
}

/* Has the member gone past the collective, at a line that it had used? From a new one it may have taken another order, as
 * it has where it made the call behind what such a call never came behind: that is not the next turn's. */
static bool owes_call(const struct nt_knot *knot, const struct nt_stuck *stuck, uint32_t member) {
  const struct nt_joint *joint = &knot->inquiry->job->joints[stuck->joint];
  const struct nt_model_call *call =
      nt_member_call(knot->inquiry->job, &joint->members[member], stuck->seq);
  int64_t at = 0;
  if (call && !has_come_so(knot->inquiry->job, joint->members[member].rank, call))
    return false;
  return nt_witnesses_blame(knot->inquiry->job, joint, stuck->seq, member, &at) &&
         nt_knot_is_used_line(knot, joint->members[member].rank, at);
}

/* All who lack it, or, where all have called it, at least one and not all, owe it by what the witnesses did. Adds them to
 * `blame` if that is not NULL. */
static bool is_owed(const struct nt_knot *knot, const struct nt_stuck *stuck,
                    struct nt_finding *finding, int *status) {
  const struct nt_joint *joint = &knot->inquiry->job->joints[stuck->joint];
  const bool lacked = stuck->kind == NT_STUCK_COLLECTIVE;
  uint32_t owing = 0;
  if (!lacked && !(stuck->kind == NT_STUCK_DEVICE && stuck->item == NT_NONE))
    return false;
  for (uint32_t m = 0; m < joint->member_count && !*status; m++) {
    const uint32_t rank = joint->members[m].rank;
    if (lacked && joint->members[m].called >= stuck->seq)
      continue;
    const bool owes =
        nt_ranks_list(knot->ranks, knot->rank_count, rank) && owes_call(knot, stuck, m);
    if (lacked && !owes)
      return false;
    owing += owes;
    if (!finding || !owes)
      continue;
    *status = nt_finding_add(knot->inquiry->job, &finding->blame, rank);
    nt_lines_add(&finding->evidence,
                 "ranks of other communicators that were at the same place as rank %d made this "
                 "call there, and none went on as it did",
                 knot->inquiry->job->model->ranks[rank].world);
  }
  return owing && owing < joint->member_count;
}

static const struct nt_stuck *owed_collective(const struct nt_knot *knot, int *status) {
  const struct nt_stuck *found = NULL;
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const struct nt_stuck *stuck = nt_knot_stuck(knot, i);
    if (!stuck->leaver_count && (!found || stuck->since_ns < found->since_ns) &&
        is_owed(knot, stuck, NULL, status))
      found = stuck;
  }
  return found;
}

/* In a first turn the past of ranks tells nothing: does one member alone lack the collective, and went on where all who were in step
 * made it, itself and the others of this communicator included? */
static uint32_t left_behind(const struct nt_knot *knot, const struct nt_stuck *stuck) {
  const struct nt_job *job = knot->inquiry->job;
  const struct nt_joint *joint = &job->joints[stuck->joint];
  const struct nt_model_call *call = NULL;
  uint32_t rank = NT_NONE;
  if (stuck->kind != NT_STUCK_COLLECTIVE || stuck->leaver_count || stuck->laggard_count != 1)
    return NT_NONE;
  for (uint32_t m = 0; m < joint->member_count; m++)
    if (joint->members[m].called < stuck->seq)
      rank = joint->members[m].rank;
    else if (!call)
      call = nt_member_call(job, &joint->members[m], stuck->seq);
  return call && rank != NT_NONE && nt_witnesses_miss_call(job, rank, call) ? rank : NT_NONE;
}

static const struct nt_p2p_end *lonely_end(const struct nt_knot *knot,
                                           const struct nt_stuck *stuck) {
  return stuck->kind == NT_STUCK_SEND || stuck->kind == NT_STUCK_RECV
             ? &knot->inquiry->p2p.ends[stuck->item]
             : NULL;
}

/* Who has to send (or receive) it went on where all witnesses did that, while its owner did as others. */
static bool is_owed_message(const struct nt_knot *knot, const struct nt_p2p_end *end) {
  const struct nt_job *job = knot->inquiry->job;
  const struct nt_member *partner = nt_p2p_partner(job, end);
  return partner &&
         nt_witnesses_miss(job, partner->rank, end->rank,
                           end->is_send ? NT_SHAPE_RECV : NT_SHAPE_SEND) &&
         nt_witnesses_vouch(job, end->rank, end->call, partner->rank);
}

const struct nt_stuck *nt_knot_blame_by_witnesses(const struct nt_knot *knot,
                                                  struct nt_finding *finding, uint32_t *seq,
                                                  int *status) {
  enum { MANY = 64 }; /* each costs a look at all ranks */
  const struct nt_job *job = knot->inquiry->job;
  if (knot->stuck_count > MANY)
    return NULL;
  const struct nt_stuck *found =
      finding->class == NT_CLASS_P2P ? NULL : owed_collective(knot, status);
  if (found) {
    *seq = found->seq;
    (void)is_owed(knot, found, finding, status);
    return found;
  }
  for (uint32_t i = 0; i < knot->stuck_count && !*status; i++) {
    const struct nt_p2p_end *end = lonely_end(knot, nt_knot_stuck(knot, i));
    uint32_t blamed = left_behind(knot, nt_knot_stuck(knot, i));
    if (end && nt_witnesses_suffice(job, nt_witnesses_without(knot->inquiry, end)))
      blamed = end->rank;
    else if (end && is_owed_message(knot, end))
      blamed = nt_p2p_partner(job, end)->rank;
    if (blamed == NT_NONE)
      continue;
    *seq = nt_knot_stuck(knot, i)->seq;
    *status = nt_finding_add(job, &finding->blame, blamed);
    nt_lines_add(&finding->evidence,
                 "ranks that were at the same place as rank %d all went on in another way",
                 job->model->ranks[blamed].world);
    return nt_knot_stuck(knot, i);
  }
  return NULL;
}

/* Whom the lines tell to blame for that message; NT_NONE. */
static uint32_t told_by_passages(const struct nt_knot *knot, const struct nt_p2p_end *end) {
  switch (nt_passages_tell(knot->inquiry, end)) {
  case NT_PASSAGE_OWNER:
    return end->rank;
  case NT_PASSAGE_PARTNER:
    return nt_p2p_partner(knot->inquiry->job, end)->rank;
  default:
    return NT_NONE;
  }
}

const struct nt_stuck *nt_knot_blame_by_passages(const struct nt_knot *knot,
                                                 struct nt_finding *finding, int *status) {
  enum { MANY = 64 }; /* likewise */
  const struct nt_stuck *found = NULL;
  uint32_t blamed = NT_NONE;
  for (uint32_t i = 0; i < knot->stuck_count && knot->stuck_count <= MANY; i++) {
    const struct nt_p2p_end *end = lonely_end(knot, nt_knot_stuck(knot, i));
    const uint32_t rank = end ? told_by_passages(knot, end) : NT_NONE;
    if (rank == NT_NONE)
      continue;
    if (blamed != NT_NONE && blamed != rank)
      return NULL;
    blamed = rank;
    found = found ? found : nt_knot_stuck(knot, i);
  }
  if (!found)
    return NULL;
  *status = nt_finding_add(knot->inquiry->job, &finding->blame, blamed);
  nt_lines_add(&finding->evidence,
               "from one line of the program rank %d went on once as it never else did, nor any "
               "other rank that calls there",
               knot->inquiry->job->model->ranks[blamed].world);
  return found;
}
