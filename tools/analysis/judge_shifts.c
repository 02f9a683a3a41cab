/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call is left over in the end, and all that came before paired up: which was skipped, or too many?
 *
 * That some members did not call the last one is certain and no vote. That it is left over from a call that
 * the others never made takes a majority, and anchors that say so of all calls since; or ranks of other
 * communicators that did without it at the same place (witnesses.h).
 */
#include <string.h>

#include "analysis/anchors.h"
#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "analysis/witnesses.h"

/* Calls that would not agree without the shift, from which on it is certain. */
enum { CERTAIN_FROM = 3 };

/* Those that made fewer calls are no minority: they may have made all of theirs, and the others one too many. */
static bool may_be_extra(const struct nt_joint *joint, uint32_t most) {
  uint32_t fewer = 0;
  for (uint32_t i = 0; i < joint->member_count; i++)
    fewer += joint->members[i].called < most;
  return 2 * fewer >= joint->member_count;
}

/* The call at the line is the only one that was made there, by those ahead at one line, and no more than half are: for all that
 * is known it is one too many. */
static bool is_at_new_line(const struct nt_inquiry *inquiry, const struct nt_stuck *stuck) {
  const struct nt_joint *joint = &inquiry->job->joints[stuck->joint];
  uint32_t at = 0, ahead = 0, there = 0;
  if (!may_be_extra(joint, stuck->seq))
    return false;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_model_call *own = nt_member_call(inquiry->job, &joint->members[i], stuck->seq);
    if (joint->members[i].called < stuck->seq)
      continue;
    if (!own || !own->at || (at && own->at != at))
      return false;
    at = own->at;
    ahead++;
  }
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_model_rank *rank = nt_member_rank(inquiry->job, &joint->members[i]);
    if (rank->overwritten || rank->lost || rank->cut)
      return false;
    for (uint32_t c = 0; c < rank->call_count; c++)
      there += rank->calls[c].at == at;
  }
  return ahead && there == ahead;
}

void nt_refine_missing(struct nt_inquiry *inquiry, struct nt_finding *finding, uint32_t rank,
                       const struct nt_stuck *stuck) {
  const struct nt_joint *joint = &inquiry->job->joints[stuck->joint];
  uint32_t laggard = NT_NONE, reference = NT_NONE;
  if ((finding->class != NT_CLASS_MISSING && finding->class != NT_CLASS_LEFT) ||
      stuck->kind != NT_STUCK_COLLECTIVE)
    return;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    if (joint->members[i].rank == rank)
      laggard = i;
    else if (reference == NT_NONE || joint->members[i].called > joint->members[reference].called)
      reference = i;
  }
  if (laggard == NT_NONE || reference == NT_NONE)
    return;
  if (finding->class == NT_CLASS_LEFT && finding->confidence == NT_CERTAIN &&
      is_at_new_line(inquiry, stuck)) {
    finding->confidence = NT_UNDECIDED;
    nt_lines_add(&finding->evidence,
                 "nobody had called from that line before: rank %d's #%u may be one too many, and "
                 "then nobody left early",
                 nt_member_rank(inquiry->job, &joint->members[reference])->world, stuck->seq);
  }
  const struct nt_shift shift = nt_anchors_shift(inquiry->job, joint, reference, laggard,
                                                 inquiry->divergences[stuck->joint].from);
  const struct nt_model_call *call =
      nt_member_call(inquiry->job, &joint->members[reference], shift.position);
  if (!call || shift.how != NT_EDIT_SKIPPED ||
      shift.run > joint->members[reference].called - joint->members[laggard].called)
    return;
  if (finding->class == NT_CLASS_MISSING &&
      (finding->seq == stuck->seq || shift.position < finding->seq)) {
    finding->seq = shift.position;
    finding->fn = call->fn;
  }
  nt_lines_add(&finding->evidence,
               "%s, rank %d's calls from #%u on are %u behind: later calls paired up, and the last "
               "is left over",
               nt_anchor_text(shift.anchor), inquiry->job->model->ranks[rank].world, shift.position,
               shift.run);
  if (finding->class == NT_CLASS_LEFT && finding->confidence == NT_CERTAIN &&
      may_be_extra(joint, joint->members[reference].called)) {
    finding->confidence = NT_UNDECIDED;
    finding->acquitted = true;
    nt_lines_add(&finding->evidence, "or rank %d's #%u is one too many: then nobody left early",
                 nt_member_rank(inquiry->job, &joint->members[reference])->world, shift.position);
  }
}

/* Blamed if the others are in the majority, those without a trace counted against it. */
static int tell_extra(struct nt_inquiry *inquiry, const struct nt_stuck *stuck) {
  const struct nt_shift *shift = &stuck->extra;
  const struct nt_joint *joint = &inquiry->job->joints[stuck->joint];
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_EXTRA, stuck->joint);
  struct nt_rank_set ahead = {0};
  char who[NT_DESCRIBE], place[NT_DESCRIBE], text[NT_DESCRIBE], last[NT_DESCRIBE];
  if (!finding)
    return -NT_ERR_MEMORY;
  int status = nt_inquiry_ranks(inquiry, &finding->waiting, stuck->waiters, stuck->waiter_count);
  finding->seq = shift->position;
  finding->since_ns = stuck->since_ns;
  for (uint32_t i = 0; i < joint->member_count && !status; i++) {
    const struct nt_member *member = &joint->members[i];
    const struct nt_model_call *call = nt_member_call(inquiry->job, member, shift->position);
    if (member->called < stuck->seq || !call)
      continue;
    const char *site = nt_model_site(nt_member_rank(inquiry->job, member), call->at);
    finding->fn = call->fn;
    status = nt_finding_add(inquiry->job, &ahead, member->rank);
    nt_lines_add(&finding->evidence, "rank %d called %s%s%s",
                 nt_member_rank(inquiry->job, member)->world,
                 nt_describe_call(text, sizeof text, inquiry->job, member->rank,
                                  member->call[shift->position - member->first]),
                 site ? " at " : "", site ? site : "");
  }
  nt_describe_place(last, sizeof last, inquiry->job, stuck->fn, stuck->seq, stuck->joint);
  nt_describe_place(place, sizeof place, inquiry->job, finding->fn, finding->seq, stuck->joint);
  nt_describe_ranks(who, sizeof who, &ahead);
  if (shift->position == stuck->seq)
    nt_finding_say(finding, "%s called %s, which the other members never did: they went on", who,
                   place);
  else
    nt_finding_say(finding,
                   "%s called %s, which the other members never did; its later calls paired up "
                   "with others, and in the end it waits alone in %s",
                   who, place, last);
  if (stuck->peers)
    nt_lines_add(&finding->evidence,
                 "%u rank%s of other communicators, at the same place, went on as those without "
                 "that call, and none with it",
                 stuck->peers, stuck->peers == 1 ? "" : "s");
  else
    nt_lines_add(&finding->evidence, "%s: without that call the %u that follow it agree",
                 nt_anchor_text(shift->anchor), shift->agree);
  if (stuck->peers ? nt_witnesses_suffice(inquiry->job, stuck->peers)
                   : 2 * nt_rank_set_count(&ahead) + joint->absent < joint->member_count) {
    finding->confidence = !stuck->peers && shift->broken >= CERTAIN_FROM ? NT_CERTAIN : NT_LIKELY;
    finding->blame = ahead;
    return status;
  }
  finding->confidence = NT_UNDECIDED;
  nt_rank_set_free(&ahead);
  return status;
}

int nt_judge_extras(struct nt_inquiry *inquiry) {
  int status = 0;
  for (uint32_t i = 0; i < inquiry->waits.count && !status; i++)
    if (inquiry->waits.list[i].extra.position)
      status = tell_extra(inquiry, &inquiry->waits.list[i]);
  return status;
}
