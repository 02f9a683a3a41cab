/* SPDX-License-Identifier: Apache-2.0 */
/* What every finding needs in the end: its culprits in detail, and how sure it can be. */
#include <stdlib.h>
#include <string.h>

#include "analysis/describe.h"
#include "analysis/dump_words.h"
#include "analysis/inquiry.h"
#include "analysis/progress.h"
#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

/* Where it is: in a dump, or in a call that has not returned; else where it was called from last. */
static void fill_stack(const struct nt_inquiry *inquiry, struct nt_culprit *culprit,
                       uint32_t last) {
  const struct nt_job *job = inquiry->job;
  const struct nt_model_rank *rank = &job->model->ranks[culprit->rank];
  const uint32_t thread = culprit->thread, wait = nt_host_wait_in(job, culprit->rank, thread);
  const struct nt_model_dump_thread *now = nt_describe_thread(job, culprit->rank, thread);
  const struct nt_model_dump_thread *dumped = nt_describe_dumped(job, culprit->rank, thread);
  culprit->dumped = now != NULL;
  if (now && now->stack.all)
    culprit->stack = &now->stack;
  else
    culprit->stack = nt_model_stack(rank, wait == NT_NONE ? last : wait);
  culprit->of_last = culprit->stack && wait == NT_NONE && last != NT_NONE &&
                     culprit->stack != (now ? &now->stack : NULL) &&
                     !nt_call_is_open(job, culprit->rank, last);
  if (!culprit->stack && dumped && dumped->stack.all)
    culprit->stack = &dumped->stack;
}

/* The rank's last call. One that ends a communicator from no line of the program, as an interpreter does on its way out, says less
 * than the operation in front of it. */
static uint32_t telling_call(const struct nt_job *job, uint32_t rank, uint32_t thread) {
  const struct nt_model_rank *model = &job->model->ranks[rank];
  const uint32_t last = nt_last_call_in(job, rank, thread);
  uint32_t found = last;
  if (last == NT_NONE || nt_model_site(model, model->calls[last].at) ||
      !nt_call_ends(&model->calls[last]))
    return last;
  for (uint32_t i = 0; i < model->call_count; i++) {
    const struct nt_model_call *call = &model->calls[i];
    if (call->view != NT_NONE && (!thread || call->thread == thread) &&
        !(call->flags & NT_CALL_VOID) && nt_shape_is_operation(nt_fn_shape(call->fn)) &&
        nt_model_site(model, call->at) && call->enter_ns <= model->calls[last].enter_ns &&
        (found == last || call->enter_ns >= model->calls[found].enter_ns))
      found = i;
  }
  return found;
}

static void fill_culprit(struct nt_inquiry *inquiry, struct nt_culprit *culprit, uint32_t world,
                         uint32_t thread) {
  culprit->thread = thread;
  culprit->world = (int32_t)world;
  culprit->rank = nt_model_find(inquiry->job->model, (int32_t)world);
  if (culprit->rank == NT_NONE)
    return;
  const struct nt_model_rank *rank = &inquiry->job->model->ranks[culprit->rank];
  const struct nt_fate *fate = &inquiry->freeze->fates[culprit->rank];
  uint32_t last = telling_call(inquiry->job, culprit->rank, thread);
  if (last != NT_NONE) {
    const struct nt_model_call *call = &rank->calls[last];
    char text[NT_DESCRIBE];
    bool counted = nt_fn_shape(call->fn) != NT_SHAPE_COMM_INIT;
    if (call->view == NT_NONE)
      nt_launch_text(text, sizeof text, inquiry, culprit->rank, last);
    else
      nt_describe_place(text, sizeof text, inquiry->job, call->fn, counted ? call->seq : 0,
                        inquiry->job->places[culprit->rank][call->view].joint);
    culprit->last = strdup(text);
    const char *site = nt_model_site(rank, call->at);
    culprit->at = site ? strdup(site) : NULL;
    culprit->since_ns =
        call->exit_ns && call->exit_ns <= inquiry->job->cut_ns ? call->exit_ns : call->enter_ns;
  }
  fill_stack(inquiry, culprit, last);
  char now[2 * NT_DESCRIBE];
  if (*nt_describe_now_in(now, sizeof now, inquiry->job, culprit->rank, thread)) {
    char *site = strstr(now, ", last call at "); /* that is `at` */
    if (site)
      *site = '\0';
    culprit->now = strdup(now);
  }
  if (fate->kind != NT_FATE_ALIVE)
    culprit->since_ns = fate->ns;
}

int nt_fill_culprits(struct nt_inquiry *inquiry, struct nt_finding *finding) {
  uint32_t count = nt_rank_set_count(&finding->blame);
  if (count > NT_CULPRITS_MAX)
    count = NT_CULPRITS_MAX;
  if (!count)
    return 0;
  finding->culprits = calloc(count, sizeof *finding->culprits);
  if (!finding->culprits)
    return -NT_ERR_MEMORY;
  for (uint32_t w = nt_rank_set_next(&finding->blame, 0); finding->culprit_count < count;
       w = nt_rank_set_next(&finding->blame, w + 1))
    fill_culprit(inquiry, &finding->culprits[finding->culprit_count++], w,
                 count == 1 ? finding->thread : 0);
  return 0;
}

/* Whose device nobody could look at, among those that the finding is about. */
static void say_blocked(const struct nt_inquiry *inquiry, struct nt_finding *finding) {
  const struct nt_model *model = inquiry->job->model;
  char line[NT_DESCRIBE];
  for (uint32_t r = 0; r < model->rank_count && finding->evidence.count < 32; r++) {
    const struct nt_model_rank *rank = &model->ranks[r];
    bool concerned =
        rank->world >= 0 && (nt_rank_set_has(&finding->blame, (uint32_t)rank->world) ||
                             nt_rank_set_has(&finding->waiting, (uint32_t)rank->world));
    if (concerned && nt_describe_blocked(line, sizeof line, rank))
      nt_lines_add(&finding->evidence, "%s", line);
  }
}

static int fill_stands(struct nt_inquiry *inquiry, struct nt_finding *finding) {
  const struct nt_model *model = inquiry->job->model;
  if (!nt_class_is_of_all(finding->class) || !model->rank_count)
    return 0;
  finding->stands = calloc(NT_CULPRITS_MAX, sizeof *finding->stands);
  if (!finding->stands)
    return -NT_ERR_MEMORY;
  for (uint32_t r = 0; r < model->rank_count && finding->stand_count < NT_CULPRITS_MAX; r++)
    if (model->ranks[r].world >= 0 && nt_model_lives(&model->ranks[r]))
      fill_culprit(inquiry, &finding->stands[finding->stand_count++],
                   (uint32_t)model->ranks[r].world, 0);
  return 0;
}

/* Classes that accuse nobody by their meaning are as certain as what they say. */
static bool accuses(enum nt_class class) {
  return class != NT_CLASS_STALLED && class != NT_CLASS_OUTSIDE && class != NT_CLASS_TEARDOWN;
}

/* What is not in a log may have been called: NCCL does not flush its standard output. */
static bool rests_on_end_of_log(const struct nt_model *model, const struct nt_finding *finding) {
  switch (finding->class) {
  case NT_CLASS_MISSING:
  case NT_CLASS_LEFT:
  case NT_CLASS_INIT:
  case NT_CLASS_P2P:
    return model->rank_count && model->ranks[0].recorder == NT_RECORDER_LOG;
  default:
    return false;
  }
}

/* What stands at a culprit need not be evidence as well, unless it says more: of whom a message is, and that its group has not
 * ended. */
static void drop_told_twice(const struct nt_inquiry *inquiry, struct nt_finding *finding) {
  char line[3 * NT_DESCRIBE];
  for (uint32_t i = 0; i < finding->culprit_count; i++) {
    const struct nt_culprit *culprit = &finding->culprits[i];
    if (culprit->rank == NT_NONE || culprit->thread || !culprit->last)
      continue;
    const struct nt_model_call *call =
        &inquiry->job->model->ranks[culprit->rank].calls[nt_last_call(inquiry->job, culprit->rank)];
    const enum nt_shape shape = nt_fn_shape(call->fn);
    if (call->pending || shape == NT_SHAPE_SEND || shape == NT_SHAPE_RECV)
      continue;
    nt_inquiry_rank(line, sizeof line, inquiry, culprit->rank);
    uint32_t kept = 0;
    for (uint32_t k = 0; k < finding->evidence.count; k++) {
      if (!strcmp(finding->evidence.line[k], line))
        free(finding->evidence.line[k]);
      else
        finding->evidence.line[kept++] = finding->evidence.line[k];
    }
    finding->evidence.count = kept;
  }
}

int nt_complete_findings(struct nt_inquiry *inquiry) {
  int status = 0;
  for (uint32_t i = 0; i < inquiry->verdict->count && !status; i++) {
    struct nt_finding *finding = &inquiry->verdict->findings[i];
    status = nt_fill_culprits(inquiry, finding);
    drop_told_twice(inquiry, finding);
    if (!status)
      status = fill_stands(inquiry, finding);
    if (!status && !finding->past)
      status = nt_say_chain(inquiry, finding);
    nt_say_dumps(inquiry, finding);
    say_blocked(inquiry, finding);
    nt_group_evidence(&finding->evidence);
    nt_say_next(inquiry, finding);
    if (!nt_rank_set_count(&finding->blame) && finding->confidence == NT_CERTAIN &&
        accuses(finding->class))
      finding->confidence = NT_UNDECIDED;
    if (finding->joint != NT_NONE && inquiry->job->joints[finding->joint].absent &&
        finding->confidence == NT_CERTAIN)
      finding->confidence = NT_LIKELY;
    if (finding->confidence == NT_CERTAIN && rests_on_end_of_log(inquiry->job->model, finding))
      finding->confidence = NT_LIKELY;
  }
  return status;
}
