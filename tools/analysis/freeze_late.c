/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Was what a rank waited for when it ended merely late?
 *
 * Who dies in the middle of a wait mostly does so because of it: somebody gave up. But where all that it waited for was called
 * in the end, while others still waited there, nobody had given up, the ones that came late are no culprits, and of those
 * with a trace the operation lacks only the one that is gone.
 */
#include <stdlib.h>

#include "analysis/freeze_parts.h"
#include "analysis/progress.h"
#include "nccl/nccl_types.h"

/* What came after the end at `ns`: the last of it, and whether somebody who had waited as long saw it come. */
struct arrival {
  int64_t ns, last_ns;
  bool awaited, lacking;
};

static int64_t gone_ns(const struct nt_job *job, const struct nt_member *member) {
  const struct nt_model_rank *rank = nt_member_rank(job, member);
  const int64_t end = nt_model_is_over(rank) ? nt_model_end(rank) : INT64_MAX;
  return member->ended_ns && member->ended_ns < end ? member->ended_ns : end;
}

/* 0: it was never called; 1: it was, and when is not known. */
#define LOST (UINT32_MAX - 1)
static int64_t entered(const struct nt_job *job, const struct nt_member *member, uint32_t call) {
  if (call == LOST)
    return 1;
  return call == NT_NONE ? 0 : nt_member_rank(job, member)->calls[call].enter_ns;
}

/* Each member's call of one operation: NT_NONE for those that never made it, LOST if its record is gone. */
static void note_calls(const struct nt_search *s, const struct nt_place place,
                       const uint32_t *calls, struct arrival *out) {
  const struct nt_joint *joint = &s->job->joints[place.joint];
  int64_t last = 0;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const int64_t ns = entered(s->job, &joint->members[i], calls[i]);
    if (!ns)
      out->lacking = true;
    last = ns > last ? ns : last;
  }
  if (last <= out->ns)
    return;
  /* One without a trace may have seen it; of two there is nobody else, and it came all the same. */
  bool awaited = joint->absent || joint->member_count == 2;
  for (uint32_t i = 0; i < joint->member_count; i++)
    awaited |= i != place.member && entered(s->job, &joint->members[i], calls[i]) <= out->ns &&
               gone_ns(s->job, &joint->members[i]) > last;
  out->awaited = out->last_ns ? out->awaited && awaited : awaited;
  out->last_ns = last > out->last_ns ? last : out->last_ns;
}

static uint32_t call_at(const struct nt_search *s, const struct nt_member *member,
                        uint32_t position) {
  if (!position || position > member->called)
    return NT_NONE;
  const uint32_t call =
      position >= member->first ? member->call[position - member->first] : NT_NONE;
  return call == NT_NONE && nt_member_rank(s->job, member)->cut ? LOST : call;
}

/* The last collective that the rank called by then. */
static int note_collective(const struct nt_search *s, const struct nt_place place,
                           struct arrival *out) {
  const struct nt_joint *joint = &s->job->joints[place.joint];
  const struct nt_member *self = &joint->members[place.member];
  const uint32_t diverged = s->divergences[place.joint];
  uint32_t position = self->called;
  while (position && position >= self->first &&
         entered(s->job, self, call_at(s, self, position)) > out->ns)
    position--;
  const uint32_t own = call_at(s, self, position);
  if (own == NT_NONE || (own != LOST && !nt_call_unfinished(s->job, self->rank, own)))
    return 0;
  out->lacking |= diverged && diverged <= position;
  uint32_t *calls = calloc(joint->member_count, sizeof *calls);
  if (!calls)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < joint->member_count; i++)
    calls[i] = call_at(s, &joint->members[i], position);
  note_calls(s, place, calls, out);
  free(calls);
  return 0;
}

/* A split, shrink or growth of the communicator in which the rank was. */
static int note_split(const struct nt_search *s, const struct nt_place place, uint32_t index,
                      struct arrival *out) {
  const struct nt_joint *joint = &s->job->joints[place.joint];
  const struct nt_model_call *own =
      &nt_member_rank(s->job, &joint->members[place.member])->calls[index];
  uint32_t *calls = calloc(joint->member_count, sizeof *calls);
  if (!calls)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    const struct nt_model_rank *rank = nt_member_rank(s->job, member);
    calls[i] = rank->cut ? LOST : NT_NONE;
    for (uint32_t c = 0; c < rank->call_count; c++)
      if (rank->calls[c].view == member->view && rank->calls[c].seq == own->seq &&
          nt_fn_shape(rank->calls[c].fn) == nt_fn_shape(own->fn))
        calls[i] = c;
  }
  note_calls(s, place, calls, out);
  free(calls);
  return 0;
}

static int note_init(const struct nt_search *s, uint32_t rank, uint32_t index,
                     struct arrival *out) {
  const uint32_t made = nt_call_made(s->job, rank, index);
  const struct nt_place place =
      made == NT_NONE ? (struct nt_place){NT_NONE, NT_NONE} : s->job->places[rank][made];
  if (place.joint == NT_NONE) {
    out->lacking = true;
    return 0;
  }
  const struct nt_joint *joint = &s->job->joints[place.joint];
  out->lacking |= (int64_t)joint->member_count + joint->absent < joint->size;
  uint32_t *calls = calloc(joint->member_count, sizeof *calls);
  if (!calls)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < joint->member_count; i++)
    calls[i] = joint->members[i].create_call;
  note_calls(s, place, calls, out);
  free(calls);
  return 0;
}

static int note_creation(const struct nt_search *s, uint32_t rank, uint32_t index,
                         struct arrival *out) {
  const struct nt_model_call *call = &s->job->model->ranks[rank].calls[index];
  switch (nt_fn_shape(call->fn)) {
  case NT_SHAPE_COMM_INIT:
    return note_init(s, rank, index, out);
  case NT_SHAPE_COMM_SPLIT:
    if (call->view == NT_NONE || s->job->places[rank][call->view].joint == NT_NONE)
      break;
    return note_split(s, s->job->places[rank][call->view], index, out);
  case NT_SHAPE_COLL:
  case NT_SHAPE_COLL_P2P:
  case NT_SHAPE_SEND:
  case NT_SHAPE_RECV:
  case NT_SHAPE_GROUP_END:
    return 0; /* by what was called there */
  default:
    break;
  }
  out->lacking = true;
  return 0;
}

/* Messages that the rank was in by then: lacking without a counterpart. */
static void note_messages(const struct nt_search *s, uint32_t rank, struct arrival *out) {
  for (uint32_t i = 0; i < s->p2p->count; i++) {
    const struct nt_p2p_end *end = &s->p2p->ends[i], *other = NULL;
    const struct nt_model_call *call = nt_p2p_call(s->job, end);
    if (end->rank != rank || call->enter_ns > out->ns ||
        !nt_call_unfinished(s->job, rank, end->call))
      continue;
    if (i && nt_p2p_is_pair(end - 1, end))
      other = end - 1;
    else if (i + 1 < s->p2p->count && nt_p2p_is_pair(end, end + 1))
      other = end + 1;
    const int64_t came = other ? nt_p2p_call(s->job, other)->enter_ns : 0;
    out->lacking |= !other;
    if (came > out->ns) {
      out->last_ns = came > out->last_ns ? came : out->last_ns;
      out->awaited = true; /* by nobody else, and it came all the same */
    }
  }
}

int nt_freeze_was_late(const struct nt_search *s, const struct nt_end *end, bool *late) {
  const struct nt_model_rank *rank = &s->job->model->ranks[end->rank];
  const struct nt_rank_facts *facts = &s->ranks[end->rank];
  struct arrival arrival = {.ns = end->ns};
  int status = 0;
  *late = false;
  for (uint32_t i = 0; i < rank->view_count && !status; i++)
    if (s->job->places[end->rank][i].joint != NT_NONE)
      status = note_collective(s, s->job->places[end->rank][i], &arrival);
  for (uint32_t i = 0; i < facts->call_count && !status; i++) {
    const struct nt_model_call *call = &rank->calls[facts->calls[i]];
    if (call->enter_ns <= end->ns && (!call->exit_ns || call->exit_ns > end->ns))
      status = note_creation(s, end->rank, facts->calls[i], &arrival);
  }
  note_messages(s, end->rank, &arrival);
  *late = arrival.last_ns && arrival.awaited && !arrival.lacking;
  return status;
}
