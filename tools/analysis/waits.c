/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the stuck operations; the graph over them is in knots.c. */
#include "analysis/waits.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/describe.h"
#include "analysis/foretell.h"
#include "analysis/knots.h"
#include "analysis/witnesses.h"
#include "analysis/progress.h"
#include "analysis/sequence.h"
#include "analysis/waits_parts.h"
#include "nccl/nccl_api.h"

/* Small messages are buffered: the sender does not wait. */
#define BUFFERED_BYTES (UINT64_C(64) << 10)

enum { LISTS = 7 };

struct nt_stuck *nt_stuck_add(struct nt_finder *f, enum nt_stuck_kind kind, uint32_t joint,
                              uint32_t room) {
  struct nt_waits *out = f->out;
  if (out->count == out->room) {
    uint32_t wanted = out->room ? 2 * out->room : 16;
    struct nt_stuck *list = realloc(out->list, wanted * sizeof *list);
    if (!list)
      return NULL;
    out->list = list;
    out->room = wanted;
  }
  struct nt_stuck *stuck = &out->list[out->count];
  memset(stuck, 0, sizeof *stuck);
  stuck->kind = kind;
  stuck->joint = joint;
  stuck->item = NT_NONE;
  room += room == 0;
  stuck->waiters = malloc((size_t)room * LISTS * sizeof *stuck->waiters); /* all lists in one */
  if (!stuck->waiters)
    return NULL;
  stuck->held = stuck->waiters + room;
  stuck->reached = stuck->held + room;
  stuck->laggards = stuck->reached + room;
  stuck->leavers = stuck->laggards + room;
  stuck->behind = stuck->leavers + room;
  stuck->blocked = stuck->behind + room;
  out->count++;
  return stuck;
}

bool nt_stuck_has_sibling(const struct nt_stuck *stuck, uint32_t rank) {
  if (stuck->kind == NT_STUCK_DEVICE) /* held up by its own group */
    return false;
  for (uint32_t i = 0; i < stuck->held_count; i++)
    if (stuck->held[i] == rank)
      return true;
  return false;
}

void nt_stuck_drop(struct nt_finder *f) {
  free(f->out->list[--f->out->count].waiters);
}

bool nt_stuck_is_alive(const struct nt_finder *f, uint32_t rank) {
  return f->freeze->fates[rank].kind == NT_FATE_ALIVE || f->freeze->fates[rank].lives;
}

void nt_stuck_note_laggard(struct nt_stuck *stuck, const struct nt_member *member) {
  if (member->ended_ns)
    stuck->leavers[stuck->leaver_count++] = member->rank;
  else
    stuck->laggards[stuck->laggard_count++] = member->rank;
}

/* Its host waits for the operation; at which one its device is may not be known. */
static void note_held(const struct nt_finder *f, struct nt_stuck *stuck, uint32_t rank,
                      uint32_t index) {
  const struct nt_model_call *call = &f->job->model->ranks[rank].calls[index];
  stuck->held[stuck->held_count++] = rank;
  if (call->progress != NT_PROGRESS_ENQUEUED)
    stuck->reached[stuck->reached_count++] = rank;
}

bool nt_stuck_note(struct nt_finder *f, struct nt_stuck *stuck, uint32_t rank, uint32_t index) {
  const struct nt_model_call *call = &f->job->model->ranks[rank].calls[index];
  bool unfinished = nt_call_unfinished(f->job, rank, index);
  stuck->fn = call->fn;
  if (!stuck->called_ns || call->enter_ns < stuck->called_ns)
    stuck->called_ns = call->enter_ns;
  if (!unfinished || !nt_stuck_is_alive(f, rank))
    return unfinished;
  if (!stuck->since_ns || call->enter_ns < stuck->since_ns)
    stuck->since_ns = call->enter_ns;
  stuck->waiters[stuck->waiter_count++] = rank;
  note_held(f, stuck, rank, index);
  stuck->open |= nt_call_is_open(f->job, rank, index);
  return true;
}

void nt_stuck_note_later(struct nt_finder *f, struct nt_stuck *stuck,
                         const struct nt_member *member, uint32_t position, uint32_t last) {
  for (uint32_t p = position < member->first ? member->first : position + 1;
       p <= member->called && p <= last; p++) {
    const uint32_t call = member->call[p - member->first];
    if (call != NT_NONE && nt_call_unfinished(f->job, member->rank, call)) {
      note_held(f, stuck, member->rank, call);
      return;
    }
  }
}

void nt_stuck_note_member(struct nt_finder *f, struct nt_stuck *stuck,
                          const struct nt_member *member, uint32_t position) {
  uint32_t call = position >= member->first ? member->call[position - member->first] : NT_NONE;
  const bool done = call == NT_NONE && nt_member_left_out(f->job, member);
  if (call == NT_NONE && !done && nt_stuck_is_alive(f, member->rank)) {
    stuck->waiters[stuck->waiter_count++] = member->rank;
    stuck->held[stuck->held_count++] = member->rank;
    stuck->reached[stuck->reached_count++] = member->rank;
    return;
  }
  if ((call == NT_NONE && !done) ||
      (call != NT_NONE && nt_stuck_note(f, stuck, member->rank, call)) ||
      !nt_stuck_is_alive(f, member->rank))
    return;
  nt_stuck_note_later(f, stuck, member, position, UINT32_MAX);
}

/* It was ended from outside while it still worked: since `since` it had made several calls, and was ended no longer after the
 * last of them than it had paused between them, or within a moment of it. How long it took until the first of them tells
 * nothing of how it works. */
static bool worked_to_its_end(const struct nt_finder *f, uint32_t index, int64_t since) {
  enum { SEVERAL = 3 };
  const struct nt_model_rank *rank = &f->job->model->ranks[index];
  int64_t end = nt_model_end(rank), last = since, longest = NT_YOUNG_ENDED_NS;
  uint32_t count = 0;
  end = f->freeze->ns < end ? f->freeze->ns : end;
  if ((rank->state != NT_PROCESS_VANISHED && !nt_model_is_silent(f->job->model, rank)) ||
      f->freeze->fates[index].kind != NT_FATE_ALIVE || !since)
    return false;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (call->enter_ns <= last || call->enter_ns > end || call->exit_ns > end ||
        (call->view == NT_NONE && !nt_fn_is_host_wait(call->fn)) || nt_call_aborts(call))
      continue;
    if (count++ && call->enter_ns - last > longest)
      longest = call->enter_ns - last;
    last = call->exit_ns > call->enter_ns ? call->exit_ns : call->enter_ns;
  }
  return count >= SEVERAL && end - last < longest;
}

/* The others had not waited for it for long when its file was written; until they have for longer, nobody is accused
 * (digest_limits.c). */
static bool is_out_of_sight(const struct nt_finder *f, uint32_t index, int64_t since) {
  const struct nt_model_rank *rank = &f->job->model->ranks[index];
  return f->freeze->fates[index].kind == NT_FATE_ALIVE &&
         nt_model_is_unseen(f->job->model, rank, since ? since + NT_YOUNG_NS : INT64_MAX);
}

/* The freeze point does not end the wait: who lives and has made no call since it began, also of those that are not looked at, is
 * behind until now. */
static bool stands_still(const struct nt_model_rank *rank, int64_t since, int64_t until) {
  for (uint32_t i = 0; i < rank->call_count; i++)
    if (rank->calls[i].view != NT_NONE && rank->calls[i].enter_ns > since)
      return false;
  return nt_model_was_there(rank, until);
}

/* A live job: those that are behind may just be on their way. */
void nt_stuck_note_movement(struct nt_finder *f, struct nt_stuck *stuck) {
  if (!stuck->since_ns)
    stuck->since_ns =
        stuck->called_ns; /* nobody waits in it: what it lacks is lacking since then */
  int64_t now = f->freeze->ns < f->job->model->now_ns ? f->freeze->ns : f->job->model->now_ns;
  bool all_alive = !stuck->leaver_count, moved = false, live = false;
  for (uint32_t i = 0; i < stuck->laggard_count; i++) {
    const struct nt_model_rank *rank = &f->job->model->ranks[stuck->laggards[i]];
    all_alive &= f->freeze->fates[stuck->laggards[i]].kind == NT_FATE_ALIVE &&
                 rank->state != NT_PROCESS_EXITED && !rank->leaving;
    moved |= rank->moved || worked_to_its_end(f, stuck->laggards[i], stuck->since_ns) ||
             is_out_of_sight(f, stuck->laggards[i], stuck->since_ns);
    live |= !nt_model_is_over(rank);
  }
  int64_t young = live ? NT_YOUNG_NS : NT_YOUNG_ENDED_NS;
  bool still = stuck->laggard_count != 0;
  for (uint32_t i = 0; i < stuck->laggard_count && still; i++)
    still = stands_still(&f->job->model->ranks[stuck->laggards[i]], stuck->since_ns,
                         stuck->since_ns + young);
  stuck->moving |=
      moved || (now && all_alive && stuck->since_ns && !still && now - stuck->since_ns < young);
}

/* The last thing that the rank did on any communicator, up to the cut. */
static int64_t last_call_ns(const struct nt_job *job, uint32_t index) {
  const struct nt_model_rank *rank = &job->model->ranks[index];
  int64_t last = 0;
  for (uint32_t i = 0; i < rank->call_count; i++)
    if (rank->calls[i].view != NT_NONE && rank->calls[i].enter_ns <= job->cut_ns &&
        rank->calls[i].enter_ns > last)
      last = rank->calls[i].enter_ns;
  return last;
}

/* Only members without a trace can be behind. That holds the others if it is the last thing they did; where
 * one has gone on, the operation is taken as finished, unless it is known not to be. Returns false if so. */
static bool judge_blind(struct nt_finder *f, struct nt_stuck *stuck, const struct nt_joint *joint) {
  bool live = false;
  int64_t now = f->freeze->ns < f->job->model->now_ns ? f->freeze->ns : f->job->model->now_ns;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    const struct nt_model_call *call = nt_member_call(f->job, member, member->called);
    if (!call)
      return false;
    const uint32_t index = (uint32_t)(call - nt_member_rank(f->job, member)->calls);
    if (last_call_ns(f->job, member->rank) > call->enter_ns &&
        !nt_call_outstanding(f->job, member->rank, index))
      return false;
    const struct nt_model_rank *rank = nt_member_rank(f->job, member);
    stuck->moving |= rank->moved;
    live |= !nt_model_is_over(rank);
  }
  int64_t young = live ? NT_YOUNG_NS : NT_YOUNG_ENDED_NS;
  stuck->moving |= now && stuck->since_ns && now - stuck->since_ns < young;
  return stuck->waiter_count > 0;
}

/* Those with a trace may have run ahead: they wait in the first operation that is known to be unfinished. */
static uint32_t first_held(const struct nt_job *job, const struct nt_joint *joint, uint32_t high) {
  uint32_t first = high;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    for (uint32_t p = member->first; p && p < first && p <= member->called; p++) {
      uint32_t call = member->call[p - member->first];
      if (call != NT_NONE && nt_call_outstanding(job, member->rank, call))
        first = p;
    }
  }
  return first;
}

/* Nobody is behind if it is left over from a call too many, from position `from` on. */
static void judge_extra(const struct nt_finder *f, struct nt_stuck *stuck, uint32_t from) {
  if (stuck->moving)
    return;
  stuck->extra = nt_anchors_extra(f->job, &f->job->joints[stuck->joint], stuck->seq, from);
  uint32_t position = 0;
  if (!stuck->extra.position)
    stuck->peers = nt_witnesses_lack(f->job, &f->job->joints[stuck->joint], stuck->seq, &position);
  if (stuck->peers)
    stuck->extra = (struct nt_shift){.position = position, .how = NT_EDIT_EXTRA, .run = 1};
  if (!stuck->extra.position)
    return;
  stuck->kind = NT_STUCK_DIVERGED;
  stuck->laggard_count = stuck->leaver_count = 0;
}

static int stuck_collective(struct nt_finder *f, uint32_t index,
                            const struct nt_divergence *divergence) {
  const struct nt_joint *joint = &f->job->joints[index];
  uint32_t low = joint->members[0].called, high = low;
  for (uint32_t i = 1; i < joint->member_count; i++) {
    uint32_t called = joint->members[i].called;
    low = called < low ? called : low;
    high = called > high ? called : high;
  }
  bool blind = low == high;
  if (!high || (blind && !joint->absent))
    return 0;
  if (divergence->hidden_high || divergence->captured || !nt_stuck_counts_behind(divergence, low))
    return 0;
  struct nt_stuck *stuck = nt_stuck_add(f, NT_STUCK_COLLECTIVE, index, joint->member_count);
  if (!stuck)
    return -NT_ERR_MEMORY;
  stuck->seq = blind ? first_held(f->job, joint, high) : low + 1;
  stuck->absent = blind;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    if (member->called < stuck->seq) {
      nt_stuck_note_laggard(stuck, member);
      continue;
    }
    nt_stuck_note_member(f, stuck, member, stuck->seq);
  }
  if (blind && !judge_blind(f, stuck, joint)) {
    nt_stuck_drop(f);
  } else if (blind) {
    nt_stuck_note_front(f, stuck, joint);
  } else if (!blind) {
    nt_stuck_note_movement(f, stuck);
    judge_extra(f, stuck, divergence->from);
  }
  return 0;
}

/* The partner has ended a group like the one in which it last served this queue, and did not serve it. */
static bool leaves_group(const struct nt_job *job, const struct nt_p2p_end *end,
                         const struct nt_member *partner) {
  const struct nt_model_rank *rank = nt_member_rank(job, partner);
  const enum nt_shape shape = end->is_send ? NT_SHAPE_RECV : NT_SHAPE_SEND;
  const int32_t peer = end->is_send ? end->source : end->destination;
  uint32_t last = NT_NONE;
  for (uint32_t i = 0; i < rank->call_count; i++)
    if (rank->calls[i].view == partner->view && nt_fn_shape(rank->calls[i].fn) == shape &&
        rank->calls[i].peer == peer && nt_call_counts(&rank->calls[i]))
      last = i;
  const uint32_t group = last == NT_NONE ? 0 : rank->calls[last].group;
  for (uint32_t i = 0; i < rank->call_count && group; i++) {
    const struct nt_model_call *with = &rank->calls[i];
    if (i == last || with->group != group || with->thread != rank->calls[last].thread ||
        with->view == NT_NONE)
      continue;
    for (uint32_t j = last + 1; j < rank->call_count; j++)
      if (rank->calls[j].group && rank->calls[j].group != group && rank->calls[j].fn == with->fn &&
          rank->calls[j].view == with->view && rank->calls[j].peer == with->peer &&
          nt_call_counts(&rank->calls[j]))
        return true;
  }
  return false;
}

/* By its past the partner should have taken (or sent) the message by now. */
static bool left_out(const struct nt_job *job, const struct nt_p2p_end *end,
                     const struct nt_member *partner) {
  const int32_t peer = end->is_send ? end->source : end->destination;
  const uint32_t last = nt_last_call(job, partner->rank);
  return leaves_group(job, end, partner) ||
         (last != NT_NONE &&
          nt_foretell_left_out(job, partner->rank, nt_kind_message(end->joint, !end->is_send, peer),
                               job->model->ranks[partner->rank].calls[last].enter_ns));
}

static int stuck_message(struct nt_finder *f, const struct nt_p2p *p2p, uint32_t item) {
  const struct nt_p2p_end *end = &p2p->ends[item];
  const struct nt_member *partner = nt_p2p_partner(f->job, end);
  if (f->freeze->fates[end->rank].kind != NT_FATE_ALIVE && end->is_send)
    return 0; /* it is gone, and whatever it sent is nobody's wait */
  struct nt_stuck *stuck =
      nt_stuck_add(f, end->is_send ? NT_STUCK_SEND : NT_STUCK_RECV, end->joint, 1);
  if (!stuck)
    return -NT_ERR_MEMORY;
  stuck->item = item;
  stuck->seq = end->seq;
  nt_stuck_note(f, stuck, end->rank, end->call);
  if (partner)
    nt_stuck_note_laggard(stuck, partner);
  stuck->absent = !partner;
  stuck->soft =
      end->is_send && !stuck->open && nt_call_bytes(nt_p2p_call(f->job, end)) <= BUFFERED_BYTES;
  nt_stuck_note_movement(f, stuck);
  /* Buffered, and whom it was for may still take it: nobody waits. */
  if (stuck->soft && partner && f->freeze->fates[partner->rank].kind == NT_FATE_ALIVE &&
      !nt_call_outstanding(f->job, end->rank, end->call) && !left_out(f->job, end, partner))
    nt_stuck_drop(f);
  return 0;
}

/* In operations of one communicator. */
static int stuck_of_joint(struct nt_finder *f, uint32_t index,
                          const struct nt_divergence *divergence) {
  if (nt_uneven_at(&f->out->replays, index, divergence))
    return nt_stuck_uneven(f, index);
  int status = nt_stuck_divergence(f, index, divergence);
  if (!status)
    status = stuck_collective(f, index, divergence);
  if (!status)
    status = nt_stuck_device(f, index, divergence);
  return status ? status : nt_stuck_replay(f, index, divergence);
}

static int list_stuck(struct nt_finder *f, const struct nt_p2p *p2p,
                      const struct nt_creations *creations,
                      const struct nt_divergence *divergences) {
  int status = 0;
  for (uint32_t i = 0; i < f->job->joint_count && !status; i++) {
    status = stuck_of_joint(f, i, &divergences[i]);
    if (!status)
      status = nt_stuck_split(f, i);
  }
  if (!status)
    status = nt_stuck_windows(f);
  if (!status)
    status = nt_stuck_unplaced(f);
  for (uint32_t i = 0; i < creations->count && !status; i++)
    status = nt_stuck_init(f, creations, i);
  for (uint32_t i = 0; i < f->job->joint_count && !status; i++)
    status = nt_stuck_teardown(f, i);
  const struct nt_p2p_end *told = NULL;
  for (uint32_t i = 0; i < p2p->unmatched_count && !status; i++) {
    const struct nt_p2p_end *end = &p2p->ends[p2p->unmatched[i]];
    if ((told && nt_p2p_same_queue(end, told)) ||
        (!nt_p2p_partner(f->job, end) && !nt_call_unfinished(f->job, end->rank, end->call)))
      continue; /* only the first of a queue is waited for; without a trace of the other side, that which is not done */
    told = end;
    status = stuck_message(f, p2p, p2p->unmatched[i]);
  }
  return status ? status : nt_stuck_pairs(f, p2p);
}

/* A knot that holds only because of a send that may have been buffered is none. */
static bool loosen(struct nt_waits *waits) {
  bool loosened = false;
  for (uint32_t i = 0; i < waits->count; i++) {
    struct nt_stuck *stuck = &waits->list[i];
    if (stuck->soft && !stuck->excused && waits->knot_ranks[stuck->knot] &&
        waits->knot_sink[stuck->knot]) {
      bool pure = true; /* nothing but sends: a cycle of sends, if there is nothing else to blame */
      for (uint32_t j = 0; j < waits->count; j++)
        pure &= waits->list[j].knot != stuck->knot || waits->list[j].kind == NT_STUCK_SEND;
      if (pure)
        continue;
      stuck->excused = loosened = true;
    }
  }
  return loosened;
}

static bool is_creation(const struct nt_stuck *stuck) {
  return stuck->kind == NT_STUCK_INIT || stuck->kind == NT_STUCK_SPLIT;
}

/* A rank that ends a communicator while others wait for it elsewhere does not wait for them: it has given up its
 * turn. What remains are ends and creations that wait for each other. */
static bool release_teardowns(struct nt_waits *waits) {
  bool released = false;
  for (uint32_t i = 0; i < waits->count; i++) {
    struct nt_stuck *stuck = &waits->list[i];
    bool others = false, creations = false;
    if (stuck->kind != NT_STUCK_TEARDOWN || stuck->excused || !waits->knot_sink[stuck->knot])
      continue;
    for (uint32_t j = 0; j < waits->count; j++)
      if (waits->list[j].knot == stuck->knot) {
        others |= waits->list[j].kind != NT_STUCK_TEARDOWN;
        creations |= is_creation(&waits->list[j]);
      }
    stuck->excused = others && !creations;
    released |= stuck->excused;
  }
  return released;
}

int nt_waits_find(const struct nt_job *job, const struct nt_freeze *freeze,
                  const struct nt_p2p *p2p, const struct nt_creations *creations,
                  const struct nt_divergence *divergences, struct nt_waits *out) {
  struct nt_finder f = {.job = job, .freeze = freeze, .out = out};
  memset(out, 0, sizeof *out);
  struct nt_unfinished *unfinished = nt_stuck_unfinished(&f);
  f.unfinished = unfinished;
  int status = unfinished ? nt_replays_find(job, &out->replays) : -NT_ERR_MEMORY;
  if (!status)
    status = list_stuck(&f, p2p, creations, divergences);
  if (!status)
    status = nt_stuck_groups(&f, p2p);
  free(unfinished);
  for (uint32_t i = 0; i < out->count; i++)
    out->list[i].excused = out->list[i].moving;
  if (!status)
    status = nt_knots_find(job->model->rank_count, out);
  if (!status && loosen(out))
    status = nt_knots_find(job->model->rank_count, out);
  if (!status && release_teardowns(out))
    status = nt_knots_find(job->model->rank_count, out);
  return status;
}

void nt_waits_free(struct nt_waits *waits) {
  for (uint32_t i = 0; i < waits->count; i++)
    free(waits->list[i].waiters);
  free(waits->list);
  free(waits->rank_knot);
  free(waits->device_knot);
  free(waits->knot_ranks);
  free(waits->knot_stuck);
  free(waits->knot_sink);
  nt_replays_free(&waits->replays);
  memset(waits, 0, sizeof *waits);
}
