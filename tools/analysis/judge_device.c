/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that all members called and that do not finish: in whose stream they stand, and behind what.
 *
 * A device that works on something else in front of the operation is to blame (gpu). Where the operation has
 * its turn everywhere, nobody is (stalled): the transport or the hardware holds it.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "analysis/progress.h"
#include "analysis/sequence.h"
#include "cli/text.h"
#include "nccl/nccl_api.h"

#define HUNG_NS INT64_C(1000000000) /* a message or launch takes less, or it hangs */

/* The call by which the rank takes part in the operation, NT_NONE if it is not known. */
static uint32_t call_in(const struct nt_inquiry *inquiry, const struct nt_stuck *stuck,
                        uint32_t rank) {
  if (stuck->item != NT_NONE) {
    const struct nt_p2p_end *end = &inquiry->p2p.ends[stuck->item];
    return end->rank == rank ? end->call : end[1].rank == rank ? end[1].call : NT_NONE;
  }
  const struct nt_joint *joint = &inquiry->job->joints[stuck->joint];
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  for (uint32_t v = 0; v < model->view_count; v++) {
    struct nt_place place = inquiry->job->places[rank][v];
    if (place.joint != stuck->joint)
      continue;
    const struct nt_member *member = &joint->members[place.member];
    const struct nt_replay *replay =
        nt_replay_at(&inquiry->waits.replays, place.joint, place.member, stuck->seq);
    if (stuck->kind == NT_STUCK_REPLAY)
      return replay ? replay->call : NT_NONE;
    if (stuck->seq >= member->first && stuck->seq <= member->called)
      return member->call[stuck->seq - member->first];
  }
  return NT_NONE;
}

/* What is in front of an enqueued call. */
static void front_text(char *out, size_t size, const struct nt_inquiry *inquiry, uint32_t rank,
                       uint32_t call) {
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  struct nt_front front = nt_front_of(inquiry->job, rank, call);
  char text[NT_DESCRIBE];
  if (front.call != NT_NONE)
    snprintf(out, size, "enqueued behind %s, which has not finished either%s",
             nt_describe_call(text, sizeof text, inquiry->job, rank, front.call),
             model->calls[front.call].stream == model->calls[call].stream ? ""
                                                                          : ", on another stream");
  else if (front.unseen)
    snprintf(
        out, size,
        "not at the head of stream %u: what was called right in front of it is not in the %s, or "
        "not how far it came, so what it waits for is not known",
        model->calls[call].stream, model->left_out ? "digest" : "trace");
  else if (!model->calls[call].stream)
    snprintf(out, size, "not at the head of its stream, though nothing of NCCL is in front of it");
  else
    snprintf(
        out, size,
        "not at the head of stream %u: all earlier operations of NCCL on it are finished, what "
        "is in front is other work of the device%s",
        model->calls[call].stream, front.event == NT_NONE ? "" : ", or a wait for an event");
}

static void progress_text(char *out, size_t size, const struct nt_inquiry *inquiry, uint32_t rank,
                          uint32_t call) {
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  out[0] = '\0';
  if (nt_call_is_open(inquiry->job, rank, call))
    snprintf(out, size, "the host is inside the call");
  else if (model->calls[call].progress == NT_PROGRESS_ENQUEUED)
    front_text(out, size, inquiry, rank, call);
  else if (model->calls[call].progress == NT_PROGRESS_REACHED)
    snprintf(out, size, "at the head of the stream, not finished");
  else if (model->calls[call].progress == NT_PROGRESS_UNFINISHED)
    snprintf(out, size, "not finished");
}

/* Ranks of which the same can be said. */
enum { GROUPS = 12 };
struct groups {
  struct {
    char text[2 * NT_DESCRIBE];
    struct nt_rank_set ranks;
  } group[GROUPS];
  uint32_t count, left_out;
};

static void group_add(struct groups *groups, const struct nt_inquiry *inquiry, const char *text,
                      uint32_t rank) {
  uint32_t i = 0;
  if (!*text)
    return;
  while (i < groups->count && strcmp(groups->group[i].text, text))
    i++;
  if (i == GROUPS) {
    groups->left_out++;
    return;
  }
  if (i == groups->count) {
    groups->count++;
    snprintf(groups->group[i].text, sizeof groups->group[i].text, "%s", text);
  }
  if (nt_finding_add(inquiry->job, &groups->group[i].ranks, rank) < 0)
    groups->left_out++;
}

static void group_say(struct groups *groups, struct nt_finding *finding) {
  char who[NT_DESCRIBE];
  for (uint32_t i = 0; i < groups->count; i++) {
    nt_lines_add(&finding->evidence, "%s: %s",
                 nt_describe_ranks(who, sizeof who, &groups->group[i].ranks),
                 groups->group[i].text);
    nt_rank_set_free(&groups->group[i].ranks);
  }
  if (groups->left_out)
    nt_lines_add(&finding->evidence, "and %u more ranks", groups->left_out);
}

void nt_say_progress(struct nt_inquiry *inquiry, struct nt_finding *finding,
                     const struct nt_stuck *stuck) {
  struct groups *states = calloc(2, sizeof *states), *hosts = states + 1;
  char text[2 * NT_DESCRIBE];
  for (uint32_t i = 0; states && i < stuck->waiter_count; i++) {
    uint32_t rank = stuck->waiters[i], call = call_in(inquiry, stuck, rank);
    if (call == NT_NONE)
      continue;
    progress_text(text, sizeof text, inquiry, rank, call);
    group_add(states, inquiry, text, rank);
    group_add(hosts, inquiry, nt_describe_now(text, sizeof text, inquiry->job, rank), rank);
  }
  if (!states)
    return;
  group_say(states, finding);
  group_say(hosts, finding);
  free(states);
}

/* All have called it, and so long before that it had hung by then. */
static bool hung_before(const struct nt_inquiry *inquiry, const struct nt_stuck *stuck,
                        int64_t ns) {
  const struct nt_joint *joint = &inquiry->job->joints[stuck->joint];
  int64_t last = stuck->since_ns;
  if (stuck->kind == NT_STUCK_DEVICE && stuck->item == NT_NONE)
    return nt_hung_before(inquiry->job, stuck->joint, stuck->seq, ns);
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const uint32_t rank = joint->members[i].rank, call = call_in(inquiry, stuck, rank);
    if (call != NT_NONE && inquiry->job->model->ranks[rank].calls[call].enter_ns > last)
      last = inquiry->job->model->ranks[rank].calls[call].enter_ns;
  }
  return ns - last > HUNG_NS;
}

/* When the member was gone of its own accord: aborted the communicator, or, if it did not, ended with code 0. 0: it was not. */
static int64_t gone_at(const struct nt_inquiry *inquiry, const struct nt_member *member,
                       bool aborted) {
  const struct nt_job *job = inquiry->job;
  if (!aborted) {
    const struct nt_fate *fate = &inquiry->freeze->fates[member->rank];
    return fate->kind == NT_FATE_LEFT && !fate->lives ? fate->ns : 0;
  }
  const struct nt_model_call *calls = job->model->ranks[member->rank].calls;
  return member->ended_ns && member->ended_ns <= job->cut_ns &&
                 nt_call_aborts(&calls[member->ended_call])
             ? member->ended_ns
             : 0;
}

/* Every rank has its whole trace: of a lost end it is not known whether it was called there. */
static bool is_all_told(const struct nt_model *model) {
  for (uint32_t i = 0; i < model->rank_count; i++)
    if (nt_model_lacks_end(&model->ranks[i]) || model->ranks[i].damaged)
      return false;
  return !nt_model_absent(model) && !nt_rank_set_count(&model->damaged);
}

/* Members that were gone when the device was through with their part, while others still need them: not where these had
 * hung for long by then. */
static int find_gone(struct nt_inquiry *inquiry, const struct nt_stuck *stuck, bool aborted,
                     struct nt_rank_set *gone) {
  const struct nt_job *job = inquiry->job;
  const struct nt_joint *joint = &job->joints[stuck->joint];
  int status = 0;
  for (uint32_t i = 0; i < joint->member_count && !status; i++) {
    const struct nt_member *member = &joint->members[i];
    const uint32_t call = call_in(inquiry, stuck, member->rank);
    const int64_t at = call == NT_NONE ? 0 : gone_at(inquiry, member, aborted);
    if (at && job->model->ranks[member->rank].calls[call].progress == NT_PROGRESS_FINISHED &&
        !hung_before(inquiry, stuck, at))
      status = nt_finding_add(job, gone, member->rank);
  }
  return status;
}

static bool is_stopped(const struct nt_model_rank *rank) {
  return rank->state == NT_PROCESS_STOPPED || rank->stood_ns;
}

/* Members whose processes are stopped, or were when they were killed: what moves data for them stands still as well. None if all
 * are, as in a job that its scheduler has suspended. */
static int find_stopped(const struct nt_inquiry *inquiry, const struct nt_stuck *stuck,
                        struct nt_rank_set *stopped) {
  const struct nt_joint *joint = &inquiry->job->joints[stuck->joint];
  int status = 0;
  uint32_t count = 0;
  for (uint32_t i = 0; i < joint->member_count; i++)
    count += is_stopped(nt_member_rank(inquiry->job, &joint->members[i]));
  if (count == joint->member_count)
    return 0;
  for (uint32_t i = 0; i < joint->member_count && !status; i++) {
    const struct nt_model_rank *rank = nt_member_rank(inquiry->job, &joint->members[i]);
    if (is_stopped(rank) && (rank->stood_ns || inquiry->job->cut_ns == INT64_MAX) &&
        call_in(inquiry, stuck, joint->members[i].rank) != NT_NONE)
      status = nt_finding_add(inquiry->job, stopped, joint->members[i].rank);
  }
  return status;
}

/* A host is inside the first operation of its kind there, in which NCCL connects. */
static bool is_connecting(const struct nt_inquiry *inquiry, const struct nt_stuck *stuck) {
  for (uint32_t i = 0; i < stuck->waiter_count && stuck->seq == 1; i++) {
    const uint32_t call = call_in(inquiry, stuck, stuck->waiters[i]);
    if (call != NT_NONE && nt_call_is_open(inquiry->job, stuck->waiters[i], call))
      return true;
  }
  return false;
}

/* The longest that making a communicator has taken in this job. */
static int64_t longest_creation(const struct nt_job *job) {
  int64_t longest = 0;
  for (uint32_t r = 0; r < job->model->rank_count; r++)
    for (uint32_t i = 0; i < job->model->ranks[r].call_count; i++) {
      const struct nt_model_call *call = &job->model->ranks[r].calls[i];
      if (nt_fn_shape(call->fn) == NT_SHAPE_COMM_INIT && call->exit_ns - call->enter_ns > longest)
        longest = call->exit_ns - call->enter_ns;
    }
  return longest;
}

/* Another operation of the rank is at the head of the same stream as well, by another thread that launched at the same time: which of
 * the two the device came to first is not known. NT_NONE if there is none. */
static uint32_t raced_with(const struct nt_model_rank *rank, uint32_t index) {
  const struct nt_model_call *own = &rank->calls[index];
  for (uint32_t i = 0; i < rank->call_count && own->stream; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (call->thread != own->thread && call->stream == own->stream && call->view != NT_NONE &&
        call->view != own->view && call->progress == NT_PROGRESS_REACHED &&
        own->progress == NT_PROGRESS_REACHED)
      return i;
  }
  return NT_NONE;
}

/* Where members may have come to two operations in two orders, they may wait for each other. */
static void say_races(struct nt_inquiry *inquiry, const struct nt_stuck *stuck,
                      struct nt_finding *finding) {
  char text[NT_DESCRIBE];
  for (uint32_t i = 0; i < stuck->waiter_count && finding->evidence.count < 8; i++) {
    const uint32_t rank = stuck->waiters[i], call = call_in(inquiry, stuck, rank);
    const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
    const uint32_t other = call == NT_NONE ? NT_NONE : raced_with(model, call);
    if (other == NT_NONE)
      continue;
    finding->confidence = NT_LIKELY;
    nt_lines_add(&finding->evidence,
                 "rank %d: another thread launched %s on the same stream at the same time; where "
                 "their orders differ, these wait for each other",
                 model->world, nt_describe_call(text, sizeof text, inquiry->job, rank, other));
  }
}

/* A device is not at it, and what it waits for is not known. */
static bool waits_unseen(const struct nt_inquiry *inquiry, const struct nt_stuck *stuck) {
  for (uint32_t i = 0; i < stuck->waiter_count; i++) {
    const uint32_t rank = stuck->waiters[i], call = call_in(inquiry, stuck, rank);
    if (call != NT_NONE &&
        inquiry->job->model->ranks[rank].calls[call].progress == NT_PROGRESS_ENQUEUED) {
      const struct nt_front front = nt_front_of(inquiry->job, rank, call);
      if (front.call == NT_NONE && front.unseen)
        return true;
    }
  }
  return false;
}

static int tell_stall(struct nt_inquiry *inquiry, const struct nt_stuck *stuck) {
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_STALLED, stuck->joint);
  char place[NT_DESCRIBE], waiting[NT_DESCRIBE + 64];
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->fn = stuck->fn;
  finding->seq = stuck->seq;
  finding->since_ns = stuck->since_ns;
  finding->confidence = stuck->behind_count ? NT_LIKELY : NT_CERTAIN;
  int status = nt_inquiry_ranks(inquiry, &finding->waiting, stuck->waiters, stuck->waiter_count);
  for (uint32_t i = 0; i < stuck->waiter_count; i++) {
    uint32_t call = call_in(inquiry, stuck, stuck->waiters[i]);
    if (call == NT_NONE ||
        inquiry->job->model->ranks[stuck->waiters[i]].calls[call].progress == NT_PROGRESS_UNKNOWN ||
        inquiry->job->model->ranks[stuck->waiters[i]].calls[call].progress ==
            NT_PROGRESS_UNFINISHED)
      finding->confidence = NT_LIKELY;
  }
  if (waits_unseen(inquiry, stuck)) /* for what may be anything */
    finding->confidence = NT_UNDECIDED;
  nt_describe_place(place, sizeof place, inquiry->job, finding->fn, finding->seq, stuck->joint);
  const bool connecting = is_connecting(inquiry, stuck);
  if (!status)
    status = find_gone(inquiry, stuck, true, &finding->blame);
  const bool aborted = nt_rank_set_count(&finding->blame);
  if (!status && !aborted && stuck->item == NT_NONE && is_all_told(inquiry->job->model))
    status = find_gone(inquiry, stuck, false, &finding->blame);
  const bool gone = nt_rank_set_count(&finding->blame);
  if (!status && !gone)
    status = find_stopped(inquiry, stuck, &finding->blame);
  nt_inquiry_waiting(waiting, sizeof waiting, finding);
  if (nt_rank_set_count(&finding->blame) && !aborted)
    finding->confidence = NT_LIKELY;
  if (gone) {
    char who[NT_DESCRIBE];
    finding->class = NT_CLASS_LEFT;
    finding->was_done = true;
    nt_finding_say(finding, "%s %s when %s own part of %s was done%s",
                   nt_describe_ranks(who, sizeof who, &finding->blame),
                   aborted ? "aborted the communicator" : "ended",
                   nt_rank_set_count(&finding->blame) == 1 ? "its" : "their", place, waiting);
  } else {
    nt_finding_say(finding, "all members called %s alike, and it does not finish%s", place,
                   waiting);
  }
  if (connecting) {
    finding->confidence = NT_LIKELY;
    nt_lines_add(&finding->evidence, "it is the first one there: NCCL may still be connecting");
  }
  if (!gone)
    say_races(inquiry, stuck, finding);
  nt_say_progress(inquiry, finding, stuck);
  return status;
}

/* The oldest of those that wait for nothing else that is known; where there is none such, the oldest. */
int nt_judge_stalls(struct nt_inquiry *inquiry) {
  const struct nt_stuck *found = NULL;
  for (uint32_t i = 0; i < inquiry->waits.count && !nt_inquiry_explains(inquiry); i++) {
    const struct nt_stuck *stuck = &inquiry->waits.list[i];
    bool all = stuck->kind == NT_STUCK_DEVICE ||
               (stuck->kind == NT_STUCK_REPLAY && !stuck->laggard_count && !stuck->leaver_count);
    if (!all || stuck->absent || stuck->excused)
      continue;
    if (inquiry->freeze->why == NT_FREEZE_TOGETHER && is_connecting(inquiry, stuck) &&
        inquiry->freeze->ns - stuck->since_ns <= longest_creation(inquiry->job))
      continue; /* ended from outside before that could be told from a slow start */
    bool first = !found || (found->behind_count && !stuck->behind_count);
    if (first ||
        (!found->behind_count == !stuck->behind_count && stuck->since_ns < found->since_ns))
      found = stuck;
  }
  return found ? tell_stall(inquiry, found) : 0;
}
