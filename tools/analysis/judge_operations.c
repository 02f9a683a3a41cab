/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that are ends of chains themselves: nobody with a trace can finish them, or all are in their end. */
#include <stdio.h>
#include <string.h>

#include "analysis/describe.h"
#include "analysis/inquiry.h"

/* Of those who may be missing, the ones are to blame whose processes can be seen to have made no communicator: the others have
 * lost their traces, and may have called it. */
static int blame_idle_only(struct nt_inquiry *inquiry, struct nt_finding *finding) {
  const struct nt_rank_set *idle = &inquiry->job->model->idle;
  struct nt_rank_set seen = {0}, lost = {0};
  char who[NT_DESCRIBE];
  int status = 0;
  for (uint32_t w = nt_rank_set_next(&finding->blame, 0); w < NT_RANK_MAX && !status;
       w = nt_rank_set_next(&finding->blame, w + 1))
    status = nt_rank_set_add(nt_rank_set_has(idle, w) ? &seen : &lost, w);
  if (status || !nt_rank_set_count(&seen)) {
    nt_rank_set_free(&seen);
    nt_rank_set_free(&lost);
    return status;
  }
  nt_rank_set_free(&finding->blame);
  finding->blame = seen;
  nt_lines_add(&finding->evidence, "%s: alive, with the library and without a communicator",
               nt_describe_ranks(who, sizeof who, &seen));
  if (nt_rank_set_count(&lost))
    nt_lines_add(&finding->evidence, "%s left no trace: whether it was called there is not known",
                 nt_describe_ranks(who, sizeof who, &lost));
  nt_rank_set_free(&lost);
  return 0;
}

static int judge_init(struct nt_inquiry *inquiry, const struct nt_stuck *stuck) {
  /* Of those to blame, and where it cannot be told who. */
  static const char *const words[][2] = {
      [NT_CREATION_MISSING] = {"%s, without a trace, did not call it as far as is known",
                               "some ranks never called it"},
      [NT_CREATION_SIZE] = {"%s passed another size than the others",
                            "the ranks pass different sizes"},
      [NT_CREATION_DUPLICATE] = {"two processes claim the same rank: %s",
                                 "two processes claim the same rank"},
      [NT_CREATION_EXTRA] = {"%s passed a rank outside the size", "a rank is outside the size"},
      [NT_CREATION_IDS] = {"%s passed another unique id than the others",
                           "the ranks pass different unique ids"},
      [NT_CREATION_REFUSED] = {"NCCL returned an error to %s", "NCCL returned an error"},
  };
  const struct nt_creation *creation = &inquiry->creations.list[stuck->item];
  enum nt_class class = creation->problem == NT_CREATION_REFUSED ? NT_CLASS_ERROR : NT_CLASS_INIT;
  struct nt_finding *finding = nt_inquiry_add(inquiry, class, stuck->joint);
  char who[NT_DESCRIBE], place[NT_DESCRIBE], line[2 * NT_DESCRIBE];
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->fn = stuck->fn;
  finding->seq = 1;
  finding->since_ns = stuck->since_ns;
  finding->confidence = creation->decided ? NT_CERTAIN : NT_UNDECIDED;
  int status = nt_inquiry_ranks(inquiry, &finding->waiting, stuck->waiters, stuck->waiter_count);
  const struct nt_rank_set *from = &creation->blame;
  if (creation->problem == NT_CREATION_MISSING) {
    from = &creation->missing;
    finding->confidence = creation->missing_known ? NT_LIKELY : NT_UNDECIDED;
    finding->open_end = !creation->missing_known;
  }
  for (uint32_t w = nt_rank_set_next(from, 0); w < NT_RANK_MAX && !status;
       w = nt_rank_set_next(from, w + 1))
    if (creation->problem != NT_CREATION_MISSING ||
        nt_model_find(inquiry->job->model, (int32_t)w) == NT_NONE) {
      status = nt_rank_set_add(&finding->blame, w);
      if (nt_rank_set_has(&inquiry->job->model->damaged, w))
        finding->confidence = NT_UNDECIDED; /* its trace may have told that it did */
    }
  if (!status && creation->problem == NT_CREATION_MISSING)
    status = blame_idle_only(inquiry, finding);
  const bool known = nt_rank_set_count(&finding->blame) != 0;
  nt_describe_ranks(who, sizeof who, &finding->blame);
  char what[NT_DESCRIBE + 96];
  const char *text = words[creation->problem][!known], *gap = strstr(text, "%s");
  if (gap)
    snprintf(what, sizeof what, "%.*s%s%s", (int)(gap - text), text, who, gap + 2);
  else
    snprintf(what, sizeof what, "%s", text);
  nt_finding_say(finding, "%s does not complete: %s",
                 nt_describe_place(place, sizeof place, inquiry->job, finding->fn, 0, stuck->joint),
                 what);
  for (uint32_t i = 0; i < creation->creator_count && i < 32; i++) {
    const struct nt_creator *creator = &creation->creators[i];
    nt_lines_add(&finding->evidence, "rank %d calls it as rank %d of %d%s%s", creator->world,
                 creator->comm_rank, creator->nranks, creator->refused ? ", refused" : "",
                 creator->joint != creation->joint ? ", with another id or size" : "");
  }
  if (creation->problem == NT_CREATION_MISSING)
    nt_lines_add(&finding->evidence, "%u of %d ranks have called it: nobody did as %s",
                 creation->creator_count, creation->size,
                 nt_unclaimed_text(line, sizeof line, creation));
  const struct nt_model_view *view =
      nt_member_view(inquiry->job, &inquiry->job->joints[stuck->joint].members[0]);
  if (view->root[0])
    nt_lines_add(&finding->evidence, "the bootstrap root listens on %s", view->root);
  if (stuck->waiter_count)
    nt_lines_add(&finding->evidence, "%s",
                 nt_inquiry_rank(line, sizeof line, inquiry, stuck->waiters[0]));
  return status;
}

/* Of a message: its other side, if that has a trace, which then lacks its end; NULL. */
static const struct nt_model_rank *cut_partner(const struct nt_inquiry *inquiry,
                                               const struct nt_stuck *stuck) {
  if (stuck->kind != NT_STUCK_RECV && stuck->kind != NT_STUCK_SEND)
    return NULL;
  const struct nt_p2p_end *end = &inquiry->p2p.ends[stuck->item];
  const struct nt_joint *joint = &inquiry->job->joints[stuck->joint];
  for (uint32_t i = 0; i < joint->member_count; i++)
    if (joint->members[i].comm_rank == (end->is_send ? end->destination : end->source) &&
        nt_member_rank(inquiry->job, &joint->members[i])->cut)
      return nt_member_rank(inquiry->job, &joint->members[i]);
  return NULL;
}

static int judge_absent(struct nt_inquiry *inquiry, const struct nt_stuck *stuck) {
  const struct nt_joint *joint = &inquiry->job->joints[stuck->joint];
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_UNDECIDED, stuck->joint);
  char who[NT_DESCRIBE], place[NT_DESCRIBE], line[2 * NT_DESCRIBE], waiting[NT_DESCRIBE + 64];
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->fn = nt_stuck_function(inquiry, stuck);
  finding->seq = stuck->seq;
  finding->since_ns = stuck->since_ns;
  finding->confidence = NT_UNDECIDED;
  int status = nt_inquiry_ranks(inquiry, &finding->waiting, stuck->waiters, stuck->waiter_count);
  nt_describe_place(place, sizeof place, inquiry->job, finding->fn, stuck->seq, stuck->joint);
  const struct nt_model_rank *cut = cut_partner(inquiry, stuck);
  if (cut)
    snprintf(who, sizeof who, "rank %d", cut->world);
  else if (joint->absent_known)
    nt_describe_ranks(who, sizeof who, &joint->absent_worlds);
  else if (stuck->kind == NT_STUCK_UNPLACED && nt_rank_set_count(&inquiry->verdict->missing))
    nt_describe_ranks(who, sizeof who, &inquiry->verdict->missing);
  else
    snprintf(who, sizeof who, "up to %u member%s", joint->absent, joint->absent == 1 ? "" : "s");
  if (stuck->kind == NT_STUCK_UNPLACED)
    nt_finding_say(finding,
                   "a message does not arrive (%s)%s; which rank the other side is cannot be told "
                   "while %s may be a member and left no trace",
                   place, nt_inquiry_waiting(waiting, sizeof waiting, finding), who);
  else if (cut)
    nt_finding_say(finding, "%s waits for %s, whose trace lacks what it did last", place, who);
  else
    nt_finding_say(
        finding,
        finding->only_called
            ? "all members with a log called %s; whether %s without a log called it cannot be told"
            : "all members with a trace wait in %s; whether %s without a trace called it cannot be "
              "told",
        place, who);
  if (cut)
    nt_lines_add(&finding->evidence, "needed: what %s did last, which its trace lacks", who);
  else
    nt_lines_add(&finding->evidence, "needed: the traces of %s of %s", who, place);
  if (stuck->waiter_count)
    nt_lines_add(&finding->evidence, "%s",
                 nt_inquiry_rank(line, sizeof line, inquiry, stuck->waiters[0]));
  return status;
}

/* All members are in it. */
static int judge_teardown(struct nt_inquiry *inquiry, const struct nt_stuck *stuck) {
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_TEARDOWN, stuck->joint);
  char place[NT_DESCRIBE], waiting[NT_DESCRIBE + 64], line[2 * NT_DESCRIBE];
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->fn = stuck->fn;
  finding->seq = stuck->seq;
  finding->since_ns = stuck->since_ns;
  finding->confidence = NT_LIKELY;
  int status = nt_inquiry_ranks(inquiry, &finding->waiting, stuck->waiters, stuck->waiter_count);
  nt_describe_place(place, sizeof place, inquiry->job, finding->fn, 0, stuck->joint);
  nt_finding_say(finding, "every member has called %s or its like, and it does not return%s", place,
                 nt_inquiry_waiting(waiting, sizeof waiting, finding));
  for (uint32_t i = 0; i < stuck->waiter_count && i < 16; i++)
    nt_lines_add(&finding->evidence, "%s",
                 nt_inquiry_rank(line, sizeof line, inquiry, stuck->waiters[i]));
  return status;
}

/* Operations that are ends of chains themselves. */
int nt_judge_operations(struct nt_inquiry *inquiry) {
  const struct nt_waits *waits = &inquiry->waits;
  int status = 0;
  for (uint32_t i = 0; i < waits->count && !status; i++) {
    const struct nt_stuck *stuck = &waits->list[i];
    if (stuck->excused || stuck->leaver_count)
      continue;
    if (stuck->laggard_count) {
      status = nt_judge_echoes(inquiry, stuck);
      continue;
    }
    if (stuck->kind == NT_STUCK_TEARDOWN)
      status = judge_teardown(inquiry, stuck);
    else if (stuck->kind == NT_STUCK_INIT)
      status = judge_init(inquiry, stuck);
    else if (stuck->absent && stuck->kind != NT_STUCK_SEND)
      status = judge_absent(inquiry, stuck);
  }
  return status;
}
