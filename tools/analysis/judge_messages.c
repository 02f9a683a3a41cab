/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives: pairs of different sizes, and which side of a lonely message is to blame. */
#include <stdlib.h>

#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "analysis/sequence.h"

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

/* A message of somebody else to (or from) this rank that it did not answer. */
static bool is_awaited(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end) {
  for (uint32_t i = 0; i < inquiry->p2p.unmatched_count; i++) {
    const struct nt_p2p_end *other = &inquiry->p2p.ends[inquiry->p2p.unmatched[i]];
    if (other == end || other->joint != end->joint || other->is_send == end->is_send)
      continue;
    if (end->is_send ? other->source == end->source : other->destination == end->destination)
      return true;
  }
  return false;
}

struct counts {
  uint32_t sends, recvs;
};

/* Does `value` equal what most of the other ranks have? 1 yes, 0 no, -1 there are no others. */
static int is_common(const struct counts *counts, uint32_t ranks, uint32_t a, uint32_t b,
                     uint32_t value, bool sends) {
  uint32_t alike = 0, others = 0;
  for (uint32_t i = 0; i < ranks; i++) {
    if (i == a || i == b || (!counts[i].sends && !counts[i].recvs))
      continue;
    others++;
    alike += (sends ? counts[i].sends : counts[i].recvs) == value;
  }
  return others ? alike * 2 > others : -1;
}

int nt_blame_unmatched(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end,
                       struct nt_rank_set *blame, const char **field) {
  const struct nt_member *partner = nt_p2p_partner(inquiry->job, end);
  uint32_t ranks = inquiry->job->model->rank_count;
  if (!partner)
    return 0;
  if (is_awaited(inquiry, end)) { /* what it did lies elsewhere: its own peer is wrong */
    *field = "peer";
    return nt_finding_add(inquiry->job, blame, end->rank);
  }
  if (has_stray(inquiry, end, partner->rank, !end->is_send)) {
    *field = "peer";
    return nt_finding_add(inquiry->job, blame, partner->rank);
  }
  struct counts *counts = calloc((size_t)ranks + 1, sizeof *counts);
  if (!counts)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < inquiry->p2p.count; i++) {
    const struct nt_p2p_end *other = &inquiry->p2p.ends[i];
    if (other->is_send)
      counts[other->rank].sends++;
    else
      counts[other->rank].recvs++;
  }
  uint32_t own = end->is_send ? counts[end->rank].sends : counts[end->rank].recvs;
  uint32_t theirs = end->is_send ? counts[partner->rank].recvs : counts[partner->rank].sends;
  int own_common = is_common(counts, ranks, end->rank, partner->rank, own, end->is_send);
  int theirs_common = is_common(counts, ranks, end->rank, partner->rank, theirs, !end->is_send);
  free(counts);
  if (own_common == 1) /* it did what others do; the partner is behind, or stands still */
    return nt_finding_add(inquiry->job, blame, partner->rank);
  if (own_common == 0 && theirs_common == 1)
    return nt_finding_add(inquiry->job, blame, end->rank);
  return blame_both(inquiry, end, blame);
}

int nt_blame_uneven(const struct nt_inquiry *inquiry, const struct nt_p2p_end *send,
                    struct nt_rank_set *blame) {
  const struct nt_p2p_end *recv = send + 1;
  uint64_t sent = nt_call_bytes(nt_p2p_call(inquiry->job, send));
  uint64_t expected = nt_call_bytes(nt_p2p_call(inquiry->job, recv));
  uint32_t like_send = 0, like_recv = 0;
  for (uint32_t i = 0; i < inquiry->p2p.count; i++) {
    const struct nt_p2p_end *other = &inquiry->p2p.ends[i];
    if (other->joint != send->joint || other->seq != send->seq || other->rank == send->rank ||
        other->rank == recv->rank)
      continue;
    uint64_t bytes = nt_call_bytes(nt_p2p_call(inquiry->job, other));
    like_send += bytes == sent;
    like_recv += bytes == expected;
  }
  if (like_send > like_recv)
    return nt_finding_add(inquiry->job, blame, recv->rank);
  if (like_recv > like_send)
    return nt_finding_add(inquiry->job, blame, send->rank);
  return blame_both(inquiry, send, blame);
}

int nt_judge_messages(struct nt_inquiry *inquiry) {
  int status = 0;
  for (uint32_t i = 0; i < inquiry->p2p.uneven_count && i < 16 && !status; i++) {
    const struct nt_p2p_end *send = &inquiry->p2p.ends[inquiry->p2p.uneven[i]], *recv = send + 1;
    if (i && inquiry->p2p.ends[inquiry->p2p.uneven[i - 1]].rank == send->rank)
      continue;
    struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_P2P, send->joint);
    if (!finding)
      return -NT_ERR_MEMORY;
    const struct nt_model_call *call = nt_p2p_call(inquiry->job, send);
    char a[NT_DESCRIBE], b[NT_DESCRIBE], who[NT_DESCRIBE];
    status = nt_blame_uneven(inquiry, send, &finding->blame);
    /* Name the call as the innocent side counts it. */
    int32_t world = inquiry->job->model->ranks[send->rank].world;
    bool sender = world >= 0 && nt_rank_set_has(&finding->blame, (uint32_t)world);
    finding->fn = sender ? nt_p2p_call(inquiry->job, recv)->fn : call->fn;
    finding->seq = send->seq;
    finding->field = "count";
    finding->confidence = NT_CERTAIN;
    finding->since_ns = nt_p2p_call(inquiry->job, recv)->enter_ns;
    if (!status && inquiry->freeze->fates[recv->rank].kind == NT_FATE_ALIVE)
      status = nt_finding_add(inquiry->job, &finding->waiting, recv->rank);
    nt_describe_call(a, sizeof a, inquiry->job, send->rank, send->call);
    nt_describe_call(b, sizeof b, inquiry->job, recv->rank, recv->call);
    nt_finding_say(finding, "%s of rank %d meets %s of rank %d; deviating: %s", a, world, b,
                   inquiry->job->model->ranks[recv->rank].world,
                   nt_describe_ranks(who, sizeof who, &finding->blame));
    nt_lines_add(&finding->evidence, "%llu bytes are sent, %llu are expected",
                 (unsigned long long)nt_call_bytes(call),
                 (unsigned long long)nt_call_bytes(nt_p2p_call(inquiry->job, recv)));
  }
  return status;
}
