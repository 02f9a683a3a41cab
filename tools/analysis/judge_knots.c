/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that wait for each other.
 *
 * Where a strict majority of the ranks that are in all of it took one order, the others are blamed, else
 * all are; nobody, if the trace of one that might have made the majority is missing. A rank that had kept one
 * order in earlier turns and now waits in the later operation without having called the earlier one has skipped
 * it: that is `missing`, not a cycle, and after several turns no matter of votes.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/describe.h"
#include "analysis/knot_turns.h"
#include "cli/text.h"
#include "nccl/nccl_api.h"

static bool takes_part(const struct nt_knot *knot, const struct nt_stuck *stuck, uint32_t rank) {
  const struct nt_model_rank *model = &knot->inquiry->job->model->ranks[rank];
  if (nt_stuck_is_message(stuck) || stuck->kind == NT_STUCK_INIT)
    return nt_ranks_list(stuck->held, stuck->held_count, rank) ||
           nt_ranks_list(stuck->laggards, stuck->laggard_count, rank);
  for (uint32_t v = 0; v < model->view_count; v++)
    if (knot->inquiry->job->places[rank][v].joint == stuck->joint)
      return true;
  return false;
}

static bool in_all(const struct nt_knot *knot, uint32_t rank) {
  for (uint32_t i = 0; i < knot->stuck_count; i++)
    if (!takes_part(knot, nt_knot_stuck(knot, i), rank))
      return false;
  return true;
}

static bool may_lack_members(const struct nt_inquiry *inquiry) {
  const struct nt_model *model = inquiry->job->model;
  bool lacks = nt_rank_set_count(&inquiry->verdict->missing) != 0;
  for (uint32_t r = 0; r < model->rank_count && !lacks; r++)
    lacks = nt_model_lacks_end(&model->ranks[r]) || model->ranks[r].comms_lost;
  return lacks;
}

/* Members without a trace that may have taken part in all of it. */
static uint32_t absent_voters(const struct nt_knot *knot) {
  uint32_t fewest = UINT32_MAX;
  if (!knot->may_lack_members)
    return 0;
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const uint32_t absent = knot->inquiry->job->joints[nt_knot_stuck(knot, i)->joint].absent;
    fewest = absent < fewest ? absent : fewest;
  }
  return fewest == UINT32_MAX ? 0 : fewest;
}

/* A member without a trace may have taken part in some of it. */
static bool lacks_voters(const struct nt_knot *knot) {
  for (uint32_t i = 0; i < knot->stuck_count && knot->may_lack_members; i++)
    if (knot->inquiry->job->joints[nt_knot_stuck(knot, i)->joint].absent)
      return true;
  return false;
}

/* The operation that a strict majority took first, those without a trace counted against it; NT_NONE if there is none. */
static uint32_t majority(const struct nt_knot *knot) {
  uint32_t *votes = calloc((size_t)knot->stuck_count + 1, sizeof *votes);
  uint32_t voters = 0, found = NT_NONE;
  for (uint32_t r = 0; votes && r < knot->inquiry->job->model->rank_count; r++) {
    uint32_t choice = in_all(knot, r) ? nt_knot_waits_in(knot, r) : NT_NONE;
    if (choice == NT_NONE)
      continue;
    votes[choice]++;
    voters++;
  }
  voters += absent_voters(knot);
  for (uint32_t i = 0; votes && i < knot->stuck_count; i++)
    if (votes[i] * 2 > voters)
      found = i;
  free(votes);
  return found;
}

/* Messages that both sides have called, and no device stands in front of: a stall, no circle. */
static bool is_stall(const struct nt_knot *knot) {
  for (uint32_t i = 0; i < knot->stuck_count; i++)
    if (nt_knot_stuck(knot, i)->kind != NT_STUCK_DEVICE || nt_knot_stuck(knot, i)->behind_count)
      return false;
  return true;
}

static bool is_in_one_joint(const struct nt_knot *knot) {
  for (uint32_t i = 1; i < knot->stuck_count; i++)
    if (nt_knot_stuck(knot, i)->joint != nt_knot_stuck(knot, 0)->joint)
      return false;
  return true;
}

static enum nt_class classify(const struct nt_knot *knot) {
  bool messages = true, creation = false, teardown = true;
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const struct nt_stuck *stuck = nt_knot_stuck(knot, i);
    messages &= nt_stuck_is_message(stuck);
    teardown &= stuck->kind == NT_STUCK_TEARDOWN;
    creation |= stuck->kind == NT_STUCK_INIT || stuck->kind == NT_STUCK_SPLIT;
  }
  if (teardown)
    return NT_CLASS_TEARDOWN;
  if (messages || creation)
    return messages ? NT_CLASS_P2P : NT_CLASS_INIT;
  return is_in_one_joint(knot) ? NT_CLASS_ORDER : NT_CLASS_CYCLE;
}

/* Some of it has not been called by all: that one of them left that out explains the knot as well as unlike orders do. */
static bool lacks_calls(const struct nt_knot *knot) {
  for (uint32_t i = 0; i < knot->stuck_count; i++)
    if (nt_knot_stuck(knot, i)->laggard_count && nt_knot_stuck(knot, i)->kind != NT_STUCK_DEVICE)
      return true;
  return false;
}

static bool is_own_message(const struct nt_knot *knot, const struct nt_finding *finding,
                           const struct nt_stuck *named) {
  const struct nt_inquiry *inquiry = knot->inquiry;
  const int32_t world = inquiry->job->model->ranks[inquiry->p2p.ends[named->item].rank].world;
  return named->kind != NT_STUCK_DEVICE && world >= 0 &&
         nt_rank_set_has(&finding->blame, (uint32_t)world);
}

/* Heads the lines on how far its members are; of a message the number alone does not tell which. */
static void say_operation(const struct nt_knot *knot, struct nt_finding *finding,
                          const struct nt_stuck *stuck, const char *place) {
  if (!nt_stuck_is_message(stuck)) {
    nt_lines_add(&finding->evidence, "%s:", place);
    return;
  }
  const struct nt_p2p_end *end = &knot->inquiry->p2p.ends[stuck->item];
  nt_lines_add(&finding->evidence, "%s, from communicator rank %d to %d:", place, end->source,
               end->destination);
}

static void say_knot(const struct nt_knot *knot, struct nt_finding *finding,
                     const struct nt_stuck *named, bool skipped) {
  static const char *const words[NT_CLASS_LIMIT] = {
      [NT_CLASS_P2P] = "wait for each other in messages",
      [NT_CLASS_INIT] = "wait for each other in the creation of communicators",
      [NT_CLASS_ORDER] = "wait for each other within one communicator",
      [NT_CLASS_CYCLE] = "wait for each other across communicators",
      [NT_CLASS_TEARDOWN] = "wait for each other in the end of communicators",
  };
  char who[NT_DESCRIBE], place[NT_DESCRIBE], waiting[NT_DESCRIBE + 64], line[2 * NT_DESCRIBE];
  struct nt_rank_set members = {0};
  if (nt_inquiry_ranks(knot->inquiry, &members, knot->ranks, knot->rank_count) < 0)
    return;
  nt_describe_place(place, sizeof place, knot->inquiry->job, finding->fn,
                    finding->class == NT_CLASS_INIT ? 0 : finding->seq, finding->joint);
  nt_inquiry_waiting_in(waiting, sizeof waiting, knot->inquiry, finding, named);
  if (skipped && finding->class == NT_CLASS_P2P && is_own_message(knot, finding, named)) {
    nt_finding_say(finding,
                   "by its earlier turns, or by what others do there, %s makes one message too "
                   "many, %s, which has no counterpart%s",
                   nt_describe_ranks(who, sizeof who, &finding->blame), place, waiting);
  } else if (skipped && finding->class == NT_CLASS_P2P) {
    nt_finding_say(
        finding,
        "by its earlier turns, or by what others do there, %s left out the counterpart of %s%s",
        nt_describe_ranks(who, sizeof who, &finding->blame), place, waiting);
  } else if (skipped) {
    nt_describe_ranks(who, sizeof who, &finding->blame);
    nt_finding_say(finding, "%s never called %s and went on %s%s", who, place,
                   is_in_one_joint(knot) ? "with what follows it" : "in another communicator",
                   waiting);
  } else if (finding->class == NT_CLASS_EXTRA) {
    nt_describe_ranks(who, sizeof who, &finding->blame);
    nt_finding_say(finding, "%s called %s, which the others never did: they went on with a call%s",
                   who, place, waiting);
  } else {
    nt_describe_ranks(who, sizeof who, &members);
    nt_finding_say(finding, "%s %s, first in %s%s", who, words[finding->class], place, waiting);
  }
  for (uint32_t i = 0; i < knot->rank_count && i < 16; i++)
    nt_lines_add(&finding->evidence, "%s",
                 nt_inquiry_rank(line, sizeof line, knot->inquiry, knot->ranks[i]));
  for (uint32_t i = 0; i < knot->stuck_count && i < 8; i++)
    if (nt_knot_stuck(knot, i)->kind == NT_STUCK_DEVICE ||
        nt_knot_stuck(knot, i)->kind == NT_STUCK_REPLAY) {
      nt_describe_place(place, sizeof place, knot->inquiry->job, nt_knot_stuck(knot, i)->fn,
                        nt_knot_stuck(knot, i)->seq, nt_knot_stuck(knot, i)->joint);
      say_operation(knot, finding, nt_knot_stuck(knot, i), place);
      nt_say_progress(knot->inquiry, finding, nt_knot_stuck(knot, i));
    }
  nt_rank_set_free(&members);
}

/* Blames those who are in all of it and did not take `common` first. Where that is NT_NONE and no voter is missing, everybody in
 * it, and who voted: a rank that has called all of it is awaited by nobody, but took an order all the same. True in
 * *skipped: each of them has skipped it. */
static int blame(const struct nt_knot *knot, uint32_t common, struct nt_finding *finding,
                 bool *skipped) {
  int status = 0;
  *skipped = finding->class == NT_CLASS_CYCLE && common != NT_NONE &&
             nt_knot_stuck(knot, common)->kind == NT_STUCK_COLLECTIVE;
  if (common == NT_NONE && lacks_voters(knot))
    return 0;
  for (uint32_t i = 0; i < knot->rank_count && !status; i++) {
    uint32_t own = nt_knot_waits_in(knot, knot->ranks[i]);
    if (common != NT_NONE && (own == common || !in_all(knot, knot->ranks[i])))
      continue;
    status = nt_finding_add(knot->inquiry->job, &finding->blame, knot->ranks[i]);
    *skipped = *skipped && own != NT_NONE &&
               nt_knot_has_skipped(knot, knot->ranks[i], nt_knot_stuck(knot, common),
                                   nt_knot_stuck(knot, own));
  }
  const uint32_t ranks = knot->inquiry->job->model->rank_count;
  for (uint32_t r = 0; r < ranks && common == NT_NONE && !status; r++)
    if (in_all(knot, r) && nt_knot_waits_in(knot, r) != NT_NONE)
      status = nt_finding_add(knot->inquiry->job, &finding->blame, r);
  return status;
}

/* A creation against operations of another kind: two creations tell an order, as an end does, of these one may have been left out. */
static bool is_creation_against_calls(const struct nt_knot *knot) {
  bool creation = false, other = false;
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const enum nt_stuck_kind kind = nt_knot_stuck(knot, i)->kind;
    const bool creates = kind == NT_STUCK_INIT || kind == NT_STUCK_SPLIT;
    creation |= creates;
    other |= !creates && kind != NT_STUCK_TEARDOWN;
  }
  return creation && other;
}

/* Where those who skipped it had left the others' sequence. */
static void refine(const struct nt_knot *knot, struct nt_finding *finding,
                   const struct nt_stuck *stuck) {
  for (uint32_t i = 0; i < knot->rank_count; i++) {
    const int32_t world = knot->inquiry->job->model->ranks[knot->ranks[i]].world;
    if (world >= 0 && nt_rank_set_has(&finding->blame, (uint32_t)world))
      nt_refine_missing(knot->inquiry, finding, knot->ranks[i], stuck);
  }
}

/* The operation that the finding is about: what a majority took first, else what is oldest. */
static const struct nt_stuck *named_one(const struct nt_knot *knot, uint32_t common) {
  uint32_t named = 0;
  for (uint32_t i = 0; i < knot->stuck_count; i++)
    if (common == NT_NONE ? nt_knot_stuck(knot, i)->since_ns < nt_knot_stuck(knot, named)->since_ns
                          : i == common)
      named = i;
  return nt_knot_stuck(knot, named);
}

static int fill_waiting(const struct nt_knot *knot, struct nt_finding *finding,
                        const struct nt_stuck *stuck, bool all) {
  struct nt_inquiry *inquiry = knot->inquiry;
  int status = nt_inquiry_ranks(inquiry, &finding->waiting, stuck->waiters, stuck->waiter_count);
  for (uint32_t i = 0; i < knot->stuck_count && all && !status; i++)
    status = nt_inquiry_ranks(inquiry, &finding->waiting, nt_knot_stuck(knot, i)->waiters,
                              nt_knot_stuck(knot, i)->waiter_count);
  return status;
}

/* What the others called at that position; of the operation itself if it is 0. */
static uint8_t function_at(const struct nt_knot *knot, const struct nt_stuck *stuck, uint32_t seq) {
  const struct nt_joint *joint = &knot->inquiry->job->joints[stuck->joint];
  for (uint32_t m = 0; m < joint->member_count && seq && stuck->fn != NT_FN_cudaGraphLaunch; m++) {
    const struct nt_model_call *call = nt_member_call(knot->inquiry->job, &joint->members[m], seq);
    if (call && nt_ranks_list(stuck->waiters, stuck->waiter_count, joint->members[m].rank))
      return call->fn;
  }
  return stuck->fn;
}

/* A message of one of them that is the only thing wrong: `field` "peer", or NULL for one too many. */
static int tell_stray(const struct nt_knot *knot, const struct nt_stuck *stuck, const char *field,
                      struct nt_finding *finding) {
  const struct nt_p2p_end *end = &knot->inquiry->p2p.ends[stuck->item];
  char text[NT_UNMATCHED_TEXT];
  finding->class = NT_CLASS_P2P;
  finding->joint = stuck->joint;
  finding->fn = nt_p2p_call(knot->inquiry->job, end)->fn;
  finding->seq = stuck->seq;
  finding->since_ns = stuck->since_ns;
  finding->field = field;
  finding->confidence = NT_LIKELY;
  int status = nt_finding_add(knot->inquiry->job, &finding->blame, end->rank);
  if (!status)
    status = fill_waiting(knot, finding, stuck, true);
  nt_finding_say(finding, "%s", nt_unmatched_text(text, sizeof text, knot->inquiry, end, finding));
  return status;
}

static int judge(struct nt_knot *knot) {
  struct nt_inquiry *inquiry = knot->inquiry;
  uint32_t common = NT_NONE, seq = 0;
  const struct nt_stuck *stuck = NULL;
  struct nt_finding *finding = nt_inquiry_add(inquiry, classify(knot), NT_NONE);
  int status = finding ? 0 : -NT_ERR_MEMORY;
  const bool open = !status && (finding->class == NT_CLASS_CYCLE ||
                                finding->class == NT_CLASS_ORDER || finding->class == NT_CLASS_P2P);
  const bool messages = open && finding->class == NT_CLASS_P2P;
  struct nt_last_turn last = {0};
  const struct nt_stuck *stray = messages ? nt_knot_wrong_peer(knot) : NULL;
  if (stray)
    return tell_stray(knot, stray, "peer", finding);
  if (open)
    status = nt_knot_last_turn(knot, &last);
  stray = open && !status ? nt_knot_added_message(knot, &last) : NULL;
  if (stray)
    return tell_stray(knot, stray, NULL, finding);
  if (open && !status)
    stuck = nt_knot_blame_by_past(knot, &last, finding, &seq, &status);
  if (open && !status && !stuck)
    stuck = nt_knot_blame_by_groups(knot, finding, &status);
  bool skipped = stuck != NULL, tied = false;
  stray = messages && !status && !stuck ? nt_knot_message_too_many(knot) : NULL;
  if (stray)
    return tell_stray(knot, stray, NULL, finding);
  if (open && !status && !stuck)
    stuck = nt_knot_blame_by_passages(knot, finding, &status);
  skipped = stuck != NULL;
  const struct nt_stuck *voted = NULL;
  if (!status && !skipped) {
    common = majority(knot);
    if (common != NT_NONE)
      status = blame(knot, common, finding, &skipped);
  }
  if (!status && !nt_rank_set_count(&finding->blame)) {
    skipped = false;
    common = NT_NONE; /* a majority that leaves nobody to differ from it is none */
    if (finding->class == NT_CLASS_CYCLE || finding->class == NT_CLASS_ORDER)
      voted = nt_knot_vote_on_messages(knot, finding, &skipped, &status);
    if (!voted && !status && finding->class == NT_CLASS_CYCLE)
      common = nt_knot_vote_in_pairs(knot, finding, &tied, &status);
    if (!voted && !status && common == NT_NONE)
      status = blame(knot, common, finding, &skipped);
  }
  if (status)
    return status;
  const bool decided = stuck || voted || (common != NT_NONE && !tied);
  const struct nt_stuck *extra = common == NT_NONE ? NULL : nt_knot_extra_launch(knot, common);
  stuck = stuck ? stuck : voted ? voted : extra ? extra : named_one(knot, common);
  bool message = nt_stuck_is_message(stuck);
  if (skipped)
    finding->class = message ? NT_CLASS_P2P : NT_CLASS_MISSING;
  else if (extra)
    finding->class = NT_CLASS_EXTRA;
  finding->joint = stuck->joint;
  finding->fn = message && stuck->kind != NT_STUCK_DEVICE
                    ? nt_p2p_call(inquiry->job, &inquiry->p2p.ends[stuck->item])->fn
                    : function_at(knot, stuck, message ? 0 : seq);
  finding->seq = seq && !message ? seq : stuck->seq;
  finding->since_ns = stuck->since_ns;
  bool sure = stuck->open || stuck->kind == NT_STUCK_DEVICE || stuck->kind == NT_STUCK_REPLAY;
  const bool either = (open || is_creation_against_calls(knot)) && !decided && lacks_calls(knot);
  if (either)
    nt_lines_add(&finding->evidence, "that one of them left a call out explains this as well as "
                                     "that they took unlike orders");
  finding->confidence = either || (!decided && lacks_voters(knot))                  ? NT_UNDECIDED
                        : sure && !seq && !extra && !voted && !(skipped && message) ? NT_CERTAIN
                                                                                    : NT_LIKELY;
  status = fill_waiting(knot, finding, stuck, message && (!skipped || !stuck->waiter_count));
  refine(knot, finding, stuck);
  say_knot(knot, finding, stuck, skipped);
  return status;
}

int nt_judge_knots(struct nt_inquiry *inquiry) {
  struct nt_waits *waits = &inquiry->waits;
  uint32_t rank_count = inquiry->job->model->rank_count;
  struct nt_knot knot = {.inquiry = inquiry, .may_lack_members = may_lack_members(inquiry)};
  int status = 0;
  for (uint32_t k = 0; k < waits->knot_count && !status; k++) {
    if (!waits->knot_sink[k] || waits->knot_ranks[k] + waits->knot_stuck[k] < 2)
      continue;
    knot.number = k;
    knot.stuck_count = knot.rank_count = 0;
    knot.stuck = malloc(((size_t)waits->knot_stuck[k] + 1) * sizeof *knot.stuck);
    knot.ranks = malloc(((size_t)waits->knot_ranks[k] + 1) * sizeof *knot.ranks);
    status = knot.stuck && knot.ranks ? 0 : -NT_ERR_MEMORY;
    for (uint32_t i = 0; i < waits->count && !status; i++)
      if (waits->list[i].knot == k)
        knot.stuck[knot.stuck_count++] = i;
    for (uint32_t i = 0; i < rank_count && !status; i++)
      if (waits->rank_knot[i] == k || waits->device_knot[i] == k)
        knot.ranks[knot.rank_count++] = i;
    if (!status && !is_stall(&knot))
      status = judge(&knot);
    free(knot.stuck);
    free(knot.ranks);
  }
  return status;
}
