/* SPDX-License-Identifier: Apache-2.0 */
/* What the past of a rank tells of an operation of the knot that it has not called. */
#include <stdlib.h>

#include "analysis/foretell.h"
#include "analysis/graphs.h"
#include "analysis/knot_parts.h"
#include "analysis/knot_turns.h"
#include "analysis/witnesses.h"
#include "cli/text.h"
#include "nccl/nccl_api.h"

/* What the call in the operation is, or would be, to the rank's order; NT_KIND_NONE if nothing. */
static uint64_t kind_of(const struct nt_knot *knot, const struct nt_stuck *stuck, uint32_t rank) {
  if (nt_stuck_is_collective(stuck))
    return stuck->fn == NT_FN_cudaGraphLaunch ? nt_kind_launch(stuck->joint)
                                              : nt_kind_collective(stuck->joint);
  if (!nt_stuck_is_message(stuck))
    return NT_KIND_NONE;
  const struct nt_p2p_end *own = nt_knot_end_of(knot, stuck, rank);
  const struct nt_p2p_end *end = own ? own : &knot->inquiry->p2p.ends[stuck->item];
  const bool is_send = own ? end->is_send : !end->is_send;
  return nt_kind_message(end->joint, is_send, is_send ? end->destination : end->source);
}

bool nt_knot_has_skipped(const struct nt_knot *knot, uint32_t rank, const struct nt_stuck *first,
                         const struct nt_stuck *second) {
  const uint64_t kinds[2] = {kind_of(knot, first, rank), kind_of(knot, second, rank)};
  if (second->kind == NT_STUCK_REPLAY || kinds[0] == NT_KIND_NONE || kinds[1] == NT_KIND_NONE ||
      kinds[0] == kinds[1])
    return false;
  return nt_foretell_kind(knot->inquiry->job, rank, nt_knot_issued_ns(knot, second, rank), kinds,
                          2) == 0;
}

/* The rank's call at this moment, NULL if there is none. */
static const struct nt_model_call *call_at(const struct nt_model_rank *model, int64_t at) {
  const struct nt_model_call *own = NULL;
  for (uint32_t i = 0; i < model->call_count; i++)
    if (model->calls[i].enter_ns == at &&
        (model->calls[i].view != NT_NONE || nt_is_replay(&model->calls[i])))
      own = &model->calls[i];
  return own;
}

/* Was that line, or one of the same group, called from before? */
static bool is_used(const struct nt_model_rank *model, const struct nt_model_call *own) {
  for (uint32_t i = 0; i < model->call_count; i++) {
    const struct nt_model_call *call = &model->calls[i];
    bool together = call == own || (own->group && call->group == own->group &&
                                    call->thread == own->thread && call->enter_ns >= own->enter_ns);
    for (uint32_t k = 0; k < model->call_count && together && call->at; k++)
      if (model->calls[k].at == call->at && model->calls[k].enter_ns < own->enter_ns)
        return true;
  }
  return false;
}

bool nt_knot_is_used_line(const struct nt_knot *knot, uint32_t rank, int64_t at) {
  const struct nt_model_rank *model = &knot->inquiry->job->model->ranks[rank];
  const struct nt_model_call *own = call_at(model, at);
  return own && is_used(model, own);
}

bool nt_knot_has_passed(const struct nt_knot *knot, uint32_t rank, const struct nt_stuck *first,
                        const struct nt_stuck *second) {
  const uint64_t kind = kind_of(knot, first, rank);
  return kind != NT_KIND_NONE && nt_foretell_left_out(knot->inquiry->job, rank, kind,
                                                      nt_knot_issued_ns(knot, second, rank)) != 0;
}

/* Has the rank not called it? Collectives that it called later are a matter of votes; messages would have been paired
 * with others. */
static bool lacks(const struct nt_knot *knot, uint32_t rank, const struct nt_stuck *stuck) {
  return (nt_ranks_list(stuck->laggards, stuck->laggard_count, rank) ||
          (nt_stuck_is_message(stuck) &&
           nt_ranks_list(stuck->behind, stuck->behind_count, rank))) &&
         !nt_knot_holds_itself(knot, stuck, rank);
}

/* In larger knots no others are asked, which takes a look at all ranks: most are in it. */
enum { ASKED = 64 };

/* Has the rank, by several turns of its past, skipped the operation? Where it went past it with a call from a new line, its loop
 * may have ended. */
static bool has_skipped_it(const struct nt_knot *knot, uint32_t rank,
                           const struct nt_stuck *stuck) {
  if (!lacks(knot, rank, stuck)) /* few do: the rest takes time */
    return false;
  const struct nt_model_rank *model = &knot->inquiry->job->model->ranks[rank];
  const uint32_t own = nt_knot_waits_in(knot, rank);
  const int64_t at = own == NT_NONE ? 0 : nt_knot_issued_ns(knot, nt_knot_stuck(knot, own), rank);
  if (!at || nt_knot_stuck(knot, own) == stuck || !nt_knot_is_used_line(knot, rank, at))
    return false;
  const uint32_t instead =
      nt_foretell_left_out(knot->inquiry->job, rank, kind_of(knot, stuck, rank), at);
  if (!instead || !is_used(model, &model->calls[instead - 1]))
    return false;
  return knot->rank_count > ASKED ||
         !nt_witnesses_is_usual(knot->inquiry->job, rank, instead - 1,
                                nt_stuck_is_message(stuck) ? NT_NONE : stuck->joint);
}

/* Ranks of the knot that have skipped it; adds them to `blame` if that is not NULL. */
static uint32_t count_skippers(const struct nt_knot *knot, const struct nt_stuck *stuck,
                               struct nt_rank_set *blame, int *status) {
  uint32_t count = 0;
  for (uint32_t r = 0; r < knot->rank_count && !*status; r++) {
    if (!has_skipped_it(knot, knot->ranks[r], stuck))
      continue;
    count++;
    if (blame)
      *status = nt_finding_add(knot->inquiry->job, blame, knot->ranks[r]);
  }
  return count;
}

/* The oldest operation that some have skipped, whom it blames; NULL if there is none. A message whose other side did not wait
 * for it is no part of the knot. */
static const struct nt_stuck *blame_skippers(const struct nt_knot *knot, struct nt_finding *finding,
                                             int *status) {
  const struct nt_waits *waits = &knot->inquiry->waits;
  const struct nt_stuck *found = NULL;
  uint32_t skipped = 0;
  for (uint32_t pass = 0; pass < 2 && !found; pass++)
    for (uint32_t i = 0; i < waits->count; i++) {
      const struct nt_stuck *stuck = &waits->list[i];
      const bool own = stuck->knot == knot->number,
                 oldest = !found || stuck->since_ns < found->since_ns;
      if (pass == 0 ? !own : own || finding->class != NT_CLASS_P2P || !nt_stuck_is_message(stuck))
        continue;
      if (!oldest && knot->rank_count <= ASKED)
        continue;
      const uint32_t count = count_skippers(knot, stuck, NULL, status);
      skipped += count;
      found = count && oldest ? stuck : found;
    }
  if (knot->rank_count > ASKED && 2 * skipped > knot->rank_count)
    return NULL; /* as most have, it is what the program does */
  if (found)
    (void)count_skippers(knot, found, &finding->blame, status);
  return found;
}

/* It made the message only after the call that comes behind it in its turns: the next turn's, which took the place of the one that it
 * left out. */
static bool made_late(const struct nt_knot *knot, const struct nt_departure *departure,
                      const struct nt_stuck *stuck, uint32_t seq) {
  const struct nt_p2p_end *own = stuck->kind == NT_STUCK_DEVICE && nt_stuck_is_message(stuck)
                                     ? nt_knot_end_of(knot, stuck, departure->rank)
                                     : NULL;
  return own && own->seq >= seq &&
         nt_p2p_call(knot->inquiry->job, own)->enter_ns > departure->turn.at_ns;
}

/* The step that it left out, if it lacks that operation; NULL. */
static const struct nt_turn_step *left_out(const struct nt_knot *knot,
                                           const struct nt_departure *departure,
                                           const struct nt_stuck *stuck) {
  const uint64_t kind = kind_of(knot, stuck, departure->rank);
  for (uint32_t i = 0; i < departure->turn.left_out_count; i++)
    if (departure->turn.left_out[i].kind == kind &&
        (lacks(knot, departure->rank, stuck) ||
         made_late(knot, departure, stuck, departure->turn.left_out[i].seq)))
      return &departure->turn.left_out[i];
  return NULL;
}

/* Blames those who left an operation out of their turn, while all others around the knot kept theirs: the oldest of the
 * knot, else of any. NULL if there is none. */
static const struct nt_stuck *blame_departed(const struct nt_knot *knot,
                                             const struct nt_departures *who,
                                             struct nt_finding *finding, uint32_t *seq,
                                             int *status) {
  const struct nt_waits *waits = &knot->inquiry->waits;
  const struct nt_stuck *found = NULL;
  for (uint32_t i = 0; i < who->count; i++)
    if (!nt_knot_is_used_line(knot, who->list[i].rank, who->list[i].turn.at_ns))
      return NULL;
  for (uint32_t pass = 0; pass < 2 && !found; pass++)
    for (uint32_t w = 0; w < waits->count; w++)
      for (uint32_t i = 0; i < who->count; i++)
        if ((waits->list[w].knot == knot->number) == (pass == 0) &&
            (!found || waits->list[w].since_ns < found->since_ns) &&
            left_out(knot, &who->list[i], &waits->list[w]))
          found = &waits->list[w];
  for (uint32_t i = 0; i < who->count && found && !*status; i++) {
    const struct nt_turn_step *step = left_out(knot, &who->list[i], found);
    if (!step)
      continue;
    *seq = !*seq || step->seq < *seq ? step->seq : *seq;
    *status = nt_finding_add(knot->inquiry->job, &finding->blame, who->list[i].rank);
    nt_lines_add(&finding->evidence,
                 "the turns of all these ranks go on as before, those of rank %d once the call is "
                 "put in that it left out",
                 knot->inquiry->job->model->ranks[who->list[i].rank].world);
  }
  return found;
}

const struct nt_stuck *nt_knot_blame_by_past(const struct nt_knot *knot, struct nt_last_turn *last,
                                             struct nt_finding *finding, uint32_t *seq,
                                             int *status) {
  struct nt_departures who = {0};
  const struct nt_stuck *found = NULL;
  const struct nt_departure *alone = &last->departure;
  if (last->told && alone->rank != NT_NONE && alone->turn.story == NT_TURN_LEFT_OUT)
    found = blame_departed(knot, &(struct nt_departures){.list = &last->departure, .count = 1},
                           finding, seq, status);
  if (found || *status)
    return found;
  *status = nt_knot_departures(knot, &who);
  const bool open =
      !who.common && !(last->told && alone->rank == NT_NONE); /* else all kept theirs */
  if (!*status && open)
    found = blame_skippers(knot, finding, status);
  if (!*status && open && !found)
    found = blame_departed(knot, &who, finding, seq, status);
  if (!*status && !found)
    found = nt_knot_blame_by_witnesses(knot, finding, seq, status);
  free(who.list);
  return found;
}

/* Has the member launched the same graph twice at least before, and called nothing on the communicator since the first? */
static bool repeats_launch(const struct nt_knot *knot, const struct nt_stuck *launch,
                           uint32_t index) {
  const struct nt_replays *replays = &knot->inquiry->waits.replays;
  const struct nt_job *job = knot->inquiry->job;
  const struct nt_member *member = &job->joints[launch->joint].members[index];
  const struct nt_replay *own = nt_replay_at(replays, launch->joint, index, launch->seq);
  const struct nt_replay *first = nt_replay_at(replays, launch->joint, index, 1);
  const struct nt_model_call *call = nt_member_call(job, member, member->called);
  if (!own || launch->seq < 3 || (call && call->enter_ns > first->enter_ns))
    return false;
  for (uint32_t p = launch->seq - 2; p < launch->seq; p++)
    if (nt_replay_at(replays, launch->joint, index, p)->sig != own->sig)
      return false;
  return true;
}

const struct nt_stuck *nt_knot_extra_launch(const struct nt_knot *knot, uint32_t common) {
  if (knot->stuck_count != 2 || nt_knot_stuck(knot, common)->kind != NT_STUCK_COLLECTIVE)
    return NULL;
  const struct nt_stuck *launch = nt_knot_stuck(knot, common == 0);
  const struct nt_joint *joint = &knot->inquiry->job->joints[launch->joint];
  if (launch->kind != NT_STUCK_REPLAY || launch->joint != nt_knot_stuck(knot, common)->joint)
    return NULL;
  for (uint32_t m = 0; m < joint->member_count; m++)
    if (nt_replay_at(&knot->inquiry->waits.replays, launch->joint, m, launch->seq) &&
        !repeats_launch(knot, launch, m))
      return NULL;
  return launch;
}
