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
enum { ASKED = 16, RANKS = 1024, LOOKED_BACK = 64 };

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

/* Calls of equal arguments pair up: from which position on, up to this one, have members been at different lines? */
static uint32_t find_parted(const struct nt_job *job, const struct nt_joint *joint,
                            uint32_t position) {
  uint32_t parted = position;
  for (uint32_t p = position - 1; p && position - p <= LOOKED_BACK; p--) {
    const struct nt_model_call *first = NULL;
    bool differs = false;
    for (uint32_t i = 0; i < joint->member_count; i++) {
      const struct nt_model_call *call = nt_member_call(job, &joint->members[i], p);
      if (!call || !call->at)
        return parted;
      differs |= first && call->at != first->at;
      first = first ? first : call;
    }
    if (!differs)
      return parted;
    parted = p;
  }
  return position; /* they always are */
}

static uint32_t line_at(const struct nt_job *job, const struct nt_member *member,
                        uint32_t position) {
  const struct nt_model_call *call = nt_member_call(job, member, position);
  return call ? call->at : 0;
}

/* How far behind `position` the member is at that line for the first time, 0 if it does not come there. */
static uint32_t distance(const struct nt_job *job, const struct nt_member *member,
                         uint32_t position, uint32_t line) {
  for (uint32_t n = 1; position + n <= member->called && n <= LOOKED_BACK; n++)
    if (line_at(job, member, position + n) == line)
      return n;
  return 0;
}

void nt_align_tell_parting(const struct nt_job *job, const struct nt_member *reference,
                           const struct nt_member *member, uint32_t parted,
                           struct nt_deviation *deviation) {
  const uint32_t skipped = distance(job, reference, parted, line_at(job, member, parted));
  const uint32_t extra = distance(job, member, parted, line_at(job, reference, parted));
  const bool skips = skipped && (!extra || skipped <= extra);
  if (!skipped && !extra)
    return;
  deviation->edit = (struct nt_edit){.how = skips ? NT_EDIT_SKIPPED : NT_EDIT_EXTRA,
                                     .run = skips ? skipped : extra};
  deviation->position = parted;
  deviation->anchor = NT_ANCHOR_SITE;
}

uint64_t nt_align_side_of_witnesses(const struct nt_job *job, const struct nt_joint *joint,
                                    uint32_t position, uint32_t *parted) {
  uint64_t right = 0;
  uint32_t wrong = 0;
  *parted = position;
  if (joint->member_count > ASKED || joint->absent || job->model->rank_count > RANKS ||
      !differs_in_function(job, joint, position))
    return 0;
  *parted = find_parted(job, joint, position);
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const uint64_t own = nt_align_signature(&joint->members[i], position);
    if (!own || (right && own == right))
      continue;
    const enum side side = side_of(job, joint, i, *parted);
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
