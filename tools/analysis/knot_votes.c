/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Votes where messages and a collective wait for each other. The messages are of one communicator, or of several of one size,
 * as where each two stages of a pipeline have their own.
 *
 * Each rank has messages of its own there, so that no operation of the knot is common to all. Who has made the collective
 * and owes a message of the knot took the other order than who stands in one. The others tell by how many messages
 * their queues carried between the collective before and this one: as many as with the message that is owed, or one
 * less. A rank that is no member of both, or had no messages like these, has no vote.
 */
#include <stdlib.h>

#include "analysis/knot_parts.h"
#include "analysis/sequence.h"
#include "cli/text.h"

struct step {
  const struct nt_stuck *collective;
  uint32_t joint; /* of the messages; NT_NONE: of several */
  int32_t size;   /* of these */
  uint32_t
      count; /* of the owed message in its queue, since the collective before; 0 if they differ */
};

/* By rank. */
struct part {
  int64_t early_ns, from_ns,
      to_ns; /* its collective before the one before, that before, and this; 0 if not made */
  bool member, fenced; /* of the collective's communicator; the one before is known */
  bool owes, stands;   /* a message of the knot has to come from it; it is in one that it called */
  bool with, without;  /* a queue of it carried as many, or one less */
};

enum choice { NO_VOTE, MESSAGE, COLLECTIVE };

/* Messages, and one collective. */
static bool find_step(const struct nt_knot *knot, struct step *step) {
  const struct nt_joint *joints = knot->inquiry->job->joints;
  uint32_t messages = 0;
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const struct nt_stuck *stuck = nt_knot_stuck(knot, i);
    if (!nt_stuck_is_message(stuck)) {
      if (step->collective || !nt_stuck_is_collective(stuck) || stuck->kind == NT_STUCK_REPLAY)
        return false;
      step->collective = stuck;
    } else if (!messages++) {
      step->joint = stuck->joint;
      step->size = joints[stuck->joint].size;
    } else if (joints[stuck->joint].size != step->size) {
      return false;
    } else if (stuck->joint != step->joint) {
      step->joint = NT_NONE;
    }
  }
  if (step->size == 2) /* a pair's own: nobody else could vote */
    step->joint = NT_NONE;
  return step->collective && messages;
}

static bool is_of_step(const struct nt_job *job, const struct step *step, uint32_t joint) {
  return step->joint == NT_NONE ? job->joints[joint].size == step->size : joint == step->joint;
}

static void read_moments(const struct nt_knot *knot, const struct step *step, struct part *parts) {
  const struct nt_job *job = knot->inquiry->job;
  const struct nt_joint *joint = &job->joints[step->collective->joint];
  const uint32_t seq = step->collective->seq;
  for (uint32_t m = 0; m < joint->member_count; m++) {
    const struct nt_member *member = &joint->members[m];
    const struct nt_model_call *before = seq > 1 ? nt_member_call(job, member, seq - 1) : NULL;
    const struct nt_model_call *early = seq > 2 ? nt_member_call(job, member, seq - 2) : NULL;
    const struct nt_model_call *own = nt_member_call(job, member, seq);
    struct part *part = &parts[member->rank];
    part->member = true;
    part->fenced = before || seq == 1;
    part->early_ns = early ? early->enter_ns : 0;
    part->from_ns = before ? before->enter_ns : 0;
    part->to_ns = own ? own->enter_ns : 0;
  }
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const struct nt_stuck *stuck = nt_knot_stuck(knot, i);
    if (stuck == step->collective)
      continue;
    for (uint32_t j = 0; j < stuck->laggard_count; j++)
      parts[stuck->laggards[j]].owes |= parts[stuck->laggards[j]].to_ns != 0;
    for (uint32_t j = 0; j < stuck->held_count; j++) {
      struct part *part = &parts[stuck->held[j]];
      const int64_t ns = nt_knot_issued_ns(knot, stuck, stuck->held[j]);
      part->stands |= ns && (!part->to_ns || ns < part->to_ns);
    }
  }
}

/* Has to come from one that has made the collective. */
static bool is_owed(const struct nt_stuck *stuck, const struct part *parts) {
  for (uint32_t j = 0; j < stuck->laggard_count; j++)
    if (parts[stuck->laggards[j]].owes)
      return true;
  return false;
}

/* The how manieth of its queue the message is to its owner since the collective before; 0: not known. */
static uint32_t count_in_turn(const struct nt_p2p *p2p, const struct nt_job *job, uint32_t item,
                              const struct part *parts) {
  const struct nt_p2p_end *own = &p2p->ends[item];
  uint32_t count = 0;
  for (uint32_t i = item + 1; i-- > 0 && nt_p2p_same_queue(&p2p->ends[i], own);)
    count += p2p->ends[i].is_send == own->is_send &&
             nt_p2p_call(job, &p2p->ends[i])->enter_ns > parts[own->rank].from_ns;
  return parts[own->rank].fenced ? count : 0;
}

static void count_owed(const struct nt_knot *knot, struct step *step, const struct part *parts) {
  bool told = false;
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const struct nt_stuck *stuck = nt_knot_stuck(knot, i);
    if (stuck == step->collective || !is_owed(stuck, parts))
      continue;
    const uint32_t count =
        count_in_turn(&knot->inquiry->p2p, knot->inquiry->job, stuck->item, parts);
    step->count = told && step->count != count ? 0 : count;
    told = true;
  }
}

/* One queue: its two sides, and how many each made in its turn, and in the one before. */
struct queue {
  uint32_t ranks[2], counts[2], before[2];
};

/* The number that queues have in common, of those that it may be; NT_NONE: none has any, VARIES. */
#define VARIES (NT_NONE - 1)
struct common {
  uint32_t now, before;
};

static void compare_one(uint32_t *common, uint32_t count, uint32_t wanted) {
  if (count == wanted || count + 1 == wanted)
    *common = *common == NT_NONE || *common == count ? count : VARIES;
}

static bool is_free(const struct part *parts, uint32_t rank) {
  return rank != NT_NONE && parts[rank].fenced && !parts[rank].owes && !parts[rank].stands;
}

static void end_queue(const struct step *step, const struct queue *queue, struct part *parts,
                      struct common *common) {
  for (uint32_t side = 0; side < 2; side++) {
    const uint32_t rank = queue->ranks[side], count = queue->counts[side];
    if (queue->before[side] && queue->before[0] == queue->before[1])
      compare_one(&common->before, queue->before[side], step->count);
    if (!is_free(parts, rank))
      continue;
    parts[rank].with |= count == step->count;
    parts[rank].without |= count + 1 == step->count;
    if (is_free(parts, queue->ranks[!side]) || queue->counts[!side] == count)
      compare_one(&common->now, count, step->count);
  }
}

/* How many messages the queues of each rank carried in its turn. That tells nothing where some always carry as many, and
 * some one less. */
static void compare_queues(const struct nt_inquiry *inquiry, const struct step *step,
                           struct part *parts) {
  const struct nt_p2p *p2p = &inquiry->p2p;
  const struct queue none = {{NT_NONE, NT_NONE}, {0, 0}, {0, 0}};
  struct queue queue = none;
  struct common common = {NT_NONE, NT_NONE};
  for (uint32_t i = 0; i < p2p->count && step->count; i++) {
    const struct nt_p2p_end *end = &p2p->ends[i];
    if (!is_of_step(inquiry->job, step, end->joint) || end->signal)
      continue;
    const struct part *part = &parts[end->rank];
    const int64_t ns = nt_p2p_call(inquiry->job, end)->enter_ns;
    queue.ranks[end->is_send] = end->rank;
    queue.counts[end->is_send] +=
        part->fenced && ns > part->from_ns && (!part->to_ns || ns < part->to_ns);
    queue.before[end->is_send] += part->fenced && ns > part->early_ns && ns <= part->from_ns;
    if (i + 1 < p2p->count && nt_p2p_same_queue(end, end + 1))
      continue;
    end_queue(step, &queue, parts, &common);
    queue = none;
  }
  const bool varies = common.before == NT_NONE ? common.now == VARIES : common.before == VARIES;
  for (uint32_t r = 0; varies && r < inquiry->job->model->rank_count; r++)
    parts[r].with = parts[r].without = false;
}

static enum choice choose(const struct part *part) {
  if (!part->member)
    return NO_VOTE;
  if (part->owes || part->stands)
    return part->owes ? COLLECTIVE : MESSAGE;
  if (part->with)
    return part->without ? NO_VOTE : MESSAGE;
  return part->without && part->to_ns ? COLLECTIVE : NO_VOTE;
}

/* The oldest message that waits for one of those that are blamed, NULL if one of them holds nobody up. */
static const struct nt_stuck *owed(const struct nt_knot *knot, const struct step *step,
                                   const struct part *parts) {
  const struct nt_stuck *found = NULL;
  for (uint32_t k = 0; k < knot->rank_count; k++) {
    const uint32_t r = knot->ranks[k];
    bool owes = choose(&parts[r]) != COLLECTIVE;
    for (uint32_t i = 0; i < knot->stuck_count; i++) {
      const struct nt_stuck *stuck = nt_knot_stuck(knot, i);
      if (stuck == step->collective || owes ||
          !nt_ranks_list(stuck->laggards, stuck->laggard_count, r))
        continue;
      owes = true;
      found = !found || stuck->since_ns < found->since_ns ? stuck : found;
    }
    if (!owes)
      return NULL;
  }
  return found;
}

/* The message in which the rank stands, the oldest. */
static const struct nt_stuck *stands_in(const struct nt_knot *knot, const struct step *step,
                                        uint32_t rank) {
  const struct nt_stuck *found = NULL;
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const struct nt_stuck *stuck = nt_knot_stuck(knot, i);
    if (stuck != step->collective && nt_ranks_list(stuck->held, stuck->held_count, rank) &&
        nt_knot_end_of(knot, stuck, rank) && (!found || stuck->since_ns < found->since_ns))
      found = stuck;
  }
  return found;
}

/*
 * Did those who stand in messages, by their past, do so in place of the collective? Then these are too many, or, from lines
 * that they had used, the next turn's, and the collective was skipped. Returns the operation to name.
 */
static const struct nt_stuck *instead(const struct nt_knot *knot, const struct step *step,
                                      const struct part *parts, bool *skipped) {
  const struct nt_stuck *named = NULL;
  bool used = true;
  *skipped = step->collective->kind == NT_STUCK_COLLECTIVE;
  for (uint32_t k = 0; k < knot->rank_count && *skipped; k++) {
    const uint32_t r = knot->ranks[k];
    if (choose(&parts[r]) != MESSAGE)
      continue;
    const struct nt_stuck *own = stands_in(knot, step, r);
    *skipped = own && (nt_knot_has_skipped(knot, r, step->collective, own) ||
                       nt_knot_has_passed(knot, r, step->collective, own));
    used = *skipped && used && nt_knot_is_used_line(knot, r, nt_knot_issued_ns(knot, own, r));
    named = !named || (own && own->since_ns < named->since_ns) ? own : named;
  }
  return *skipped && !used ? named : step->collective;
}

static int blame(const struct nt_knot *knot, const struct step *step, const struct part *parts,
                 enum choice other, const struct nt_stuck *named, struct nt_finding *finding,
                 bool *skipped) {
  int status = 0;
  for (uint32_t r = 0; r < knot->inquiry->job->model->rank_count && !status; r++) {
    const bool inside = nt_ranks_list(knot->ranks, knot->rank_count, r);
    if (choose(&parts[r]) != other || (!inside && other == MESSAGE))
      continue;
    status = nt_finding_add(knot->inquiry->job, &finding->blame, r);
    if (other == COLLECTIVE && inside)
      *skipped = *skipped && nt_knot_has_skipped(knot, r, named, step->collective);
  }
  return status;
}

static const struct nt_stuck *decide(const struct nt_knot *knot, const struct step *step,
                                     const struct part *parts, struct nt_finding *finding,
                                     bool *skipped, int *status) {
  const struct nt_job *job = knot->inquiry->job;
  uint32_t votes[] = {[NO_VOTE] = 0, [MESSAGE] = 0, [COLLECTIVE] = 0}, absent = 0;
  for (uint32_t r = 0; r < job->model->rank_count; r++)
    votes[choose(&parts[r])]++;
  if (knot->may_lack_members) {
    uint32_t without = 0;
    for (uint32_t i = 0; i < job->joint_count; i++)
      without += is_of_step(job, step, i) ? job->joints[i].absent : 0;
    absent = job->joints[step->collective->joint].absent;
    absent = without > absent ? without : absent;
  }
  const enum choice common = votes[MESSAGE] > votes[COLLECTIVE] ? MESSAGE : COLLECTIVE,
                    other = common == MESSAGE ? COLLECTIVE : MESSAGE;
  if (!votes[other] || votes[common] <= votes[other] + absent)
    return NULL;
  const struct nt_stuck *named =
      common == MESSAGE ? owed(knot, step, parts) : instead(knot, step, parts, skipped);
  if (!named)
    return NULL;
  if (common == MESSAGE)
    *skipped = true;
  *status = blame(knot, step, parts, other, named, finding, skipped);
  nt_lines_add(&finding->evidence,
               "%u of the %u ranks that use both communicators were in the %s first", votes[common],
               votes[common] + votes[other], common == MESSAGE ? "messages" : "collective");
  return named;
}

const struct nt_stuck *nt_knot_vote_on_messages(const struct nt_knot *knot,
                                                struct nt_finding *finding, bool *skipped,
                                                int *status) {
  const struct nt_stuck *named = NULL;
  struct step step = {.joint = NT_NONE};
  if (!find_step(knot, &step))
    return NULL;
  struct part *parts = calloc((size_t)knot->inquiry->job->model->rank_count + 1, sizeof *parts);
  *status = parts ? 0 : -NT_ERR_MEMORY;
  if (!*status) {
    read_moments(knot, &step, parts);
    count_owed(knot, &step, parts);
    compare_queues(knot->inquiry, &step, parts);
    named = decide(knot, &step, parts, finding, skipped, status);
  }
  free(parts);
  return named;
}
