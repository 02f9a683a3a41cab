/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In a job of many equal groups the other groups are witnesses: who made the same calls at the same lines, and was in
 * step until then, tells whether a call belongs there. Ranks with other calls, as another stage of a pipeline, tell nothing.
 */
#include "analysis/witnesses.h"

#include "analysis/graphs.h"
#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

/* Calls of a rank that are looked at, from its end; positions of a communicator. */
enum { RECENT = 4096, POSITIONS = 256, WITNESSES = 2, CONTEXT = 8 };
#define ENDED (NT_NONE - 1) /* in place of a call: the process ended well */

/* A collective, a message, or the launch of a graph, that took place. */
static bool is_step(const struct nt_job *job, const struct nt_model_call *call) {
  const enum nt_shape shape = nt_fn_shape(call->fn);
  if (nt_is_replay(call))
    return call->enter_ns <= job->cut_ns;
  return call->view != NT_NONE && call->enter_ns <= job->cut_ns && nt_call_counts(call) &&
         !(call->flags & NT_CALL_CAPTURED) && !nt_is_replayed(call) &&
         (nt_fn_is_collective(call->fn) || shape == NT_SHAPE_SEND || shape == NT_SHAPE_RECV);
}

static uint32_t step_before(const struct nt_job *job, const struct nt_model_rank *rank,
                            uint32_t index) {
  for (uint32_t i = index; i-- > 0 && index - i < RECENT;)
    if (rank->calls[i].thread == rank->calls[index].thread && is_step(job, &rank->calls[i]))
      return i;
  return NT_NONE;
}

/* The next step in that thread, ENDED, or NT_NONE. */
static uint32_t step_after(const struct nt_job *job, const struct nt_model_rank *rank,
                           uint32_t index) {
  for (uint32_t i = index + 1; i < rank->call_count; i++)
    if (rank->calls[i].thread == rank->calls[index].thread && is_step(job, &rank->calls[i]))
      return i;
  return rank->state == NT_PROCESS_EXITED && !rank->exit_code ? ENDED : NT_NONE;
}

/* The same line and kind of call, on a communicator of the same size. */
static bool is_same_place(const struct nt_model_rank *a, uint32_t i, const struct nt_model_rank *b,
                          uint32_t k) {
  if (i == ENDED || k == ENDED)
    return i == k;
  const struct nt_model_call *x = &a->calls[i], *y = &b->calls[k];
  if (x->at != y->at || x->fn != y->fn || nt_is_replay(x) != nt_is_replay(y))
    return false;
  return nt_is_replay(x) || a->views[x->view].nranks == b->views[y->view].nranks;
}

/* The rank's own number in the communicator of a call; -1: not known. */
static int32_t own_number(const struct nt_job *job, const struct nt_model_rank *rank,
                          const struct nt_model_call *call, int32_t *size) {
  const struct nt_place place = job->places[rank - job->model->ranks][call->view];
  if (place.joint == NT_NONE)
    return -1;
  *size = job->joints[place.joint].size;
  return job->joints[place.joint].members[place.member].comm_rank;
}

/* Messages to a peer as far from the own rank, around the end as well, or both to the first rank. Their numbers are those of
 * one pair's queue: to the next and to the previous stage are two of these. */
static bool is_same_way(const struct nt_job *job, const struct nt_model_rank *a, uint32_t i,
                        const struct nt_model_rank *b, uint32_t k) {
  const struct nt_model_call *x = &a->calls[i], *y = &b->calls[k];
  int32_t size = 0;
  if (!nt_call_is_message(x) || (!x->peer && !y->peer))
    return true;
  const int32_t own = own_number(job, a, x, &size), other = own_number(job, b, y, &size);
  if (own < 0 || other < 0)
    return x->peer == y->peer;
  const int32_t differ = (x->peer - own) - (y->peer - other);
  return !differ || (size > 0 && differ % size == 0);
}

/* And with the same number. A launch has none: what stands in front of it tells. */
static bool is_same(const struct nt_job *job, const struct nt_model_rank *a, uint32_t i,
                    const struct nt_model_rank *b, uint32_t k) {
  for (uint32_t n = 0; n < CONTEXT; n++) {
    if (i == NT_NONE || k == NT_NONE || !is_same_place(a, i, b, k))
      return false;
    if (i == ENDED)
      return true;
    if (!nt_is_replay(&a->calls[i]))
      return a->calls[i].seq == b->calls[k].seq && is_same_way(job, a, i, b, k);
    i = step_before(job, a, i);
    k = step_before(job, b, k);
  }
  return false;
}

/* The rank's own call that is the same as call `k` of `b`. */
static uint32_t find_same(const struct nt_job *job, const struct nt_model_rank *rank,
                          const struct nt_model_rank *b, uint32_t k) {
  const uint32_t low = rank->call_count > RECENT ? rank->call_count - RECENT : 0;
  if (b->calls[k].at && !nt_model_site(rank, b->calls[k].at))
    return NT_NONE; /* never there */
  for (uint32_t i = rank->call_count; i-- > low;)
    if (is_step(job, &rank->calls[i]) && is_same(job, rank, i, b, k))
      return i;
  return NT_NONE;
}

/* How many steps in a row, up to these two calls of a rank, were made at the same places. */
static uint32_t equal_steps(const struct nt_job *job, const struct nt_model_rank *rank, uint32_t i,
                            uint32_t k) {
  uint32_t count = 0;
  while (i != NT_NONE && k != NT_NONE && count < CONTEXT && is_same_place(rank, i, rank, k)) {
    count++;
    i = step_before(job, rank, i);
    k = step_before(job, rank, k);
  }
  return count;
}

/* What the rank called when it was at the place of its call `index` the last time before, by the steps in front of it as well;
 * NT_NONE if it never was. */
static uint32_t step_last_time(const struct nt_job *job, const struct nt_model_rank *rank,
                               uint32_t index) {
  uint32_t best = 0, found = NT_NONE;
  for (uint32_t i = index; i-- > 0 && index - i < RECENT && best < CONTEXT;) {
    if (!is_step(job, &rank->calls[i]) || rank->calls[i].thread != rank->calls[index].thread ||
        !is_same_place(rank, i, rank, index))
      continue;
    const uint32_t count = equal_steps(job, rank, i, index);
    found = count > best ? i : found;
    best = count > best ? count : best;
  }
  return found == NT_NONE ? NT_NONE : step_after(job, rank, found);
}

static bool is_member(const struct nt_job *job, uint32_t joint, uint32_t rank) {
  for (uint32_t m = 0; joint != NT_NONE && m < job->joints[joint].member_count; m++)
    if (job->joints[joint].members[m].rank == rank)
      return true;
  return false;
}

static bool is_message(const struct nt_model_call *call) {
  const enum nt_shape shape = nt_fn_shape(call->fn);
  return shape == NT_SHAPE_SEND || shape == NT_SHAPE_RECV;
}

/* The step in front of it; of those that are no messages, which differ by the stage of a pipeline, if they are to be left aside. */
static uint32_t step_back(const struct nt_job *job, const struct nt_model_rank *rank,
                          uint32_t index, bool messages) {
  do
    index = step_before(job, rank, index);
  while (!messages && index != NT_NONE && is_message(&rank->calls[index]));
  return index;
}

/* Have the two made the same calls up to these, to the begin of their records or far enough back? */
static bool in_step(const struct nt_job *job, const struct nt_model_rank *a, uint32_t i,
                    const struct nt_model_rank *b, uint32_t k, bool messages) {
  for (uint32_t n = 0; n < CONTEXT && (i != NT_NONE || k != NT_NONE); n++) {
    if (i == NT_NONE || k == NT_NONE || !is_same(job, a, i, b, k))
      return false;
    i = step_back(job, a, i, messages);
    k = step_back(job, b, k, messages);
  }
  return true;
}

/* The same of a call or end `next` behind the call `from`. */
static struct nt_witnesses ask(const struct nt_job *job, uint32_t rank, uint32_t from,
                               uint32_t next, uint32_t except) {
  const struct nt_model_rank *own = &job->model->ranks[rank], *first = NULL;
  struct nt_witnesses out = {.one = true};
  const uint32_t earlier = from == NT_NONE ? NT_NONE : step_last_time(job, own, from);
  uint32_t theirs = NT_NONE;
  out.as_before = earlier != NT_NONE && is_same_place(own, earlier, own, next);
  for (uint32_t r = 0; r < job->model->rank_count && earlier != NT_NONE; r++) {
    const struct nt_model_rank *other = &job->model->ranks[r];
    if (r == rank || is_member(job, except, r))
      continue;
    const uint32_t at = find_same(job, other, own, from);
    const uint32_t its = at == NT_NONE ? NT_NONE : step_after(job, other, at);
    const uint32_t before = its == NT_NONE ? NT_NONE : step_last_time(job, other, at);
    if (before == NT_NONE || !is_same_place(other, before, own, earlier) ||
        !in_step(job, other, at, own, from, true))
      continue;
    if (is_same(job, other, its, own, next)) {
      out.alike++;
      continue;
    }
    out.one &= !out.other++ || is_same(job, other, its, first, theirs);
    out.fn = its == ENDED ? NT_FN_NONE : other->calls[its].fn;
    first = other;
    theirs = its;
  }
  return out;
}

struct nt_witnesses nt_witnesses_at(const struct nt_job *job, uint32_t rank, uint32_t call,
                                    uint32_t except) {
  return ask(job, rank, step_before(job, &job->model->ranks[rank], call), call, except);
}

bool nt_witnesses_suffice(const struct nt_job *job, uint32_t count) {
  return count >= WITNESSES && count > nt_model_absent(job->model);
}

static bool is_odd(struct nt_witnesses peers) {
  return !peers.alike && peers.one && peers.other;
}

uint32_t nt_witnesses_against(const struct nt_job *job, uint32_t rank, uint32_t call,
                              uint32_t except) {
  const struct nt_witnesses peers = nt_witnesses_at(job, rank, call, except);
  return peers.as_before && is_odd(peers) ? peers.other : 0;
}

bool nt_witnesses_is_usual(const struct nt_job *job, uint32_t rank, uint32_t call,
                           uint32_t except) {
  const struct nt_witnesses peers = nt_witnesses_at(job, rank, call, except);
  return peers.alike && peers.alike + nt_model_absent(job->model) >= peers.other;
}

/* Where two members went on in two ways from the same call, and had gone alike before. */
struct parting {
  uint32_t position; /* what the one that is ahead made there, of the joint */
  uint32_t ahead, from,
      next;       /* that call; of the other the call in front, and the one behind or ENDED */
  bool as_before; /* so it was when they were there before */
};

static bool find_parting(const struct nt_job *job, const struct nt_member *ahead,
                         const struct nt_member *behind, uint32_t last, struct parting *out) {
  const struct nt_model_rank *a = nt_member_rank(job, ahead), *b = nt_member_rank(job, behind);
  uint32_t p = last > POSITIONS ? last - POSITIONS : 1;
  for (p = p < ahead->first ? ahead->first : p; p && p <= last; p++) {
    const struct nt_model_call *call = nt_member_call(job, ahead, p);
    const uint32_t index = call ? (uint32_t)(call - a->calls) : NT_NONE;
    const uint32_t from = call ? step_before(job, a, index) : NT_NONE;
    const uint32_t at = from == NT_NONE ? NT_NONE : find_same(job, b, a, from);
    const uint32_t next = at == NT_NONE ? NT_NONE : step_after(job, b, at);
    if (next == NT_NONE || is_same(job, a, index, b, next))
      continue;
    const uint32_t of_a = step_last_time(job, a, from), of_b = step_last_time(job, b, at);
    if (of_a == NT_NONE || of_b == NT_NONE || !is_same_place(a, of_a, b, of_b))
      continue;
    *out = (struct parting){p, index, at, next, is_same_place(a, of_a, a, index)};
    return true;
  }
  return false;
}

/* Has the rank made the call `next` of `a` in the same turn as `from`, which it has not come to again meanwhile? */
static bool makes_in_turn(const struct nt_job *job, const struct nt_model_rank *rank,
                          const struct nt_model_rank *a, uint32_t from, uint32_t next) {
  const uint32_t begin = find_same(job, rank, a, from), end = find_same(job, rank, a, next);
  if (begin == NT_NONE || end == NT_NONE || end < begin)
    return false;
  for (uint32_t i = begin + 1; i < end; i++)
    if (is_step(job, &rank->calls[i]) && is_same_place(rank, i, a, from))
      return false;
  return true;
}

/* Who is ahead has not made the call with which the other went on, while others have made both: it is late with the call, and
 * not one call ahead. */
static bool is_late(const struct nt_job *job, const struct nt_member *ahead,
                    const struct nt_member *behind, const struct parting *parting,
                    uint32_t except) {
  const struct nt_model_rank *a = nt_member_rank(job, ahead), *b = nt_member_rank(job, behind);
  const uint32_t from = step_before(job, a, parting->ahead);
  if (parting->next == ENDED || find_same(job, a, b, parting->next) != NT_NONE)
    return false;
  for (uint32_t r = 0; r < job->model->rank_count; r++)
    if (!is_member(job, except, r) &&
        makes_in_turn(job, &job->model->ranks[r], a, from, parting->ahead))
      return true;
  return false;
}

bool nt_witnesses_blame(const struct nt_job *job, const struct nt_joint *joint, uint32_t last,
                        uint32_t member, int64_t *at_ns) {
  const uint32_t index = (uint32_t)(joint - job->joints);
  const struct nt_member *behind = &joint->members[member];
  for (uint32_t m = 0; m < joint->member_count; m++) {
    const struct nt_member *ahead = &joint->members[m];
    struct parting parting;
    if (ahead->called < last)
      continue;
    if (!find_parting(job, ahead, behind, last, &parting) || parting.position != last ||
        parting.next == ENDED)
      return false;
    *at_ns = nt_member_rank(job, behind)->calls[parting.next].enter_ns;
    const struct nt_witnesses against = ask(job, behind->rank, parting.from, parting.next, index);
    const struct nt_witnesses peers = nt_witnesses_at(job, ahead->rank, parting.ahead, index);
    return is_odd(against) && nt_witnesses_suffice(job, against.other) && !peers.other &&
           nt_witnesses_suffice(job, peers.alike);
  }
  return false;
}

uint32_t nt_witnesses_lack(const struct nt_job *job, const struct nt_joint *joint, uint32_t last,
                           uint32_t *position) {
  const uint32_t index = (uint32_t)(joint - job->joints);
  uint32_t ahead = 0, vouch = UINT32_MAX;
  const struct nt_member *first = NULL;
  for (uint32_t m = 0; m < joint->member_count; m++) {
    ahead += joint->members[m].called >= last;
    first = !first && joint->members[m].called >= last ? &joint->members[m] : first;
  }
  if (!first || ahead == joint->member_count || 2 * ahead > joint->member_count)
    return 0;
  for (uint32_t m = 0; m < joint->member_count && vouch; m++) {
    const struct nt_member *member = &joint->members[m];
    struct nt_witnesses peers = {0};
    struct parting parting = {0};
    if (member->called >= last)
      continue;
    if (find_parting(job, first, member, last, &parting) && parting.as_before &&
        !is_late(job, first, member, &parting, index))
      peers = ask(job, member->rank, parting.from, parting.next, index);
    *position = parting.position;
    vouch = peers.other ? 0 : peers.alike < vouch ? peers.alike : vouch;
  }
  return joint->absent && vouch ? 1 : vouch; /* one of those may have made it */
}

static uint32_t first_step(const struct nt_job *job, const struct nt_model_rank *rank) {
  for (uint32_t i = 0; i < rank->call_count && !rank->overwritten; i++)
    if (is_step(job, &rank->calls[i]))
      return i;
  return NT_NONE;
}

/* Did the rank call at that place of `b` before its call `call`? */
static bool was_there(const struct nt_job *job, const struct nt_model_rank *rank, uint32_t call,
                      const struct nt_model_rank *b, uint32_t k) {
  for (uint32_t i = call; i-- > 0 && call - i < RECENT && k != ENDED;)
    if (is_step(job, &rank->calls[i]) && is_same_place(rank, i, b, k))
      return true;
  return false;
}

/* Like ask(), of those that were in step with it. `shared`: some of the others made its call as well, at any time. The call is
 * as before if the rank had made it at its place before, and what one of the others made. */
static struct nt_witnesses ask_in_step(const struct nt_job *job, uint32_t rank, uint32_t call,
                                       uint32_t except, uint32_t joint, bool messages,
                                       bool *shared) {
  const struct nt_model_rank *own = &job->model->ranks[rank], *first = NULL;
  struct nt_witnesses out = {.one = true};
  const uint32_t from = step_before(job, own, call);
  uint32_t theirs = NT_NONE;
  *shared = false;
  for (uint32_t r = 0; r < job->model->rank_count; r++) {
    const struct nt_model_rank *other = &job->model->ranks[r];
    if (r == rank || r == except || is_member(job, joint, r))
      continue;
    const uint32_t at = from == NT_NONE ? NT_NONE : find_same(job, other, own, from);
    const uint32_t next = at != NT_NONE     ? step_after(job, other, at)
                          : from == NT_NONE ? first_step(job, other)
                                            : NT_NONE;
    if (next == NT_NONE || !in_step(job, other, at, own, from, messages))
      continue;
    if (is_same(job, other, next, own, call)) {
      out.alike++;
      continue;
    }
    if (from == NT_NONE)
      continue; /* begins in another way: not in its place */
    *shared |= find_same(job, other, own, call) != NT_NONE;
    out.one &= !out.other++ || is_same(job, other, next, first, theirs);
    out.fn = next == ENDED ? NT_FN_NONE : other->calls[next].fn;
    out.at = next == ENDED ? 0 : other->calls[next].at;
    first = other;
    theirs = next;
  }
  out.as_before = from != NT_NONE && was_there(job, own, call, own, call) &&
                  (!first || was_there(job, own, call, first, theirs));
  return out;
}

struct nt_witnesses nt_witnesses_in_step(const struct nt_job *job, uint32_t rank, uint32_t call,
                                         uint32_t except) {
  bool shared;
  return ask_in_step(job, rank, call, NT_NONE, except, true, &shared);
}

/* The newest of its last calls with which the rank went on where all others that were in step went on in one other way, and made
 * that call as well. */
static bool find_miss(const struct nt_job *job, uint32_t rank, uint32_t except, bool messages,
                      struct nt_witnesses *out) {
  enum { LOOKED_AT = 8 };
  const struct nt_model_rank *own = &job->model->ranks[rank];
  uint32_t looked = 0;
  for (uint32_t i = own->call_count; i-- > 0 && looked < LOOKED_AT;) {
    bool shared;
    if (!is_step(job, &own->calls[i]) || !own->calls[i].at)
      continue;
    looked++;
    *out = ask_in_step(job, rank, i, except, NT_NONE, messages, &shared);
    if (is_odd(*out) && shared && nt_witnesses_suffice(job, out->other))
      return true;
  }
  return false;
}

bool nt_witnesses_miss(const struct nt_job *job, uint32_t rank, uint32_t except,
                       enum nt_shape shape) {
  struct nt_witnesses others;
  return find_miss(job, rank, except, true, &others) && nt_fn_shape(others.fn) == shape;
}

bool nt_witnesses_miss_call(const struct nt_job *job, uint32_t rank,
                            const struct nt_model_call *call) {
  struct nt_witnesses others;
  return call->at && find_miss(job, rank, NT_NONE, false, &others) && others.fn == call->fn &&
         others.at == call->at;
}

bool nt_witnesses_vouch(const struct nt_job *job, uint32_t rank, uint32_t call, uint32_t except) {
  bool shared;
  const struct nt_witnesses others = ask_in_step(job, rank, call, except, NT_NONE, true, &shared);
  return others.alike && !others.other;
}

bool nt_witnesses_next(const struct nt_job *job, uint32_t rank, uint32_t *at, uint8_t *fn) {
  const struct nt_model_rank *own = &job->model->ranks[rank], *first = NULL;
  uint32_t last = own->call_count, count = 0, theirs = NT_NONE;
  while (last && !is_step(job, &own->calls[last - 1]))
    last--;
  for (uint32_t r = 0; r < job->model->rank_count && last; r++) {
    const struct nt_model_rank *other = &job->model->ranks[r];
    const uint32_t same = r == rank ? NT_NONE : find_same(job, other, own, last - 1);
    const uint32_t next = same == NT_NONE ? NT_NONE : step_after(job, other, same);
    if (next == NT_NONE || next == ENDED || !in_step(job, other, same, own, last - 1, true))
      continue;
    if (first && !is_same_place(other, next, first, theirs))
      return false;
    count++;
    first = other;
    theirs = next;
  }
  if (count < WITNESSES)
    return false;
  *at = first->calls[theirs].at;
  *fn = first->calls[theirs].fn;
  return *at != 0;
}
