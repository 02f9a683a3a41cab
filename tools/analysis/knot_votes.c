/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Votes where messages of one communicator and a collective of another wait for each other.
 *
 * Each rank has messages of its own there, so that no operation of the knot is common to all. Those with one number
 * in their queues are taken for one step: who has made the collective before, or without, its messages of that step
 * took the other order. A rank that never took part in those messages has no vote.
 */
#include <stdlib.h>

#include "analysis/knot_parts.h"
#include "cli/text.h"

struct step {
  const struct nt_stuck *collective;
  uint32_t joint, seq; /* of the messages */
};

/* By rank: when it called its first message of the step, and whether it called one of the step before. */
struct past {
  int64_t *message_ns;
  bool *before;
};

enum choice { NO_VOTE, MESSAGE, COLLECTIVE };

/* One communicator with messages, all of one number, and one collective of another that some have not called. */
static bool find_step(const struct nt_knot *knot, struct step *step) {
  for (uint32_t i = 0; i < knot->stuck_count; i++) {
    const struct nt_stuck *stuck = nt_knot_stuck(knot, i);
    if (!nt_stuck_is_message(stuck)) {
      if (step->collective || stuck->kind != NT_STUCK_COLLECTIVE)
        return false;
      step->collective = stuck;
    } else if (step->joint == NT_NONE) {
      step->joint = stuck->joint;
      step->seq = stuck->seq;
    } else if (stuck->joint != step->joint || stuck->seq != step->seq) {
      return false;
    }
  }
  return step->collective && step->joint != NT_NONE && step->joint != step->collective->joint;
}

static void read_past(const struct nt_inquiry *inquiry, const struct step *step,
                      struct past *past) {
  for (uint32_t i = 0; i < inquiry->p2p.count; i++) {
    const struct nt_p2p_end *end = &inquiry->p2p.ends[i];
    if (end->joint != step->joint || end->signal)
      continue;
    const int64_t ns = nt_p2p_call(inquiry->job, end)->enter_ns;
    int64_t *first = &past->message_ns[end->rank];
    past->before[end->rank] |= end->seq + 1 == step->seq;
    if (end->seq == step->seq && (!*first || ns < *first))
      *first = ns;
  }
}

static enum choice choose(const struct nt_knot *knot, const struct step *step,
                          const struct past *past, uint32_t rank) {
  const int64_t message = past->message_ns[rank];
  const int64_t collective = nt_knot_issued_ns(knot, step->collective, rank);
  if (message && (!collective || message < collective))
    return MESSAGE;
  const bool takes_part =
      past->before[rank] || message || nt_ranks_list(knot->ranks, knot->rank_count, rank);
  return collective && takes_part ? COLLECTIVE : NO_VOTE;
}

/* The oldest message that waits for one of those that are blamed, NULL if one of them holds nobody up. */
static const struct nt_stuck *owed(const struct nt_knot *knot, const struct step *step,
                                   const struct past *past) {
  const struct nt_stuck *found = NULL;
  for (uint32_t r = 0; r < knot->inquiry->job->model->rank_count; r++) {
    bool owes = choose(knot, step, past, r) != COLLECTIVE;
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

static const struct nt_stuck *decide(const struct nt_knot *knot, const struct step *step,
                                     const struct past *past, struct nt_finding *finding,
                                     bool *skipped, int *status) {
  const struct nt_job *job = knot->inquiry->job;
  uint32_t votes[] = {[NO_VOTE] = 0, [MESSAGE] = 0, [COLLECTIVE] = 0}, absent = 0;
  for (uint32_t r = 0; r < job->model->rank_count; r++)
    votes[choose(knot, step, past, r)]++;
  if (nt_rank_set_count(&knot->inquiry->verdict->missing)) {
    const uint32_t a = job->joints[step->joint].absent,
                   b = job->joints[step->collective->joint].absent;
    absent = a > b ? a : b;
  }
  const enum choice common = votes[MESSAGE] > votes[COLLECTIVE] ? MESSAGE : COLLECTIVE,
                    other = common == MESSAGE ? COLLECTIVE : MESSAGE;
  if (!votes[other] || votes[common] <= votes[other] + absent)
    return NULL;
  const struct nt_stuck *named = common == MESSAGE ? owed(knot, step, past) : step->collective;
  *skipped = named && common == MESSAGE;
  for (uint32_t r = 0; r < job->model->rank_count && named && !*status; r++) {
    if (choose(knot, step, past, r) != other)
      continue;
    *status = nt_finding_add(job, &finding->blame, r);
    *skipped = *skipped && nt_knot_has_skipped(knot, r, named, step->collective);
  }
  if (named)
    nt_lines_add(
        &finding->evidence, "%u of the %u ranks that use both communicators were in the %s first",
        votes[common], votes[common] + votes[other], common == MESSAGE ? "messages" : "collective");
  return named;
}

const struct nt_stuck *nt_knot_vote_on_messages(const struct nt_knot *knot,
                                                struct nt_finding *finding, bool *skipped,
                                                int *status) {
  const size_t ranks = (size_t)knot->inquiry->job->model->rank_count + 1;
  const struct nt_stuck *named = NULL;
  struct step step = {.joint = NT_NONE};
  if (!find_step(knot, &step))
    return NULL;
  struct past past = {calloc(ranks, sizeof *past.message_ns), calloc(ranks, sizeof *past.before)};
  *status = past.message_ns && past.before ? 0 : -NT_ERR_MEMORY;
  if (!*status) {
    read_past(knot->inquiry, &step, &past);
    named = decide(knot, &step, &past, finding, skipped, status);
  }
  free(past.message_ns);
  free(past.before);
  return named;
}
