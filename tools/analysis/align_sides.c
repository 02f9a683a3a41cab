/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What else tells the sides of a difference apart: where votes do not, ranks of other communicators that were at the same
 * place; and of those that deviate alike, the one that got furthest tells the story of all.
 */
#include "analysis/align.h"
#include "analysis/align_parts.h"
#include "analysis/sequence.h"
#include "analysis/witnesses.h"
#include "nccl/nccl_api.h"

/* Members of larger ones are not asked about, nor those of larger jobs: each answer takes a look at all ranks. */
enum { ASKED = 16, RANKS = 1024 };

enum side { SIDE_UNKNOWN, SIDE_RIGHT, SIDE_WRONG };

static bool is_alone(const struct nt_job *job, struct nt_witnesses peers) {
  return !peers.alike && peers.one && nt_witnesses_suffice(job, peers.other);
}

/* It called as before, as did at least two others, and none otherwise; or none as it did, and all of them in one other way.
 * In a second turn both ways must be such as it had gone in the first. */
static enum side side_of(const struct nt_job *job, const struct nt_joint *joint, uint32_t index,
                         uint32_t position) {
  const struct nt_member *member = &joint->members[index];
  const uint32_t except = (uint32_t)(joint - job->joints);
  if (!nt_member_call(job, member, position))
    return SIDE_UNKNOWN;
  const uint32_t call = member->call[position - member->first];
  struct nt_witnesses peers = nt_witnesses_at(job, member->rank, call, except);
  if (peers.alike || peers.other) {
    if (peers.as_before && !peers.other && nt_witnesses_suffice(job, peers.alike))
      return SIDE_RIGHT;
    return !peers.as_before && is_alone(job, peers) ? SIDE_WRONG : SIDE_UNKNOWN;
  }
  peers = nt_witnesses_in_step(job, member->rank, call, except);
  if (peers.as_before && !peers.other && nt_witnesses_suffice(job, peers.alike))
    return SIDE_RIGHT;
  return peers.as_before && is_alone(job, peers) ? SIDE_WRONG : SIDE_UNKNOWN;
}

/* Else it is arguments that differ, of which other groups tell nothing. */
static bool differs_in_function(const struct nt_job *job, const struct nt_joint *joint,
                                uint32_t position) {
  const struct nt_model_call *first = NULL;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_model_call *call = nt_member_call(job, &joint->members[i], position);
    if (call && first && nt_fn_canonical(call->fn) != nt_fn_canonical(first->fn))
      return true;
    first = call ? call : first;
  }
  return false;
}

uint64_t nt_align_side_of_witnesses(const struct nt_job *job, const struct nt_joint *joint,
                                    uint32_t position) {
  uint64_t right = 0;
  uint32_t wrong = 0;
  if (joint->member_count > ASKED || joint->absent || job->model->rank_count > RANKS ||
      !differs_in_function(job, joint, position))
    return 0;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const uint64_t own = nt_align_signature(&joint->members[i], position);
    if (!own || (right && own == right))
      continue;
    const enum side side = side_of(job, joint, i, position);
    if (side == SIDE_UNKNOWN || (side == SIDE_RIGHT && right))
      return 0;
    right = side == SIDE_RIGHT ? own : right;
    wrong += side == SIDE_WRONG;
  }
  return wrong ? right : 0;
}

/* The calls of the one, up to its last, are those of the other. */
static bool goes_on(const struct nt_member *shorter, const struct nt_member *longer,
                    uint32_t position) {
  if (shorter->called > longer->called)
    return false;
  for (uint32_t p = position; p <= shorter->called; p++)
    if (nt_align_signature(shorter, p) != nt_align_signature(longer, p))
      return false;
  return true;
}

void nt_align_share_stories(const struct nt_joint *joint, struct nt_divergence *divergence) {
  for (uint32_t i = 0; i < divergence->deviation_count; i++) {
    struct nt_deviation *deviation = &divergence->deviations[i];
    for (uint32_t j = 0; j < divergence->deviation_count; j++) {
      const struct nt_deviation *other = &divergence->deviations[j];
      if (deviation->edit.how != NT_EDIT_CHANGED || other->edit.how == NT_EDIT_CHANGED ||
          other->position != divergence->position ||
          !goes_on(&joint->members[deviation->member], &joint->members[other->member],
                   divergence->position))
        continue;
      deviation->edit = other->edit;
      deviation->foretold = other->foretold;
    }
  }
}
