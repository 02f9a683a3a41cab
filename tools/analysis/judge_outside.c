/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job that stands still though nothing in NCCL is to blame: all members made the same calls, and all of
 * these are finished. Where the device's progress is not known and hosts wait for it, not even that can be
 * told.
 */
#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "analysis/progress.h"
#include "nccl/nccl_api.h"

#define CREATING_NS                                                                                \
  INT64_C(10000000000) /* connecting hundreds of ranks on busy machines takes seconds */
#define QUIET_NS INT64_C(2000000000) /* hosts do other things for a while in every job */
#define NORMAL_CALLS 512             /* among the last of these, the longest pause is normal */

struct quiet {
  int64_t last_ns,
      pause_ns; /* of all ranks: the newest call; the longest pause between two calls */
  uint32_t alive, waiting,
      unknown;                /* ranks; of these, in a host wait; of these, for nobody knows what */
  uint32_t replays;           /* launches of captured graphs that are not finished */
  uint32_t creating;          /* ranks inside NCCL, making a communicator */
  uint32_t creation, creator; /* call and rank of one of these */
  bool moved;
};

static bool is_there(const struct nt_inquiry *inquiry, uint32_t rank) {
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  int64_t cut = inquiry->freeze->ns;
  return model->call_count &&
         (!nt_model_is_over(model) || (cut != INT64_MAX && nt_model_end(model) >= cut));
}

static bool makes_communicator(enum nt_shape shape) {
  return shape == NT_SHAPE_COMM_INIT || shape == NT_SHAPE_COMM_SPLIT ||
         shape == NT_SHAPE_COMM_SHRINK || shape == NT_SHAPE_COMM_GROW;
}

/* Its last call on a communicator is a creation that has not returned. */
static uint32_t creation_of(const struct nt_inquiry *inquiry, uint32_t rank) {
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  for (uint32_t i = model->call_count; i-- > 0;) {
    const struct nt_model_call *call = &model->calls[i];
    const enum nt_shape shape = nt_fn_shape(call->fn);
    if (call->enter_ns > inquiry->job->cut_ns || shape == NT_SHAPE_GROUP_END)
      continue;
    return makes_communicator(shape) && (nt_call_is_open(inquiry->job, rank, i) ||
                                         nt_creation_in_progress(inquiry->job, rank, i))
               ? i
               : NT_NONE;
  }
  return NT_NONE;
}

static void look_at(const struct nt_inquiry *inquiry, uint32_t rank, struct quiet *quiet) {
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  const struct nt_model_call *newest = NULL, *before = NULL;
  int64_t last = 0;
  uint32_t low = model->call_count > NORMAL_CALLS ? model->call_count - NORMAL_CALLS : 0;
  for (uint32_t i = 0; i < model->call_count; i++) {
    const struct nt_model_call *call = &model->calls[i];
    if (call->enter_ns > inquiry->job->cut_ns)
      continue;
    int64_t end =
        call->exit_ns && call->exit_ns <= inquiry->job->cut_ns ? call->exit_ns : call->enter_ns;
    last = end > last ? end : last;
    quiet->replays += nt_fn_shape(call->fn) == NT_SHAPE_GRAPH_LAUNCH &&
                      nt_call_outstanding(inquiry->job, rank, i);
    if (call->view == NT_NONE || call->pending)
      continue;
    if (before && i >= low && before->thread == call->thread &&
        call->enter_ns - before->enter_ns > quiet->pause_ns)
      quiet->pause_ns = call->enter_ns - before->enter_ns;
    before = call;
    if (call->launch && (!newest || call->enter_ns > newest->enter_ns))
      newest = call;
  }
  const uint32_t creation = creation_of(inquiry, rank);
  if (creation != NT_NONE) {
    quiet->creating++;
    quiet->creation = creation;
    quiet->creator = rank;
  }
  quiet->alive++;
  quiet->moved |= model->moved;
  quiet->last_ns = last > quiet->last_ns ? last : quiet->last_ns;
  if (nt_host_wait_of(inquiry->job, rank) == NT_NONE)
    return;
  quiet->waiting++;
  quiet->unknown += newest && newest->progress != NT_PROGRESS_FINISHED;
}

static int tell(struct nt_inquiry *inquiry, const struct quiet *quiet) {
  bool unknown = quiet->unknown != 0 || quiet->replays != 0;
  struct nt_finding *finding =
      nt_inquiry_add(inquiry, unknown ? NT_CLASS_UNDECIDED : NT_CLASS_OUTSIDE, NT_NONE);
  struct nt_rank_set there = {0};
  char who[NT_DESCRIBE], line[2 * NT_DESCRIBE];
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->since_ns = quiet->last_ns;
  finding->confidence = unknown ? NT_UNDECIDED : NT_LIKELY;
  int status = 0;
  for (uint32_t r = 0; r < inquiry->job->model->rank_count && !status; r++) {
    if (!is_there(inquiry, r))
      continue;
    status = nt_finding_add(inquiry->job, &there, r);
    if (finding->evidence.count < 32 && *nt_describe_now(line, sizeof line, inquiry->job, r))
      nt_lines_add(&finding->evidence, "rank %d: %s", inquiry->job->model->ranks[r].world, line);
    else if (finding->evidence.count < 32)
      nt_lines_add(&finding->evidence, "%s", nt_inquiry_rank(line, sizeof line, inquiry, r));
  }
  nt_describe_ranks(who, sizeof who, &there);
  if (quiet->replays)
    nt_finding_say(
        finding,
        "%s made the same calls, but %u launch%s of captured graphs with operations of NCCL "
        "%s not finished, and which ranks lack their part cannot be told",
        who, quiet->replays, quiet->replays == 1 ? "" : "es", quiet->replays == 1 ? "is" : "are");
  else if (unknown)
    nt_finding_say(finding,
                   "%s made the same calls and hosts wait for the device, but how far it came with "
                   "these calls is not known",
                   who);
  else
    nt_finding_say(finding,
                   "nothing is unfinished in NCCL and no member lacks a call, but %s made none for "
                   "%lld s: they wait elsewhere",
                   who, (long long)((quiet->pause_ns) / 1000000000));
  for (uint32_t r = 0; r < inquiry->job->model->rank_count && quiet->replays; r++) {
    uint32_t launch = nt_outstanding_launch(inquiry, r);
    if (launch != NT_NONE && finding->evidence.count < 32)
      nt_say_launch(inquiry, finding, r, launch);
  }
  bool blocked = false;
  for (uint32_t r = 0; r < inquiry->job->model->rank_count; r++)
    if (nt_describe_blocked(line, sizeof line, &inquiry->job->model->ranks[r])) {
      nt_lines_add(&finding->evidence, "%s", line);
      blocked = true;
    }
  if (unknown && !blocked && !quiet->replays)
    nt_lines_add(&finding->evidence, "needed: marks around launches (NCCLTRACE_GPU=events)");
  nt_rank_set_free(&there);
  return status;
}

/* Communicators that found no room in an area were not recorded: the traces cannot clear anybody. */
static int tell_lost(struct nt_inquiry *inquiry, const struct nt_rank_set *losers, uint64_t lost) {
  char who[NT_DESCRIBE];
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_UNDECIDED, NT_NONE);
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->confidence = NT_UNDECIDED;
  nt_describe_ranks(who, sizeof who, losers);
  nt_finding_say(finding,
                 "what was recorded agrees, but %llu communicator%s of %s found no room in the "
                 "area, and calls on them were not recorded",
                 (unsigned long long)lost, lost == 1 ? "" : "s", who);
  nt_lines_add(&finding->evidence, "needed: an area with room for all communicators that live at "
                                   "the same time");
  return 0;
}

static int judge_lost(struct nt_inquiry *inquiry) {
  const struct nt_model *model = inquiry->job->model;
  struct nt_rank_set losers = {0};
  uint64_t lost = 0;
  int status = 0;
  for (uint32_t r = 0; r < model->rank_count && !status; r++) {
    lost += model->ranks[r].comms_lost;
    if (model->ranks[r].comms_lost)
      status = nt_finding_add(inquiry->job, &losers, r);
  }
  if (lost && !status)
    status = tell_lost(inquiry, &losers, lost);
  nt_rank_set_free(&losers);
  return status;
}

/* So many ranks are without a trace that those who stand elsewhere may be what the others wait for. */
static bool sees_too_few(const struct nt_inquiry *inquiry) {
  uint32_t missing = nt_rank_set_count(&inquiry->verdict->missing);
  uint32_t present = nt_rank_set_count(&inquiry->verdict->present);
  return missing * 10 > (missing + present) * 3;
}

static int tell_few(struct nt_inquiry *inquiry) {
  char who[NT_DESCRIBE], line[2 * NT_DESCRIBE];
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_UNDECIDED, NT_NONE);
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->confidence = NT_UNDECIDED;
  nt_describe_ranks(who, sizeof who, &inquiry->verdict->missing);
  nt_finding_say(
      finding,
      "nothing that these traces show is unfinished; whether the ranks without a trace (%s) "
      "wait for what these have not called cannot be told",
      who);
  for (uint32_t r = 0; r < inquiry->job->model->rank_count && finding->evidence.count < 32; r++)
    if (is_there(inquiry, r) && *nt_describe_now(line, sizeof line, inquiry->job, r))
      nt_lines_add(&finding->evidence, "rank %d: %s", inquiry->job->model->ranks[r].world, line);
  nt_lines_add(&finding->evidence, "needed: the traces of %s", who);
  return 0;
}

/* Nobody is missing in these creations, or it would have been told: NCCL itself does not come to an end. */
static int tell_creating(struct nt_inquiry *inquiry, const struct quiet *quiet) {
  const struct nt_model *model = inquiry->job->model;
  const struct nt_model_call *call = &model->ranks[quiet->creator].calls[quiet->creation];
  struct nt_finding *finding = nt_inquiry_add(inquiry, NT_CLASS_STALLED, NT_NONE);
  char who[NT_DESCRIBE], line[2 * NT_DESCRIBE];
  int status = 0;
  if (!finding)
    return -NT_ERR_MEMORY;
  finding->confidence = NT_LIKELY;
  finding->fn = call->fn;
  finding->since_ns = quiet->last_ns;
  for (uint32_t r = 0; r < model->rank_count && !status; r++) {
    if (!is_there(inquiry, r) || creation_of(inquiry, r) == NT_NONE)
      continue;
    status = nt_finding_add(inquiry->job, &finding->waiting, r);
    if (finding->evidence.count < 32 && *nt_describe_now(line, sizeof line, inquiry->job, r))
      nt_lines_add(&finding->evidence, "rank %d: %s", model->ranks[r].world, line);
  }
  nt_finding_say(finding,
                 "all members called the creation of a communicator, and for %lld s it has not "
                 "returned to %s: NCCL connects them, or cannot",
                 (long long)(quiet->pause_ns / 1000000000),
                 nt_describe_ranks(who, sizeof who, &finding->waiting));
  return status;
}

static int judge_quiet(struct nt_inquiry *inquiry) {
  const struct nt_model *model = inquiry->job->model;
  struct quiet quiet = {.pause_ns = QUIET_NS};
  if (model->rank_count && model->ranks[0].recorder != NT_RECORDER_TRACE)
    return 0; /* what hosts do after their last call is not recorded */
  for (uint32_t i = 0; i < inquiry->waits.count; i++)
    if (inquiry->waits.list[i].moving)
      return 0;
  for (uint32_t r = 0; r < model->rank_count; r++)
    if (is_there(inquiry, r))
      look_at(inquiry, r, &quiet);
  int64_t now = inquiry->freeze->ns < model->now_ns ? inquiry->freeze->ns : model->now_ns;
  if (!quiet.alive || quiet.moved || now - quiet.last_ns < quiet.pause_ns)
    return 0;
  quiet.pause_ns = now - quiet.last_ns;
  if (quiet.creating && !sees_too_few(inquiry))
    return quiet.pause_ns < CREATING_NS ? 0 : tell_creating(inquiry, &quiet);
  return sees_too_few(inquiry) ? tell_few(inquiry) : tell(inquiry, &quiet);
}

int nt_judge_outside(struct nt_inquiry *inquiry) {
  if (nt_inquiry_explains(inquiry))
    return 0;
  int status = judge_lost(inquiry);
  if (!status && !nt_inquiry_explains(inquiry))
    status = nt_judge_damaged(inquiry);
  return status || nt_inquiry_explains(inquiry) ? status : judge_quiet(inquiry);
}
