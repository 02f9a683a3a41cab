/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks whose last calls cannot be read: where nothing else was found, what they waited in may stand in just these calls.
 * Their state still tells how many collectives each made; that is said, and nobody is accused of it.
 */
#include <string.h>

#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "nccl/nccl_api.h"

static bool has_calls(const struct nt_model_rank *rank) {
  for (uint32_t i = 0; i < rank->call_count; i++)
    if (rank->calls[i].view != NT_NONE)
      return true;
  return false;
}

static uint32_t last_known(const struct nt_model_rank *rank, uint32_t view) {
  uint32_t last = 0;
  for (uint32_t i = 0; i < rank->call_count; i++)
    if (rank->calls[i].view == view && nt_fn_is_collective(rank->calls[i].fn) &&
        rank->calls[i].seq > last)
      last = rank->calls[i].seq;
  return last;
}

/* A file that was merely written a moment too early has all but the last moment's calls, and is none of these. */
static bool lacks_end(const struct nt_model_rank *rank, uint32_t view) {
  if (rank->recorder != NT_RECORDER_TRACE || !nt_model_lacks_end(rank))
    return false;
  if (rank->hollow || rank->aged || !has_calls(rank))
    return true;
  const struct nt_model_view *of = &rank->views[view];
  return (rank->damaged || rank->strange) &&
         (of->sends || of->recvs || last_known(rank, view) < of->collectives);
}

/* The members whose last calls are gone. */
struct gap {
  uint32_t lacking, least, most; /* members; collectives of all members */
  bool messages;                 /* of members that lack some */
};

static struct gap gap_of(const struct nt_job *job, const struct nt_joint *joint) {
  struct gap gap = {.least = UINT32_MAX};
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_model_view *view = nt_member_view(job, &joint->members[i]);
    const bool lacks = lacks_end(nt_member_rank(job, &joint->members[i]), joint->members[i].view);
    gap.lacking += lacks;
    gap.messages |= lacks && (view->sends || view->recvs);
    gap.least = view->collectives < gap.least ? view->collectives : gap.least;
    gap.most = view->collectives > gap.most ? view->collectives : gap.most;
  }
  return gap;
}

/* Where some members' calls are there and all made as many, these tell how far the others came. */
static bool is_doubtful(const struct nt_joint *joint, const struct gap *gap) {
  return gap->lacking &&
         (gap->lacking == joint->member_count || gap->least != gap->most || gap->messages);
}

/* "17 collectives on A: rank 1" for each number. */
static void say_counts(const struct nt_job *job, struct nt_finding *finding, uint32_t joint,
                       const struct gap *gap) {
  enum { TOLD = 8 };
  const struct nt_joint *of = &job->joints[joint];
  char who[NT_DESCRIBE], label[NT_DESCRIBE];
  nt_describe_joint(label, sizeof label, job, joint);
  for (uint64_t made = gap->least, told = 0, next; told < TOLD && made <= gap->most; made = next) {
    struct nt_rank_set ranks = {0};
    next = (uint64_t)gap->most + 1;
    for (uint32_t i = 0; i < of->member_count; i++) {
      const uint64_t own = nt_member_view(job, &of->members[i])->collectives;
      if (own == made)
        (void)nt_finding_add(job, &ranks, of->members[i].rank);
      else if (own > made && own < next)
        next = own;
    }
    nt_lines_add(&finding->evidence, "%s made %u collective%s on %s",
                 nt_describe_ranks(who, sizeof who, &ranks), (unsigned)made, made == 1 ? "" : "s",
                 label);
    nt_rank_set_free(&ranks);
    told++;
  }
}

static void say_ranks(const struct nt_inquiry *inquiry, struct nt_finding *finding,
                      const struct nt_rank_set *lacking) {
  const struct nt_model *model = inquiry->job->model;
  struct nt_rank_set undone = {0};
  char who[NT_DESCRIBE], line[2 * NT_DESCRIBE];
  for (uint32_t r = 0; r < model->rank_count; r++) {
    if (model->ranks[r].undone)
      (void)nt_finding_add(inquiry->job, &undone, r);
    if (finding->evidence.count < 32 && *nt_describe_now(line, sizeof line, inquiry->job, r))
      nt_lines_add(&finding->evidence, "rank %d: %s", model->ranks[r].world, line);
  }
  if (nt_rank_set_count(&undone))
    nt_lines_add(&finding->evidence,
                 "launches that the device had not finished when it was last looked at: %s",
                 nt_describe_ranks(who, sizeof who, &undone));
  nt_lines_add(&finding->evidence, "needed: the calls of %s",
               nt_describe_ranks(who, sizeof who, lacking));
  nt_rank_set_free(&undone);
}

static void say_what_to_do(const struct nt_model *model, struct nt_finding *finding) {
  bool damaged = false;
  for (uint32_t r = 0; r < model->rank_count; r++) {
    const struct nt_model_rank *rank = &model->ranks[r];
    bool told = false;
    damaged |= nt_model_lacks_end(rank) && !rank->strange;
    for (uint32_t i = 0; i < r && rank->writer && !told; i++)
      told = model->ranks[i].writer && !strcmp(model->ranks[i].writer, rank->writer);
    if (rank->writer && !told)
      nt_lines_add(&finding->next, "use the tools of the version that wrote them: %s",
                   rank->writer);
  }
  if (damaged)
    nt_lines_add(&finding->next, "copy the files again, after the job has stopped or while nothing "
                                 "writes to them, or run tracediff where the processes ran");
}

static int tell(struct nt_inquiry *inquiry, const struct nt_rank_set *lacking, uint32_t uneven) {
  const struct nt_job *job = inquiry->job;
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_UNDECIDED, uneven);
  char who[NT_DESCRIBE], label[NT_DESCRIBE];
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->confidence = NT_UNDECIDED;
  nt_describe_ranks(who, sizeof who, lacking);
  if (uneven != NT_NONE)
    nt_finding_say(finding,
                   "the members of %s made unlike numbers of collectives, and whether anybody "
                   "waits in them is not known: the last calls of %s cannot be read",
                   nt_describe_joint(label, sizeof label, job, uneven), who);
  else
    nt_finding_say(finding,
                   "whether anybody waits, and in what, is not known: the last calls of %s cannot "
                   "be read",
                   who);
  for (uint32_t j = 0; j < job->joint_count && finding->evidence.count < 24; j++) {
    const struct gap gap = gap_of(job, &job->joints[j]);
    if (is_doubtful(&job->joints[j], &gap) && (uneven == NT_NONE || gap.least != gap.most))
      say_counts(job, finding, j, &gap);
  }
  say_ranks(inquiry, finding, lacking);
  say_what_to_do(job->model, finding);
  return 0;
}

int nt_judge_damaged(struct nt_inquiry *inquiry) {
  const struct nt_job *job = inquiry->job;
  struct nt_rank_set lacking = {0};
  uint32_t uneven = NT_NONE;
  int status = 0;
  for (uint32_t j = 0; j < job->joint_count && !status; j++) {
    const struct nt_joint *joint = &job->joints[j];
    const struct gap gap = gap_of(job, joint);
    if (!is_doubtful(joint, &gap))
      continue;
    if (uneven == NT_NONE && gap.least != gap.most)
      uneven = j;
    for (uint32_t i = 0; i < joint->member_count && !status; i++)
      if (lacks_end(nt_member_rank(job, &joint->members[i]), joint->members[i].view))
        status = nt_finding_add(job, &lacking, joint->members[i].rank);
  }
  /* They are there only if all files are like that: there is no communicator to judge by. */
  for (uint32_t r = 0; r < job->model->rank_count && !status; r++)
    if (job->model->ranks[r].hollow || job->model->ranks[r].aged)
      status = nt_finding_add(job, &lacking, r);
  if (nt_rank_set_count(&lacking) && !status)
    status = tell(inquiry, &lacking, uneven);
  nt_rank_set_free(&lacking);
  return status;
}
