/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Had a rank been waiting when it ended, for what another never called or did not finish? And had it been waited for
 * itself?
 */
#include <stdlib.h>

#include "analysis/creation.h"
#include "analysis/each.h"
#include "analysis/freeze_parts.h"
#include "nccl/nccl_types.h"

static int64_t entered(const struct nt_job *job, const struct nt_member *member,
                       uint32_t position) {
  const struct nt_model_call *call = nt_member_call(job, member, position);
  return call ? call->enter_ns : 0;
}

static void find_facts(struct nt_search *s) {
  for (uint32_t i = 0; i < s->job->joint_count; i++) {
    const struct nt_joint *joint = &s->job->joints[i];
    struct nt_joint_facts *facts = &s->facts[i];
    facts->everyone = joint->members[0].called;
    facts->balanced = !s->divergences[i];
    for (uint32_t j = 1; j < joint->member_count; j++)
      if (joint->members[j].called < facts->everyone)
        facts->everyone = joint->members[j].called;
    for (uint32_t j = 0; j < joint->member_count; j++) {
      int64_t ns = entered(s->job, &joint->members[j], facts->everyone);
      facts->balanced &= joint->members[j].called == facts->everyone;
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
  if (!call && nt_member_rank(job, member)->cut && position && position <= member->called)
    return 1; /* a call that is gone: it may have been there for long */
  return call && call->progress != NT_PROGRESS_FINISHED ? call->enter_ns : 0;
}

/* Had the member called something, long before `ns`, that another had not called? `reacts`: the event
 * is a reaction, so those count that came too late. */
static bool waited_in_joint(const struct nt_search *s, const struct nt_place place, int64_t ns,
                            bool reacts) {
  const struct nt_joint *joint = &s->job->joints[place.joint];
  const struct nt_member *self = &joint->members[place.member];
  const struct nt_joint_facts *facts = &s->facts[place.joint];
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

bool nt_freeze_waits_for_others(enum nt_shape shape) {
  switch (shape) {
  case NT_SHAPE_COLL:
  case NT_SHAPE_COLL_P2P:
  case NT_SHAPE_SEND:
  case NT_SHAPE_RECV:
  case NT_SHAPE_GROUP_END:
  case NT_SHAPE_COMM_INIT:
  case NT_SHAPE_COMM_FINALIZE:
  case NT_SHAPE_COMM_SPLIT:
  case NT_SHAPE_COMM_SHRINK:
  case NT_SHAPE_COMM_GROW:
  case NT_SHAPE_COMM_SYNC:
  case NT_SHAPE_WINDOW:
    return true;
  default:
    return false;
  }
}

static bool spans(const struct nt_search *s, uint32_t rank, uint32_t index, int64_t from,
                  int64_t to) {
  const struct nt_model_call *call = &s->job->model->ranks[rank].calls[index];
  return call->enter_ns <= from &&
         (!call->exit_ns || call->exit_ns > to || nt_creation_in_progress(s->job, rank, index));
}

/* Was a thread of it inside NCCL, or in a creation, since long before `ns`? */
static bool waited_in_call(const struct nt_search *s, uint32_t index, int64_t ns) {
  const struct nt_model_rank *rank = &s->job->model->ranks[index];
  const struct nt_rank_facts *facts = &s->ranks[index];
  if (s->wait_ns < NT_WAIT_NS) { /* of a single moment: short calls count as well */
    for (uint32_t i = 0; i < rank->call_count; i++)
      if (spans(s, index, i, ns - s->wait_ns, ns) &&
          nt_freeze_waits_for_others(nt_fn_shape(rank->calls[i].fn)) &&
          !(rank->calls[i].flags & NT_CALL_ABANDONED))
        return true;
    return false;
  }
  for (uint32_t i = 0; i < facts->call_count; i++)
    if (spans(s, index, facts->calls[i], ns - s->wait_ns, ns))
      return true;
  return false;
}

bool nt_freeze_reacts(const struct nt_end *end) {
  return end->why == NT_FREEZE_ABORT || end->why == NT_FREEZE_DEATH;
}

bool nt_freeze_is_echo(const struct nt_search *s, const struct nt_end *event) {
  const struct nt_model_rank *ranks = s->job->model->ranks, *rank = &ranks[event->rank];
  const struct nt_model_call *last = NULL;
  for (uint32_t i = rank->call_count; i-- > 0 && !last;)
    if (rank->calls[i].view != NT_NONE && rank->calls[i].enter_ns <= event->ns &&
        nt_freeze_waits_for_others(nt_fn_shape(rank->calls[i].fn)))
      last = &rank->calls[i];
  if (!last || !(last->flags & NT_CALL_VOID) || last->result != ncclRemoteError || !last->exit_ns)
    return false;
  const uint32_t joint = s->job->places[event->rank][last->view].joint;
  if (joint != NT_NONE && s->job->joints[joint].absent)
    return true; /* that one may have */
  for (uint32_t m = 0; joint != NT_NONE && m < s->job->joints[joint].member_count; m++) {
    const struct nt_model_rank *other = &ranks[s->job->joints[joint].members[m].rank];
    if (other != rank && nt_model_is_over(other) && nt_model_end(other) <= last->exit_ns)
      return true;
  }
  return false;
}

bool nt_freeze_had_waited(const struct nt_search *s, const struct nt_end *event) {
  const struct nt_model_rank *rank = &s->job->model->ranks[event->rank];
  const struct nt_rank_facts *facts = &s->ranks[event->rank];
  const bool reacts = nt_freeze_reacts(event);
  if (facts->outstanding_ns <= event->ns - s->wait_ns ||
      s->message_ns[event->rank] <= event->ns - s->wait_ns ||
      waited_in_call(s, event->rank, event->ns) || (reacts && nt_freeze_is_echo(s, event)))
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

bool nt_freeze_was_awaited_long(const struct nt_search *s, uint32_t rank, int64_t ns) {
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

static int find_rank_facts(void *ctx, uint32_t index) {
  struct nt_search *s = ctx;
  const struct nt_model_rank *rank = &s->job->model->ranks[index];
  struct nt_rank_facts *facts = &s->ranks[index];
  facts->calls = malloc(((size_t)rank->call_count + 1) * sizeof *facts->calls);
  facts->views = malloc(((size_t)rank->view_count + 1) * sizeof *facts->views);
  facts->outstanding_ns = INT64_MAX;
  if (!facts->calls || !facts->views)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if ((!call->exit_ns || call->exit_ns - call->enter_ns >= NT_WAIT_NS ||
         nt_creation_in_progress(s->job, index, i)) &&
        nt_freeze_waits_for_others(nt_fn_shape(call->fn)) && !(call->flags & NT_CALL_ABANDONED))
      facts->calls[facts->call_count++] = i;
    if ((call->progress == NT_PROGRESS_ENQUEUED || call->progress == NT_PROGRESS_REACHED ||
         call->progress == NT_PROGRESS_UNFINISHED) &&
        call->enter_ns < facts->outstanding_ns)
      facts->outstanding_ns = call->enter_ns;
  }
  for (uint32_t i = 0; i < rank->view_count; i++) {
    struct nt_place place = s->job->places[index][i];
    if (place.joint == NT_NONE)
      continue;
    if (!s->facts[place.joint].balanced)
      facts->views[facts->view_count++] = i;
    else if (s->facts[place.joint].everyone_ns > facts->everyone_ns)
      facts->everyone_ns = s->facts[place.joint].everyone_ns;
  }
  return 0;
}

int nt_freeze_facts(struct nt_search *s) {
  find_facts(s);
  return nt_each(s->job->model->rank_count, find_rank_facts, s);
}
