/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives: which side of a lonely message is to blame. */
#include <stdio.h>
#include <stdlib.h>

#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "analysis/passages.h"
#include "analysis/witnesses.h"
#include "analysis/progress.h"
#include "analysis/sequence.h"
#include "cli/call_text.h"
#include "cli/text.h"

static int32_t world_of(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end) {
  return inquiry->job->model->ranks[end->rank].world;
}

/* Both sides of the message; the partner may have no trace. */
static int blame_both(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end,
                      struct nt_rank_set *blame) {
  const struct nt_member *partner = nt_p2p_partner(inquiry->job, end);
  int status = nt_finding_add(inquiry->job, blame, end->rank);
  return status || !partner ? status : nt_finding_add(inquiry->job, blame, partner->rank);
}

/* Another lonely message of the rank in the same direction, to or from somebody else. */
static bool has_stray(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end, uint32_t rank,
                      bool is_send) {
  for (uint32_t i = 0; i < inquiry->p2p.unmatched_count; i++) {
    const struct nt_p2p_end *other = &inquiry->p2p.ends[inquiry->p2p.unmatched[i]];
    if (other->joint == end->joint && other->rank == rank && other->is_send == is_send &&
        other != end)
      return true;
  }
  return false;
}

/* A message of somebody else to (or from) this rank that it did not answer; NULL if there is none. */
static const struct nt_p2p_end *awaited_by(const struct nt_inquiry *inquiry,
                                           const struct nt_p2p_end *end) {
  const struct nt_p2p_end *found = NULL;
  for (uint32_t i = 0; i < inquiry->p2p.unmatched_count; i++) {
    const struct nt_p2p_end *other = &inquiry->p2p.ends[inquiry->p2p.unmatched[i]];
    if (other == end || other->joint != end->joint || other->is_send == end->is_send ||
        other->rank == end->rank)
      continue;
    if ((end->is_send ? other->source == end->source : other->destination == end->destination) &&
        (!found || other->seq > found->seq))
      found = other;
  }
  return found;
}

/* Messages of one rank, or of its partner, in one direction, against those of the other ranks. */
struct counts {
  uint32_t sends, recvs;
};

static struct counts *count_messages(const struct nt_inquiry *inquiry, uint32_t joint) {
  struct counts *counts = calloc((size_t)inquiry->job->model->rank_count + 1, sizeof *counts);
  for (uint32_t i = 0; counts && i < inquiry->p2p.count; i++) {
    const struct nt_p2p_end *end = &inquiry->p2p.ends[i];
    if (end->joint == joint)
      ++*(end->is_send ? &counts[end->rank].sends : &counts[end->rank].recvs);
  }
  return counts;
}

/* Does `value` equal what most of the other ranks have? 1 yes, 0 no, -1 there are no others. The ends of
 * a pipeline only send or only receive: who has none in this direction has no vote. */
static int is_common(const struct counts *counts, uint32_t ranks, uint32_t a, uint32_t b,
                     uint32_t value, bool sends) {
  uint32_t alike = 0, others = 0;
  for (uint32_t i = 0; i < ranks; i++) {
    uint32_t own = sends ? counts[i].sends : counts[i].recvs;
    if (i == a || i == b || !own)
      continue;
    others++;
    alike += own == value;
  }
  return others ? alike * 2 > others : -1;
}

int nt_count_votes(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end, uint32_t partner,
                   struct nt_votes *votes) {
  struct counts *counts = count_messages(inquiry, end->joint);
  uint32_t ranks = inquiry->job->model->rank_count;
  if (!counts)
    return -NT_ERR_MEMORY;
  uint32_t own = end->is_send ? counts[end->rank].sends : counts[end->rank].recvs;
  uint32_t theirs = end->is_send ? counts[partner].recvs : counts[partner].sends;
  votes->own = is_common(counts, ranks, end->rank, partner, own, end->is_send);
  votes->theirs = is_common(counts, ranks, end->rank, partner, theirs, !end->is_send);
  free(counts);
  return 0;
}

/* Did the two ever exchange a message, in either direction? It may be gone from the records. */
static bool have_talked(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end) {
  if (!end->signal && !end->is_send && end->seq > 1)
    return true;
  for (uint32_t i = 0; i + 1 < inquiry->p2p.count; i++) {
    const struct nt_p2p_end *a = &inquiry->p2p.ends[i], *b = a + 1;
    bool same = a->source == end->source && a->destination == end->destination;
    bool back = a->source == end->destination && a->destination == end->source;
    if (a->joint == end->joint && (same || back) && nt_p2p_is_pair(a, b))
      return true;
  }
  return false;
}

/* Nothing else is expected of the rank, and it expects nothing. */
static bool is_balanced(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end,
                        const struct nt_member *partner) {
  for (uint32_t i = 0; i < inquiry->p2p.unmatched_count; i++) {
    const struct nt_p2p_end *other = &inquiry->p2p.ends[inquiry->p2p.unmatched[i]];
    if (other != end && other->joint == end->joint && other->rank != end->rank &&
        nt_p2p_partner(inquiry->job, other) && /* else its other side may well be there */
        (other->rank == partner->rank || other->source == partner->comm_rank ||
         other->destination == partner->comm_rank))
      return false;
  }
  return true;
}

/* The rank made another call after it, or sends and receives others in one group with it: it is not in front of what
 * it owes. */
static bool went_on(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end) {
  const struct nt_model_rank *rank = &inquiry->job->model->ranks[end->rank];
  const struct nt_model_call *own = &rank->calls[end->call];
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (i != end->call && call->thread == own->thread && call->view != NT_NONE &&
        call->enter_ns <= inquiry->job->cut_ns && nt_call_counts(call) &&
        (i > end->call || (own->group && call->group == own->group)))
      return true;
  }
  return false;
}

/* It turned to one it had never talked to in this direction, while another waits for it in a queue that had been used. */
static bool is_new_queue(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end) {
  const struct nt_p2p_end *awaited = awaited_by(inquiry, end);
  return awaited && end->seq == 1 && awaited->seq > 1;
}

/* In this direction it has talked to a member without a trace, which would not tell that it waits. */
static bool talks_to_absent(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end) {
  for (uint32_t i = 0; i < inquiry->p2p.count; i++) {
    const struct nt_p2p_end *other = &inquiry->p2p.ends[i];
    if (other->joint == end->joint && other->rank == end->rank && other->is_send == end->is_send &&
        !nt_p2p_partner(inquiry->job, other))
      return true;
  }
  return false;
}

/* It turned to one it had never talked to in this direction, where it had always turned to a member without a trace, and
 * that one had ended well and made what most others did: whoever waits for it would not show. */
static bool turned_from_absent(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end,
                               const struct nt_member *partner) {
  struct nt_votes votes;
  return end->seq == 1 && inquiry->job->joints[end->joint].absent &&
         inquiry->freeze->fates[partner->rank].kind == NT_FATE_LEFT &&
         !inquiry->freeze->fates[partner->rank].lives && talks_to_absent(inquiry, end) &&
         have_talked(inquiry, end) && is_balanced(inquiry, end, partner) &&
         nt_count_votes(inquiry, end, partner->rank, &votes) == 0 && votes.theirs == 1 &&
         votes.own == 1;
}

/*
 * Did the rank talk to the wrong one? Then somebody else waits for it, in a queue that has been used
 * before, while this one has not, and it has gone on since. In a first turn, where no queue has, a partner that is
 * gone or that made less than the others do cannot be told from a wrong peer. Positions in two queues that are both in
 * use say nothing.
 */
bool nt_is_wrong_peer(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end,
                      enum nt_confidence *confidence) {
  const struct nt_member *partner = nt_p2p_partner(inquiry->job, end);
  struct nt_votes votes = {-1, -1};
  if (partner && turned_from_absent(inquiry, end, partner)) {
    *confidence = NT_LIKELY;
    return true;
  }
  if (!partner || !awaited_by(inquiry, end) || end->seq > 1)
    return false;
  enum nt_fate_kind fate = inquiry->freeze->fates[partner->rank].kind;
  if (fate == NT_FATE_DEAD)
    return false;
  *confidence = fate == NT_FATE_LEFT && is_new_queue(inquiry, end) ? NT_CERTAIN : NT_LIKELY;
  if (is_new_queue(inquiry, end))
    return fate == NT_FATE_LEFT || went_on(inquiry, end);
  if (fate == NT_FATE_LEFT)
    return is_balanced(inquiry, end, partner);
  return nt_count_votes(inquiry, end, partner->rank, &votes) == 0 && votes.theirs != 0;
}

/* Do at least two other pairs talk over the distance at which somebody waits for the rank, and none over that of this end? */
static bool is_odd_distance(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end) {
  const struct nt_p2p_end *awaited = awaited_by(inquiry, end);
  const int32_t size = inquiry->job->joints[end->joint].size;
  uint32_t alike = 0;
  for (uint32_t i = 0; i < inquiry->p2p.count && awaited && size > 0; i++) {
    const struct nt_p2p_end *other = &inquiry->p2p.ends[i];
    const int32_t distance = (other->destination - other->source + size) % size;
    if (other->joint != end->joint || other->signal || nt_p2p_same_queue(other, end) ||
        (i && nt_p2p_same_queue(other, other - 1)))
      continue;
    if (distance == (end->destination - end->source + size) % size)
      return false;
    alike += distance == (awaited->destination - awaited->source + size) % size &&
             !nt_p2p_same_queue(other, awaited);
  }
  return alike >= 2;
}

bool nt_turned_away(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end) {
  const struct nt_member *partner = nt_p2p_partner(inquiry->job, end);
  struct nt_votes votes = {-1, -1};
  if (!partner || end->signal || end->seq > 1 || !awaited_by(inquiry, end) ||
      inquiry->freeze->fates[partner->rank].kind == NT_FATE_DEAD)
    return false;
  if (is_odd_distance(inquiry, end))
    return true;
  return went_on(inquiry, end) &&
         (is_new_queue(inquiry, end) || (nt_count_votes(inquiry, end, partner->rank, &votes) == 0 &&
                                         votes.own == 1 && votes.theirs == 1));
}

bool nt_may_be_wrong_peer(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end) {
  const struct nt_member *partner = nt_p2p_partner(inquiry->job, end);
  return partner && inquiry->job->joints[end->joint].absent && end->seq == 1 &&
         inquiry->freeze->fates[partner->rank].kind != NT_FATE_DEAD &&
         is_balanced(inquiry, end, partner) && !have_talked(inquiry, end) &&
         talks_to_absent(inquiry, end);
}

/* Who waits for the rank that turned to somebody else. */
static void say_awaited(const struct nt_inquiry *inquiry, struct nt_finding *finding,
                        const struct nt_p2p_end *end) {
  const struct nt_p2p_end *awaited = awaited_by(inquiry, end);
  const struct nt_member *partner = nt_p2p_partner(inquiry->job, end);
  const struct nt_model_rank *ranks = inquiry->job->model->ranks;
  if (awaited && partner)
    nt_lines_add(&finding->evidence,
                 "rank %d waits for a message %s rank %d, which turned to rank %d",
                 ranks[awaited->rank].world, awaited->is_send ? "to be taken by" : "of",
                 ranks[end->rank].world, ranks[partner->rank].world);
}

uint32_t nt_witnesses_without(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end) {
  enum { LOOKED_AT = 8, MANY = 256 };
  const struct nt_p2p *p2p = &inquiry->p2p;
  const uint32_t item = (uint32_t)(end - p2p->ends);
  uint32_t looked = 0;
  if (end->signal || p2p->unmatched_count > MANY) /* where hundreds lack another, none is odd */
    return 0;
  for (uint32_t i = item + 1; i-- > 0 && looked < LOOKED_AT;) {
    if (!nt_p2p_same_queue(&p2p->ends[i], end))
      break;
    if (p2p->ends[i].is_send != end->is_send)
      continue;
    looked++;
    const uint32_t others =
        nt_witnesses_against(inquiry->job, end->rank, p2p->ends[i].call, end->joint);
    if (others)
      return others;
  }
  return 0;
}

/* Did others make that message at its line, with its number, and mostly met their other side? */
static bool is_served_elsewhere(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end) {
  const struct nt_p2p *p2p = &inquiry->p2p;
  const uint32_t at = nt_p2p_call(inquiry->job, end)->at;
  uint32_t served = 0, alone = 0;
  for (uint32_t i = 0; i < p2p->count && at && !end->signal; i++) {
    const struct nt_p2p_end *other = &p2p->ends[i];
    if (other->seq != end->seq || other->is_send != end->is_send || other->rank == end->rank ||
        nt_p2p_call(inquiry->job, other)->at != at)
      continue;
    const bool met = other->is_send ? i + 1 < p2p->count && nt_p2p_is_pair(other, other + 1)
                                    : i && nt_p2p_is_pair(other - 1, other);
    served += met;
    alone += !met;
  }
  return served >= 2 && served > alone;
}

int nt_blame_unmatched(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end,
                       struct nt_finding *finding) {
  const struct nt_member *partner = nt_p2p_partner(inquiry->job, end);
  enum nt_confidence confidence;
  struct nt_votes votes;
  if (!partner)
    return 0;
  if (nt_is_wrong_peer(inquiry, end, &confidence)) {
    finding->field = "peer";
    finding->confidence = confidence;
    say_awaited(inquiry, finding, end);
    return nt_finding_add(inquiry->job, &finding->blame, end->rank);
  }
  const uint32_t peers = nt_witnesses_without(inquiry, end);
  if (peers) {
    const bool enough = nt_witnesses_suffice(inquiry->job, peers);
    finding->confidence = enough ? NT_LIKELY : NT_UNDECIDED;
    nt_lines_add(&finding->evidence,
                 "ranks of other communicators that were at the same place as rank %d went on "
                 "without such a message, and none with it",
                 world_of(inquiry, end));
    return enough ? nt_finding_add(inquiry->job, &finding->blame, end->rank) : 0;
  }
  if (has_stray(inquiry, end, partner->rank, !end->is_send)) {
    finding->field = "peer";
    return nt_finding_add(inquiry->job, &finding->blame, partner->rank);
  }
  finding->confidence = NT_LIKELY;
  if (nt_passages_tell(inquiry, end) == NT_PASSAGE_OWNER)
    return nt_finding_add(inquiry->job, &finding->blame, end->rank);
  if (is_new_queue(inquiry, end)) /* it may have been about to serve the other next */
    return blame_both(inquiry, end, &finding->blame);
  int status = nt_count_votes(inquiry, end, partner->rank, &votes);
  if (status)
    return status;
  /* The partner is the end of the chain: it waits for nothing. What they did before, it owes again. */
  if (have_talked(inquiry, end)) {
    finding->confidence = votes.own == 1 ? NT_CERTAIN : NT_LIKELY;
    return nt_finding_add(inquiry->job, &finding->blame, partner->rank);
  }
  if (votes.own == 1 || is_served_elsewhere(inquiry, end))
    return nt_finding_add(
        inquiry->job, &finding->blame,
        partner->rank); /* it did what others do; the partner is behind, or stands still */
  return blame_both(inquiry, end, &finding->blame);
}

/* What the partner did in the other direction instead, to or from somebody else; NULL if nothing. */
static const struct nt_p2p_end *stray_of(const struct nt_inquiry *inquiry,
                                         const struct nt_p2p_end *end, uint32_t partner) {
  for (uint32_t i = 0; i < inquiry->p2p.unmatched_count; i++) {
    const struct nt_p2p_end *other = &inquiry->p2p.ends[inquiry->p2p.unmatched[i]];
    if (other->joint == end->joint && other->rank == partner && other->is_send != end->is_send &&
        other != end && nt_p2p_partner(inquiry->job, other))
      return other;
  }
  return NULL;
}

/* "rank 2", or its communicator rank if it has no trace. */
static char *peer_text(char *out, size_t size, const struct nt_inquiry *inquiry,
                       const struct nt_p2p_end *end) {
  const struct nt_member *partner = nt_p2p_partner(inquiry->job, end);
  if (partner && nt_member_rank(inquiry->job, partner)->world >= 0)
    snprintf(out, size, "rank %d", nt_member_rank(inquiry->job, partner)->world);
  else
    snprintf(out, size, "communicator rank %d", end->is_send ? end->destination : end->source);
  return out;
}

static bool has_world(const struct nt_rank_set *set, int32_t world) {
  return world >= 0 && nt_rank_set_has(set, (uint32_t)world);
}

/* "; rank 2 waits for that message", "; rank 2 has sent to rank 0 instead", "; either may be the one that is wrong". */
static void say_known(char *out, size_t size, const struct nt_inquiry *inquiry,
                      const struct nt_p2p_end *end, bool owner, bool partner) {
  const struct nt_member *member = nt_p2p_partner(inquiry->job, end);
  const struct nt_p2p_end *other = owner               ? awaited_by(inquiry, end)
                                   : partner && member ? stray_of(inquiry, end, member->rank)
                                                       : NULL;
  char whom[64], peer[64];
  out[0] = '\0';
  peer_text(peer, sizeof peer, inquiry, end);
  if (owner && partner)
    snprintf(out, size, "; either may be the one that is wrong");
  else if (owner && other)
    snprintf(out, size, "; rank %d %s rank %d%s", world_of(inquiry, other),
             end->is_send ? "waits for a message of" : "sends to", world_of(inquiry, end),
             end->is_send ? "" : ", which does not receive that");
  else if (owner)
    snprintf(out, size, "; other ranks do as %s does", peer);
  else if (other)
    snprintf(out, size, "; it %s %s instead", other->is_send ? "sent to" : "waits for",
             peer_text(whom, sizeof whom, inquiry, other));
}

char *nt_unmatched_text(char *out, size_t size, const struct nt_inquiry *inquiry,
                        const struct nt_p2p_end *end, const struct nt_finding *finding) {
  const struct nt_member *member = nt_p2p_partner(inquiry->job, end);
  const int32_t world = world_of(inquiry, end);
  const bool owner = has_world(&finding->blame, world), waits = has_world(&finding->waiting, world);
  const bool partner =
      member && has_world(&finding->blame, nt_member_rank(inquiry->job, member)->world);
  char peer[64], place[NT_DESCRIBE], known[128], since[NT_TIME_TEXT + 8] = "", time[NT_TIME_TEXT];
  peer_text(peer, sizeof peer, inquiry, end);
  nt_describe_place(place, sizeof place, inquiry->job, nt_p2p_call(inquiry->job, end)->fn, end->seq,
                    end->joint);
  say_known(known, sizeof known, inquiry, end, owner, partner);
  if (waits && finding->since_ns >= NT_TIME_FIRST)
    snprintf(since, sizeof since, " since %s", nt_time_short(time, finding->since_ns));
  if (partner && !owner)
    snprintf(out, size, "%s never %s rank %d %s%s (%s %s %s)%s", peer,
             end->is_send ? "received what" : "sent what", world,
             end->is_send ? "sends to it"
             : waits      ? "waits for"
                          : "expects",
             since, place, end->is_send ? "to" : "from", peer, known);
  else if (end->is_send)
    snprintf(out, size, "rank %d sends to %s%s (%s), which does not receive it%s", world, peer,
             since, place, known);
  else
    snprintf(out, size, "rank %d %s a %s from %s%s (%s), which does not send it%s", world,
             waits ? "waits for" : "expects", end->signal ? "signal" : "message", peer, since,
             place, known);
  return out;
}
