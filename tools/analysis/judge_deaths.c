/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that is gone in the middle of an operation which all have called.
 *
 * Nobody lacks a call, so the wait-for graph is silent; but members that live have made no call on the
 * communicator since, and the operation may need the one that is gone. Without knowing how far the device
 * got this is likely, not certain. Where all that live are through with it nobody waits, and it is no finding.
 */
#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "analysis/progress.h"
#include "cli/text.h"
#include "nccl/nccl_types.h"

/* The member's last operation on the joint is the last of all that live, too. Returns the position. */
static uint32_t common_end(const struct nt_inquiry *inquiry, const struct nt_joint *joint,
                           const struct nt_member *dead) {
  uint32_t alive = 0;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    if (member->called != dead->called || member->ended_ns)
      return 0;
    alive += inquiry->freeze->fates[member->rank].kind == NT_FATE_ALIVE;
  }
  return alive ? dead->called : 0;
}

/* Does somebody who lives wait for the operation, as far as is known after the end at `ns`? Else that harmed nobody. */
static bool is_awaited(const struct nt_inquiry *inquiry, const struct nt_joint *joint,
                       uint32_t position, int64_t ns) {
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    const struct nt_model_rank *rank = nt_member_rank(inquiry->job, member);
    if (inquiry->freeze->fates[member->rank].kind != NT_FATE_ALIVE ||
        (nt_model_is_silent(inquiry->job->model, rank) && nt_model_end(rank) < ns))
      continue;
    if (position < member->first || member->call[position - member->first] == NT_NONE ||
        nt_call_unfinished(inquiry->job, member->rank, member->call[position - member->first]))
      return true;
  }
  return false;
}

/* Its own part was done, and the others had hung for long when it ended. */
static bool is_too_late(const struct nt_inquiry *inquiry, struct nt_place place) {
  const struct nt_member *member = &inquiry->job->joints[place.joint].members[place.member];
  const struct nt_model_call *call = nt_member_call(inquiry->job, member, member->called);
  return call && call->progress == NT_PROGRESS_FINISHED &&
         nt_hung_before(inquiry->job, place.joint, member->called,
                        inquiry->freeze->fates[member->rank].ns);
}

/* NCCL had told it that a peer is gone: its failure follows from another's end, be that known or not. */
static bool was_told(const struct nt_model_rank *rank) {
  for (uint32_t i = 0; i < rank->call_count; i++)
    if (rank->calls[i].result == ncclRemoteError ||
        (nt_fn_shape(rank->calls[i].fn) == NT_SHAPE_ASYNC_ERROR &&
         rank->calls[i].count == ncclRemoteError))
      return true;
  return false;
}

static int judge(struct nt_inquiry *inquiry, uint32_t rank) {
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  uint32_t found = NT_NONE;
  const struct nt_member *dead = NULL;
  for (uint32_t v = 0; v < model->view_count; v++) {
    struct nt_place place = inquiry->job->places[rank][v];
    if (place.joint == NT_NONE)
      continue;
    const struct nt_joint *joint = &inquiry->job->joints[place.joint];
    const struct nt_member *member = &joint->members[place.member];
    if (!common_end(inquiry, joint, member) ||
        !is_awaited(inquiry, joint, member->called, inquiry->freeze->fates[rank].ns) ||
        is_too_late(inquiry, place))
      continue;
    const struct nt_model_call *call = nt_member_call(inquiry->job, member, member->called);
    const struct nt_model_call *best =
        dead ? nt_member_call(inquiry->job, dead, dead->called) : NULL;
    if (call && (!best || call->enter_ns > best->enter_ns)) {
      dead = member;
      found = place.joint;
    }
  }
  const struct nt_model_call *call = dead ? nt_member_call(inquiry->job, dead, dead->called) : NULL;
  if (!call)
    return 0;
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_DEAD, found);
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->fn = call->fn;
  finding->seq = dead->called;
  finding->since_ns = inquiry->freeze->fates[rank].ns;
  finding->confidence = model->cut ? NT_UNDECIDED : NT_LIKELY;
  int status = nt_finding_add(inquiry->job, &finding->blame, rank);
  const struct nt_joint *joint = &inquiry->job->joints[found];
  for (uint32_t i = 0; i < joint->member_count && !status; i++)
    if (inquiry->freeze->fates[joint->members[i].rank].kind == NT_FATE_ALIVE)
      status = nt_finding_add(inquiry->job, &finding->waiting, joint->members[i].rank);
  char place[NT_DESCRIBE], state[NT_FATE_TEXT], line[2 * NT_DESCRIBE], time[NT_TIME_TEXT];
  nt_finding_say(
      finding, "rank %d died after it had called %s, and no member has made a call since",
      model->world,
      nt_describe_place(place, sizeof place, inquiry->job, call->fn, dead->called, found));
  nt_lines_add(&finding->evidence, "rank %d %s at %s", model->world,
               nt_describe_end(state, sizeof state, model),
               nt_time_short(time, inquiry->freeze->fates[rank].ns));
  nt_lines_add(&finding->evidence, "%s", nt_inquiry_rank(line, sizeof line, inquiry, rank));
  if (model->cut) /* it may have been told that a peer was gone */
    nt_lines_add(&finding->evidence, "needed: what rank %d did last, which its trace lacks",
                 model->world);
  return status;
}

int nt_judge_deaths(struct nt_inquiry *inquiry) {
  int status = 0;
  uint32_t before = inquiry->verdict->count;
  if (before)
    return 0;
  for (uint32_t r = 0; r < inquiry->job->model->rank_count && !status; r++)
    if (inquiry->freeze->fates[r].kind == NT_FATE_DEAD && !inquiry->freeze->fates[r].lives &&
        nt_error_of(inquiry, r) == NT_NONE && !was_told(&inquiry->job->model->ranks[r]))
      status = judge(inquiry, r);
  return status;
}
