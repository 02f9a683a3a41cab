/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose group holds other messages than those of all others, where groups hold a collective as well.
 *
 * The collective tells which groups of the ranks belong together. A message whose other side is not in the group that
 * belongs to its own, be it that it lacks one or met one of a later group, was left out there if all other members have
 * one more, or is too many if all others have one less. Told of one rank alone, and of three members at least.
 */
#include "analysis/knot_parts.h"
#include "analysis/sequence.h"
#include "cli/text.h"
#include "nccl/nccl_api.h"

/* A group by its collective: the position on the joint. */
struct place {
  uint32_t joint, seq;
};

/* Messages of one shape in the group that the call belongs to. */
static uint32_t count_in_group(const struct nt_model_rank *rank, uint32_t call,
                               enum nt_shape shape) {
  uint32_t first, end, count = 0;
  nt_call_group(rank, call, &first, &end);
  for (uint32_t i = first; i < end; i++)
    count += nt_fn_shape(rank->calls[i].fn) == shape && nt_call_counts(&rank->calls[i]);
  return count;
}

/* The only collective of the group in which the rank made that message; seq 0: there is none. */
static struct place place_of(const struct nt_job *job, const struct nt_p2p_end *end) {
  const struct nt_model_rank *rank = &job->model->ranks[end->rank];
  struct place place = {NT_NONE, 0};
  uint32_t first, behind;
  nt_call_group(rank, end->call, &first, &behind);
  for (uint32_t i = first; i < behind; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (call->view == NT_NONE || !nt_fn_is_collective(call->fn) || !nt_call_counts(call))
      continue;
    if (place.seq)
      return (struct place){NT_NONE, 0};
    place = (struct place){job->places[end->rank][call->view].joint, call->seq};
  }
  return place.joint == NT_NONE ? (struct place){NT_NONE, 0} : place;
}

/* The only member whose group there holds `by` messages of the shape more than those of all others; NT_NONE. */
static uint32_t odd_one(const struct nt_job *job, struct place place, enum nt_shape shape,
                        int32_t by) {
  const struct nt_joint *joint = &job->joints[place.joint];
  uint32_t counts[3], first[3], found = NT_NONE, usual = 0;
  if (joint->member_count < 3 || joint->absent)
    return NT_NONE;
  for (uint32_t m = 0; m < joint->member_count; m++) {
    const struct nt_member *member = &joint->members[m];
    const struct nt_model_call *call = nt_member_call(job, member, place.seq);
    if (!call || !call->group)
      return NT_NONE;
    const uint32_t count =
        count_in_group(nt_member_rank(job, member), member->call[place.seq - member->first], shape);
    if (m < 3) {
      counts[m] = count;
      first[m] = member->rank;
    }
    if (m == 2) { /* two of the first three agree, or it is not told */
      usual = counts[0] == counts[1] || counts[0] == counts[2] ? counts[0] : counts[1];
      for (uint32_t k = 0; k < 3; k++)
        if (counts[k] != usual && (found != NT_NONE || (int32_t)(counts[k] - usual) != by))
          return NT_NONE;
        else if (counts[k] != usual)
          found = first[k];
    } else if (m > 2 && count != usual) {
      if (found != NT_NONE || (int32_t)(count - usual) != by)
        return NT_NONE;
      found = member->rank;
    }
  }
  return found;
}

/* The end of the message whose other side is not in the group that belongs to its own: NULL if both are, or that is not known. */
static const struct nt_p2p_end *stray_end(const struct nt_job *job, const struct nt_stuck *stuck,
                                          const struct nt_p2p_end *end, struct place *place) {
  *place = place_of(job, end);
  if (!place->seq || stuck->kind != NT_STUCK_DEVICE)
    return place->seq ? end : NULL;
  const struct place other = place_of(job, end + 1);
  if (!other.seq || other.joint != place->joint || other.seq == place->seq)
    return NULL;
  const bool later = other.seq < place->seq;
  *place = later ? other : *place;
  return end + later;
}

const struct nt_stuck *nt_knot_blame_by_groups(const struct nt_knot *knot,
                                               struct nt_finding *finding, int *status) {
  const struct nt_job *job = knot->inquiry->job;
  const struct nt_stuck *found = NULL;
  uint32_t blamed = NT_NONE;
  struct place place, where = {NT_NONE, 0};
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const struct nt_stuck *stuck = nt_knot_stuck(knot, i);
    const struct nt_p2p_end *end =
        nt_stuck_is_message(stuck)
            ? stray_end(job, stuck, &knot->inquiry->p2p.ends[stuck->item], &place)
            : NULL;
    const struct nt_member *partner = end ? nt_p2p_partner(job, end) : NULL;
    if (!partner || (found && (place.joint != where.joint || place.seq >= where.seq)))
      continue;
    const uint32_t lacks = odd_one(job, place, end->is_send ? NT_SHAPE_RECV : NT_SHAPE_SEND, -1);
    const uint32_t exceeds = odd_one(job, place, end->is_send ? NT_SHAPE_SEND : NT_SHAPE_RECV, 1);
    if ((lacks == partner->rank) == (exceeds == end->rank))
      continue;
    blamed = lacks == partner->rank ? lacks : exceeds;
    found = stuck;
    where = place;
  }
  if (!found)
    return NULL;
  *status = nt_finding_add(job, &finding->blame, blamed);
  nt_lines_add(&finding->evidence,
               "in the group of that collective (#%u) all other members have another number of "
               "messages than rank %d",
               where.seq, job->model->ranks[blamed].world);
  return found;
}
