/* SPDX-License-Identifier: Apache-2.0 */
/* Where each rank of a knot stands: what it called first, and what it waits in. */
#include "analysis/knot_parts.h"
#include "analysis/sequence.h"

int64_t nt_knot_issued_ns(const struct nt_knot *knot, const struct nt_stuck *stuck, uint32_t rank) {
  const struct nt_model_rank *model = &knot->inquiry->job->model->ranks[rank];
  if (nt_stuck_is_message(stuck)) {
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

static bool is_mixed(const struct nt_knot *knot) {
  bool message = false, collective = false;
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    message |= nt_stuck_is_message(nt_knot_stuck(knot, i));
    collective |= nt_stuck_is_collective(nt_knot_stuck(knot, i));
  }
  return message && collective;
}

const struct nt_p2p_end *nt_knot_end_of(const struct nt_knot *knot, const struct nt_stuck *stuck,
                                        uint32_t rank) {
  const struct nt_p2p_end *end = &knot->inquiry->p2p.ends[stuck->item];
  const uint32_t ends = stuck->kind == NT_STUCK_DEVICE ? 2 : 1;
  for (uint32_t i = 0; i < ends; i++)
    if (end[i].rank == rank)
      return &end[i];
  return NULL;
}

bool nt_knot_holds_itself(const struct nt_knot *knot, const struct nt_stuck *stuck, uint32_t rank) {
  const struct nt_p2p_end *end = stuck->kind == NT_STUCK_DEVICE && nt_stuck_is_message(stuck)
                                     ? nt_knot_end_of(knot, stuck, rank)
                                     : NULL;
  return end && (nt_ranks_list(stuck->laggards, stuck->laggard_count, rank) ||
                 (nt_ranks_list(stuck->behind, stuck->behind_count, rank) &&
                  nt_p2p_call(knot->inquiry->job, end)->progress != NT_PROGRESS_ENQUEUED));
}

uint32_t nt_knot_waits_in(const struct nt_knot *knot, uint32_t rank) {
  uint32_t found = NT_NONE, first = NT_NONE;
  int64_t first_ns = INT64_MAX;
  const bool mixed = is_mixed(knot);
  int64_t found_ns = 0;
  bool told = true;
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const struct nt_stuck *stuck = nt_knot_stuck(knot, i);
    bool moves = nt_stuck_is_collective(stuck) || (mixed && nt_stuck_is_message(stuck));
    int64_t ns = moves ? nt_knot_issued_ns(knot, stuck, rank) : 0;
    if (ns && ns < first_ns) {
      first_ns = ns;
      first = i;
    }
    if (moves || !nt_ranks_list(stuck->held, stuck->held_count, rank) ||
        nt_knot_holds_itself(knot, stuck, rank))
      continue;
    ns = nt_stuck_is_message(stuck) ? nt_knot_issued_ns(knot, stuck, rank) : 0;
    told &= found == NT_NONE || (ns && ns != found_ns && found_ns);
    if (found == NT_NONE || ns < found_ns) {
      found = i;
      found_ns = ns;
    }
  }
  return first != NT_NONE ? first : told ? found : NT_NONE;
}
