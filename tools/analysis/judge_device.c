/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that all members called and that do not finish: in whose stream they stand, and behind what.
 *
 * A device that works on something else in front of the operation is to blame (gpu). Where the operation has
 * its turn everywhere, nobody is (stalled): the transport or the hardware holds it.
 */
#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "analysis/progress.h"
#include "cli/text.h"
#include "nccl/nccl_api.h"

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
    if (stuck->seq >= member->first && stuck->seq <= member->called)
      return member->call[stuck->seq - member->first];
  }
  return NT_NONE;
}

/* "behind AllReduce #3 on B", "behind other work of stream 2". */
static void say_front(struct nt_inquiry *inquiry, struct nt_finding *finding, uint32_t rank,
                      uint32_t call) {
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  struct nt_front front = nt_front_of(inquiry->job, rank, call);
  char text[NT_DESCRIBE];
  if (front.call != NT_NONE)
    nt_lines_add(&finding->evidence, "rank %d: enqueued behind %s, which has not finished either%s",
                 model->world,
                 nt_describe_call(text, sizeof text, inquiry->job, rank, front.call),
                 model->calls[front.call].stream == model->calls[call].stream
                     ? ""
                     : ", on another stream");
  else
    nt_lines_add(&finding->evidence,
                 "rank %d: not at the head of stream %u: all earlier operations of NCCL on it are "
                 "finished, what is in front is other work of the device%s",
                 model->world, model->calls[call].stream,
                 front.event == NT_NONE ? "" : ", or a wait for an event");
}

void nt_say_progress(struct nt_inquiry *inquiry, struct nt_finding *finding,
                     const struct nt_stuck *stuck) {
  struct nt_rank_set reached = {0};
  bool failed = false;
  char who[NT_DESCRIBE], line[NT_DESCRIBE];
  for (uint32_t i = 0; i < stuck->waiter_count; i++) {
    uint32_t rank = stuck->waiters[i], call = call_in(inquiry, stuck, rank);
    const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
    if (call == NT_NONE)
      continue;
    if (nt_call_is_open(inquiry->job, rank, call)) {
      if (finding->evidence.count < 24)
        nt_lines_add(&finding->evidence, "rank %d: its host is inside the call", model->world);
    } else if (model->calls[call].progress == NT_PROGRESS_ENQUEUED) {
      if (finding->evidence.count < 24)
        say_front(inquiry, finding, rank, call);
    } else if (model->calls[call].progress == NT_PROGRESS_REACHED) {
      failed |= nt_finding_add(inquiry->job, &reached, rank) < 0;
    }
  }
  if (nt_rank_set_count(&reached) && !failed)
    nt_lines_add(&finding->evidence, "%s: at the head of the stream, not finished",
                 nt_describe_ranks(who, sizeof who, &reached));
  nt_rank_set_free(&reached);
  for (uint32_t i = 0; i < stuck->waiter_count && finding->evidence.count < 28; i++)
    if (*nt_describe_now(line, sizeof line, inquiry->job, stuck->waiters[i]))
      nt_lines_add(&finding->evidence, "rank %d: %s",
                   inquiry->job->model->ranks[stuck->waiters[i]].world, line);
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
    if (call == NT_NONE || inquiry->job->model->ranks[stuck->waiters[i]].calls[call].progress ==
                               NT_PROGRESS_UNKNOWN)
      finding->confidence = NT_LIKELY;
  }
  nt_describe_place(place, sizeof place, inquiry->job, finding->fn, finding->seq, stuck->joint);
  nt_finding_say(finding, "all members called %s alike, and it does not finish%s", place,
                 nt_inquiry_waiting(waiting, sizeof waiting, finding));
  nt_say_progress(inquiry, finding, stuck);
  return status;
}

/* The oldest of those that wait for nothing else that is known; where there is none such, the oldest. */
int nt_judge_stalls(struct nt_inquiry *inquiry) {
  const struct nt_stuck *found = NULL;
  for (uint32_t i = 0; i < inquiry->waits.count && !inquiry->verdict->count; i++) {
    const struct nt_stuck *stuck = &inquiry->waits.list[i];
    if (stuck->kind != NT_STUCK_DEVICE || stuck->excused)
      continue;
    bool first = !found || (found->behind_count && !stuck->behind_count);
    if (first || (!found->behind_count == !stuck->behind_count && stuck->since_ns < found->since_ns))
      found = stuck;
  }
  return found ? tell_stall(inquiry, found) : 0;
}
