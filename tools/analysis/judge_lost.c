/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages that were left out, and nobody waited: what followed in their queue met the wrong one, to the job's end.
 *
 * A rank that has ended well made all its calls: a message without counterpart is none that may still be taken. Who left one out
 * has gone past the place where it had always called, and owes nothing else, or made its last call with one that lacks nothing;
 * who ended early owes all that comes after.
 */
#include <stdio.h>

#include "analysis/describe.h"
#include "analysis/foretell.h"
#include "analysis/inquiry.h"
#include "analysis/queue_turns.h"
#include "analysis/witnesses.h"
#include "analysis/sequence.h"
#include "cli/text.h"

static bool has_ended(const struct nt_inquiry *inquiry, uint32_t rank) {
  const struct nt_fate *fate = &inquiry->freeze->fates[rank];
  return fate->kind == NT_FATE_LEFT && !fate->lives &&
         inquiry->job->model->ranks[rank].state == NT_PROCESS_EXITED;
}

static bool is_whole(const struct nt_inquiry *inquiry, uint32_t rank) {
  return !inquiry->job->model->ranks[rank].lost && !inquiry->job->model->ranks[rank].overwritten;
}

/* A member has no trace, or one without its end. */
static bool lacks_members(const struct nt_inquiry *inquiry, uint32_t index) {
  const struct nt_joint *joint = &inquiry->job->joints[index];
  bool lacks = joint->absent != 0;
  for (uint32_t i = 0; i < joint->member_count; i++)
    lacks |= nt_member_rank(inquiry->job, &joint->members[i])->cut != 0;
  return lacks;
}

/* Does a queue lack a message of the rank, another one than that of `end` if there is one? */
static bool owes_message(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end,
                         uint32_t rank) {
  for (uint32_t i = 0; i < inquiry->p2p.unmatched_count; i++) {
    const struct nt_p2p_end *other = &inquiry->p2p.ends[inquiry->p2p.unmatched[i]];
    const struct nt_member *partner = nt_p2p_partner(inquiry->job, other);
    if (partner && partner->rank == rank && !(end && nt_p2p_same_queue(other, end)))
      return true;
  }
  return false;
}

/* Does somebody lack a call of the rank that is no message? */
static bool owes_call(const struct nt_inquiry *inquiry, uint32_t rank) {
  for (uint32_t i = 0; i < inquiry->waits.count; i++) {
    const struct nt_stuck *stuck = &inquiry->waits.list[i];
    if (stuck->kind == NT_STUCK_SEND || stuck->kind == NT_STUCK_RECV)
      continue;
    for (uint32_t j = 0; j < stuck->laggard_count + stuck->leaver_count; j++)
      if (rank == (j < stuck->laggard_count ? stuck->laggards[j]
                                            : stuck->leavers[j - stuck->laggard_count]))
        return true;
  }
  return false;
}

static uint32_t passed(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end,
                       uint32_t partner) {
  const uint32_t at = nt_foretell_passed(
      inquiry->job, partner,
      nt_kind_message(end->joint, !end->is_send, end->is_send ? end->source : end->destination));
  return at && at <= end->seq ? at : 0;
}

/* One that made its last call with the rank, in one collective that nobody lacks, and then ended as it had, and whom nobody
 * waits for; NT_NONE if there is none. */
static uint32_t ended_like(const struct nt_inquiry *inquiry, uint32_t rank) {
  const struct nt_job *job = inquiry->job;
  const uint32_t last = nt_last_call(job, rank);
  const uint32_t view = last == NT_NONE ? NT_NONE : job->model->ranks[rank].calls[last].view;
  if (view == NT_NONE || job->places[rank][view].joint == NT_NONE)
    return NT_NONE;
  const struct nt_joint *joint = &job->joints[job->places[rank][view].joint];
  const struct nt_member *own = &joint->members[job->places[rank][view].member];
  const uint32_t position = own->called;
  uint32_t found = NT_NONE;
  if (nt_member_call(job, own, position) != &job->model->ranks[rank].calls[last])
    return NT_NONE;
  for (uint32_t m = 0; m < joint->member_count; m++) {
    const struct nt_member *member = &joint->members[m];
    const uint32_t its = nt_last_call(job, member->rank);
    if (member->called != position)
      return NT_NONE;
    if (member != own && its != NT_NONE && has_ended(inquiry, member->rank) &&
        nt_member_call(job, member, position) == &job->model->ranks[member->rank].calls[its] &&
        !owes_message(inquiry, NULL, member->rank) && !owes_call(inquiry, member->rank))
      found = member->rank;
  }
  return found;
}

uint32_t nt_went_past(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end) {
  const struct nt_member *partner = nt_p2p_partner(inquiry->job, end);
  if (!partner || end->signal || !has_ended(inquiry, partner->rank) ||
      !is_whole(inquiry, partner->rank) || owes_call(inquiry, partner->rank))
    return 0;
  if (ended_like(inquiry, partner->rank) != NT_NONE)
    return end->seq;
  return owes_message(inquiry, end, partner->rank) ? 0 : passed(inquiry, end, partner->rank);
}

/* How many messages each side made of a queue between the same two members of another communicator of that size, against those of
 * this one: 1 as many in most of at least two, 0 in none, -1 not told. */
static void ask_elsewhere(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end,
                          struct nt_votes *votes) {
  enum { ENOUGH = 2 };
  const struct nt_p2p *p2p = &inquiry->p2p;
  const int32_t size = inquiry->job->joints[end->joint].size;
  uint32_t wanted[2] = {0, 0}, alike[2] = {0, 0}, counts[2] = {0, 0}, others = 0;
  for (uint32_t i = 0; i < p2p->count; i++)
    wanted[p2p->ends[i].is_send] += nt_p2p_same_queue(&p2p->ends[i], end);
  for (uint32_t i = 0; i < p2p->count; i++) {
    const struct nt_p2p_end *other = &p2p->ends[i];
    counts[other->is_send]++;
    if (i + 1 < p2p->count && nt_p2p_same_queue(other, other + 1))
      continue;
    if (other->joint != end->joint && other->source == end->source && !other->signal &&
        other->destination == end->destination && inquiry->job->joints[other->joint].size == size) {
      others++;
      for (int side = 0; side < 2; side++)
        alike[side] += counts[side] == wanted[side];
    }
    counts[0] = counts[1] = 0;
  }
  if (others < ENOUGH)
    return;
  votes->own = alike[end->is_send] == 0 ? 0 : 2 * alike[end->is_send] > others ? 1 : -1;
  votes->theirs = alike[!end->is_send] == 0 ? 0 : 2 * alike[!end->is_send] > others ? 1 : -1;
}

/* Who made another number of messages than the rest; if that cannot be told, who went past its place; else both, and where
 * members have no trace either. */
static int blame(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end, uint32_t partner,
                 bool past, struct nt_finding *finding) {
  struct nt_votes votes;
  int status = nt_count_votes(inquiry, end, partner, &votes);
  if (!status && votes.own < 0 && votes.theirs < 0)
    ask_elsewhere(inquiry, end, &votes);
  bool own = (!votes.own && votes.theirs) || (votes.own < 0 && votes.theirs == 1);
  bool theirs = (!votes.theirs && votes.own) || (votes.theirs < 0 && votes.own == 1);
  finding->confidence = theirs && past ? NT_CERTAIN : NT_LIKELY;
  theirs |= past;
  if (!own && !theirs) {
    own = theirs = true;
    if (lacks_members(inquiry, end->joint))
      finding->confidence = NT_UNDECIDED;
  }
  const enum nt_queue_side side = nt_queue_departs(inquiry->job, &inquiry->p2p, end, partner);
  if (side != NT_QUEUE_UNTOLD) {
    finding->confidence = NT_LIKELY;
    own = side == NT_QUEUE_OWN;
    theirs = !own;
    nt_lines_add(&finding->evidence,
                 "between two collectives rank %d made another number of these messages than in "
                 "all other turns, the other side the same as always",
                 inquiry->job->model->ranks[own ? end->rank : partner].world);
  }
  const uint32_t peers = nt_witnesses_without(inquiry, end);
  if (peers) {
    finding->confidence = nt_witnesses_suffice(inquiry->job, peers) ? NT_LIKELY : NT_UNDECIDED;
    own = finding->confidence == NT_LIKELY;
    theirs = false;
  }
  if (!status && own)
    status = nt_finding_add(inquiry->job, &finding->blame, end->rank);
  if (!status && theirs)
    status = nt_finding_add(inquiry->job, &finding->blame, partner);
  return status;
}

static int judge_lost(struct nt_inquiry *inquiry, const struct nt_p2p_end *end, uint32_t partner) {
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_P2P, end->joint);
  const uint32_t at = passed(inquiry, end, partner);
  const struct nt_model_call *call = nt_p2p_call(inquiry->job, end);
  char text[NT_UNMATCHED_TEXT];
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->fn = call->fn;
  finding->seq = at ? at : end->seq;
  finding->since_ns = call->enter_ns;
  int status = blame(inquiry, end, partner, at, finding);
  nt_finding_say(finding, "%s; nobody waited, and %s have ended",
                 nt_unmatched_text(text, sizeof text, inquiry, end, finding),
                 lacks_members(inquiry, end->joint) ? "both" : "all");
  nt_say_passed(inquiry, finding, end);
  return status;
}

void nt_say_passed(const struct nt_inquiry *inquiry, struct nt_finding *finding,
                   const struct nt_p2p_end *end) {
  const struct nt_member *partner = nt_p2p_partner(inquiry->job, end);
  const uint32_t at = partner ? passed(inquiry, end, partner->rank) : 0;
  const uint32_t like = partner ? ended_like(inquiry, partner->rank) : NT_NONE;
  if (!at && like != NT_NONE)
    nt_lines_add(&finding->evidence,
                 "rank %d made its last call together with rank %d, which lacks nothing: it left "
                 "out a message, and did not end early",
                 nt_member_rank(inquiry->job, partner)->world,
                 inquiry->job->model->ranks[like].world);
  if (at)
    nt_lines_add(
        &finding->evidence,
        "rank %d went past the place where it had always %s, at #%u: what followed between "
        "the two met the wrong one",
        nt_member_rank(inquiry->job, partner)->world, end->is_send ? "received" : "sent", at);
}

int nt_judge_lost_messages(struct nt_inquiry *inquiry) {
  enum { TOLD = 4 };
  const struct nt_p2p_end *before = NULL;
  uint32_t told = 0;
  int status = 0;
  if (nt_inquiry_explains(inquiry))
    return 0;
  for (uint32_t i = 0; i < inquiry->p2p.unmatched_count && told < TOLD && !status; i++) {
    const struct nt_p2p_end *end = &inquiry->p2p.ends[inquiry->p2p.unmatched[i]];
    const struct nt_member *partner = nt_p2p_partner(inquiry->job, end);
    if (end->signal || !partner || (before && nt_p2p_same_queue(before, end)) ||
        !has_ended(inquiry, end->rank) || !has_ended(inquiry, partner->rank) ||
        !is_whole(inquiry, end->rank) || !is_whole(inquiry, partner->rank))
      continue;
    before = end;
    status = judge_lost(inquiry, end, partner->rank);
    told++;
  }
  return status;
}
