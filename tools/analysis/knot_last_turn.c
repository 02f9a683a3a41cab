/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The present turn of all ranks around a knot, since a collective that all have made together, against the turn before.
 *
 * One turn is enough where every one of them goes on as it did, line by line, and one alone does not.
 */
#include "analysis/knot_turns.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/progress.h"
#include "analysis/sequence.h"

/* Collectives of the boundary's communicator in one turn, at most. */
enum { IN_A_TURN = 8 };

struct around {
  bool *voters; /* by rank: in the knot, or a member of a communicator in it */
  int64_t *first, *second;
};

static bool list_voters(const struct nt_knot *knot, bool *voters) {
  const struct nt_job *job = knot->inquiry->job;
  bool absent = false;
  for (uint32_t i = 0; i < knot->rank_count; i++)
    voters[knot->ranks[i]] = true;
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const struct nt_joint *joint = &job->joints[nt_knot_stuck(knot, i)->joint];
    absent |= joint->absent != 0;
    for (uint32_t m = 0; m < joint->member_count; m++)
      voters[joint->members[m].rank] = true;
  }
  return !absent;
}

/* When all voters made this collective of the joint, by rank; 0: from the begin of their records. False if some are no members, or
 * theirs is not known. */
static bool find_times(const struct nt_job *job, const bool *voters, const struct nt_joint *joint,
                       uint32_t position, int64_t *at) {
  memset(at, 0, ((size_t)job->model->rank_count + 1) * sizeof *at);
  for (uint32_t m = 0; m < joint->member_count; m++) {
    const struct nt_model_call *call =
        position ? nt_member_call(job, &joint->members[m], position) : NULL;
    const bool whole = !nt_member_rank(job, &joint->members[m])->overwritten;
    at[joint->members[m].rank] = call ? call->enter_ns : !position && whole ? INT64_MIN : 0;
  }
  for (uint32_t r = 0; r < job->model->rank_count; r++)
    if (voters[r] && !at[r])
      return false;
  return true;
}

/* How many collectives all its members have made on it, and are not in. */
static uint32_t made_by_all(const struct nt_job *job, const struct nt_joint *joint) {
  uint32_t least = joint->member_count > 1 && !joint->absent ? joint->members[0].called : 0;
  for (uint32_t m = 1; m < joint->member_count; m++)
    least = joint->members[m].called < least ? joint->members[m].called : least;
  for (uint32_t m = 0; m < joint->member_count; m++) {
    const struct nt_member *member = &joint->members[m];
    while (least && least >= member->first) {
      const uint32_t call = member->call[least - member->first];
      if (call == NT_NONE || !nt_call_outstanding(job, member->rank, call))
        break;
      least--;
    }
  }
  return least;
}

/* The joint on which all voters made a collective together last. */
static uint32_t find_boundary(const struct nt_job *job, const struct around *around) {
  uint32_t found = NT_NONE;
  int64_t latest = 0;
  for (uint32_t j = 0; j < job->joint_count; j++) {
    const struct nt_joint *joint = &job->joints[j];
    const uint32_t last = made_by_all(job, joint);
    if (!last || !find_times(job, around->voters, joint, last, around->second))
      continue;
    const int64_t at = around->second[joint->members[0].rank];
    found = at > latest ? j : found;
    latest = at > latest ? at : latest;
  }
  return found;
}

/* The turn before begins behind this collective: is everybody's story told, and at most one rank of the knot departs? */
static bool tell(const struct nt_knot *knot, const struct around *around,
                 struct nt_last_turn *out) {
  const struct nt_job *job = knot->inquiry->job;
  uint32_t kept = 0;
  *out = (struct nt_last_turn){.departure.rank = NT_NONE};
  for (uint32_t r = 0; r < job->model->rank_count; r++) {
    struct nt_turn turn;
    if (!around->voters[r])
      continue;
    if (nt_turn_since(job, &knot->inquiry->waits.replays, r, around->first[r], around->second[r],
                      &turn) < 0 ||
        turn.story == NT_TURN_UNTOLD)
      return false;
    kept += turn.story == NT_TURN_KEPT;
    if (turn.story == NT_TURN_KEPT)
      continue;
    if (out->departure.rank != NT_NONE || !nt_ranks_list(knot->ranks, knot->rank_count, r))
      return false;
    out->departure = (struct nt_departure){.rank = r, .turn = turn};
  }
  out->told = kept >= 2;
  return out->told;
}

int nt_knot_last_turn(const struct nt_knot *knot, struct nt_last_turn *out) {
  const struct nt_job *job = knot->inquiry->job;
  const size_t room = (size_t)job->model->rank_count + 1;
  struct around around = {.voters = calloc(room, sizeof *around.voters),
                          .first = calloc(room, sizeof *around.first),
                          .second = calloc(room, sizeof *around.second)};
  const int status = around.voters && around.first && around.second ? 0 : -NT_ERR_MEMORY;
  *out = (struct nt_last_turn){.departure.rank = NT_NONE};
  const uint32_t found =
      !status && list_voters(knot, around.voters) ? find_boundary(job, &around) : NT_NONE;
  if (found != NT_NONE) {
    const struct nt_joint *joint = &job->joints[found];
    const uint32_t last = made_by_all(job, joint);
    (void)find_times(job, around.voters, joint, last, around.second);
    for (uint32_t p = last; p-- > 0 && last - p <= IN_A_TURN && !out->told;)
      if (find_times(job, around.voters, joint, p, around.first))
        (void)tell(knot, &around, out);
    if (!out->told)
      out->departure.rank = NT_NONE;
  }
  free(around.voters);
  free(around.first);
  free(around.second);
  return status;
}
