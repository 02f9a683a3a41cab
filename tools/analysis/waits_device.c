/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that everybody called and that do not finish.
 *
 * Per communicator the oldest of them stands for all later ones. On each device it is at the head of its
 * stream, behind another operation of NCCL, or behind other work, and only what the marks tell is believed:
 * an operation whose progress nobody saw is not listed here.
 */
#include <stdlib.h>

#include "analysis/each.h"
#include "analysis/progress.h"
#include "analysis/sequence.h"
#include "analysis/waits_parts.h"
#include "nccl/nccl_api.h"

/* How far back one looks for the longest pause that was normal in this job. */
#define NORMAL_CALLS 256

/* First position from `low` on that is known to be unfinished on the member; 0 if none. */
static uint32_t first_outstanding(const struct nt_job *job, const struct nt_member *member) {
  for (uint32_t p = member->first; p && p <= member->called; p++) {
    uint32_t call = member->call[p - member->first];
    if (call != NT_NONE && nt_call_outstanding(job, member->rank, call))
      return p;
  }
  return 0;
}

/* The longest time between two of the member's calls up to `position`. */
static int64_t normal_pause(const struct nt_job *job, const struct nt_member *member,
                            uint32_t position) {
  int64_t longest = 0;
  uint32_t low = position > NORMAL_CALLS ? position - NORMAL_CALLS : 1;
  for (uint32_t p = position; p > low; p--) {
    const struct nt_model_call *a = nt_member_call(job, member, p - 1);
    const struct nt_model_call *b = nt_member_call(job, member, p);
    if (a && b && b->enter_ns - a->enter_ns > longest)
      longest = b->enter_ns - a->enter_ns;
  }
  return longest;
}

bool nt_hung_before(const struct nt_job *job, uint32_t joint_index, uint32_t position, int64_t ns) {
  const struct nt_joint *joint = &job->joints[joint_index];
  int64_t last = 0, young = NT_YOUNG_NS;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    const struct nt_model_call *call = nt_member_call(job, member, position);
    const int64_t pause = normal_pause(job, member, position);
    if (!call && position <= member->called)
      continue; /* its record is gone */
    if (!call)
      return false;
    last = call->enter_ns > last ? call->enter_ns : last;
    young = pause > young ? pause : young;
  }
  return last && ns - last > young;
}

static int64_t now_of(const struct nt_finder *f) {
  int64_t now = f->job->model->now_ns;
  return f->freeze->ns < now ? f->freeze->ns : now;
}

static int64_t young_of(const struct nt_model_rank *rank) {
  return nt_model_is_over(rank) ? NT_YOUNG_ENDED_NS : NT_YOUNG_NS;
}

bool nt_stuck_is_young(const struct nt_finder *f, uint32_t rank, int64_t ns) {
  return now_of(f) - ns < young_of(&f->job->model->ranks[rank]);
}

static bool is_gone(const struct nt_finder *f, uint32_t rank) {
  return f->freeze->fates[rank].kind != NT_FATE_ALIVE && !f->freeze->fates[rank].lives;
}

/* Sorts the device of one that called into the lists. A host that is inside the call may be so because of the launch,
 * which waits for room behind other operations of NCCL, or for anything else. Where the calls in front were left out, it
 * may wait for one of these as well as for other work: then it is in none. */
void nt_stuck_note_device(struct nt_finder *f, struct nt_stuck *stuck, uint32_t rank,
                          uint32_t call) {
  if (call == NT_NONE || is_gone(f, rank) ||
      f->job->model->ranks[rank].calls[call].progress != NT_PROGRESS_ENQUEUED)
    return;
  const struct nt_front front = nt_front_of(f->job, rank, call);
  if (front.call != NT_NONE)
    stuck->behind[stuck->behind_count++] = rank;
  else if (!front.unseen && !nt_call_is_open(f->job, rank, call))
    stuck->blocked[stuck->blocked_count++] = rank;
}

void nt_stuck_note_gone(struct nt_finder *f, struct nt_stuck *stuck, uint32_t rank, uint32_t call,
                        bool hung) {
  bool explained = stuck->behind_count || stuck->blocked_count;
  bool done = call == NT_NONE || !nt_call_unfinished(f->job, rank, call);
  bool needed = f->freeze->fates[rank].kind == NT_FATE_DEAD && !explained && !hung;
  if (!done || needed)
    stuck->leavers[stuck->leaver_count++] = rank;
}

static void note_gone_members(struct nt_finder *f, struct nt_stuck *stuck,
                              const struct nt_joint *joint) {
  bool remains = false;
  for (uint32_t i = 0; i < joint->member_count; i++)
    remains |= !is_gone(f, joint->members[i].rank) && !joint->members[i].ended_ns;
  for (uint32_t i = 0; i < joint->member_count && remains; i++) {
    const struct nt_member *member = &joint->members[i];
    if (is_gone(f, member->rank) || member->ended_ns)
      nt_stuck_note_gone(
          f, stuck, member->rank,
          stuck->seq >= member->first ? member->call[stuck->seq - member->first] : NT_NONE,
          nt_hung_before(f->job, stuck->joint, stuck->seq, f->freeze->fates[member->rank].ns));
  }
}

/* All members gave it up, and nobody waits in it: what it had under way is nobody's concern. Finalize, destroy and
 * a host that waits for its device after them do wait for it. */
static bool is_over(const struct nt_finder *f, const struct nt_joint *joint) {
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    if (!member->ended_ns)
      return false;
    bool aborted = nt_call_aborts(&nt_member_rank(f->job, member)->calls[member->ended_call]);
    bool waits =
        !is_gone(f, member->rank) && (nt_call_is_open(f->job, member->rank, member->ended_call) ||
                                      nt_host_wait_of(f->job, member->rank) != NT_NONE);
    if (!aborted && waits)
      return false;
  }
  return true;
}

/* All members ended as they meant to: nothing can have been left unfinished, whatever the last look saw. */
static bool ended_well(const struct nt_finder *f, const struct nt_joint *joint) {
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_model_rank *rank = nt_member_rank(f->job, &joint->members[i]);
    if (!rank || rank->state != NT_PROCESS_EXITED || rank->exit_code != 0)
      return false;
  }
  return true;
}

bool nt_member_left_out(const struct nt_job *job, const struct nt_member *member) {
  const struct nt_model_rank *rank = nt_member_rank(job, member);
  return rank->recorder == NT_RECORDER_FLIGHT && rank->overwritten;
}

/* One member may be done with it long before the others are. */
static bool is_one_sided(uint8_t fn) {
  const unsigned kind = nt_fn_canonical(fn);
  return kind == NT_FN_Broadcast || kind == NT_FN_Reduce || kind == NT_FN_Gather ||
         kind == NT_FN_Scatter;
}

/* Where the recorder does not tell what stands in front of an operation, this does: most members have finished it, so all
 * took part, and the devices that have not are stuck or broken. */
static void note_alone(struct nt_finder *f, struct nt_stuck *stuck, const struct nt_joint *joint) {
  uint32_t finished = 0, count = 0;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    const struct nt_model_call *call = nt_member_call(f->job, member, stuck->seq);
    if (nt_member_rank(f->job, member)->recorder != NT_RECORDER_FLIGHT)
      return;
    if (call ? call->progress == NT_PROGRESS_FINISHED : nt_member_left_out(f->job, member))
      finished++;
    else if (call && call->progress != NT_PROGRESS_UNKNOWN)
      stuck->blocked[count++] = member->rank;
  }
  stuck->alone = !is_one_sided(stuck->fn) && finished > joint->member_count / 2 &&
                 finished + count == joint->member_count;
  stuck->blocked_count = stuck->alone ? count : 0;
}

/* All members' waits in it. Returns until when they wait no longer than is normal. */
static int64_t note_members(struct nt_finder *f, struct nt_stuck *stuck,
                            const struct nt_joint *joint) {
  int64_t last = 0, young = 0;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    const struct nt_model_rank *rank = nt_member_rank(f->job, member);
    const struct nt_model_call *call = nt_member_call(f->job, member, stuck->seq);
    int64_t pause = normal_pause(f->job, member, stuck->seq);
    nt_stuck_note_member(f, stuck, member, stuck->seq);
    last = call && call->enter_ns > last ? call->enter_ns : last;
    pause = pause > young_of(rank) ? pause : young_of(rank);
    young = pause > young ? pause : young;
    stuck->moving |= rank->moved;
  }
  return last + young;
}

/* The freeze point does not end the wait: is a device of a process that lives still at other work now, or is a process stopped? */
static bool is_young(const struct nt_finder *f, const struct nt_stuck *stuck, int64_t until) {
  const struct nt_model_rank *ranks = f->job->model->ranks;
  bool stays = stuck->blocked_count != 0;
  for (uint32_t i = 0; i < stuck->blocked_count && stays; i++)
    stays = nt_model_was_there(&ranks[stuck->blocked[i]], until);
  for (uint32_t i = 0; i < stuck->waiter_count && !stays; i++)
    stays = ranks[stuck->waiters[i]].state == NT_PROCESS_STOPPED &&
            nt_model_was_there(&ranks[stuck->waiters[i]], until);
  return now_of(f) < until && !stays;
}

void nt_stuck_note_front(struct nt_finder *f, struct nt_stuck *stuck,
                         const struct nt_joint *joint) {
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    if (nt_member_call(f->job, member, stuck->seq))
      nt_stuck_note_device(f, stuck, member->rank, member->call[stuck->seq - member->first]);
  }
  stuck->blocked_count = 0; /* that alone does not tell who is late */
  if (!stuck->behind_count)
    return;
  stuck->kind = NT_STUCK_DEVICE;
  stuck->absent = false;
}

/* All with a trace have called it, and some have gone on elsewhere: who waits in it waits for one without a trace, and is
 * not late for what those called. Where nobody has gone on, waits.c tells. */
static int stuck_blind(struct nt_finder *f, uint32_t index, uint32_t position) {
  const struct nt_joint *joint = &f->job->joints[index];
  const struct nt_stuck *told = f->out->count ? &f->out->list[f->out->count - 1] : NULL;
  if (told && told->joint == index && (told->absent || told->kind == NT_STUCK_DEVICE))
    return 0;
  struct nt_stuck *stuck = nt_stuck_add(f, NT_STUCK_COLLECTIVE, index, joint->member_count);
  if (!stuck)
    return -NT_ERR_MEMORY;
  stuck->seq = position;
  stuck->absent = true;
  stuck->moving |= now_of(f) < note_members(f, stuck, joint);
  if (stuck->waiter_count)
    nt_stuck_note_front(f, stuck, joint);
  else
    nt_stuck_drop(f);
  return 0;
}

struct search {
  const struct nt_finder *f;
  struct nt_unfinished *out;
};

static int search_joint(void *ctx, uint32_t index) {
  const struct search *search = ctx;
  const struct nt_joint *joint = &search->f->job->joints[index];
  struct nt_unfinished *out = &search->out[index];
  *out = (struct nt_unfinished){.low = UINT32_MAX};
  if (is_over(search->f, joint) || ended_well(search->f, joint))
    return 0;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const uint32_t first = first_outstanding(search->f->job, &joint->members[i]);
    out->low = joint->members[i].called < out->low ? joint->members[i].called : out->low;
    out->first = first && (!out->first || first < out->first) ? first : out->first;
  }
  return 0;
}

struct nt_unfinished *nt_stuck_unfinished(const struct nt_finder *f) {
  struct nt_unfinished *out = calloc((size_t)f->job->joint_count + 1, sizeof *out);
  struct search search = {f, out};
  if (out)
    (void)nt_each(f->job->joint_count, search_joint, &search);
  return out;
}

int nt_stuck_device(struct nt_finder *f, uint32_t index, const struct nt_divergence *divergence) {
  const struct nt_joint *joint = &f->job->joints[index];
  const uint32_t low = f->unfinished[index].low, position = f->unfinished[index].first;
  if (!position || position > low || divergence->mixed ||
      (divergence->hidden_high && !nt_stuck_is_past_hidden(f, index, divergence)) ||
      (divergence->position && nt_stuck_differs_from(divergence) <= position))
    return 0;
  if (joint->absent)
    return stuck_blind(f, index, position);
  struct nt_stuck *stuck = nt_stuck_add(f, NT_STUCK_DEVICE, index, joint->member_count);
  if (!stuck)
    return -NT_ERR_MEMORY;
  stuck->seq = position;
  const int64_t until = note_members(f, stuck, joint);
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    if (nt_member_call(f->job, member, position))
      nt_stuck_note_device(f, stuck, member->rank, member->call[position - member->first]);
  }
  if (!stuck->blocked_count && !stuck->behind_count)
    note_alone(f, stuck, joint);
  note_gone_members(f, stuck, joint);
  stuck->moving |= !stuck->leaver_count && is_young(f, stuck, until);
  if (!stuck->waiter_count)
    nt_stuck_drop(f);
  return 0;
}

/* The end with these numbers, NULL if there is none: they are sorted so. */
static const struct nt_p2p_end *find_end(const struct nt_p2p *p2p, const struct nt_p2p_end *key) {
  enum { KEYS = 6 };
  const uint32_t wanted[KEYS] = {
      key->joint, (uint32_t)key->source, (uint32_t)key->destination, key->signal,
      key->seq,   !key->is_send};
  uint32_t low = 0, high = p2p->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2, i = 0;
    const struct nt_p2p_end *end = &p2p->ends[middle];
    const uint32_t got[KEYS] = {
        end->joint, (uint32_t)end->source, (uint32_t)end->destination, end->signal,
        end->seq,   !end->is_send};
    while (i < KEYS && got[i] == wanted[i])
      i++;
    if (i == KEYS)
      return end;
    if (got[i] < wanted[i])
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

/* Some member has not called the collective. */
static bool lacks_members(const struct nt_finder *f, uint32_t rank, uint32_t index) {
  const struct nt_model_call *call = &f->job->model->ranks[rank].calls[index];
  const uint32_t joint = call->view == NT_NONE ? NT_NONE : f->job->places[rank][call->view].joint;
  return joint != NT_NONE && nt_fn_is_collective(call->fn) && nt_call_counts(call) &&
         call->seq > f->unfinished[joint].low;
}

/* The other side's host has not handed the message over: it did not call, or is inside the call. */
static bool lacks_other_side(const struct nt_finder *f, const struct nt_p2p *p2p, uint32_t rank,
                             uint32_t index) {
  const struct nt_model_call *call = &f->job->model->ranks[rank].calls[index];
  enum nt_shape shape = nt_fn_shape(call->fn);
  if ((shape != NT_SHAPE_SEND && shape != NT_SHAPE_RECV) || call->view == NT_NONE)
    return false;
  struct nt_place place = f->job->places[rank][call->view];
  if (place.joint == NT_NONE)
    return false;
  int32_t self = f->job->joints[place.joint].members[place.member].comm_rank;
  bool sends = shape == NT_SHAPE_SEND;
  const struct nt_p2p_end key = {.joint = place.joint,
                                 .source = sends ? self : call->peer,
                                 .destination = sends ? call->peer : self,
                                 .seq = call->seq,
                                 .is_send = !sends};
  const struct nt_p2p_end *other = find_end(p2p, &key);
  return other ? nt_call_is_open(f->job, other->rank, other->call)
               : nt_p2p_partner(f->job, &(struct nt_p2p_end){.joint = key.joint,
                                                             .source = key.source,
                                                             .destination = key.destination,
                                                             .is_send = sends}) != NULL;
}

/* Another operation of its group waits for its other side, or for a member: a host that is in the end of the group hands none over
 * before, and the device has the group finished as a whole. */
static bool is_held_by_its_group(const struct nt_finder *f, const struct nt_p2p *p2p,
                                 const struct nt_p2p_end *end) {
  const struct nt_model_rank *rank = &f->job->model->ranks[end->rank];
  uint32_t first, behind;
  if (!nt_call_outstanding(f->job, end->rank, end->call))
    return false;
  nt_call_group(rank, end->call, &first, &behind);
  for (uint32_t i = first; i < behind; i++)
    if (i != end->call &&
        (lacks_other_side(f, p2p, end->rank, i) || lacks_members(f, end->rank, i)))
      return true;
  return false;
}

/* Both sides have called; only the first of a queue. */
static int stuck_pair(struct nt_finder *f, const struct nt_p2p *p2p, uint32_t item) {
  const struct nt_p2p_end *send = &p2p->ends[item], *ends[2] = {send, send + 1};
  struct nt_stuck *stuck = nt_stuck_add(f, NT_STUCK_DEVICE, send->joint, 2);
  if (!stuck)
    return -NT_ERR_MEMORY;
  int64_t last = 0, young = 0;
  stuck->item = item;
  stuck->seq = send->seq;
  for (int i = 0; i < 2; i++) {
    const struct nt_model_rank *rank = &f->job->model->ranks[ends[i]->rank];
    const struct nt_model_call *call = &rank->calls[ends[i]->call];
    nt_stuck_note(f, stuck, ends[i]->rank, ends[i]->call);
    nt_stuck_note_device(f, stuck, ends[i]->rank, ends[i]->call);
    if (is_held_by_its_group(f, p2p, ends[i])) {
      if (nt_call_is_open(f->job, ends[i]->rank, ends[i]->call))
        stuck->laggards[stuck->laggard_count++] = ends[i]->rank;
      else if (call->progress != NT_PROGRESS_ENQUEUED)
        stuck->behind[stuck->behind_count++] = ends[i]->rank;
    }
    last = call->enter_ns > last ? call->enter_ns : last;
    young = young_of(rank) > young ? young_of(rank) : young;
    stuck->moving |= rank->moved;
  }
  /* One that died did not finish its side, or one that left, if that is known; unless a device explains more. */
  for (int i = 0; i < 2 && !stuck->behind_count && !stuck->blocked_count; i++)
    if (is_gone(f, ends[i]->rank) &&
        (f->freeze->fates[ends[i]->rank].kind == NT_FATE_DEAD
             ? nt_call_unfinished(f->job, ends[i]->rank, ends[i]->call)
             : nt_call_outstanding(f->job, ends[i]->rank, ends[i]->call)))
      stuck->leavers[stuck->leaver_count++] = ends[i]->rank;
  /* Named as the side sees it that is not held up by its own device. */
  bool sender = (stuck->blocked_count && stuck->blocked[0] == send->rank) ||
                (stuck->behind_count == 1 && stuck->behind[0] == send->rank);
  stuck->fn = f->job->model->ranks[ends[sender]->rank].calls[ends[sender]->call].fn;
  for (int i = 0; i < 2; i++)
    if (is_gone(f, ends[i]->rank) && !is_gone(f, ends[!i]->rank))
      nt_stuck_note_gone(f, stuck, ends[i]->rank, ends[i]->call,
                         f->freeze->fates[ends[i]->rank].ns - last > young);
  stuck->moving |= !stuck->leaver_count && is_young(f, stuck, last + young);
  if (!stuck->waiter_count)
    nt_stuck_drop(f);
  return 0;
}

/* In a flight recorder's dump a group is known to finish as a whole, and not how far the host is in it: where one of
 * its messages has no counterpart, its other ones hold nobody up, nor do those of the groups that wait for it. */
static bool is_held_by_group(const struct nt_finder *f, const struct nt_p2p *p2p,
                             const struct nt_p2p_end *send) {
  bool grouped = nt_p2p_call(f->job, send)->group || nt_p2p_call(f->job, send + 1)->group;
  if (f->job->model->ranks[send->rank].recorder != NT_RECORDER_FLIGHT)
    return false;
  for (uint32_t i = 0; i < p2p->unmatched_count && grouped; i++)
    if (p2p->ends[p2p->unmatched[i]].joint == send->joint &&
        nt_p2p_call(f->job, &p2p->ends[p2p->unmatched[i]])->group)
      return true;
  return false;
}

int nt_stuck_pairs(struct nt_finder *f, const struct nt_p2p *p2p) {
  const struct nt_p2p_end *told = NULL;
  int status = 0;
  for (uint32_t i = 0; i + 1 < p2p->count && !status; i++) {
    const struct nt_p2p_end *send = &p2p->ends[i], *recv = send + 1;
    const bool same = told && nt_p2p_same_queue(told, send);
    if (!nt_p2p_is_pair(send, recv) || same ||
        nt_call_bytes(nt_p2p_call(f->job, send)) != nt_call_bytes(nt_p2p_call(f->job, recv)) ||
        (!nt_call_outstanding(f->job, send->rank, send->call) &&
         !nt_call_outstanding(f->job, recv->rank, recv->call)) ||
        is_held_by_group(f, p2p, send))
      continue;
    told = send;
    status = stuck_pair(f, p2p, i);
  }
  return status;
}
