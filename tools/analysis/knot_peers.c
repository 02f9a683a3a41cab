/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A circle of messages that one stray message closes: everybody else in it does as before, and waits for the rest of that
 * message's group, or for the one that should have been sent in its place.
 */
#include "analysis/knot_turns.h"

/* A send or receive whose other side nobody has called. */
static bool is_lonely(const struct nt_stuck *stuck) {
  return stuck->kind == NT_STUCK_SEND || stuck->kind == NT_STUCK_RECV;
}

const struct nt_stuck *nt_knot_wrong_peer(const struct nt_knot *knot) {
  const struct nt_p2p *p2p = &knot->inquiry->p2p;
  const struct nt_stuck *found = NULL;
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const struct nt_stuck *stuck = nt_knot_stuck(knot, i);
    if (!is_lonely(stuck) || !nt_turned_away(knot->inquiry, &p2p->ends[stuck->item]))
      continue;
    if (found && p2p->ends[found->item].rank != p2p->ends[stuck->item].rank)
      return NULL;
    found = found && found->since_ns <= stuck->since_ns ? found : stuck;
  }
  return found;
}

/* The only one that is the first of its queue; the others are at least the third of theirs, as of who is a turn ahead. */
static const struct nt_stuck *only_first(const struct nt_knot *knot) {
  const struct nt_stuck *found = NULL;
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const struct nt_stuck *stuck = nt_knot_stuck(knot, i);
    if (!is_lonely(stuck) || stuck->seq > 2)
      continue;
    if (found || stuck->seq > 1)
      return NULL;
    found = stuck;
  }
  return found;
}

/* When the rank made the message before it in the queue, INT64_MAX if it is not the third at least. */
static int64_t turn_before(const struct nt_p2p *p2p, const struct nt_job *job,
                           const struct nt_p2p_end *end) {
  for (const struct nt_p2p_end *other = end; other-- > p2p->ends && nt_p2p_same_queue(other, end);)
    if (other->rank == end->rank && other->is_send == end->is_send && other->seq + 1 == end->seq &&
        other->seq > 1)
      return nt_p2p_call(job, other)->enter_ns;
  return INT64_MAX;
}

/* When the other messages of its group were made the last time, without it, and not the first; INT64_MAX if they were not. */
static int64_t without_since(const struct nt_knot *knot, const struct nt_p2p_end *end) {
  const struct nt_job *job = knot->inquiry->job;
  const struct nt_p2p *p2p = &knot->inquiry->p2p;
  const struct nt_model_call *own = nt_p2p_call(job, end);
  int64_t since = INT64_MAX;
  for (uint32_t i = 0; i < p2p->count && own->group; i++) {
    const struct nt_p2p_end *other = &p2p->ends[i];
    const struct nt_model_call *call = nt_p2p_call(job, other);
    if (other == end || other->rank != end->rank || call->group != own->group ||
        call->thread != own->thread)
      continue;
    const int64_t before = turn_before(p2p, job, other);
    if (before == INT64_MAX)
      return INT64_MAX;
    since = before < since ? before : since;
  }
  return since;
}

const struct nt_stuck *nt_knot_message_too_many(const struct nt_knot *knot) {
  const struct nt_job *job = knot->inquiry->job;
  const struct nt_p2p *p2p = &knot->inquiry->p2p;
  const struct nt_stuck *lonely = only_first(knot);
  const struct nt_p2p_end *end = lonely ? &p2p->ends[lonely->item] : NULL;
  const struct nt_member *partner = end ? nt_p2p_partner(job, end) : NULL;
  bool steady = false;
  if (!partner || end->signal || job->joints[end->joint].absent)
    return NULL;
  const int64_t since = without_since(knot, end);
  for (uint32_t i = 0; i < p2p->count && since != INT64_MAX; i++) {
    const struct nt_p2p_end *other = &p2p->ends[i];
    if (other == end || other->joint != end->joint)
      continue;
    if (other->seq == 1 && nt_p2p_call(job, other)->enter_ns > since)
      return NULL; /* others begin to talk as well: a new part of the program */
    steady |= other->rank == partner->rank && other->seq > 2;
  }
  return steady ? lonely : NULL;
}

const struct nt_stuck *nt_knot_added_message(const struct nt_knot *knot,
                                             const struct nt_last_turn *last) {
  const struct nt_stuck *found = NULL;
  if (!last->told || last->departure.rank == NT_NONE || last->departure.turn.story != NT_TURN_ADDED)
    return NULL;
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const struct nt_stuck *stuck = nt_knot_stuck(knot, i);
    if (is_lonely(stuck) && knot->inquiry->p2p.ends[stuck->item].rank == last->departure.rank &&
        (!found || stuck->since_ns < found->since_ns))
      found = stuck;
  }
  return found;
}
