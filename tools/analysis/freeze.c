/* SPDX-License-Identifier: Apache-2.0 */
/* Collects every end of every rank in order of time and asks of each: had this rank been waiting? */
#include "analysis/freeze.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/sequence.h"
#include "nccl/nccl_api.h"
#include "nccl/nccl_types.h"

#define WAIT_NS INT64_C(500000000)      /* shorter is no wait: ranks are never quite in step */
#define ORDERED_NS INT64_C(50000000)    /* how often processes look at each other */
#define EXACT_NS INT64_C(10000000)      /* the same after an exit, whose time is known */
#define TOGETHER_NS INT64_C(1500000000) /* state in files is up to a second old */

struct event {
  int64_t ns;
  uint32_t rank;
  enum nt_freeze_why why;
};

struct joint_facts {
  uint32_t everyone;   /* last position that all members with a trace have called */
  int64_t everyone_ns; /* when the last of them called it */
};

/* What of a rank can have been a wait at all, so that each of its ends need not look at every call. */
struct rank_facts {
  uint32_t *calls, call_count; /* that took long, or did not return */
  uint32_t *views, view_count; /* on which not everybody called the same */
  int64_t outstanding_ns;      /* its first operation known to be unfinished; INT64_MAX */
  int64_t everyone_ns;         /* when the last position was complete on any of the other views */
};

struct search {
  const struct nt_job *job;
  const uint32_t *divergences;
  struct joint_facts *facts;
  struct rank_facts *ranks;
  int64_t *message_ns; /* by rank: its first receive that nobody answered; INT64_MAX */
  int64_t wait_ns;     /* what is shorter is no wait */
  uint8_t *first;      /* by rank: what tells that it was gone while others lived on; 0: nothing */
};

bool nt_call_is_open(const struct nt_job *job, uint32_t rank, uint32_t index) {
  const struct nt_model_rank *model = &job->model->ranks[rank];
  const struct nt_model_call *call = &model->calls[index];
  if (call->flags & NT_CALL_ABANDONED)
    return false; /* its thread went on without a return, as after siglongjmp or an exception */
  if (!call->exit_ns && job->cut_ns == INT64_MAX && model->state == NT_PROCESS_EXITED &&
      model->exit_code == 0)
    return false; /* whatever it was in, the process did what it had to do */
  if (!call->exit_ns || call->exit_ns > job->cut_ns)
    return true;
  if (!call->group || call->pending)
    return false;
  for (uint32_t i = index + 1; i < model->call_count && model->calls[i].thread == call->thread; i++)
    if (nt_fn_shape(model->calls[i].fn) == NT_SHAPE_GROUP_END)
      return !model->calls[i].exit_ns || model->calls[i].exit_ns > job->cut_ns;
  return false;
}

static int64_t entered(const struct nt_job *job, const struct nt_member *member,
                       uint32_t position) {
  const struct nt_model_call *call = nt_member_call(job, member, position);
  return call ? call->enter_ns : 0;
}

static void find_facts(struct search *s) {
  for (uint32_t i = 0; i < s->job->joint_count; i++) {
    const struct nt_joint *joint = &s->job->joints[i];
    struct joint_facts *facts = &s->facts[i];
    facts->everyone = joint->members[0].called;
    for (uint32_t j = 1; j < joint->member_count; j++)
      if (joint->members[j].called < facts->everyone)
        facts->everyone = joint->members[j].called;
    for (uint32_t j = 0; j < joint->member_count; j++) {
      int64_t ns = entered(s->job, &joint->members[j], facts->everyone);
      if (ns > facts->everyone_ns)
        facts->everyone_ns = ns;
    }
  }
}

/* Position that the member had called by `ns`. */
static uint32_t called_by(const struct nt_job *job, const struct nt_member *member, int64_t ns) {
  uint32_t position = member->called;
  while (position >= member->first && position && entered(job, member, position) > ns)
    position--;
  return position;
}

/* When the member entered the operation at a position that it may have waited in; 0: it is finished there, as the
 * root of a broadcast is long before others have called it. */
static int64_t waited_since(const struct nt_job *job, const struct nt_member *member,
                            uint32_t position) {
  const struct nt_model_call *call = nt_member_call(job, member, position);
  return call && call->progress != NT_PROGRESS_FINISHED ? call->enter_ns : 0;
}

/* Had the member called something, long before `ns`, that another had not called? `reacts`: the event
 * is a reaction, so those count that came too late. */
static bool waited_in_joint(const struct search *s, const struct nt_place place, int64_t ns,
                            bool reacts) {
  const struct nt_joint *joint = &s->job->joints[place.joint];
  const struct nt_member *self = &joint->members[place.member];
  const struct joint_facts *facts = &s->facts[place.joint];
  uint32_t position = called_by(s->job, self, ns), diverged = s->divergences[place.joint];
  int64_t began = 0;
  if (position > facts->everyone)
    began = waited_since(s->job, self, facts->everyone + 1);
  else if (diverged && diverged <= position && reacts)
    began = waited_since(s->job, self, diverged);
  if (began && began <= ns - s->wait_ns)
    return true;
  if (!reacts || !position || (position == facts->everyone && facts->everyone_ns <= ns))
    return false;
  if (position > facts->everyone)
    position = facts->everyone;
  began = waited_since(s->job, self, position);
  if (!began || began > ns - s->wait_ns)
    return false;
  for (uint32_t i = 0; i < joint->member_count; i++)
    if (entered(s->job, &joint->members[i], position) > ns)
      return true;
  return false;
}

/* Calls in which the host waits for what other ranks do. */
static bool waits_for_others(enum nt_shape shape) {
  switch (shape) {
  case NT_SHAPE_COLL:
  case NT_SHAPE_COLL_P2P:
  case NT_SHAPE_SEND:
  case NT_SHAPE_RECV:
  case NT_SHAPE_GROUP_END:
  case NT_SHAPE_COMM_INIT:
  case NT_SHAPE_COMM_SPLIT:
  case NT_SHAPE_COMM_SHRINK:
  case NT_SHAPE_COMM_GROW:
    return true;
  default:
    return false;
  }
}

static bool spans(const struct nt_model_call *call, int64_t from, int64_t to) {
  return call->enter_ns <= from && (!call->exit_ns || call->exit_ns >= to);
}

/* Was a thread of it inside NCCL, or in a creation, since long before `ns`? */
static bool waited_in_call(const struct search *s, uint32_t index, int64_t ns) {
  const struct nt_model_rank *rank = &s->job->model->ranks[index];
  const struct rank_facts *facts = &s->ranks[index];
  if (s->wait_ns < WAIT_NS) { /* of a single moment: short calls count as well */
    for (uint32_t i = 0; i < rank->call_count; i++)
      if (spans(&rank->calls[i], ns - s->wait_ns, ns) &&
          waits_for_others(nt_fn_shape(rank->calls[i].fn)) &&
          !(rank->calls[i].flags & NT_CALL_ABANDONED))
        return true;
    return false;
  }
  for (uint32_t i = 0; i < facts->call_count; i++)
    if (spans(&rank->calls[facts->calls[i]], ns - s->wait_ns, ns))
      return true;
  return false;
}

static bool had_waited(const struct search *s, const struct event *event) {
  const struct nt_model_rank *rank = &s->job->model->ranks[event->rank];
  const struct rank_facts *facts = &s->ranks[event->rank];
  bool reacts = event->why == NT_FREEZE_ABORT || event->why == NT_FREEZE_DEATH;
  if (facts->outstanding_ns <= event->ns - s->wait_ns ||
      s->message_ns[event->rank] <= event->ns - s->wait_ns ||
      waited_in_call(s, event->rank, event->ns))
    return true;
  bool all = reacts && facts->everyone_ns > event->ns;
  uint32_t count = all ? rank->view_count : facts->view_count;
  for (uint32_t i = 0; i < count; i++) {
    struct nt_place place = s->job->places[event->rank][all ? i : facts->views[i]];
    if (place.joint != NT_NONE && waited_in_joint(s, place, event->ns, reacts))
      return true;
  }
  return false;
}

#define LONG_NS                                                                                    \
  INT64_C(30000000000) /* a wait before a death that the death cannot be the cause of */

/* The longest that the members of a joint have waited for each other in an operation that all have called by `ns`. */
static int64_t normal_wait(const struct nt_job *job, const struct nt_joint *joint, int64_t ns) {
  int64_t longest = 0;
  for (uint32_t p = 1; p <= joint->members[0].called; p++) {
    int64_t first = INT64_MAX, last = 0;
    for (uint32_t i = 0; i < joint->member_count; i++) {
      int64_t at = entered(job, &joint->members[i], p);
      first = at < first ? at : first;
      last = at > last ? at : last;
      if (!at || at > ns)
        first = last = 0;
    }
    longest = first && last - first > longest ? last - first : longest;
  }
  return longest;
}

/* Had others waited for this rank, much longer than they ever did before, when it ended at `ns`? Then what it did
 * instead is the cause, and its end but a consequence: somebody gave up on it. */
static bool was_awaited_long(const struct search *s, uint32_t rank, int64_t ns) {
  const struct nt_model_rank *model = &s->job->model->ranks[rank];
  for (uint32_t v = 0; v < model->view_count; v++) {
    struct nt_place place = s->job->places[rank][v];
    if (place.joint == NT_NONE)
      continue;
    const struct nt_joint *joint = &s->job->joints[place.joint];
    uint32_t next = called_by(s->job, &joint->members[place.member], ns) + 1;
    int64_t since = INT64_MAX;
    for (uint32_t i = 0; i < joint->member_count; i++) {
      int64_t at = entered(s->job, &joint->members[i], next);
      since = at && at < since ? at : since;
    }
    if (since < ns - LONG_NS && ns - since > 4 * normal_wait(s->job, joint, ns))
      return true;
  }
  return false;
}

static bool is_balanced(const struct search *s, uint32_t joint_index) {
  const struct nt_joint *joint = &s->job->joints[joint_index];
  for (uint32_t i = 0; i < joint->member_count; i++)
    if (joint->members[i].called != s->facts[joint_index].everyone)
      return false;
  return !s->divergences[joint_index];
}

static int find_rank_facts(struct search *s, uint32_t index) {
  const struct nt_model_rank *rank = &s->job->model->ranks[index];
  struct rank_facts *facts = &s->ranks[index];
  facts->calls = malloc(((size_t)rank->call_count + 1) * sizeof *facts->calls);
  facts->views = malloc(((size_t)rank->view_count + 1) * sizeof *facts->views);
  facts->outstanding_ns = INT64_MAX;
  if (!facts->calls || !facts->views)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if ((!call->exit_ns || call->exit_ns - call->enter_ns >= WAIT_NS) &&
        waits_for_others(nt_fn_shape(call->fn)) && !(call->flags & NT_CALL_ABANDONED))
      facts->calls[facts->call_count++] = i;
    if ((call->progress == NT_PROGRESS_ENQUEUED || call->progress == NT_PROGRESS_REACHED) &&
        call->enter_ns < facts->outstanding_ns)
      facts->outstanding_ns = call->enter_ns;
  }
  for (uint32_t i = 0; i < rank->view_count; i++) {
    struct nt_place place = s->job->places[index][i];
    if (place.joint == NT_NONE)
      continue;
    if (!is_balanced(s, place.joint))
      facts->views[facts->view_count++] = i;
    else if (s->facts[place.joint].everyone_ns > facts->everyone_ns)
      facts->everyone_ns = s->facts[place.joint].everyone_ns;
  }
  return 0;
}

static enum nt_freeze_why why_ended(const struct nt_model_rank *rank) {
  return nt_model_left(rank) ? NT_FREEZE_TEARDOWN : NT_FREEZE_DEATH;
}

/* When this rank first heard that a peer is gone; 0 if it did not. */
static int64_t heard_ns(const struct nt_model_rank *rank) {
  int64_t first = 0;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (nt_fn_shape(call->fn) == NT_SHAPE_ASYNC_ERROR && call->count == ncclRemoteError &&
        (!first || call->enter_ns < first))
      first = call->enter_ns;
  }
  return first;
}

/* Had the rank called an operation by `ns` that another never did, or one that is known to be unfinished? */
static bool is_held(struct search *s, uint32_t rank, int64_t ns) {
  struct event event = {ns, rank, NT_FREEZE_TEARDOWN};
  s->wait_ns = 0;
  bool held = had_waited(s, &event);
  s->wait_ns = WAIT_NS;
  return held;
}

/*
 * All are gone within a moment, but the order of deaths is known: a rank was gone for longer than processes
 * need to notice, another that was held by then outlived it, and somebody noticed: it exited with a failure
 * (which says when), a peer saw its lock free, or NCCL told a peer of a remote error. The others were then
 * ended from outside. Without such evidence a mass kill would make culprits of those whose heart beat last.
 */
static void find_first(struct search *s) {
  const struct nt_model *model = s->job->model;
  int64_t last = 0, earliest = INT64_MAX, ordered_ns = ORDERED_NS;
  bool vanished = false, held = false;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    int64_t end = nt_model_end(&model->ranks[i]);
    if (!nt_model_is_over(&model->ranks[i]))
      return;
    last = end > last ? end : last;
    if (why_ended(&model->ranks[i]) == NT_FREEZE_DEATH && end < earliest) {
      earliest = end;
      ordered_ns = model->ranks[i].state == NT_PROCESS_EXITED ? EXACT_NS : ORDERED_NS;
    }
  }
  int64_t heard = INT64_MAX;
  if (earliest == INT64_MAX)
    return;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    const struct nt_model_rank *rank = &model->ranks[i];
    int64_t end = nt_model_end(rank);
    if (end < earliest + ordered_ns)
      continue;
    vanished |= rank->state == NT_PROCESS_VANISHED;
    held |= is_held(s, i, end);
    int64_t own = heard_ns(rank);
    if (own >= earliest && own < heard)
      heard = own;
  }
  for (uint32_t i = 0; i < model->rank_count && held; i++) {
    const struct nt_model_rank *rank = &model->ranks[i];
    int64_t end = nt_model_end(rank);
    if (end >= earliest + ordered_ns || end + ordered_ns > last ||
        why_ended(rank) != NT_FREEZE_DEATH)
      continue;
    bool exited = rank->state == NT_PROCESS_EXITED && vanished;
    bool noticed = rank->noticed_ns && rank->noticed_ns <= last + ORDERED_NS;
    s->first[i] = (uint8_t)(2 * exited + noticed + (heard != INT64_MAX));
  }
}

static bool is_first(const struct search *s, uint32_t rank) {
  return s->first[rank] != 0;
}

/* When nobody is left and the last to go vanished: the moment from which on they count as ended from
 * outside. INT64_MAX if not so. */
static int64_t ended_together(const struct search *s) {
  const struct nt_model *model = s->job->model;
  int64_t last = 0, first = INT64_MAX;
  uint32_t count = 0, over = 0;
  bool ordered = false;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    const struct nt_model_rank *rank = &model->ranks[i];
    if (!nt_model_is_over(rank))
      return INT64_MAX;
    ordered |= is_first(s, i);
    over += rank->state == NT_PROCESS_VANISHED;
  }
  for (uint32_t i = 0; i < model->rank_count; i++)
    if ((ordered || model->ranks[i].state == NT_PROCESS_VANISHED) &&
        nt_model_end(&model->ranks[i]) > last)
      last = nt_model_end(&model->ranks[i]);
  for (uint32_t i = 0; i < model->rank_count; i++) {
    const struct nt_model_rank *rank = &model->ranks[i];
    int64_t end = nt_model_end(rank);
    bool counts =
        rank->state == NT_PROCESS_VANISHED || (ordered && why_ended(rank) == NT_FREEZE_DEATH);
    if (!counts || is_first(s, i) || end + TOGETHER_NS < last)
      continue;
    count++;
    first = end < first ? end : first;
  }
  bool several = count > 1 || over > 1 || model->rank_count == 1 || ordered;
  return count && several ? first : INT64_MAX;
}

/* It left with 0, aborted nothing, and nothing of what it called is known to be unfinished: whatever it had waited for
 * came in the end. */
static bool ended_well(const struct search *s, uint32_t index) {
  const struct nt_model_rank *rank = &s->job->model->ranks[index];
  if (rank->state != NT_PROCESS_EXITED || rank->exit_code ||
      s->ranks[index].outstanding_ns != INT64_MAX || s->message_ns[index] != INT64_MAX)
    return false;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (nt_fn_shape(call->fn) == NT_SHAPE_COMM_ABORT ||
        (!call->exit_ns && !(call->flags & NT_CALL_ABANDONED)))
      return false;
  }
  return true;
}

/* All ended within a moment, though some had waited long before the first of them did: then that one was
 * ended from outside as well, whatever its exit says. */
static int64_t ended_waiting(const struct search *s) {
  const struct nt_model *model = s->job->model;
  int64_t first = INT64_MAX, last = 0;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    int64_t end = nt_model_end(&model->ranks[i]);
    if (!nt_model_is_over(&model->ranks[i]) || is_first(s, i))
      return INT64_MAX;
    first = end < first ? end : first;
    last = end > last ? end : last;
  }
  if (last - first > TOGETHER_NS)
    return INT64_MAX;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    struct event event = {first, i, NT_FREEZE_TEARDOWN};
    if (!ended_well(s, i) && had_waited(s, &event))
      return first;
  }
  return INT64_MAX;
}

static int by_time(const void *a, const void *b) {
  const struct event *x = a, *y = b;
  if (x->ns != y->ns)
    return x->ns < y->ns ? -1 : 1;
  return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static uint32_t list_events(const struct nt_job *job, struct event *events) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < job->model->rank_count; i++)
    if (nt_model_is_over(&job->model->ranks[i]))
      events[count++] =
          (struct event){nt_model_end(&job->model->ranks[i]), i, why_ended(&job->model->ranks[i])};
  for (uint32_t i = 0; i < job->joint_count; i++)
    for (uint32_t j = 0; j < job->joints[i].member_count; j++) {
      const struct nt_member *member = &job->joints[i].members[j];
      if (!member->ended_ns)
        continue;
      bool abort = nt_fn_shape(member->ended_fn) == NT_SHAPE_COMM_ABORT;
      events[count++] = (struct event){member->ended_ns, member->rank,
                                       abort ? NT_FREEZE_ABORT : NT_FREEZE_TEARDOWN};
    }
  qsort(events, count, sizeof *events, by_time);
  return count;
}

static void decide_fates(const struct search *s, struct nt_freeze *out) {
  const struct nt_model *model = s->job->model;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    const struct nt_model_rank *rank = &model->ranks[i];
    int64_t end = nt_model_end(rank);
    if (!nt_model_is_over(rank) || end >= out->ns)
      continue;
    out->fates[i].ns = end;
    out->fates[i].likely = s->first[i] == 1;
    out->fates[i].lives = !nt_model_is_gone(rank);
    out->fates[i].kind = why_ended(rank) == NT_FREEZE_DEATH ? NT_FATE_DEAD : NT_FATE_LEFT;
  }
}

static void find_messages(const struct nt_job *job, const struct nt_p2p *p2p, int64_t *message_ns) {
  for (uint32_t i = 0; i < job->model->rank_count; i++)
    message_ns[i] = INT64_MAX;
  for (uint32_t i = 0; i < p2p->unmatched_count; i++) {
    const struct nt_p2p_end *end = &p2p->ends[p2p->unmatched[i]];
    int64_t ns = nt_p2p_call(job, end)->enter_ns;
    if (!end->is_send && ns < message_ns[end->rank])
      message_ns[end->rank] = ns;
  }
}

/* When all are ended from outside, one after the other, what the later ones still called was called: the last operation
 * that a rank entered then. */
static int64_t last_operation(const struct search *s, int64_t from) {
  const struct nt_model *model = s->job->model;
  int64_t last = from;
  for (uint32_t r = 0; r < model->rank_count; r++) {
    const struct nt_model_rank *rank = &model->ranks[r];
    for (uint32_t i = rank->call_count; i-- > 0;) {
      const struct nt_model_call *call = &rank->calls[i];
      if (call->view != NT_NONE && call->enter_ns > last && call->enter_ns < from + TOGETHER_NS &&
          waits_for_others(nt_fn_shape(call->fn)) && !(call->flags & NT_CALL_VOID))
        last = call->enter_ns;
    }
  }
  return last;
}

int nt_freeze_find(const struct nt_job *job, const struct nt_p2p *p2p, const uint32_t *divergences,
                   struct nt_freeze *out) {
  struct search s = {.job = job, .divergences = divergences, .wait_ns = WAIT_NS};
  size_t members = 0;
  for (uint32_t i = 0; i < job->joint_count; i++)
    members += job->joints[i].member_count;
  struct event *events = calloc(job->model->rank_count + members + 1, sizeof *events);
  *out = (struct nt_freeze){.ns = INT64_MAX, .rank = NT_NONE};
  out->fates = calloc(job->model->rank_count + 1, sizeof *out->fates);
  s.facts = calloc(job->joint_count + 1, sizeof *s.facts);
  s.message_ns = calloc(job->model->rank_count + 1, sizeof *s.message_ns);
  s.first = calloc(job->model->rank_count + 1, sizeof *s.first);
  s.ranks = calloc(job->model->rank_count + 1, sizeof *s.ranks);
  int status =
      events && out->fates && s.facts && s.ranks && s.message_ns && s.first ? 0 : -NT_ERR_MEMORY;
  if (status)
    goto out;
  find_facts(&s);
  for (uint32_t i = 0; i < job->model->rank_count && !status; i++)
    status = find_rank_facts(&s, i);
  if (status)
    goto out;
  find_messages(job, p2p, s.message_ns);
  find_first(&s);
  int64_t together = ended_together(&s), waiting = ended_waiting(&s);
  together = waiting < together ? waiting : together;
  uint32_t count = list_events(job, events);
  for (uint32_t i = 0; i < count && out->why == NT_FREEZE_NEVER; i++) {
    bool given_up = false;
    if (events[i].ns < together && !had_waited(&s, &events[i])) {
      given_up =
          events[i].why == NT_FREEZE_DEATH && was_awaited_long(&s, events[i].rank, events[i].ns);
      if (!given_up)
        continue;
    }
    out->why = events[i].ns >= together ? NT_FREEZE_TOGETHER
               : given_up               ? NT_FREEZE_GIVEN_UP
                                        : events[i].why;
    out->ns = events[i].ns;
    out->rank = events[i].rank;
  }
  out->cut_ns = out->why == NT_FREEZE_TOGETHER ? last_operation(&s, out->ns - 1) : out->ns - 1;
  decide_fates(&s, out);
out:
  for (uint32_t i = 0; s.ranks && i < job->model->rank_count; i++) {
    free(s.ranks[i].calls);
    free(s.ranks[i].views);
  }
  free(events);
  free(s.facts);
  free(s.ranks);
  free(s.message_ns);
  free(s.first);
  return status;
}

void nt_freeze_free(struct nt_freeze *freeze) {
  free(freeze->fates);
  memset(freeze, 0, sizeof *freeze);
}
