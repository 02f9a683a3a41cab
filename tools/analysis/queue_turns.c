/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue by turns: how many messages both sides made between the collectives of a communicator that both are in, or that
 * they made at the same lines. Where they
 * differ in one turn only, and every other turn has the same number on both sides, who made that number in this turn as well
 * did as always.
 */
#include "analysis/queue_turns.h"

#include <stdlib.h>

#include "analysis/sequence.h"

enum { FEWEST = 2, MOST = 4096 }; /* collectives of that communicator */

struct side {
  const struct nt_member *member; /* of the joint that tells the turns */
  uint32_t *counts;               /* by turn */
};

/* The rank's place in the communicator of a view, NULL if that is not known, or it has collectives that are gone. */
static const struct nt_member *member_of(const struct nt_job *job, uint32_t rank, uint32_t view) {
  const struct nt_place place = job->places[rank][view];
  const struct nt_member *member =
      place.joint == NT_NONE ? NULL : &job->joints[place.joint].members[place.member];
  return member && member->first == 1 && member->called >= FEWEST && member->called <= MOST ? member
                                                                                            : NULL;
}

/* One communicator, or two of one size in which both made their collectives at the same lines. */
static bool is_alike(const struct nt_job *job, const struct nt_place a, const struct nt_place b) {
  const struct nt_member *x = &job->joints[a.joint].members[a.member];
  const struct nt_member *y = &job->joints[b.joint].members[b.member];
  if (a.joint == b.joint)
    return true;
  if (x->called != y->called || job->joints[a.joint].size != job->joints[b.joint].size)
    return false;
  for (uint32_t p = 1; p <= x->called; p++) {
    const struct nt_model_call *one = nt_member_call(job, x, p), *other = nt_member_call(job, y, p);
    if (!one || !other || !one->at || one->at != other->at || one->fn != other->fn)
      return false;
  }
  return true;
}

/* How many collectives the member had made by then. */
static uint32_t turn_at(const struct nt_job *job, const struct nt_member *member, uint32_t turns,
                        int64_t ns) {
  uint32_t low = 0, high = turns;
  while (low < high) {
    const uint32_t middle = low + (high - low + 1) / 2;
    const struct nt_model_call *call = nt_member_call(job, member, middle);
    if (call && call->enter_ns <= ns)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

/* The side that departs by these turns: 0 of the owner of the end, 1 the other one; -1 if that is not told. */
static int departs(const struct side *sides, uint32_t turns) {
  uint32_t odd = NT_NONE, usual = 0, others = 0;
  for (uint32_t t = 0; t <= turns; t++) {
    const uint32_t a = sides[0].counts[t], b = sides[1].counts[t];
    if (a == b) {
      others += a != 0;
      if (a && usual && a != usual)
        return -1;
      usual = a ? a : usual;
    } else if (odd != NT_NONE) {
      return -1;
    } else {
      odd = t;
    }
  }
  if (odd == NT_NONE || !others)
    return -1;
  return sides[0].counts[odd] == usual ? 1 : sides[1].counts[odd] == usual ? 0 : -1;
}

static int tell(const struct nt_job *job, const struct nt_p2p *p2p, const struct nt_p2p_end *end,
                struct side *sides) {
  const uint32_t a = sides[0].member->called, b = sides[1].member->called, turns = a < b ? a : b;
  int told = -1;
  if (turns < FEWEST || turns > MOST || sides[0].member->first != 1 || sides[1].member->first != 1)
    return -1;
  for (int i = 0; i < 2; i++)
    sides[i].counts = calloc((size_t)turns + 1, sizeof *sides[i].counts);
  if (sides[0].counts && sides[1].counts) {
    for (uint32_t i = 0; i < p2p->count; i++) {
      const struct nt_p2p_end *other = &p2p->ends[i];
      const struct side *side = &sides[other->rank != end->rank];
      if (nt_p2p_same_queue(other, end))
        side->counts[turn_at(job, side->member, turns, nt_p2p_call(job, other)->enter_ns)]++;
    }
    told = departs(sides, turns);
  }
  free(sides[0].counts);
  free(sides[1].counts);
  return told;
}

enum nt_queue_side nt_queue_departs(const struct nt_job *job, const struct nt_p2p *p2p,
                                    const struct nt_p2p_end *end, uint32_t partner) {
  const struct nt_model_rank *own = &job->model->ranks[end->rank];
  const struct nt_model_rank *other = &job->model->ranks[partner];
  bool side[2] = {false, false};
  for (uint32_t v = 0; v < own->view_count && end->rank != partner; v++)
    for (uint32_t w = 0; w < other->view_count; w++) {
      struct side sides[2] = {{.member = member_of(job, end->rank, v)},
                              {.member = member_of(job, partner, w)}};
      if (!sides[0].member || !sides[1].member ||
          !is_alike(job, job->places[end->rank][v], job->places[partner][w]))
        continue;
      const int told = tell(job, p2p, end, sides);
      if (told >= 0)
        side[told] = true;
    }
  if (side[0] == side[1])
    return NT_QUEUE_UNTOLD;
  return side[0] ? NT_QUEUE_OWN : NT_QUEUE_OTHER;
}
