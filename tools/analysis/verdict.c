/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the steps in their order, twice where the job was frozen, and sorts what they found. */
#include "analysis/verdict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/describe.h"
#include "analysis/each.h"
#include "analysis/graphs.h"
#include "analysis/inquiry.h"
#include "analysis/moved.h"
#include "analysis/sequence.h"
#include "analysis/window_enough.h"
#include "cli/rank_set.h"
#include "cli/text.h"

static void free_divergences(struct nt_inquiry *inquiry) {
  for (uint32_t i = 0; inquiry->divergences && i < inquiry->job->joint_count; i++) {
    nt_divergence_free(&inquiry->divergences[i]);
    nt_divergence_free(&inquiry->past[i]);
  }
  free(inquiry->divergences); /* both */
  inquiry->divergences = inquiry->past = NULL;
}

static int align(void *ctx, uint32_t i) {
  struct nt_inquiry *inquiry = ctx;
  struct nt_job *job = inquiry->job;
  return nt_align_joint(job, &job->joints[i], &inquiry->divergences[i]);
}

static int settle_moved(void *ctx, uint32_t i) {
  struct nt_inquiry *inquiry = ctx;
  struct nt_job *job = inquiry->job;
  return nt_moved_settle(job, &job->joints[i], &inquiry->divergences[i]);
}

static int go_past(void *ctx, uint32_t i) {
  struct nt_inquiry *inquiry = ctx;
  struct nt_job *job = inquiry->job;
  return nt_align_go_past(job, &job->joints[i], &inquiry->past[i], &inquiry->divergences[i]);
}

/* Sequences, differences and messages up to the cut. */
static int compare(struct nt_inquiry *inquiry) {
  struct nt_job *job = inquiry->job;
  free_divergences(inquiry);
  nt_p2p_free(&inquiry->p2p);
  int status = nt_sequences_build(job);
  inquiry->divergences = calloc(2 * (size_t)job->joint_count + 1, sizeof *inquiry->divergences);
  inquiry->past = inquiry->divergences ? inquiry->divergences + job->joint_count : NULL;
  if (!inquiry->divergences)
    status = -NT_ERR_MEMORY;
  if (!status)
    status = nt_each(job->joint_count, align, inquiry);
  if (!status)
    status = nt_each(job->joint_count, settle_moved, inquiry);
  if (!status)
    status = nt_each(job->joint_count, go_past, inquiry);
  return status ? status : nt_p2p_match(job, &inquiry->p2p);
}

static int freeze(struct nt_inquiry *inquiry) {
  struct nt_job *job = inquiry->job;
  uint32_t *positions = calloc((size_t)job->joint_count + 1, sizeof *positions);
  if (!positions)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < job->joint_count; i++)
    positions[i] = inquiry->divergences[i].position;
  int status = nt_freeze_find(job, &inquiry->p2p, positions, inquiry->freeze);
  free(positions);
  if (status || inquiry->freeze->ns == INT64_MAX)
    return status;
  job->cut_ns = inquiry->freeze->cut_ns;
  return compare(inquiry);
}

static int list_ranks(const struct nt_model *model, struct nt_verdict *out) {
  int status = 0;
  for (uint32_t i = 0; i < model->rank_count && !status; i++)
    if (model->ranks[i].world >= 0)
      status = nt_rank_set_add(&out->present, (uint32_t)model->ranks[i].world);
  for (int32_t w = 0; w < model->expected && w < (int32_t)NT_RANK_MAX && !status; w++)
    if (nt_rank_set_has(&model->held, (uint32_t)w))
      status = nt_rank_set_add(&out->present, (uint32_t)w);
    else if (!nt_rank_set_has(&out->present, (uint32_t)w))
      status = nt_rank_set_add(&out->missing, (uint32_t)w);
  return status;
}

static void note_freeze(struct nt_verdict *out) {
  char time[NT_TIME_TEXT];
  const struct nt_freeze *freeze = &out->freeze;
  if (freeze->why == NT_FREEZE_NEVER)
    return;
  int32_t world = out->job.model->ranks[freeze->rank].world;
  nt_time_text(time, freeze->ns);
  switch (freeze->why) {
  case NT_FREEZE_TOGETHER:
    nt_lines_add(&out->notes, "judged as of %s, when the processes were ended together", time);
    break;
  case NT_FREEZE_ABORT:
    nt_lines_add(&out->notes, "judged as of %s, when rank %d aborted after waiting", time, world);
    break;
  case NT_FREEZE_TEARDOWN:
    nt_lines_add(&out->notes, "judged as of %s, when rank %d began to leave after waiting", time,
                 world);
    break;
  case NT_FREEZE_GIVEN_UP:
    nt_lines_add(&out->notes,
                 "judged as of %s, when rank %d ended, for which others had waited long", time,
                 world);
    break;
  default:
    nt_lines_add(&out->notes, "judged as of %s, when rank %d ended after waiting", time, world);
  }
}

static bool has_line(const char *lines, const char *line, size_t length) {
  for (const char *at = lines; at && *at; at += strcspn(at, "\n"), at += *at == '\n')
    if (strcspn(at, "\n") == length && !memcmp(at, line, length))
      return true;
  return false;
}

/* Each copy once, with the ranks that have it. */
static void note_untraced(struct nt_verdict *out) {
  const struct nt_model *model = out->job.model;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    const char *at = model->ranks[i].untraced;
    for (size_t length; at && *at; at += length + (at[length] == '\n')) {
      struct nt_rank_set ranks = {0};
      char text[NT_DESCRIBE];
      bool told = false;
      length = strcspn(at, "\n");
      for (uint32_t j = 0; j < model->rank_count && !told; j++) {
        if (!has_line(model->ranks[j].untraced, at, length))
          continue;
        told = j < i;
        if (model->ranks[j].world >= 0)
          (void)nt_rank_set_add(&ranks, (uint32_t)model->ranks[j].world);
      }
      if (!told)
        nt_lines_add(&out->notes, "%s %s: %.*s", nt_rank_set_count(&ranks) == 1 ? "rank" : "ranks",
                     nt_rank_set_text(text, sizeof text, &ranks), (int)length, at);
      nt_rank_set_free(&ranks);
    }
  }
}

static void note_losses(struct nt_verdict *out) {
  const struct nt_model *model = out->job.model;
  for (uint32_t i = 0; i < model->note_count; i++)
    nt_lines_add(&out->notes, "%s", model->notes[i]);
  note_untraced(out);
  uint64_t lost = 0, overwritten = 0, left_out = 0, comms = 0, errors = 0;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    lost += model->ranks[i].lost;
    if (model->ranks[i].lost >= model->ranks[i].cut)
      lost -= model->ranks[i].cut; /* told with its file */
    left_out += model->ranks[i].left_out;
    const uint64_t there = model->ranks[i].left_out + model->ranks[i].unread;
    const bool guessed =
        model->ranks[i].recorder == NT_RECORDER_FLIGHT && !model->ranks[i].call_count;
    if (model->ranks[i].overwritten > there && !guessed)
      overwritten += model->ranks[i].overwritten - there;
    comms += model->ranks[i].comms_lost;
    errors += model->ranks[i].write_errors;
  }
  if (overwritten && model->ranks[0].recorder == NT_RECORDER_FLIGHT)
    nt_lines_add(
        &out->notes,
        "%llu earlier operations are not in the dumps: overwritten, or left out as completed",
        (unsigned long long)overwritten);
  else if (overwritten)
    nt_lines_add(&out->notes, "%llu calls were overwritten: the traces hold the last window only",
                 (unsigned long long)overwritten);
  if (left_out)
    nt_lines_add(&out->notes, "%llu earlier calls are not in the digests: the traces have them",
                 (unsigned long long)left_out);
  if (lost && model->ranks[0].recorder == NT_RECORDER_TRACE)
    nt_lines_add(&out->notes, "%llu calls were lost: they found no room in the area",
                 (unsigned long long)lost);
  if (comms)
    nt_lines_add(&out->notes, "%llu communicators were lost: they found no room in the area",
                 (unsigned long long)comms);
  if (errors)
    nt_lines_add(&out->notes, "%llu parts of traces could not be written",
                 (unsigned long long)errors);
  if (out->job.unknown_views)
    nt_lines_add(&out->notes, "%u communicators are left out: their creation was not seen",
                 out->job.unknown_views);
}

static bool is_concerned(const struct nt_verdict *out, const struct nt_model_rank *rank) {
  for (uint32_t i = 0; i < out->count; i++) {
    const struct nt_finding *finding = &out->findings[i];
    if (finding->joint == NT_NONE ||
        (rank->world >= 0 && (nt_rank_set_has(&finding->blame, (uint32_t)rank->world) ||
                              nt_rank_set_has(&finding->waiting, (uint32_t)rank->world))))
      return true; /* there it is evidence */
  }
  return false;
}

static void note_blocked(struct nt_verdict *out) {
  enum { TOLD = 8 };
  const struct nt_model *model = out->job.model;
  char line[NT_DESCRIBE];
  uint32_t told = 0;
  for (uint32_t i = 0; i < model->rank_count && told < TOLD; i++)
    if (!is_concerned(out, &model->ranks[i]) &&
        nt_describe_blocked(line, sizeof line, &model->ranks[i])) {
      nt_lines_add(&out->notes, "%s", line);
      told++;
    }
}

/* By cause: those that are gone before those that differ; then by time, then by what never ties. */
static int by_precedence(const void *a, const void *b) {
  const struct nt_finding *x = a, *y = b;
  bool open_x = x->class == NT_CLASS_UNDECIDED || x->open_end;
  bool open_y = y->class == NT_CLASS_UNDECIDED || y->open_end;
  if (open_x != open_y)
    return open_x ? 1 : -1;
  if (x->since_ns != y->since_ns)
    return x->since_ns < y->since_ns ? -1 : 1;
  if (x->class != y->class)
    return x->class < y->class ? -1 : 1;
  if (x->joint != y->joint)
    return x->joint < y->joint ? -1 : 1;
  if (x->seq != y->seq)
    return x->seq < y->seq ? -1 : 1;
  int field = strcmp(x->field ? x->field : "", y->field ? y->field : "");
  if (field)
    return field;
  uint32_t p = nt_rank_set_next(&x->blame, 0), q = nt_rank_set_next(&y->blame, 0);
  return p < q ? -1 : p > q;
}

struct watch {
  void (*step)(void *ctx, uint32_t which);
  void *ctx;
  uint32_t which;
};

static int next(struct watch *watch, int status) {
  if (watch->step && !status)
    watch->step(watch->ctx, watch->which++);
  return status;
}

static int inquire(struct nt_inquiry *inquiry, struct watch *watch) {
  int status = nt_creations_find(inquiry->job, &inquiry->creations);
  if (!status)
    status = nt_creations_complete(inquiry->job, &inquiry->creations);
  if (!status)
    status = nt_waits_find(inquiry->job, inquiry->freeze, &inquiry->p2p, &inquiry->creations,
                           inquiry->divergences, &inquiry->waits);
  if (!next(watch, status))
    status = nt_judge_divergences(inquiry);
  if (!status)
    status = nt_judge_replays(inquiry);
  if (!status)
    status = nt_judge_waits(inquiry);
  if (!status)
    status = nt_judge_knots(inquiry);
  if (!status)
    status = nt_judge_messages(inquiry);
  if (!status)
    status = nt_judge_send_cycles(inquiry);
  if (!status)
    status = nt_judge_lost_messages(inquiry);
  if (!status)
    status = nt_judge_refusals(inquiry);
  if (!status)
    status = nt_judge_creations(inquiry);
  if (!status)
    status = nt_judge_deaths(inquiry);
  if (!status)
    status = nt_judge_errors(inquiry);
  if (!status)
    status = nt_judge_stalls(inquiry);
  if (!status)
    status = nt_judge_outside(inquiry);
  if (!status)
    status = nt_judge_settings(inquiry);
  nt_say_replays(inquiry);
  if (!next(watch, status))
    status = nt_clocks_find(inquiry->job, &inquiry->clocks);
  if (!status)
    status = nt_judge_slow(inquiry);
  if (!status)
    status = nt_judge_durations(inquiry);
  if (!status)
    status = nt_complete_findings(inquiry);
  if (!status)
    status = nt_judge_silence(inquiry);
  if (!status)
    nt_say_limits(inquiry);
  if (!status)
    nt_say_digests(inquiry);
  return status;
}

static bool nobody_is_left(const struct nt_model *model) {
  for (uint32_t r = 0; r < model->rank_count; r++)
    if (!nt_model_is_gone(&model->ranks[r]))
      return false;
  return model->rank_count > 0;
}

int nt_verdict_make(const struct nt_model *model, struct nt_verdict *out) {
  return nt_verdict_make_watched(model, NULL, NULL, out);
}

int nt_verdict_make_watched(const struct nt_model *model, void (*step)(void *ctx, uint32_t which),
                            void *ctx, struct nt_verdict *out) {
  memset(out, 0, sizeof *out);
  struct watch watch = {step, ctx, 0};
  struct nt_inquiry inquiry = {.verdict = out, .job = &out->job, .freeze = &out->freeze};
  out->freeze = (struct nt_freeze){.ns = INT64_MAX, .rank = NT_NONE};
  int status = next(&watch, 0);
  if (!status)
    status = nt_identify(model, &out->job);
  if (!status)
    status = list_ranks(model, out);
  if (!next(&watch, status))
    status = compare(&inquiry);
  if (!next(&watch, status))
    status = freeze(&inquiry);
  if (!next(&watch, status))
    status = inquire(&inquiry, &watch);
  if (!next(&watch, status)) {
    if (out->count)
      qsort(out->findings, out->count, sizeof *out->findings, by_precedence);
    nt_fold_consequences(out);
    for (uint32_t i = 0; i < inquiry.waits.count; i++)
      out->moving |= inquiry.waits.list[i].moving;
    out->over = nobody_is_left(model) && (out->moving || out->freeze.why == NT_FREEZE_TOGETHER);
    out->moving &= !out->over;
    note_losses(out);
    note_blocked(out);
    nt_note_clocks(&inquiry);
    if (out->count)
      note_freeze(out);
    nt_window_judge(&inquiry);
  }
  free_divergences(&inquiry);
  nt_p2p_free(&inquiry.p2p);
  nt_creations_free(&inquiry.creations);
  nt_waits_free(&inquiry.waits);
  nt_clocks_free(&inquiry.clocks);
  return status;
}

void nt_verdict_free(struct nt_verdict *verdict) {
  for (uint32_t i = 0; i < verdict->count; i++)
    nt_finding_free(&verdict->findings[i]);
  for (uint32_t i = 0; i < verdict->warning_count; i++)
    nt_finding_free(&verdict->warnings[i]);
  free(verdict->findings);
  free(verdict->warnings);
  nt_freeze_free(&verdict->freeze);
  if (verdict->job.model)
    nt_job_free(&verdict->job);
  nt_rank_set_free(&verdict->present);
  nt_rank_set_free(&verdict->missing);
  nt_lines_free(&verdict->notes);
  memset(verdict, 0, sizeof *verdict);
}

char *nt_verdict_coverage(char *out, size_t size, const struct nt_verdict *verdict) {
  const struct nt_model *model = verdict->job.model;
  unsigned long long calls = 0;
  for (uint32_t r = 0; r < model->rank_count; r++)
    for (uint32_t i = 0; i < model->ranks[r].call_count; i++)
      calls +=
          model->ranks[r].calls[i].view != NT_NONE && !nt_is_replayed(&model->ranks[r].calls[i]);
  snprintf(out, size, "%u rank%s, %u communicator%s, %llu call%s%s", model->rank_count,
           model->rank_count == 1 ? "" : "s", verdict->job.joint_count,
           verdict->job.joint_count == 1 ? "" : "s", calls, calls == 1 ? "" : "s",
           verdict->moving ? "; the job moves" : "");
  return out;
}

enum nt_class nt_verdict_class(const struct nt_verdict *verdict) {
  return verdict->count ? verdict->findings[0].class : NT_CLASS_CONSISTENT;
}
