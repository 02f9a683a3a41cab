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
#include "analysis/foretell.h"
#include "analysis/inquiry.h"
#include "cli/text.h"
#include "nccl/nccl_api.h"

struct knot {
  struct nt_inquiry *inquiry;
  uint32_t number;
  uint32_t *stuck, stuck_count;
  uint32_t *ranks, rank_count;
};

static bool lists(const uint32_t *list, uint32_t count, uint32_t value) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == value)
      return true;
  return false;
}

static const struct nt_stuck *stuck_at(const struct knot *knot, uint32_t i) {
  return &knot->inquiry->waits.list[knot->stuck[i]];
}

static bool is_message(const struct nt_stuck *stuck) {
  return stuck->kind == NT_STUCK_SEND || stuck->kind == NT_STUCK_RECV ||
         (stuck->kind == NT_STUCK_DEVICE && stuck->item != NT_NONE);
}

static bool is_collective(const struct nt_stuck *stuck) {
  return stuck->kind == NT_STUCK_COLLECTIVE || stuck->kind == NT_STUCK_REPLAY ||
         (stuck->kind == NT_STUCK_DEVICE && stuck->item == NT_NONE);
}

static bool takes_part(const struct knot *knot, const struct nt_stuck *stuck, uint32_t rank) {
  const struct nt_model_rank *model = &knot->inquiry->job->model->ranks[rank];
  if (is_message(stuck) || stuck->kind == NT_STUCK_INIT)
    return lists(stuck->held, stuck->held_count, rank) ||
           lists(stuck->laggards, stuck->laggard_count, rank);
  for (uint32_t v = 0; v < model->view_count; v++)
    if (knot->inquiry->job->places[rank][v].joint == stuck->joint)
      return true;
  return false;
}

/* When the rank called the operation, 0 if it did not or that is not known. */
static int64_t issued_ns(const struct knot *knot, const struct nt_stuck *stuck, uint32_t rank) {
  const struct nt_model_rank *model = &knot->inquiry->job->model->ranks[rank];
  if (is_message(stuck)) {
    const struct nt_p2p_end *end = &knot->inquiry->p2p.ends[stuck->item];
    bool other = end->rank != rank && stuck->kind == NT_STUCK_DEVICE;
    return end[other].rank == rank ? model->calls[end[other].call].enter_ns : 0;
  }
  for (uint32_t v = 0; v < model->view_count && stuck->seq; v++) {
    struct nt_place place = knot->inquiry->job->places[rank][v];
    if (place.joint != stuck->joint)
      continue;
    const struct nt_replay *replay =
        nt_replay_at(&knot->inquiry->waits.replays, place.joint, place.member, stuck->seq);
    if (stuck->kind == NT_STUCK_REPLAY)
      return replay ? replay->enter_ns : 0;
    const struct nt_model_call *call =
        nt_member_call(knot->inquiry->job,
                       &knot->inquiry->job->joints[place.joint].members[place.member], stuck->seq);
    return call ? call->enter_ns : 0;
  }
  return 0;
}

static bool is_mixed(const struct knot *knot) {
  bool message = false, collective = false;
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    message |= is_message(stuck_at(knot, i));
    collective |= is_collective(stuck_at(knot, i));
  }
  return message && collective;
}

/* The rank's own end of a message, NULL if it has none in it. */
static const struct nt_p2p_end *end_of(const struct knot *knot, const struct nt_stuck *stuck,
                                       uint32_t rank) {
  const struct nt_p2p_end *end = &knot->inquiry->p2p.ends[stuck->item];
  const uint32_t ends = stuck->kind == NT_STUCK_DEVICE ? 2 : 1;
  for (uint32_t i = 0; i < ends; i++)
    if (end[i].rank == rank)
      return &end[i];
  return NULL;
}

/* A message that both sides have called, and that waits for others of the rank's own group (waits_device.c). */
static bool is_held_by_group(const struct knot *knot, const struct nt_stuck *stuck, uint32_t rank) {
  const struct nt_p2p_end *end =
      stuck->kind == NT_STUCK_DEVICE && is_message(stuck) ? end_of(knot, stuck, rank) : NULL;
  return end && (lists(stuck->laggards, stuck->laggard_count, rank) ||
                 (lists(stuck->behind, stuck->behind_count, rank) &&
                  nt_p2p_call(knot->inquiry->job, end)->progress != NT_PROGRESS_ENQUEUED));
}

/* Which operation of the knot the rank issued first, as an index into knot->stuck: by its calls where there are
 * collectives, else the one that it waits in. NT_NONE if that is not one. */
static uint32_t waits_in(const struct knot *knot, uint32_t rank) {
  uint32_t found = NT_NONE, first = NT_NONE;
  int64_t first_ns = INT64_MAX;
  const bool mixed = is_mixed(knot);
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const struct nt_stuck *stuck = stuck_at(knot, i);
    bool moves = is_collective(stuck) || (mixed && is_message(stuck));
    int64_t ns = moves ? issued_ns(knot, stuck, rank) : 0;
    if (ns && ns < first_ns) {
      first_ns = ns;
      first = i;
    }
    if (moves || !lists(stuck->held, stuck->held_count, rank) ||
        is_held_by_group(knot, stuck, rank))
      continue;
    found = found == NT_NONE ? i : NT_NONE - 1;
  }
  return first != NT_NONE ? first : found == NT_NONE - 1 ? NT_NONE : found;
}

static bool in_all(const struct knot *knot, uint32_t rank) {
  for (uint32_t i = 0; i < knot->stuck_count; i++)
    if (!takes_part(knot, stuck_at(knot, i), rank))
      return false;
  return true;
}

/* Members without a trace that may have taken part in all of it. Who has one and made no view has not called. */
static uint32_t absent_voters(const struct knot *knot) {
  uint32_t fewest = UINT32_MAX;
  if (!nt_rank_set_count(&knot->inquiry->verdict->missing))
    return 0;
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const uint32_t absent = knot->inquiry->job->joints[stuck_at(knot, i)->joint].absent;
    fewest = absent < fewest ? absent : fewest;
  }
  return fewest == UINT32_MAX ? 0 : fewest;
}

/* A member without a trace may have taken part in some of it. */
static bool lacks_voters(const struct knot *knot) {
  const bool missing = nt_rank_set_count(&knot->inquiry->verdict->missing) != 0;
  for (uint32_t i = 0; i < knot->stuck_count && missing; i++)
    if (knot->inquiry->job->joints[stuck_at(knot, i)->joint].absent)
      return true;
  return false;
}

/* The operation that a strict majority took first, those without a trace counted against it; NT_NONE if there is none. */
static uint32_t majority(const struct knot *knot) {
  uint32_t *votes = calloc((size_t)knot->stuck_count + 1, sizeof *votes);
  uint32_t voters = 0, found = NT_NONE;
  for (uint32_t r = 0; votes && r < knot->inquiry->job->model->rank_count; r++) {
    uint32_t choice = in_all(knot, r) ? waits_in(knot, r) : NT_NONE;
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

/* What the call in the operation is, or would be, to the rank's order; NT_KIND_NONE if nothing. */
static uint64_t kind_of(const struct knot *knot, const struct nt_stuck *stuck, uint32_t rank) {
  if (is_collective(stuck) && stuck->kind != NT_STUCK_REPLAY)
    return nt_kind_collective(stuck->joint);
  if (!is_message(stuck))
    return NT_KIND_NONE;
  const struct nt_p2p_end *own = end_of(knot, stuck, rank);
  const struct nt_p2p_end *end = own ? own : &knot->inquiry->p2p.ends[stuck->item];
  const bool is_send = own ? end->is_send : !end->is_send;
  return nt_kind_message(end->joint, is_send, is_send ? end->destination : end->source);
}

/* By its own past, would the rank have called the collective `first` before the one it waits in? */
static bool has_skipped(const struct knot *knot, uint32_t rank, const struct nt_stuck *first,
                        const struct nt_stuck *second) {
  const uint64_t kinds[2] = {kind_of(knot, first, rank), kind_of(knot, second, rank)};
  if (first->kind != NT_STUCK_COLLECTIVE || kinds[1] == NT_KIND_NONE || kinds[0] == kinds[1])
    return false;
  return nt_foretell_kind(knot->inquiry->job, rank, issued_ns(knot, second, rank), kinds, 2) == 0;
}

/* Did the rank call at this moment from a line that it had called from before, or in a group with such a call? In a new
 * place its turns may have ended. */
static bool is_used_line(const struct knot *knot, uint32_t rank, int64_t at) {
  const struct nt_model_rank *model = &knot->inquiry->job->model->ranks[rank];
  const struct nt_model_call *own = NULL;
  for (uint32_t i = 0; i < model->call_count; i++)
    if (model->calls[i].enter_ns == at && model->calls[i].view != NT_NONE)
      own = &model->calls[i];
  for (uint32_t i = 0; i < model->call_count && own; i++) {
    const struct nt_model_call *call = &model->calls[i];
    bool together = call == own || (own->group && call->group == own->group &&
                                    call->thread == own->thread && call->enter_ns >= at);
    for (uint32_t k = 0; k < model->call_count && together && call->at; k++)
      if (model->calls[k].at == call->at && model->calls[k].enter_ns < at)
        return true;
  }
  return false;
}

/* Has the rank, by several turns of its past, skipped the operation? */
static bool has_skipped_it(const struct knot *knot, uint32_t rank, const struct nt_stuck *stuck) {
  const uint32_t own = waits_in(knot, rank);
  /* Collectives that it called later are a matter of votes; messages would have been paired with others. */
  const bool lacks = lists(stuck->laggards, stuck->laggard_count, rank) ||
                     (is_message(stuck) && lists(stuck->behind, stuck->behind_count, rank));
  const int64_t at = own == NT_NONE ? 0 : issued_ns(knot, stuck_at(knot, own), rank);
  return lacks && !is_held_by_group(knot, stuck, rank) && at && stuck_at(knot, own) != stuck &&
         is_used_line(knot, rank, at) &&
         nt_foretell_left_out(knot->inquiry->job, rank, kind_of(knot, stuck, rank), at);
}

/* The oldest operation that some have skipped, whom it blames; NULL if none. A message whose other side did not wait
 * for it is no part of the knot. */
static const struct nt_stuck *blame_skippers(const struct knot *knot, struct nt_finding *finding,
                                             int *status) {
  const struct nt_waits *waits = &knot->inquiry->waits;
  const struct nt_stuck *found = NULL;
  for (uint32_t pass = 0; pass < 2 && !found; pass++)
    for (uint32_t i = 0; i < waits->count; i++) {
      const struct nt_stuck *stuck = &waits->list[i];
      const bool own = stuck->knot == knot->number;
      if (pass == 0 ? !own : own || finding->class != NT_CLASS_P2P || !is_message(stuck))
        continue;
      for (uint32_t r = 0; r < knot->rank_count; r++)
        if ((!found || stuck->since_ns < found->since_ns) &&
            has_skipped_it(knot, knot->ranks[r], stuck))
          found = stuck;
    }
  for (uint32_t r = 0; r < knot->rank_count && found && !*status; r++)
    if (has_skipped_it(knot, knot->ranks[r], found))
      *status = nt_finding_add(knot->inquiry->job, &finding->blame, knot->ranks[r]);
  return found;
}

/* Messages that both sides have called, and no device stands in front of: a stall, no circle. */
static bool is_stall(const struct knot *knot) {
  for (uint32_t i = 0; i < knot->stuck_count; i++)
    if (stuck_at(knot, i)->kind != NT_STUCK_DEVICE || stuck_at(knot, i)->behind_count)
      return false;
  return true;
}

static bool is_in_one_joint(const struct knot *knot) {
  for (uint32_t i = 1; i < knot->stuck_count; i++)
    if (stuck_at(knot, i)->joint != stuck_at(knot, 0)->joint)
      return false;
  return true;
}

static enum nt_class classify(const struct knot *knot) {
  bool messages = true, creation = false, teardown = true;
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const struct nt_stuck *stuck = stuck_at(knot, i);
    messages &= is_message(stuck);
    teardown &= stuck->kind == NT_STUCK_TEARDOWN;
    creation |= stuck->kind == NT_STUCK_INIT || stuck->kind == NT_STUCK_SPLIT;
  }
  if (teardown)
    return NT_CLASS_TEARDOWN;
  if (messages || creation)
    return messages ? NT_CLASS_P2P : NT_CLASS_INIT;
  return is_in_one_joint(knot) ? NT_CLASS_ORDER : NT_CLASS_CYCLE;
}

static void say_knot(const struct knot *knot, struct nt_finding *finding,
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
  if (skipped && finding->class == NT_CLASS_P2P) {
    nt_finding_say(finding, "by the order of its earlier turns %s left out the counterpart of %s%s",
                   nt_describe_ranks(who, sizeof who, &finding->blame), place, waiting);
  } else if (skipped) {
    nt_describe_ranks(who, sizeof who, &finding->blame);
    nt_finding_say(finding, "%s never called %s and went on %s%s", who, place,
                   is_in_one_joint(knot) ? "with what follows it" : "in another communicator",
                   waiting);
  } else {
    nt_describe_ranks(who, sizeof who, &members);
    nt_finding_say(finding, "%s %s, first in %s%s", who, words[finding->class], place, waiting);
  }
  for (uint32_t i = 0; i < knot->rank_count && i < 16; i++)
    nt_lines_add(&finding->evidence, "%s",
                 nt_inquiry_rank(line, sizeof line, knot->inquiry, knot->ranks[i]));
  for (uint32_t i = 0; i < knot->stuck_count && i < 8; i++)
    if (stuck_at(knot, i)->kind == NT_STUCK_DEVICE || stuck_at(knot, i)->kind == NT_STUCK_REPLAY) {
      nt_describe_place(place, sizeof place, knot->inquiry->job, stuck_at(knot, i)->fn,
                        stuck_at(knot, i)->seq, stuck_at(knot, i)->joint);
      nt_lines_add(&finding->evidence, "%s:", place);
      nt_say_progress(knot->inquiry, finding, stuck_at(knot, i));
    }
  nt_rank_set_free(&members);
}

/* Blames those who are in all of it and did not take `common` first, or everybody where that is NT_NONE and no
 * voter is missing. True in *skipped: each of them has skipped it. */
static int blame(const struct knot *knot, uint32_t common, struct nt_finding *finding,
                 bool *skipped) {
  int status = 0;
  *skipped = finding->class == NT_CLASS_CYCLE && common != NT_NONE;
  if (common == NT_NONE && lacks_voters(knot))
    return 0;
  for (uint32_t i = 0; i < knot->rank_count && !status; i++) {
    uint32_t own = waits_in(knot, knot->ranks[i]);
    if (common != NT_NONE && (own == common || !in_all(knot, knot->ranks[i])))
      continue;
    status = nt_finding_add(knot->inquiry->job, &finding->blame, knot->ranks[i]);
    *skipped = *skipped && own != NT_NONE &&
               has_skipped(knot, knot->ranks[i], stuck_at(knot, common), stuck_at(knot, own));
  }
  return status;
}

/* Where those who skipped it had left the others' sequence. */
static void refine(const struct knot *knot, struct nt_finding *finding,
                   const struct nt_stuck *stuck) {
  for (uint32_t i = 0; i < knot->rank_count; i++) {
    const int32_t world = knot->inquiry->job->model->ranks[knot->ranks[i]].world;
    if (world >= 0 && nt_rank_set_has(&finding->blame, (uint32_t)world))
      nt_refine_missing(knot->inquiry, finding, knot->ranks[i], stuck);
  }
}

/* The operation that the finding is about: what a majority took first, else what is oldest. */
static const struct nt_stuck *named_one(const struct knot *knot, uint32_t common) {
  uint32_t named = 0;
  for (uint32_t i = 0; i < knot->stuck_count; i++)
    if (common == NT_NONE ? stuck_at(knot, i)->since_ns < stuck_at(knot, named)->since_ns
                          : i == common)
      named = i;
  return stuck_at(knot, named);
}

static int fill_waiting(const struct knot *knot, struct nt_finding *finding,
                        const struct nt_stuck *stuck, bool all) {
  struct nt_inquiry *inquiry = knot->inquiry;
  int status = nt_inquiry_ranks(inquiry, &finding->waiting, stuck->waiters, stuck->waiter_count);
  for (uint32_t i = 0; i < knot->stuck_count && all && !status; i++)
    status = nt_inquiry_ranks(inquiry, &finding->waiting, stuck_at(knot, i)->waiters,
                              stuck_at(knot, i)->waiter_count);
  return status;
}

static int judge(struct knot *knot) {
  struct nt_inquiry *inquiry = knot->inquiry;
  uint32_t common = NT_NONE;
  const struct nt_stuck *stuck = NULL;
  struct nt_finding *finding = nt_inquiry_add(inquiry, classify(knot), NT_NONE);
  int status = finding ? 0 : -NT_ERR_MEMORY;
  if (!status && (finding->class == NT_CLASS_CYCLE || finding->class == NT_CLASS_ORDER ||
                  finding->class == NT_CLASS_P2P))
    stuck = blame_skippers(knot, finding, &status);
  bool skipped = stuck != NULL;
  if (!status && !skipped) {
    common = majority(knot);
    status = blame(knot, common, finding, &skipped);
  }
  if (!status && common != NT_NONE && !nt_rank_set_count(&finding->blame)) {
    common = NT_NONE; /* a majority that leaves nobody to differ from it is none */
    status = blame(knot, common, finding, &skipped);
  }
  if (status)
    return status;
  const bool decided = stuck || common != NT_NONE;
  stuck = stuck ? stuck : named_one(knot, common);
  bool message = is_message(stuck);
  if (skipped)
    finding->class = message ? NT_CLASS_P2P : NT_CLASS_MISSING;
  finding->joint = stuck->joint;
  finding->fn = message && stuck->kind != NT_STUCK_DEVICE
                    ? nt_p2p_call(inquiry->job, &inquiry->p2p.ends[stuck->item])->fn
                    : stuck->fn;
  finding->seq = stuck->seq;
  finding->since_ns = stuck->since_ns;
  bool sure = stuck->open || stuck->kind == NT_STUCK_DEVICE || stuck->kind == NT_STUCK_REPLAY;
  finding->confidence = !decided && lacks_voters(knot)  ? NT_UNDECIDED
                        : sure && !(skipped && message) ? NT_CERTAIN
                                                        : NT_LIKELY;
  status = fill_waiting(knot, finding, stuck, message && (!skipped || !stuck->waiter_count));
  refine(knot, finding, stuck);
  say_knot(knot, finding, stuck, skipped);
  return status;
}

int nt_judge_knots(struct nt_inquiry *inquiry) {
  struct nt_waits *waits = &inquiry->waits;
  uint32_t rank_count = inquiry->job->model->rank_count;
  struct knot knot = {.inquiry = inquiry};
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
