/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The present turn of all ranks around a knot, since a collective that all have made at one line of the program, against the turn
 * before.
 *
 * One turn is enough where every one of them goes on as it did, line by line, and one alone does not. Ranks elsewhere in the job that
 * came to that line as well may be among those that go on, and must not depart themselves.
 */
#include "analysis/knot_turns.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/graphs.h"
#include "analysis/progress.h"
#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

/* Collectives of one rank that are tried for the begin of a turn, calls of a rank that are looked at for one, and ranks
 * elsewhere that are asked. */
enum { TRIED = 8, LOOKED_AT = 1024, ASKED = 64 };

struct around {
  bool *voters;                 /* by rank: in the knot, or a member of a communicator in it */
  bool *asked;                  /* these, and some others */
  uint32_t one;                 /* of the voters */
  int64_t *first, *second, *at; /* by rank, 0: not known */
};

static bool list_voters(const struct nt_knot *knot, struct around *around) {
  const struct nt_job *job = knot->inquiry->job;
  bool absent = false;
  uint32_t others = 0;
  for (uint32_t i = 0; i < knot->rank_count; i++)
    around->voters[knot->ranks[i]] = true;
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const struct nt_joint *joint = &job->joints[nt_knot_stuck(knot, i)->joint];
    absent |= joint->absent != 0;
    for (uint32_t m = 0; m < joint->member_count; m++)
      around->voters[joint->members[m].rank] = true;
  }
  around->one = NT_NONE;
  for (uint32_t r = 0; r < job->model->rank_count; r++) {
    around->one = around->one == NT_NONE && around->voters[r] ? r : around->one;
    around->asked[r] = around->voters[r] || others++ < ASKED;
  }
  return !absent && around->one != NT_NONE;
}

/* A collective that took place, at a known line. */
static bool is_mark(const struct nt_job *job, const struct nt_model_call *call) {
  return nt_fn_is_collective(call->fn) && call->view != NT_NONE && call->at &&
         call->enter_ns <= job->cut_ns && nt_call_counts(call) &&
         !(call->flags & NT_CALL_CAPTURED) && !nt_is_replayed(call);
}

/* When the rank made that collective of the other: at its line, with its number, among as many; 0 if it did not, or is in it. */
static int64_t time_of(const struct nt_job *job, uint32_t rank, const struct nt_model_rank *other,
                       const struct nt_model_call *mark) {
  const struct nt_model_rank *own = &job->model->ranks[rank];
  const int32_t size = other->views[mark->view].nranks;
  if (!nt_model_site(own, mark->at))
    return 0;
  for (uint32_t i = own->call_count; i-- > 0 && own->call_count - i <= LOOKED_AT;) {
    const struct nt_model_call *call = &own->calls[i];
    if (call->at == mark->at && call->fn == mark->fn && call->seq == mark->seq &&
        is_mark(job, call) && own->views[call->view].nranks == size)
      return nt_call_outstanding(job, rank, i) ? 0 : call->enter_ns;
  }
  return 0;
}

/* Fills around->at for this collective of the one; false if not all voters made it. */
static bool find_times(const struct nt_job *job, struct around *around,
                       const struct nt_model_call *mark) {
  const struct nt_model_rank *one = &job->model->ranks[around->one];
  for (uint32_t r = 0; r < job->model->rank_count; r++) {
    around->at[r] = around->voters[r] ? time_of(job, r, one, mark) : 0;
    if (around->voters[r] && !around->at[r])
      return false;
  }
  for (uint32_t r = 0; r < job->model->rank_count; r++)
    if (around->asked[r] && !around->voters[r])
      around->at[r] = time_of(job, r, one, mark);
  return true;
}

/* The same for the begin of the records. */
static bool find_begin(const struct nt_job *job, struct around *around) {
  for (uint32_t r = 0; r < job->model->rank_count; r++) {
    const struct nt_model_rank *rank = &job->model->ranks[r];
    const bool whole = !rank->overwritten && rank->call_count <= LOOKED_AT;
    around->at[r] = whole && around->asked[r] ? INT64_MIN : 0;
    if (around->voters[r] && !whole)
      return false;
  }
  return true;
}

static void take(int64_t **to, struct around *around) {
  int64_t *old = *to;
  *to = around->at;
  around->at = old;
}

/* The turn before begins at around->first: is the story of all voters told, and does one rank of the knot alone depart, if any? */
static bool tell(const struct nt_knot *knot, const struct around *around,
                 struct nt_last_turn *out) {
  const struct nt_job *job = knot->inquiry->job;
  uint32_t kept = 0, told = 0;
  *out = (struct nt_last_turn){.departure.rank = NT_NONE};
  for (uint32_t r = 0; r < job->model->rank_count; r++) {
    struct nt_turn turn;
    if (!around->first[r] || !around->second[r])
      continue;
    if (nt_turn_since(job, &knot->inquiry->waits.replays, r, around->first[r], around->second[r],
                      &turn) < 0)
      return false;
    kept += turn.story == NT_TURN_KEPT;
    told++;
    if (turn.story == NT_TURN_KEPT || (turn.story == NT_TURN_UNTOLD && !around->voters[r]))
      continue;
    if (turn.story == NT_TURN_UNTOLD || out->departure.rank != NT_NONE ||
        !nt_ranks_list(knot->ranks, knot->rank_count, r))
      return false;
    out->departure = (struct nt_departure){.rank = r, .turn = turn};
  }
  /* Of two ranks one is enough: what it does is not new to it. */
  out->told = kept >= 2 || (kept && told == 2 && out->departure.rank != NT_NONE);
  return out->told;
}

/* Behind the mark at `call` of the one: tries the same line before it, then other collectives, then the begin. */
static void try_turns(const struct nt_knot *knot, struct around *around, uint32_t call,
                      struct nt_last_turn *out) {
  const struct nt_job *job = knot->inquiry->job;
  const struct nt_model_rank *one = &job->model->ranks[around->one];
  for (int line = 1; line >= 0 && !out->told; line--)
    for (uint32_t i = call, tried = 0; i-- > 0 && tried < (line ? 1 : TRIED) && !out->told;) {
      const bool same = one->calls[i].at == one->calls[call].at;
      if (!is_mark(job, &one->calls[i]) || (line ? !same : 0))
        continue;
      tried++;
      if (!find_times(job, around, &one->calls[i]))
        continue;
      take(&around->first, around);
      (void)tell(knot, around, out);
    }
  if (!out->told && find_begin(job, around)) {
    take(&around->first, around);
    (void)tell(knot, around, out);
  }
}

/* The present turn may have begun before the last of them: what was left out in front of it is no part of what follows. */
static void find_turns(const struct nt_knot *knot, struct around *around,
                       struct nt_last_turn *out) {
  const struct nt_job *job = knot->inquiry->job;
  const struct nt_model_rank *one = &job->model->ranks[around->one];
  bool kept = false;
  for (uint32_t i = one->call_count, tried = 0;
       i-- > 0 && tried < TRIED && out->departure.rank == NT_NONE;) {
    if (!is_mark(job, &one->calls[i]))
      continue;
    tried++;
    out->told = false;
    if (!find_times(job, around, &one->calls[i]))
      continue;
    take(&around->second, around);
    try_turns(knot, around, i, out);
    if (!out->told)
      out->departure.rank = NT_NONE;
    kept |= out->told;
  }
  out->told = kept;
}

int nt_knot_last_turn(const struct nt_knot *knot, struct nt_last_turn *out) {
  const size_t room = (size_t)knot->inquiry->job->model->rank_count + 1;
  struct around around = {.voters = calloc(room, sizeof *around.voters),
                          .asked = calloc(room, sizeof *around.asked),
                          .first = calloc(room, sizeof *around.first),
                          .second = calloc(room, sizeof *around.second),
                          .at = calloc(room, sizeof *around.at)};
  const bool made = around.voters && around.asked && around.first && around.second && around.at;
  *out = (struct nt_last_turn){.departure.rank = NT_NONE};
  if (made && list_voters(knot, &around))
    find_turns(knot, &around, out);
  if (!out->told)
    out->departure.rank = NT_NONE;
  free(around.voters);
  free(around.asked);
  free(around.first);
  free(around.second);
  free(around.at);
  return made ? 0 : -NT_ERR_MEMORY;
}
