/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All members of the communicators in a knot are asked: where several leave the same out, the program may have taken a
 * branch, and who did not take it may be the one that is wrong. Ranks of other communicators that were
 * at the same place are asked as well (witnesses.h).
 */
#include "analysis/knot_turns.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/each.h"
#include "analysis/witnesses.h"

struct voter {
  bool votes, in_knot;
  struct nt_turn turn;
};

struct poll {
  const struct nt_inquiry *inquiry;
  uint32_t joints[NT_TURN_JOINTS], joint_count; /* of collectives */
  struct voter *voters;                         /* by rank */
  uint32_t fewest[NT_TURN_JOINTS]; /* in a turn of those who kept theirs; 0: nobody has any */
  uint32_t kept, left_out, untold, absent;
};

/* Who is in the knot, or a member of a communicator in it. */
static int list_voters(const struct nt_knot *knot, struct poll *poll) {
  const struct nt_inquiry *inquiry = knot->inquiry;
  const bool missing = knot->may_lack_members;
  poll->voters = calloc((size_t)inquiry->job->model->rank_count + 1, sizeof *poll->voters);
  if (!poll->voters)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < knot->rank_count; i++)
    poll->voters[knot->ranks[i]].votes = poll->voters[knot->ranks[i]].in_knot = true;
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const struct nt_stuck *stuck = nt_knot_stuck(knot, i);
    const struct nt_joint *joint = &inquiry->job->joints[stuck->joint];
    if (nt_stuck_is_collective(stuck) && poll->joint_count < NT_TURN_JOINTS &&
        !nt_ranks_list(poll->joints, poll->joint_count, stuck->joint))
      poll->joints[poll->joint_count++] = stuck->joint;
    for (uint32_t m = 0; m < joint->member_count; m++)
      poll->voters[joint->members[m].rank].votes = true;
    if (missing && joint->absent > poll->absent)
      poll->absent = joint->absent;
  }
  return 0;
}

static void count(struct poll *poll, const struct nt_turn *turn) {
  poll->kept += turn->story == NT_TURN_KEPT;
  poll->left_out += turn->story == NT_TURN_LEFT_OUT;
  poll->untold += turn->story == NT_TURN_UNTOLD;
  for (uint32_t k = 0; k < poll->joint_count && turn->story == NT_TURN_KEPT; k++)
    if (turn->on_joint[k] && (!poll->fewest[k] || turn->on_joint[k] < poll->fewest[k]))
      poll->fewest[k] = turn->on_joint[k];
}

/* What seems to be a turn is several of the others': two of them may have come about otherwise. */
static bool is_too_long(const struct poll *poll, const struct nt_turn *turn) {
  for (uint32_t k = 0; k < poll->joint_count; k++)
    if (poll->fewest[k] && turn->on_joint[k] > poll->fewest[k])
      return true;
  return false;
}

/* Others were where the rank left its turn, and most went on as it did. */
static bool is_shared(const struct nt_job *job, const struct nt_departure *departure) {
  const struct nt_model_rank *rank = &job->model->ranks[departure->rank];
  const uint64_t kind = departure->turn.left_out[0].kind;
  const uint32_t except = kind < job->joint_count ? (uint32_t)kind : NT_NONE;
  for (uint32_t i = 0; i < rank->call_count; i++)
    if (rank->calls[i].enter_ns == departure->turn.at_ns && rank->calls[i].view != NT_NONE)
      return nt_witnesses_is_usual(job, departure->rank, i, except);
  return false;
}

static int find_turn(void *ctx, uint32_t r) {
  const struct poll *poll = ctx;
  return poll->voters[r].votes ? nt_turn_of(poll->inquiry->job, &poll->inquiry->waits.replays, r,
                                            poll->joints, poll->joint_count, &poll->voters[r].turn)
                               : 0;
}

int nt_knot_departures(const struct nt_knot *knot, struct nt_departures *out) {
  const struct nt_job *job = knot->inquiry->job;
  struct poll poll = {.inquiry = knot->inquiry};
  memset(out, 0, sizeof *out);
  int status = list_voters(knot, &poll);
  out->list = calloc((size_t)knot->rank_count + 1, sizeof *out->list);
  if (!out->list)
    status = -NT_ERR_MEMORY;
  bool known = true;
  if (!status)
    status = nt_each(job->model->rank_count, find_turn, &poll);
  for (uint32_t r = 0; r < job->model->rank_count && !status; r++) {
    const struct voter *voter = &poll.voters[r];
    if (!voter->votes)
      continue;
    count(&poll, &voter->turn);
    if (!voter->in_knot)
      continue;
    known &= voter->turn.story != NT_TURN_UNTOLD;
    if (voter->turn.story == NT_TURN_LEFT_OUT)
      out->list[out->count++] = (struct nt_departure){.rank = r, .turn = voter->turn};
  }
  for (uint32_t i = 0; i < out->count; i++)
    known &= !is_too_long(&poll, &out->list[i].turn);
  const uint32_t in_knot = out->count, differ = poll.left_out + poll.untold + poll.absent;
  if (!known || out->count != poll.left_out || differ > poll.kept ||
      (differ == poll.kept && differ > 1))
    out->count = 0;
  out->common = poll.left_out > in_knot && poll.left_out > poll.kept;
  for (uint32_t i = 0; i < out->count && !out->common; i++)
    out->common = is_shared(job, &out->list[i]);
  free(poll.voters);
  return status;
}
