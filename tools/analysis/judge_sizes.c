/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of different sizes: a wrong size, or a message without counterpart in front of others. */
#include <stdio.h>

#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "analysis/progress.h"
#include "analysis/sequence.h"
#include "cli/call_text.h"
#include "cli/text.h"

/* Later pairs that say more of a message left out than a single one, which agrees by chance. */
enum { AGREE_LEAST = 2 };

static uint64_t bytes_of(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end) {
  return nt_call_bytes(nt_p2p_call(inquiry->job, end));
}

static int32_t world_of(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end) {
  return inquiry->job->model->ranks[end->rank].world;
}

/* Bytes that both of the last two pairs of the queue in front of this one carried; false if that is no habit. */
static bool usual_size(const struct nt_inquiry *inquiry, const struct nt_p2p_end *send,
                       uint64_t *bytes) {
  if (send - inquiry->p2p.ends < 4)
    return false;
  for (const struct nt_p2p_end *a = send - 4; a < send; a += 2) {
    const struct nt_p2p_end *b = a + 1;
    const uint64_t sent = nt_call_bytes(nt_p2p_call(inquiry->job, a));
    if (!nt_p2p_same_queue(a, send) || !nt_p2p_is_pair(a, b) ||
        sent != nt_call_bytes(nt_p2p_call(inquiry->job, b)) || (a != send - 4 && sent != *bytes))
      return false;
    *bytes = sent;
  }
  return true;
}

/* Bytes that every other pair near it in its queue carried, two at least; false if they differ or are fewer. */
static bool size_around(const struct nt_inquiry *inquiry, const struct nt_p2p_end *send,
                        uint64_t *bytes) {
  enum { NEAR = 8 };
  const struct nt_p2p_end *begin = inquiry->p2p.ends, *end = begin + inquiry->p2p.count;
  const struct nt_p2p_end *a = send;
  uint32_t count = 0;
  while (a - begin >= 2 && send - a < NEAR && nt_p2p_same_queue(a - 2, send) &&
         nt_p2p_is_pair(a - 2, a - 1))
    a -= 2;
  for (; a + 1 < end && a - send <= NEAR && nt_p2p_same_queue(a, send) && nt_p2p_is_pair(a, a + 1);
       a += 2) {
    const uint64_t sent = bytes_of(inquiry, a);
    if (a == send)
      continue;
    if (sent != bytes_of(inquiry, a + 1) || (count && sent != *bytes))
      return false;
    *bytes = sent;
    count++;
  }
  return count >= 2;
}

/* The same line of the program, in a communicator of the same size. */
static bool is_elsewhere(const struct nt_inquiry *inquiry, const struct nt_p2p_end *other,
                         const struct nt_p2p_end *end) {
  const struct nt_model_call *a = nt_p2p_call(inquiry->job, other),
                             *b = nt_p2p_call(inquiry->job, end);
  return other->is_send == end->is_send && a->at && a->at == b->at &&
         inquiry->job->joints[other->joint].size == inquiry->job->joints[end->joint].size;
}

/* It, or the other side that it meets. */
static bool is_at_line_of(const struct nt_inquiry *inquiry, uint32_t i,
                          const struct nt_p2p_end *send) {
  const struct nt_p2p *p2p = &inquiry->p2p;
  const struct nt_p2p_end *own = &p2p->ends[i], *met = own;
  if (own->is_send && i + 1 < p2p->count && nt_p2p_is_pair(own, own + 1))
    met = own + 1;
  else if (!own->is_send && i && nt_p2p_is_pair(own - 1, own))
    met = own - 1;
  return is_elsewhere(inquiry, own, &send[!own->is_send]) ||
         is_elsewhere(inquiry, met, &send[!met->is_send]);
}

/* Ends of other ranks at that position of their queues, by size: in the same communicator, and `elsewhere` where they or their
 * other sides are at the same line. */
static void count_others(const struct nt_inquiry *inquiry, const struct nt_p2p_end *send,
                         bool elsewhere, uint32_t *like_send, uint32_t *like_recv) {
  const uint64_t sent = bytes_of(inquiry, send), expected = bytes_of(inquiry, send + 1);
  *like_send = *like_recv = 0;
  for (uint32_t i = 0; i < inquiry->p2p.count; i++) {
    const struct nt_p2p_end *other = &inquiry->p2p.ends[i];
    if (other->seq != send->seq || other->rank == send->rank || other->rank == send[1].rank ||
        (other->joint != send->joint && (!elsewhere || !is_at_line_of(inquiry, i, send))))
      continue;
    const uint64_t bytes = bytes_of(inquiry, other);
    *like_send += bytes == sent;
    *like_recv += bytes == expected;
  }
}

/* Earlier pairs of the queue were made and are not there, so that it is not known what it has always carried. */
static bool lacks_past(const struct nt_inquiry *inquiry, const struct nt_p2p_end *send) {
  const ptrdiff_t wanted = send->seq > 2 ? 4 : send->seq > 1 ? 2 : 0;
  return send - inquiry->p2p.ends < wanted || !nt_p2p_same_queue(send - wanted, send);
}

/* Do ranks that make the same messages carry, at this position of their queues, what one side of the pair has, two at least, and
 * none what the other has, in the same communicator or `elsewhere`? Then that one's: the send or the receive; NULL if it is not so. */
static const struct nt_p2p_end *usual_side(const struct nt_inquiry *inquiry,
                                           const struct nt_p2p_end *send, bool *elsewhere) {
  uint32_t like_send, like_recv;
  for (int i = 0; i < 2; i++) {
    count_others(inquiry, send, i, &like_send, &like_recv);
    *elsewhere = i;
    if ((like_send > 1) != (like_recv > 1) && !(like_send && like_recv))
      return like_send ? send : send + 1;
  }
  return NULL;
}

/* Has the side always had this size at its line, in this queue, and does another rank have it at that position, while none has the
 * other side's? */
static bool keeps_its_line(const struct nt_inquiry *inquiry, const struct nt_p2p_end *send,
                           bool sender) {
  const struct nt_p2p_end *own = sender ? send : send + 1;
  const uint32_t at = nt_p2p_call(inquiry->job, own)->at;
  const uint64_t bytes = bytes_of(inquiry, own);
  uint32_t like[2], before = 0;
  count_others(inquiry, send, false, &like[1], &like[0]);
  if (!at || !like[sender] || like[!sender])
    return false;
  for (const struct nt_p2p_end *a = send; a > inquiry->p2p.ends && nt_p2p_same_queue(a - 1, send);
       a--) {
    if (a[-1].is_send != sender || nt_p2p_call(inquiry->job, &a[-1])->at != at)
      continue;
    if (bytes_of(inquiry, &a[-1]) != bytes)
      return false;
    before++;
  }
  return before > 0;
}

/* World ranks to blame for a pair of different sizes. */
static int blame_uneven(const struct nt_inquiry *inquiry, const struct nt_p2p_end *send,
                        struct nt_rank_set *blame, enum nt_confidence *confidence) {
  const struct nt_p2p_end *recv = send + 1;
  const uint64_t sent = bytes_of(inquiry, send), expected = bytes_of(inquiry, recv);
  uint64_t before = 0;
  bool elsewhere;
  *confidence = NT_LIKELY;
  /* What the queue has always carried, then what others carry at the same position. */
  if (usual_size(inquiry, send, &before) && (before == sent) != (before == expected))
    return nt_finding_add(inquiry->job, blame, before == sent ? recv->rank : send->rank);
  if (size_around(inquiry, send, &before) && (before == sent) != (before == expected))
    return nt_finding_add(inquiry->job, blame, before == sent ? recv->rank : send->rank);
  const struct nt_p2p_end *usual =
      lacks_past(inquiry, send) ? NULL : usual_side(inquiry, send, &elsewhere);
  if (usual) {
    *confidence = elsewhere ? NT_LIKELY : NT_CERTAIN;
    return nt_finding_add(inquiry->job, blame, usual == send ? recv->rank : send->rank);
  }
  if (!lacks_past(inquiry, send) &&
      keeps_its_line(inquiry, send, true) != keeps_its_line(inquiry, send, false))
    return nt_finding_add(inquiry->job, blame,
                          keeps_its_line(inquiry, send, true) ? recv->rank : send->rank);
  const int status = nt_finding_add(inquiry->job, blame, send->rank);
  return status ? status : nt_finding_add(inquiry->job, blame, recv->rank);
}

/* Has the queue carried a message of that size before this pair? */
static bool has_carried(const struct nt_inquiry *inquiry, const struct nt_p2p_end *send,
                        uint64_t bytes) {
  for (const struct nt_p2p_end *a = send; a > inquiry->p2p.ends && nt_p2p_same_queue(a - 1, send);
       a--)
    if (bytes_of(inquiry, a - 1) == bytes)
      return true;
  return false;
}

/* What would be left out has a size that neither the queue nor others at that position ever carried, while the other side
 * of the pair has the usual one: in a queue of equal sizes those that follow agree either way. */
static bool is_wrong_size(const struct nt_inquiry *inquiry, const struct nt_p2p_shift *shift) {
  const struct nt_p2p_end *send = &inquiry->p2p.ends[shift->uneven];
  const struct nt_p2p_end *lonely = &inquiry->p2p.ends[shift->lonely];
  const uint64_t odd = bytes_of(inquiry, lonely);
  const uint64_t other = bytes_of(inquiry, lonely == send ? send + 1 : send);
  uint32_t like_send, like_recv;
  uint64_t usual = 0;
  if (has_carried(inquiry, send, odd))
    return false;
  count_others(inquiry, send, false, &like_send, &like_recv);
  const uint32_t like_odd = lonely == send ? like_send : like_recv;
  const uint32_t like_other = lonely == send ? like_recv : like_send;
  return !like_odd && (like_other > 1 || (usual_size(inquiry, send, &usual) && usual == other) ||
                       shift->agree < AGREE_LEAST);
}

/* The end without counterpart: where others carry at that position what its counterpart there has, its own rank left one out in
 * front of it, and it is that counterpart. */
static const struct nt_p2p_end *lonely_end(const struct nt_inquiry *inquiry,
                                           const struct nt_p2p_shift *shift, bool *told) {
  const struct nt_p2p_end *send = &inquiry->p2p.ends[shift->uneven];
  const struct nt_p2p_end *lonely = &inquiry->p2p.ends[shift->lonely];
  bool elsewhere;
  const struct nt_p2p_end *usual = usual_side(inquiry, send, &elsewhere);
  *told = usual && usual != lonely;
  return *told ? usual : lonely;
}

/* "0→1 sends 3, 1 expects 5", in elements of a common type, else in bytes. */
static void say_sizes(const struct nt_inquiry *inquiry, struct nt_finding *finding,
                      const struct nt_p2p_end *send, const struct nt_p2p_end *recv) {
  const struct nt_model_call *a = nt_p2p_call(inquiry->job, send);
  const struct nt_model_call *b = nt_p2p_call(inquiry->job, recv);
  const bool typed = a->dtype == b->dtype;
  char type[32];
  nt_lines_add(
      &finding->evidence, "%d→%d sends %llu, %d expects %llu (%s)", world_of(inquiry, send),
      world_of(inquiry, recv), (unsigned long long)(typed ? a->count : bytes_of(inquiry, send)),
      world_of(inquiry, recv), (unsigned long long)(typed ? b->count : bytes_of(inquiry, recv)),
      typed ? nt_dtype_text(type, sizeof type, a->dtype) : "bytes");
}

/* Whoever still waits in this queue: small messages are sent without waiting. */
static int add_waiters(const struct nt_inquiry *inquiry, struct nt_finding *finding,
                       uint32_t first) {
  const struct nt_p2p_end *queue = &inquiry->p2p.ends[first];
  int status = 0;
  for (uint32_t i = first; i < inquiry->p2p.count && !status; i++) {
    const struct nt_p2p_end *end = &inquiry->p2p.ends[i];
    if (!nt_p2p_same_queue(end, queue))
      break;
    if (inquiry->freeze->fates[end->rank].kind == NT_FATE_ALIVE &&
        (end->is_send ? nt_call_is_open(inquiry->job, end->rank, end->call)
                      : nt_call_unfinished(inquiry->job, end->rank, end->call)))
      status = nt_finding_add(inquiry->job, &finding->waiting, end->rank);
  }
  return status;
}

/* A message that was left out, or is too many, among others of its queue. */
static int judge_shift(struct nt_inquiry *inquiry, const struct nt_p2p_shift *shift) {
  bool told;
  const struct nt_p2p_end *lonely = lonely_end(inquiry, shift, &told);
  const struct nt_p2p_end *send = &inquiry->p2p.ends[shift->uneven];
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_P2P, lonely->joint);
  char text[NT_UNMATCHED_TEXT];
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->fn = nt_p2p_call(inquiry->job, lonely)->fn;
  finding->seq = lonely->seq;
  finding->confidence = NT_CERTAIN;
  finding->since_ns = nt_p2p_call(inquiry->job, lonely)->enter_ns;
  /* A single one agrees by chance, and who would tell may be without a trace. */
  const bool open =
      !told && shift->agree < AGREE_LEAST && inquiry->job->joints[lonely->joint].absent;
  int status = open ? 0 : nt_blame_unmatched(inquiry, lonely, finding);
  finding->confidence = open ? NT_UNDECIDED : finding->confidence;
  finding->field = NULL;
  nt_finding_say(finding, "%s; what follows it between the two meets the wrong one",
                 nt_unmatched_text(text, sizeof text, inquiry, lonely, finding));
  if (!status)
    status = add_waiters(inquiry, finding, shift->uneven);
  say_sizes(inquiry, finding, send, send + 1);
  if (told)
    nt_lines_add(&finding->evidence, "other ranks exchange a message of that size there");
  else
    nt_lines_add(&finding->evidence, "without that message the %u that follow it agree",
                 shift->agree);
  return status;
}

static int judge_uneven(struct nt_inquiry *inquiry, const struct nt_p2p_end *send) {
  const struct nt_p2p_end *recv = send + 1;
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_P2P, send->joint);
  char a[128], b[128], place[NT_DESCRIBE], who[NT_DESCRIBE];
  if (!finding)
    return -NT_ERR_MEMORY;
  int status = blame_uneven(inquiry, send, &finding->blame, &finding->confidence);
  /* Name the call as the innocent side counts it. */
  const int32_t world = world_of(inquiry, send);
  const bool sender = world >= 0 && nt_rank_set_has(&finding->blame, (uint32_t)world);
  finding->fn = nt_p2p_call(inquiry->job, sender ? recv : send)->fn;
  finding->seq = send->seq;
  finding->field = "count";
  finding->since_ns = nt_p2p_call(inquiry->job, recv)->enter_ns;
  if (!status && inquiry->freeze->fates[recv->rank].kind == NT_FATE_ALIVE &&
      nt_call_unfinished(inquiry->job, recv->rank, recv->call))
    status = nt_finding_add(inquiry->job, &finding->waiting, recv->rank);
  nt_describe_arguments(a, sizeof a, nt_p2p_call(inquiry->job, send));
  nt_describe_arguments(b, sizeof b, nt_p2p_call(inquiry->job, recv));
  nt_describe_place(place, sizeof place, inquiry->job, finding->fn, send->seq, send->joint);
  const uint64_t sent = bytes_of(inquiry, send), expected = bytes_of(inquiry, recv);
  uint64_t usual = 0;
  const bool past = (usual_size(inquiry, send, &usual) || size_around(inquiry, send, &usual)) &&
                    (usual == sent) != (usual == expected);
  if (nt_rank_set_count(&finding->blame) == 1)
    nt_finding_say(
        finding, "rank %d sends %s to rank %d, which expects %s (%s); %s deviates from %s", world,
        a, world_of(inquiry, recv), b, place, nt_describe_ranks(who, sizeof who, &finding->blame),
        past ? "the other messages between the two" : "what other ranks exchange");
  else
    nt_finding_say(finding,
                   "rank %d sends %s to rank %d, which expects %s (%s); either may be the one "
                   "that is wrong",
                   world, a, world_of(inquiry, recv), b, place);
  say_sizes(inquiry, finding, send, recv);
  return status;
}

int nt_judge_messages(struct nt_inquiry *inquiry) {
  enum { TOLD = 16 };
  const struct nt_p2p_end *before = NULL;
  uint32_t told = 0;
  int status = 0;
  for (uint32_t i = 0; i < inquiry->p2p.uneven_count && told < TOLD && !status; i++) {
    const struct nt_p2p_end *send = &inquiry->p2p.ends[inquiry->p2p.uneven[i]];
    if (before && (before->rank == send->rank || nt_p2p_same_queue(before, send)))
      continue; /* of one sender, the first */
    before = send;
    const struct nt_p2p_shift *shift = nt_p2p_shift_at(&inquiry->p2p, inquiry->p2p.uneven[i]);
    status = shift && !is_wrong_size(inquiry, shift) ? judge_shift(inquiry, shift)
                                                     : judge_uneven(inquiry, send);
    told++;
  }
  return status;
}
