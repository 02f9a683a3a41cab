/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why the verdict from the last calls is that from all, or why it may not be.
 *
 * Collectives: the running sum now, less the terms of the calls that were read, is the sum in front of them. Where that
 * is one for all members, they called the same. Messages: a receive that is finished had its send, and what is not
 * finished was read. So no queue had more receives than sends in front of what was read, and where the counts of the whole
 * communicator differ by just what the ends that were read leave open, none had more sends either.
 * Whether their sizes agree the frames tell without being read (queues.h).
 *
 * What a rank did long ago tells what it would have done next, and whether equal calls had paired up wrongly. So
 * whoever is accused must have been read as a whole (a rank that waits for nothing is, read_traces.c), and so must the one
 * that it is compared with in each of its communicators, which must have made as many calls.
 */
#include "analysis/window_enough.h"

#include <stdlib.h>

#include "analysis/align.h"
#include "analysis/anchors.h"
#include "analysis/each.h"
#include "analysis/queues.h"
#include "analysis/sequence.h"
#include "analysis/window_parts.h"
#include "nccl/nccl_api.h"
#include "nccl/signature.h"

static const char no_memory[] = "memory is short";

/* ---- collectives --------------------------------------------------------------------------------- */

bool nt_window_before(const struct nt_joint *joint, uint32_t *position) {
  uint32_t first = 1, least = UINT32_MAX;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    first = member->first > first ? member->first : first;
    least = member->called < least ? member->called : least;
  }
  *position = first - 1;
  return first - 1 <= least;
}

static void take_away(struct nt_window_tail *tail, const struct nt_model_call *call) {
  if (!call->group || call->group != tail->group || call->thread != tail->thread)
    tail->leader = call->seq;
  tail->group = call->group;
  tail->thread = call->thread;
  if (call->seq > tail->position)
    tail->sum -= nt_signature_mix(nt_call_signature(call), tail->leader);
}

void nt_window_sums(const struct nt_job *job, uint32_t r, const uint32_t *positions,
                    struct nt_window_tail *tails) {
  const struct nt_model_rank *rank = &job->model->ranks[r];
  for (uint32_t v = 0; v < rank->view_count; v++) {
    const uint32_t joint = job->places[r][v].joint;
    tails[v] = (struct nt_window_tail){.sum = rank->views[v].sum,
                                       .position = joint == NT_NONE ? NT_NONE : positions[joint]};
  }
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (call->view != NT_NONE && call->seq && tails[call->view].position != NT_NONE &&
        nt_fn_is_collective(call->fn) && nt_call_counts(call))
      take_away(&tails[call->view], call);
  }
}

/* What is known of the calls in front of those that were read. */
struct before {
  const struct nt_job *job;
  uint32_t *positions; /* by joint */
  uint64_t *sums;
  bool *known;
  struct nt_window_tail **tails; /* by rank and view */
  const struct nt_divergence
      *told; /* NULL, or where a difference was read, which is none of these */
};

static int sum_rank(void *ctx, uint32_t r) {
  struct before *before = ctx;
  const size_t room = (size_t)before->job->model->ranks[r].view_count + 1;
  before->tails[r] = malloc(room * sizeof **before->tails);
  if (!before->tails[r])
    return -NT_ERR_MEMORY;
  nt_window_sums(before->job, r, before->positions, before->tails[r]);
  return 0;
}

static const char *compare_rank(struct before *before, uint32_t r) {
  for (uint32_t v = 0; v < before->job->model->ranks[r].view_count; v++) {
    const uint32_t joint = before->job->places[r][v].joint;
    const uint64_t sum = before->tails[r][v].sum;
    if (joint == NT_NONE || (before->told && before->told[joint].position))
      continue;
    if (before->known[joint] && before->sums[joint] != sum)
      return "earlier collectives differ";
    before->sums[joint] = sum;
    before->known[joint] = true;
  }
  return NULL;
}

static const char *compare_sums(struct before *before) {
  const struct nt_job *job = before->job;
  const uint32_t count = job->model->rank_count;
  before->tails = calloc((size_t)count + 1, sizeof *before->tails);
  const char *lacks = before->tails && !nt_each(count, sum_rank, before) ? NULL : no_memory;
  for (uint32_t r = 0; r < count && !lacks; r++)
    lacks = compare_rank(before, r);
  for (uint32_t r = 0; r < count && before->tails; r++)
    free(before->tails[r]);
  free(before->tails);
  return lacks;
}

static const char *compare_collectives(const struct nt_job *job, const struct nt_divergence *told) {
  const size_t room = (size_t)job->joint_count + 1;
  struct before before = {.job = job,
                          .positions = calloc(room, sizeof *before.positions),
                          .sums = calloc(room, sizeof *before.sums),
                          .known = calloc(room, sizeof *before.known),
                          .told = told};
  const char *lacks = before.positions && before.sums && before.known ? NULL : no_memory;
  for (uint32_t i = 0; i < job->joint_count && !lacks; i++)
    if (!nt_window_before(&job->joints[i], &before.positions[i]) && !(told && told[i].position))
      lacks = "a rank is further behind than the last calls reach";
  if (!lacks)
    lacks = compare_sums(&before);
  free(before.positions);
  free(before.sums);
  free(before.known);
  return lacks;
}

/* ---- messages ------------------------------------------------------------------------------------ */

/* Small messages are buffered; whether the other side has left one out is told by what it did before (waits.c). */
#define BUFFERED_BYTES (UINT64_C(64) << 10)

/* Of one communicator. */
struct traffic {
  int64_t open;  /* sends less receives of the queues of which both sides were read */
  bool untold;   /* that a message is outstanding rests on what was not read */
  bool blind;    /* which ones are finished was not followed on some device */
  bool switched; /* operations of another kind stand in the queues */
};

/* What was read of a queue. */
struct queue {
  const struct nt_p2p_end *ends;
  uint32_t count;
  uint32_t first[2], last[2]; /* positions of receives and of sends; 0: none was read */
  bool outstanding;
};

static struct queue queue_at(const struct nt_job *job, const struct nt_p2p *p2p, uint32_t from) {
  struct queue queue = {.ends = &p2p->ends[from]};
  for (uint32_t i = from; i < p2p->count && nt_p2p_same_queue(queue.ends, &p2p->ends[i]); i++) {
    const struct nt_p2p_end *end = &p2p->ends[i];
    queue.first[end->is_send] = queue.first[end->is_send] ? queue.first[end->is_send] : end->seq;
    queue.last[end->is_send] = end->seq; /* they are sorted */
    queue.outstanding |= nt_p2p_call(job, end)->progress != NT_PROGRESS_FINISHED;
    queue.count++;
  }
  return queue;
}

/* Both sides were read as a whole, as far as the queue is concerned. */
static bool is_whole(const struct nt_job *job, const struct queue *queue) {
  const struct nt_member *partner = nt_p2p_partner(job, queue->ends);
  return partner && !nt_member_rank(job, partner)->unread &&
         !job->model->ranks[queue->ends->rank].unread;
}

/* Is the first that has no other side there, and would the other side not have taken it? */
static bool is_told(const struct nt_job *job, const struct queue *queue) {
  const bool more = queue->last[1] > queue->last[0]; /* sends than receives, or fewer */
  if (queue->last[0] == queue->last[1])
    return true;
  if (queue->first[more] > queue->last[!more] + 1)
    return false;
  for (uint32_t i = 0; i < queue->count; i++) {
    const struct nt_p2p_end *end = &queue->ends[i];
    const struct nt_member *partner = nt_p2p_partner(job, end);
    if (end->is_send && end->seq > queue->last[0] &&
        nt_p2p_call(job, end)->progress == NT_PROGRESS_FINISHED &&
        nt_call_bytes(nt_p2p_call(job, end)) <= BUFFERED_BYTES &&
        (!partner || nt_member_rank(job, partner)->unread))
      return false;
  }
  return true;
}

/* Each queue of which both sides were read, or that is told from what is finished. */
static void add_queues(const struct nt_job *job, const struct nt_p2p *p2p,
                       struct traffic *traffic) {
  for (uint32_t from = 0; from < p2p->count;) {
    const struct queue queue = queue_at(job, p2p, from);
    struct traffic *of = &traffic[queue.ends->joint];
    if ((queue.last[0] && queue.last[1]) || is_whole(job, &queue)) {
      of->open += (int64_t)queue.last[1] - queue.last[0];
      of->untold |= !is_told(job, &queue);
    } else {
      of->untold |= queue.outstanding;
    }
    from += queue.count;
  }
}

/* Of a queue of which but one side was read nothing is known to be missing. */
static void add_unmatched(const struct nt_job *job, const struct nt_p2p *p2p,
                          struct traffic *traffic) {
  for (uint32_t i = 0; i < p2p->unmatched_count; i++) {
    uint32_t from = p2p->unmatched[i];
    while (from && nt_p2p_same_queue(&p2p->ends[from - 1], &p2p->ends[from]))
      from--;
    const struct queue queue = queue_at(job, p2p, from);
    if ((!queue.last[0] || !queue.last[1]) && !is_whole(job, &queue))
      traffic[queue.ends->joint].untold = true;
  }
}

static void add_members(const struct nt_job *job, const struct nt_joint *joint,
                        struct traffic *traffic, bool *any) {
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_model_view *view = nt_member_view(job, &joint->members[i]);
    traffic->open -= (int64_t)view->sends - view->recvs;
    traffic->blind |= !nt_member_rank(job, &joint->members[i])->gpu_ns;
    traffic->switched |= view->all_peer != 0;
    *any |= view->sends || view->recvs;
  }
}

static const char *compare_messages(const struct nt_job *job, const struct nt_p2p *p2p) {
  struct traffic *traffic = calloc((size_t)job->joint_count + 1, sizeof *traffic);
  if (!traffic)
    return no_memory;
  add_queues(job, p2p, traffic);
  add_unmatched(job, p2p, traffic);
  const char *lacks = NULL;
  for (uint32_t i = 0; i < job->joint_count && !lacks; i++) {
    bool any = false;
    add_members(job, &job->joints[i], &traffic[i], &any);
    if (!any)
      continue;
    if (traffic[i].untold)
      lacks = "the other side of a message is older";
    else if (traffic[i].blind || traffic[i].switched || job->joints[i].absent)
      lacks = "which earlier messages met is not known";
    else if (traffic[i].open)
      lacks = "earlier messages may not have met";
  }
  free(traffic);
  return lacks;
}

/* ---- what else old calls may tell ---------------------------------------------------------------- */

static bool is_plain(const struct nt_model_call *call) {
  const enum nt_shape shape = nt_fn_shape(call->fn);
  return !call->graph && !(call->flags & NT_CALL_CAPTURED) && shape != NT_SHAPE_RMA &&
         shape != NT_SHAPE_WINDOW && shape != NT_SHAPE_GRAPH_LAUNCH;
}

/* Its communicators are all known, and where one has ended, so is how. */
static bool is_rank_plain(const struct nt_model_rank *rank, bool *told) {
  for (uint32_t v = 0; v < rank->view_count; v++)
    told[v] = rank->views[v].state == NT_COMM_LIVE;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    const enum nt_shape shape = nt_fn_shape(call->fn);
    if (!is_plain(call))
      return false;
    if (call->view != NT_NONE &&
        (shape == NT_SHAPE_COMM_END || shape == NT_SHAPE_COMM_FINALIZE || nt_call_aborts(call)))
      told[call->view] = true;
  }
  for (uint32_t v = 0; v < rank->view_count; v++)
    if (!told[v] || rank->views[v].number != v + 1 || rank->views[v].async_error)
      return false;
  return !rank->lost && !rank->abandoned && !rank->cut && !rank->comms_lost;
}

enum { NOT_PLAIN = 1 };

static int look_at_rank(void *ctx, uint32_t r) {
  const struct nt_model *model = ctx;
  bool *told = calloc((size_t)model->ranks[r].view_count + 1, sizeof *told);
  const int found = !told ? -NT_ERR_MEMORY : is_rank_plain(&model->ranks[r], told) ? 0 : NOT_PLAIN;
  free(told);
  return found;
}

static const char *look_at_ranks(const struct nt_model *model) {
  const int found = nt_each(model->rank_count, look_at_rank, (void *)model);
  return !found               ? NULL
         : found == NOT_PLAIN ? "graphs, errors, ended communicators or lost calls"
                              : no_memory;
}

bool nt_window_may_suffice(const struct nt_model *model) {
  bool unread = false;
  for (uint32_t r = 0; r < model->rank_count && !unread; r++)
    unread = model->ranks[r].unread != 0;
  return !unread || model->bounded || !look_at_ranks(model);
}

static bool differs(const struct nt_inquiry *inquiry) {
  for (uint32_t i = 0; i < inquiry->job->joint_count; i++)
    if (inquiry->past[i].position || inquiry->divergences[i].position ||
        inquiry->divergences[i].hidden_high || inquiry->divergences[i].mixed)
      return true;
  return inquiry->p2p.uneven_count != 0;
}

/* ---- the accused --------------------------------------------------------------------------------- */

/* How many calls the member's process had made when it made the collective at `position`. */
static uint64_t calls_before(const struct nt_job *job, const struct nt_member *member,
                             uint32_t position) {
  const struct nt_model_rank *rank = nt_member_rank(job, member);
  const struct nt_model_call *at = nt_member_call(job, member, position);
  uint64_t count = rank->overwritten;
  for (uint32_t i = 0; at && i < rank->call_count; i++)
    count += rank->calls[i].enter_ns < at->enter_ns;
  return at ? count : UINT64_MAX;
}

static bool is_in_a_call(const struct nt_job *job, uint32_t r) {
  for (uint32_t i = 0; i < job->model->ranks[r].call_count; i++)
    if (nt_call_is_open(job, r, i))
      return true;
  return false;
}

/* Were the calls that pair up made at the same lines, as far as both were read? */
static bool at_one_line(const struct nt_job *job, const struct nt_member *a,
                        const struct nt_member *b, uint32_t last) {
  for (uint32_t p = nt_members_begin(a, b, 1); p <= last; p++) {
    const struct nt_model_call *x = nt_member_call(job, a, p), *y = nt_member_call(job, b, p);
    if (!x || !y || x->at != y->at)
      return false;
  }
  return true;
}

/* Whoever got furthest in the joint but for the member itself, as verdicts compare it (judge_shifts.c). */
static uint32_t furthest_but(const struct nt_joint *joint, uint32_t member) {
  uint32_t furthest = NT_NONE;
  for (uint32_t i = 0; i < joint->member_count; i++)
    if (i != member &&
        (furthest == NT_NONE || joint->members[i].called > joint->members[furthest].called))
      furthest = i;
  return furthest;
}

/* In each communicator in which the rank is behind, its calls and those of whom it is compared with were all read. */
static bool is_compared(const struct nt_job *job, uint32_t r) {
  for (uint32_t v = 0; v < job->model->ranks[r].view_count; v++) {
    const struct nt_place place = job->places[r][v];
    if (place.joint == NT_NONE)
      continue;
    const struct nt_joint *joint = &job->joints[place.joint];
    const uint32_t other = furthest_but(joint, place.member);
    if (other != NT_NONE && joint->members[other].called > joint->members[place.member].called &&
        nt_member_rank(job, &joint->members[other])->unread)
      return false;
  }
  return !job->model->ranks[r].unread;
}

static const char *look_at_accused(const struct nt_job *job, const struct nt_finding *finding,
                                   uint32_t accused) {
  const struct nt_joint *joint = &job->joints[finding->joint];
  const uint32_t reference = furthest_but(joint, accused);
  const struct nt_member *a = &joint->members[reference], *b = &joint->members[accused];
  const uint32_t both = a->called < b->called ? a->called : b->called;
  if (!is_compared(job, b->rank))
    return "the accused is not known well enough";
  if (finding->class == NT_CLASS_MISSING && is_in_a_call(job, b->rank))
    return "the accused is in a call itself";
  const uint64_t before = calls_before(job, b, both);
  if (before == UINT64_MAX || calls_before(job, a, both) != before ||
      !at_one_line(job, a, b, both) || nt_anchors_shift(job, joint, reference, accused, 1).position)
    return "equal calls may have paired up wrongly";
  return NULL;
}

/* A minority of the members of one communicator. */
static const char *look_at_all_accused(const struct nt_job *job, const struct nt_finding *finding) {
  const struct nt_joint *joint = &job->joints[finding->joint];
  uint32_t count = 0;
  const char *lacks = NULL;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const int32_t world = nt_member_rank(job, &joint->members[i])->world;
    count += world >= 0 && nt_rank_set_has(&finding->blame, (uint32_t)world);
  }
  if (count != nt_rank_set_count(&finding->blame) || 2 * count >= joint->member_count)
    return "most are accused";
  for (uint32_t i = 0; i < joint->member_count && !lacks; i++) {
    const int32_t world = nt_member_rank(job, &joint->members[i])->world;
    if (world >= 0 && nt_rank_set_has(&finding->blame, (uint32_t)world))
      lacks = look_at_accused(job, finding, i);
  }
  return lacks;
}

static bool is_hang(const struct nt_finding *finding) {
  return finding->class == NT_CLASS_MISSING || finding->class == NT_CLASS_DEAD ||
         finding->class == NT_CLASS_LEFT;
}

static const char *look_at_findings(const struct nt_inquiry *inquiry) {
  const struct nt_verdict *verdict = inquiry->verdict;
  const struct nt_finding *finding = verdict->findings;
  if (!verdict->count)
    return "nothing is found in the last calls";
  if (verdict->count > 1 || !is_hang(finding) || finding->confidence != NT_CERTAIN ||
      finding->joint == NT_NONE || !nt_fn_is_collective(finding->fn) || verdict->moving ||
      nt_rank_set_count(&inquiry->job->model->held))
    return "it is no plain hang";
  return differs(inquiry) ? "calls differ" : look_at_all_accused(inquiry->job, finding);
}

/* Of a job with more calls than memory is meant for. */
static void judge_bounded(struct nt_inquiry *inquiry, uint64_t unread) {
  const char *collectives = compare_collectives(inquiry->job, inquiry->divergences);
  const char *messages = compare_messages(inquiry->job, &inquiry->p2p);
  messages = messages ? messages : nt_queues_compare(inquiry->job);
  inquiry->verdict->lacks = collectives ? collectives : messages;
  nt_lines_add(
      &inquiry->verdict->notes,
      "%llu earlier calls were not read, since memory is meant for no more (--max-calls): %s%s",
      (unsigned long long)unread,
      collectives ? collectives
      : messages  ? "running sums tell that collectives agree; "
                  : "running sums and counts tell that they agree",
      !collectives && messages ? messages : "");
}

void nt_window_judge(struct nt_inquiry *inquiry) {
  const struct nt_model *model = inquiry->job->model;
  struct nt_verdict *verdict = inquiry->verdict;
  uint64_t unread = 0;
  for (uint32_t r = 0; r < model->rank_count; r++)
    unread += model->ranks[r].unread;
  if (!unread)
    return;
  if (model->bounded) {
    judge_bounded(inquiry, unread);
    return;
  }
  verdict->lacks = look_at_findings(inquiry);
  if (!verdict->lacks)
    verdict->lacks = look_at_ranks(model);
  if (!verdict->lacks)
    verdict->lacks = compare_collectives(inquiry->job, NULL);
  if (!verdict->lacks)
    verdict->lacks = compare_messages(inquiry->job, &inquiry->p2p);
  if (!verdict->lacks)
    verdict->lacks = nt_queues_compare(inquiry->job);
  if (verdict->lacks)
    nt_lines_add(&verdict->notes, "%llu earlier calls were not read, and may tell more: %s",
                 (unsigned long long)unread, verdict->lacks);
  else
    nt_lines_add(&verdict->notes,
                 "%llu earlier calls were not read: running sums and counts tell that they agree "
                 "(tracediff --full reads them)",
                 (unsigned long long)unread);
}
