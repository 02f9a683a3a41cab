/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends of chains into findings: ranks that others wait for and that wait for nothing themselves
 * (judge_operations.c has the operations that nobody can finish).
 *
 * A rank may be awaited in many operations; the one that it would have called next, by the order of its
 * earlier turns, is the finding and the others are evidence.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/describe.h"
#include "analysis/foretell.h"
#include "analysis/inquiry.h"
#include "analysis/passages.h"
#include "analysis/sequence.h"
#include "analysis/witnesses.h"
#include "cli/call_text.h"
#include "cli/text.h"
#include "nccl/nccl_api.h"

/* One culprit and one operation that waits for it. */
struct blame {
  uint32_t rank, stuck;
  enum {
    BLAME_BEHIND,  /* it did not call */
    BLAME_LEFT,    /* it had left the communicator */
    BLAME_BLOCKED, /* its device is held up by other work */
  } why;
};

static int by_rank(const void *a, const void *b) {
  const struct blame *x = a, *y = b;
  if (x->rank != y->rank)
    return x->rank < y->rank ? -1 : 1;
  return x->stuck < y->stuck ? -1 : x->stuck > y->stuck;
}

static bool is_sink_rank(const struct nt_waits *waits, uint32_t rank) {
  uint32_t knot = waits->rank_knot[rank];
  return waits->knot_sink[knot] && waits->knot_ranks[knot] == 1 && waits->knot_stuck[knot] == 0;
}

/* Its host waits in an operation that may still finish. */
static bool waits_in_what_moves(const struct nt_waits *waits, uint32_t rank) {
  for (uint32_t i = 0; i < waits->count; i++)
    for (uint32_t j = 0; waits->list[i].moving && j < waits->list[i].held_count; j++)
      if (waits->list[i].held[j] == rank)
        return true;
  return false;
}

/* All have called it, and of one that is gone since it is in question whether that holds the others: not where all that is known of
 * these, from files alone, is older. */
static bool is_outlived(const struct nt_inquiry *inquiry, const struct nt_stuck *stuck,
                        uint32_t leaver) {
  const struct nt_fate *fate = &inquiry->freeze->fates[leaver];
  bool seen = stuck->kind != NT_STUCK_DEVICE || fate->kind == NT_FATE_ALIVE || fate->lives ||
              !stuck->waiter_count;
  for (uint32_t i = 0; i < stuck->waiter_count && !seen; i++) {
    const struct nt_model_rank *rank = &inquiry->job->model->ranks[stuck->waiters[i]];
    seen = !nt_model_is_silent(inquiry->job->model, rank) || nt_model_end(rank) >= fate->ns;
  }
  return seen;
}

static struct blame *list_blames(const struct nt_inquiry *inquiry, uint32_t *count) {
  const struct nt_waits *waits = &inquiry->waits;
  size_t room = 1;
  for (uint32_t i = 0; i < waits->count; i++)
    room +=
        waits->list[i].laggard_count + waits->list[i].leaver_count + waits->list[i].blocked_count;
  struct blame *blames = malloc(room * sizeof *blames);
  *count = 0;
  for (uint32_t i = 0; blames && i < waits->count; i++) {
    const struct nt_stuck *stuck = &waits->list[i];
    const bool message = stuck->kind == NT_STUCK_RECV || stuck->kind == NT_STUCK_SEND;
    if (stuck->moving || (message && inquiry->p2p.ends[stuck->item].shifted))
      continue;
    for (uint32_t j = 0; j < stuck->laggard_count; j++)
      if ((is_sink_rank(waits, stuck->laggards[j]) &&
           !waits_in_what_moves(waits, stuck->laggards[j]) &&
           !inquiry->freeze->fates[stuck->laggards[j]].echo &&
           !nt_echoes_an_end(inquiry, stuck->laggards[j]) &&
           !nt_error_is_echo(inquiry, stuck->laggards[j])) ||
          nt_is_idle_sibling(inquiry, stuck, stuck->laggards[j]))
        blames[(*count)++] = (struct blame){stuck->laggards[j], i, BLAME_BEHIND};
    for (uint32_t j = 0; j < stuck->leaver_count; j++)
      if (!nt_error_is_echo(inquiry, stuck->leavers[j]) &&
          is_outlived(inquiry, stuck, stuck->leavers[j]))
        blames[(*count)++] = (struct blame){stuck->leavers[j], i, BLAME_LEFT};
    for (uint32_t j = 0; j < stuck->blocked_count; j++)
      blames[(*count)++] = (struct blame){stuck->blocked[j], i, BLAME_BLOCKED};
  }
  if (blames)
    qsort(blames, *count, sizeof *blames, by_rank);
  return blames;
}

/* A message that nobody waits for says less than an operation that somebody waits in. */
static int weight(const struct nt_stuck *stuck) {
  if (stuck->kind == NT_STUCK_SEND)
    return stuck->soft ? 3 : 2;
  return stuck->waiter_count ? 0 : 1;
}

/* What the rank that did not call would have called. */
static uint64_t own_kind(const struct nt_inquiry *inquiry, const struct nt_stuck *stuck) {
  if (stuck->kind == NT_STUCK_COLLECTIVE)
    return nt_kind_collective(stuck->joint);
  if (stuck->kind != NT_STUCK_RECV && stuck->kind != NT_STUCK_SEND)
    return NT_KIND_NONE;
  const struct nt_p2p_end *end = &inquiry->p2p.ends[stuck->item];
  return nt_kind_message(end->joint, !end->is_send, end->is_send ? end->source : end->destination);
}

/* Did one of those that are in the operation call it at that line? */
static bool is_called_at(const struct nt_inquiry *inquiry, const struct nt_stuck *stuck,
                         uint32_t at, uint8_t fn) {
  const struct nt_joint *joint = &inquiry->job->joints[stuck->joint];
  for (uint32_t m = 0; m < joint->member_count && stuck->kind == NT_STUCK_COLLECTIVE; m++) {
    const struct nt_model_call *call = nt_member_call(inquiry->job, &joint->members[m], stuck->seq);
    if (call)
      return call->at == at && call->fn == fn;
  }
  return false;
}

/* In a first turn the past tells nothing: what others called next who had come as far, else a collective, which it lacks for certain,
 * before a message of two that never talked. */
static uint32_t pick_first(const struct nt_inquiry *inquiry, const struct blame *blames,
                           const uint64_t *kinds, uint32_t count, uint32_t best) {
  const struct nt_stuck *list = inquiry->waits.list;
  uint32_t at = 0, found = NT_NONE;
  uint8_t fn = 0;
  const struct nt_stuck *first = &list[blames[best].stuck];
  if ((first->kind != NT_STUCK_RECV && first->kind != NT_STUCK_SEND) || first->seq > 1)
    return best;
  const bool known = nt_witnesses_next(inquiry->job, blames[best].rank, &at, &fn);
  for (uint32_t i = 0; i < count; i++) {
    const struct nt_stuck *stuck = &list[blames[i].stuck];
    if (kinds[i] == NT_KIND_NONE || stuck->kind != NT_STUCK_COLLECTIVE)
      continue;
    if (known && is_called_at(inquiry, stuck, at, fn))
      return i;
    found = found == NT_NONE || stuck->since_ns < list[blames[found].stuck].since_ns ? i : found;
  }
  return found == NT_NONE ? best : found;
}

/* Of the operations that wait for one rank, the one it would have called next. */
static uint32_t pick_of(const struct nt_inquiry *inquiry, const struct blame *blames,
                        uint32_t count) {
  const struct nt_stuck *list = inquiry->waits.list;
  uint32_t best = 0, told = NT_NONE;
  for (uint32_t i = 1; i < count; i++) {
    const struct nt_stuck *a = &list[blames[i].stuck], *b = &list[blames[best].stuck];
    if (weight(a) < weight(b) || (weight(a) == weight(b) && a->since_ns < b->since_ns))
      best = i;
  }
  uint64_t *kinds = malloc(count * sizeof *kinds);
  for (uint32_t i = 0; kinds && i < count; i++)
    kinds[i] = weight(&list[blames[i].stuck]) == weight(&list[blames[best].stuck])
                   ? own_kind(inquiry, &list[blames[i].stuck])
                   : NT_KIND_NONE;
  /* What a launch holds is not called by itself. */
  if (kinds && count > 1 && list[blames[best].stuck].kind != NT_STUCK_REPLAY)
    told = nt_foretell_kind(inquiry->job, blames[0].rank, INT64_MAX, kinds, count);
  if (told != NT_NONE)
    best = told;
  else if (kinds && count > 1)
    best = pick_first(inquiry, blames, kinds, count, best);
  free(kinds);
  return best;
}

/* To have left a communicator comes before not having called on another one: what it lacks there may be due to that. */
static uint32_t pick_next(const struct nt_inquiry *inquiry, const struct blame *blames,
                          uint32_t count) {
  struct blame *left = malloc(count * sizeof *left);
  uint32_t *from = malloc(count * sizeof *from);
  uint32_t kept = 0, picked = NT_NONE;
  for (uint32_t i = 0; left && from && i < count; i++)
    if (blames[i].why == BLAME_LEFT && !weight(&inquiry->waits.list[blames[i].stuck])) {
      from[kept] = i;
      left[kept++] = blames[i];
    }
  if (kept)
    picked = from[pick_of(inquiry, left, kept)];
  free(left);
  free(from);
  return picked != NT_NONE ? picked : pick_of(inquiry, blames, count);
}

static enum nt_class class_of(const struct nt_inquiry *inquiry, const struct blame *blame) {
  const struct nt_stuck *stuck = &inquiry->waits.list[blame->stuck];
  const struct nt_fate *fate = &inquiry->freeze->fates[blame->rank];
  bool creation = stuck->kind == NT_STUCK_INIT || stuck->kind == NT_STUCK_SPLIT;
  bool message = stuck->kind == NT_STUCK_RECV || stuck->kind == NT_STUCK_SEND;
  enum nt_confidence confidence;
  if (blame->why == BLAME_BLOCKED)
    return NT_CLASS_GPU;
  if (message && nt_is_wrong_peer(inquiry, &inquiry->p2p.ends[stuck->item], &confidence))
    return NT_CLASS_P2P; /* whatever became of the one it turned to */
  if (message && nt_may_be_wrong_peer(inquiry, &inquiry->p2p.ends[stuck->item]))
    return NT_CLASS_UNDECIDED;
  if (nt_error_of(inquiry, blame->rank) != NT_NONE)
    return NT_CLASS_ERROR;
  if (fate->kind == NT_FATE_DEAD)
    return NT_CLASS_DEAD;
  if (message && fate->kind == NT_FATE_LEFT &&
      nt_witnesses_without(inquiry, &inquiry->p2p.ends[stuck->item]))
    return NT_CLASS_P2P;
  if (message && nt_went_past(inquiry, &inquiry->p2p.ends[stuck->item]))
    return NT_CLASS_P2P;
  if (message && fate->kind == NT_FATE_LEFT &&
      nt_passages_tell(inquiry, &inquiry->p2p.ends[stuck->item]) == NT_PASSAGE_OWNER)
    return NT_CLASS_P2P;
  if (blame->why == BLAME_LEFT || (fate->kind == NT_FATE_LEFT && stuck->kind != NT_STUCK_INIT))
    return NT_CLASS_LEFT;
  if (creation)
    return NT_CLASS_INIT;
  return message ? NT_CLASS_P2P : NT_CLASS_MISSING;
}

uint8_t nt_stuck_function(const struct nt_inquiry *inquiry, const struct nt_stuck *stuck) {
  if (stuck->kind == NT_STUCK_SEND || stuck->kind == NT_STUCK_RECV)
    return nt_p2p_call(inquiry->job, &inquiry->p2p.ends[stuck->item])->fn;
  return stuck->fn;
}

/* Those that are gone, in the way in which they all are, or simply so. */
static void say_gone(const struct nt_inquiry *inquiry, struct nt_finding *finding, const char *who,
                     const char *place, const char *waiting, bool during) {
  bool lives = true, replaced = true, oom = true, likely = false;
  for (uint32_t w = nt_rank_set_next(&finding->blame, 0); w < NT_RANK_MAX;
       w = nt_rank_set_next(&finding->blame, w + 1)) {
    uint32_t index = nt_model_find(inquiry->job->model, (int32_t)w);
    const struct nt_model_rank *rank = index == NT_NONE ? NULL : &inquiry->job->model->ranks[index];
    lives &= rank && inquiry->freeze->fates[index].lives;
    replaced &= rank && rank->state == NT_PROCESS_REPLACED;
    oom &= rank && rank->oom != NT_OOM_NONE;
    likely |= rank && rank->oom == NT_OOM_LIKELY;
  }
  const char *how = finding->class == NT_CLASS_LEFT
                        ? replaced ? "became another program (exec)" : "left"
                    : !oom   ? "died"
                    : likely ? "died, likely for lack of memory,"
                             : "was killed for lack of memory";
  if (lives)
    nt_finding_say(finding, "%s lives but is on its way out%s, and never called %s%s", who,
                   finding->class == NT_CLASS_DEAD ? " after a failure" : "", place, waiting);
  else
    nt_finding_say(finding, "%s %s %s %s%s", who, how,
                   during ? "in the middle of" : "before calling", place, waiting);
}

/* A process that holds several ranks may wait by one for another. */
static void say_missing(const struct nt_inquiry *inquiry, struct nt_finding *finding,
                        const struct nt_stuck *stuck, const char *who, const char *place,
                        const char *waiting) {
  const uint32_t world = nt_rank_set_next(&finding->blame, 0);
  const uint32_t rank =
      world < NT_RANK_MAX ? nt_model_find(inquiry->job->model, (int32_t)world) : NT_NONE;
  const bool one = nt_rank_set_count(&finding->blame) == 1;
  char sibling[2 * NT_DESCRIBE], time[NT_TIME_TEXT];
  if (!one || rank == NT_NONE || !nt_rank_set_has(&finding->waiting, world)) {
    nt_finding_say(finding, "%s never called %s%s", who, place, waiting);
    return;
  }
  nt_sibling_text(sibling, sizeof sibling, inquiry, stuck, rank);
  if (nt_rank_set_count(&finding->waiting) > 1 || finding->since_ns < NT_TIME_FIRST)
    nt_finding_say(finding, "%s never called %s%s", sibling, place, waiting);
  else
    nt_finding_say(finding, "%s never called %s; others of the same process wait in it since %s",
                   sibling, place, nt_time_short(time, finding->since_ns));
}

/* Of a process that holds several ranks and waits by another: the ones that left. */
static void name_leaver(char *who, size_t size, const struct nt_inquiry *inquiry,
                        const struct nt_finding *finding, const struct nt_stuck *stuck) {
  const uint32_t world = nt_rank_set_next(&finding->blame, 0);
  const uint32_t rank =
      world < NT_RANK_MAX ? nt_model_find(inquiry->job->model, (int32_t)world) : NT_NONE;
  if (finding->class == NT_CLASS_LEFT && rank != NT_NONE &&
      nt_rank_set_count(&finding->blame) == 1 && nt_rank_set_has(&finding->waiting, world) &&
      stuck->kind == NT_STUCK_COLLECTIVE)
    nt_sibling_text(who, size, inquiry, stuck, rank);
}

static void say_culprit(struct nt_inquiry *inquiry, struct nt_finding *finding,
                        const struct nt_stuck *stuck) {
  char who[2 * NT_DESCRIBE], place[NT_DESCRIBE], waiting[2 * NT_DESCRIBE + 64];
  char message[NT_UNMATCHED_TEXT];
  nt_describe_ranks(who, sizeof who, &finding->blame);
  nt_inquiry_waiting_in(waiting, sizeof waiting, inquiry, finding, stuck);
  nt_describe_place(place, sizeof place, inquiry->job, finding->fn, finding->seq, finding->joint);
  switch (finding->class) {
  case NT_CLASS_DEAD:
  case NT_CLASS_LEFT:
    name_leaver(who, sizeof who, inquiry, finding, stuck);
    say_gone(inquiry, finding, who, place, waiting,
             stuck->kind == NT_STUCK_DEVICE ||
                 (stuck->kind == NT_STUCK_REPLAY && stuck->leaver_count));
    break;
  case NT_CLASS_GPU:
    if (stuck->alone) {
      nt_finding_say(finding,
                     "on %s %s does not finish, though all other members have finished it: the "
                     "device there hangs or is broken%s",
                     who, place, waiting);
      finding->confidence = NT_LIKELY;
      break;
    }
    nt_finding_say(finding,
                   "on %s %s does not come to the head of its stream: earlier work of the "
                   "device does not finish%s",
                   who, place, waiting);
    break;
  case NT_CLASS_ERROR:
    nt_finding_say(finding, "%s got an error from NCCL and never completed %s%s", who, place,
                   waiting);
    break;
  case NT_CLASS_UNDECIDED:
    nt_unmatched_text(message, sizeof message, inquiry, &inquiry->p2p.ends[stuck->item], finding);
    nt_finding_say(
        finding,
        "%s; whether it went to the wrong rank, or that one left too early, cannot be told while "
        "members have no trace",
        message);
    break;
  case NT_CLASS_P2P:
    nt_unmatched_text(message, sizeof message, inquiry, &inquiry->p2p.ends[stuck->item], finding);
    nt_finding_say(finding, "%s", message);
    if (nt_went_past(inquiry, &inquiry->p2p.ends[stuck->item]))
      nt_say_passed(inquiry, finding, &inquiry->p2p.ends[stuck->item]);
    break;
  default: /* a creation too */
    say_missing(inquiry, finding, stuck, who, place, waiting);
  }
  if (stuck->kind == NT_STUCK_DEVICE || stuck->kind == NT_STUCK_COLLECTIVE ||
      stuck->kind == NT_STUCK_REPLAY) {
    nt_say_progress(inquiry, finding, stuck);
  } else if (stuck->waiter_count && finding->evidence.count < 8) {
    char line[2 * NT_DESCRIBE];
    nt_lines_add(&finding->evidence, "%s",
                 nt_inquiry_rank(line, sizeof line, inquiry, stuck->waiters[0]));
  }
}

static void say_error(struct nt_inquiry *inquiry, struct nt_finding *finding, uint32_t rank) {
  uint32_t index = nt_error_of(inquiry, rank);
  const struct nt_model_call *call = &inquiry->job->model->ranks[rank].calls[index];
  char text[NT_DESCRIBE], time[NT_TIME_TEXT];
  char name[NT_RESULT_TEXT];
  const int64_t result =
      nt_fn_shape(call->fn) == NT_SHAPE_ASYNC_ERROR ? (int64_t)call->count : call->result;
  nt_lines_add(&finding->evidence, "%s: rank %d got %s from %s",
               nt_time_short(time, call->enter_ns), inquiry->job->model->ranks[rank].world,
               nt_result_text(name, sizeof name, result),
               nt_describe_call(text, sizeof text, inquiry->job, rank, index));
}

static void say_fate(struct nt_inquiry *inquiry, struct nt_finding *finding,
                     const struct blame *blame) {
  const struct nt_stuck *stuck = &inquiry->waits.list[blame->stuck];
  const struct nt_model_rank *rank = &inquiry->job->model->ranks[blame->rank];
  const struct nt_fate *fate = &inquiry->freeze->fates[blame->rank];
  char line[2 * NT_DESCRIBE], time[NT_TIME_TEXT], state[NT_FATE_TEXT], place[NT_DESCRIBE];
  if (finding->evidence.count >= 24)
    return;
  if (!nt_stuck_has_sibling(stuck, blame->rank)) /* else of another thread */
    nt_lines_add(&finding->evidence, "%s",
                 nt_inquiry_rank(line, sizeof line, inquiry, blame->rank));
  if (fate->kind != NT_FATE_ALIVE && !fate->lives)
    nt_lines_add(&finding->evidence, "rank %d %s at %s", rank->world,
                 nt_describe_end(state, sizeof state, rank), nt_time_short(time, fate->ns));
  else if (!fate->lives && blame->why == BLAME_LEFT &&
           *nt_describe_now(line, sizeof line, inquiry->job, blame->rank))
    nt_lines_add(&finding->evidence, "rank %d now: %s", rank->world, line);
  if (blame->why != BLAME_LEFT)
    return;
  const struct nt_joint *joint = &inquiry->job->joints[stuck->joint];
  for (uint32_t i = 0; i < joint->member_count; i++)
    if (joint->members[i].rank == blame->rank && joint->members[i].ended_ns) {
      const int64_t ended_ns = joint->members[i].ended_ns;
      nt_describe_place(place, sizeof place, inquiry->job, joint->members[i].ended_fn, 0,
                        stuck->joint);
      nt_lines_add(&finding->evidence, "rank %d called %s%s%s", rank->world, place,
                   ended_ns < NT_TIME_FIRST ? "" : " at ",
                   ended_ns < NT_TIME_FIRST ? "" : nt_time_short(time, ended_ns));
    }
}

static void say_others(struct nt_inquiry *inquiry, struct nt_finding *finding,
                       const struct blame *blames, uint32_t count, uint32_t picked) {
  char place[NT_DESCRIBE];
  for (uint32_t i = 0; i < count && finding->evidence.count < 32; i++) {
    const struct nt_stuck *stuck = &inquiry->waits.list[blames[i].stuck];
    if (i != picked && blames[i].stuck != blames[picked].stuck)
      nt_lines_add(&finding->evidence, "%s waits for rank %d as well",
                   nt_describe_place(place, sizeof place, inquiry->job,
                                     nt_stuck_function(inquiry, stuck),
                                     stuck->kind == NT_STUCK_INIT ? 0 : stuck->seq, stuck->joint),
                   inquiry->job->model->ranks[blames[i].rank].world);
  }
}

/* Finding of this class for this operation, made if there is none. */
static struct nt_finding *finding_for(struct nt_inquiry *inquiry, uint32_t *by_stuck, uint32_t item,
                                      enum nt_class class) {
  struct nt_verdict *verdict = inquiry->verdict;
  const struct nt_stuck *stuck = &inquiry->waits.list[item];
  uint32_t *slot = &by_stuck[item * NT_CLASS_LIMIT + class];
  if (*slot)
    return &verdict->findings[*slot - 1];
  struct nt_finding *finding = nt_inquiry_add(inquiry, class, stuck->joint);
  if (!finding)
    return NULL;
  *slot = verdict->count;
  finding->fn = nt_stuck_function(inquiry, stuck);
  finding->seq = stuck->seq;
  finding->since_ns = stuck->since_ns;
  bool guessed = stuck->kind == NT_STUCK_INIT && inquiry->creations.list[stuck->item].guessed;
  finding->confidence = guessed ? NT_LIKELY : NT_CERTAIN;
  /* Where it is finished on all that called, hosts may wait in a later one: it holds these as well. */
  const bool later = stuck->kind == NT_STUCK_COLLECTIVE && !stuck->waiter_count;
  if (nt_inquiry_ranks(inquiry, &finding->waiting, later ? stuck->held : stuck->waiters,
                       later ? stuck->held_count : stuck->waiter_count) < 0)
    return NULL;
  return finding;
}

static int add_blame(struct nt_inquiry *inquiry, struct nt_finding *finding,
                     const struct blame *blame) {
  const struct nt_stuck *stuck = &inquiry->waits.list[blame->stuck];
  if ((finding->class == NT_CLASS_DEAD || finding->class == NT_CLASS_LEFT) &&
      inquiry->freeze->fates[blame->rank].likely)
    finding->confidence = NT_LIKELY;
  if (finding->class == NT_CLASS_ERROR) {
    say_error(inquiry, finding, blame->rank);
    const struct nt_model_call *call =
        &inquiry->job->model->ranks[blame->rank].calls[nt_error_of(inquiry, blame->rank)];
    if (nt_shape_is_operation(nt_fn_shape(call->fn)) && call->view != NT_NONE &&
        inquiry->job->places[blame->rank][call->view].joint == finding->joint)
      finding->fn = call->fn;
  }
  if (finding->class == NT_CLASS_UNDECIDED) {
    finding->confidence = NT_UNDECIDED;
    return 0;
  }
  if (blame->why == BLAME_BEHIND && inquiry->job->model->ranks[blame->rank].cut) {
    finding->confidence = NT_UNDECIDED; /* it may wait in a call that is gone */
    nt_lines_add(&finding->evidence, "needed: what rank %d did last, which its trace lacks",
                 inquiry->job->model->ranks[blame->rank].world);
  }
  if (finding->class == NT_CLASS_P2P)
    return nt_blame_unmatched(inquiry, &inquiry->p2p.ends[stuck->item], finding);
  return nt_finding_add(inquiry->job, &finding->blame, blame->rank);
}

/* Several messages may lack their counterpart for one reason: those with equal blame are one finding. */
static bool told_already(const struct nt_inquiry *inquiry, const struct nt_finding *finding) {
  for (uint32_t i = 0; i + 1 < inquiry->verdict->count; i++) {
    const struct nt_finding *other = &inquiry->verdict->findings[i];
    if (other == finding || other->class != NT_CLASS_P2P || other->joint != finding->joint)
      continue;
    uint32_t a = nt_rank_set_next(&other->blame, 0), b = nt_rank_set_next(&finding->blame, 0);
    while (a == b && a < NT_RANK_MAX) {
      a = nt_rank_set_next(&other->blame, a + 1);
      b = nt_rank_set_next(&finding->blame, b + 1);
    }
    if (a == b)
      return true;
  }
  return false;
}

static int judge_ranks(struct nt_inquiry *inquiry) {
  uint32_t count, before = inquiry->verdict->count;
  struct blame *blames = list_blames(inquiry, &count);
  uint32_t *by_stuck = calloc((size_t)inquiry->waits.count * NT_CLASS_LIMIT + 1, sizeof *by_stuck);
  uint32_t *stuck_of = calloc((size_t)count + before + 1, sizeof *stuck_of);
  int status = blames && by_stuck && stuck_of ? 0 : -NT_ERR_MEMORY;
  for (uint32_t i = 0, n; i < count && !status; i += n) {
    for (n = 1; i + n < count && blames[i + n].rank == blames[i].rank;)
      n++;
    uint32_t picked = pick_next(inquiry, &blames[i], n);
    const struct blame *blame = &blames[i + picked];
    struct nt_finding *finding =
        finding_for(inquiry, by_stuck, blame->stuck, class_of(inquiry, blame));
    if (!finding) {
      status = -NT_ERR_MEMORY;
      break;
    }
    stuck_of[finding - inquiry->verdict->findings] = blame->stuck;
    status = add_blame(inquiry, finding, blame);
    say_fate(inquiry, finding, blame);
    nt_say_siblings(inquiry, finding, &inquiry->waits.list[blame->stuck], blame->rank);
    nt_refine_missing(inquiry, finding, blame->rank, &inquiry->waits.list[blame->stuck]);
    say_others(inquiry, finding, &blames[i], n, picked);
  }
  for (uint32_t i = before; i < inquiry->verdict->count && !status; i++) {
    struct nt_finding *finding = &inquiry->verdict->findings[i];
    say_culprit(inquiry, finding, &inquiry->waits.list[stuck_of[i]]);
    if (finding->acquitted)
      nt_rank_set_free(&finding->blame);
  }
  free(blames);
  free(by_stuck);
  free(stuck_of);
  while (inquiry->verdict->count > before + 1 &&
         inquiry->verdict->findings[inquiry->verdict->count - 1].class == NT_CLASS_P2P &&
         told_already(inquiry, &inquiry->verdict->findings[inquiry->verdict->count - 1]))
    nt_finding_free(&inquiry->verdict->findings[--inquiry->verdict->count]);
  return status;
}

int nt_judge_waits(struct nt_inquiry *inquiry) {
  int status = nt_judge_extras(inquiry);
  if (!status)
    status = judge_ranks(inquiry);
  return status ? status : nt_judge_operations(inquiry);
}
