/* SPDX-License-Identifier: Apache-2.0 */
/* What all judges use: new findings, and words for ranks, waits and calls. */
#include "analysis/inquiry.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/describe.h"
#include "analysis/progress.h"
#include "analysis/sequence.h"
#include "cli/text.h"

struct nt_finding *nt_inquiry_add(struct nt_inquiry *inquiry, enum nt_class class, uint32_t joint) {
  struct nt_verdict *verdict = inquiry->verdict;
  if (verdict->count == verdict->room) {
    uint32_t wanted = verdict->room ? 2 * verdict->room : 8;
    struct nt_finding *findings = realloc(verdict->findings, wanted * sizeof *findings);
    if (!findings)
      return NULL;
    verdict->findings = findings;
    verdict->room = wanted;
  }
  struct nt_finding *finding = &verdict->findings[verdict->count++];
  memset(finding, 0, sizeof *finding);
  finding->class = class;
  finding->joint = joint;
  const struct nt_model *model = inquiry->job->model;
  finding->only_called = model->rank_count && model->ranks[0].recorder == NT_RECORDER_LOG;
  return finding;
}

struct nt_finding *nt_inquiry_warn(struct nt_inquiry *inquiry, enum nt_class class,
                                   uint32_t joint) {
  struct nt_verdict *verdict = inquiry->verdict;
  struct nt_finding *list = realloc(verdict->warnings, (verdict->warning_count + 1) * sizeof *list);
  if (!list)
    return NULL;
  verdict->warnings = list;
  struct nt_finding *finding = &list[verdict->warning_count++];
  memset(finding, 0, sizeof *finding);
  finding->class = class;
  finding->joint = joint;
  return finding;
}

bool nt_inquiry_explains(const struct nt_inquiry *inquiry) {
  for (uint32_t i = 0; i < inquiry->verdict->count; i++)
    if (!inquiry->verdict->findings[i].past)
      return true;
  return false;
}

void nt_finding_say(struct nt_finding *finding, const char *format, ...) {
  va_list arguments;
  free(finding->summary);
  va_start(arguments, format);
  if (vasprintf(&finding->summary, format, arguments) < 0)
    finding->summary = NULL;
  va_end(arguments);
}

int nt_inquiry_ranks(const struct nt_inquiry *inquiry, struct nt_rank_set *set,
                     const uint32_t *ranks, uint32_t count) {
  int status = 0;
  for (uint32_t i = 0; i < count && !status; i++)
    status = nt_finding_add(inquiry->job, set, ranks[i]);
  return status;
}

char *nt_inquiry_waiting(char *out, size_t size, const struct nt_finding *finding) {
  char ranks[NT_DESCRIBE], time[NT_TIME_TEXT];
  uint32_t count = nt_rank_set_count(&finding->waiting);
  out[0] = '\0';
  const bool said = finding->class == NT_CLASS_MISMATCH || finding->class == NT_CLASS_ORDER ||
                    finding->class == NT_CLASS_EXTRA;
  if (count && finding->only_called && said)
    return out;
  if (count && finding->only_called)
    snprintf(out, size, "; %s called it",
             nt_describe_ranks(ranks, sizeof ranks, &finding->waiting));
  else if (count && finding->since_ns >= NT_TIME_FIRST)
    snprintf(out, size, "; %s %s in it since %s",
             nt_describe_ranks(ranks, sizeof ranks, &finding->waiting),
             count == 1 ? "waits" : "wait", nt_time_short(time, finding->since_ns));
  else if (count)
    snprintf(out, size, "; %s %s in it", nt_describe_ranks(ranks, sizeof ranks, &finding->waiting),
             count == 1 ? "waits" : "wait");
  return out;
}

/* The operation in which the first of those is that wait behind `stuck`, which is finished on them. */
static char *later_place(char *out, size_t size, const struct nt_inquiry *inquiry,
                         const struct nt_stuck *stuck) {
  const struct nt_joint *joint = &inquiry->job->joints[stuck->joint];
  for (uint32_t i = 0; i < joint->member_count && stuck->held_count; i++) {
    const struct nt_member *member = &joint->members[i];
    if (member->rank != stuck->held[0])
      continue;
    for (uint32_t p = stuck->seq; p <= member->called; p++) {
      const uint32_t call = p >= member->first ? member->call[p - member->first] : NT_NONE;
      if (call != NT_NONE && nt_call_unfinished(inquiry->job, member->rank, call))
        return nt_describe_place(out, size, inquiry->job,
                                 nt_member_rank(inquiry->job, member)->calls[call].fn, p,
                                 stuck->joint);
    }
  }
  return nt_describe_joint(out, size, inquiry->job, stuck->joint);
}

char *nt_inquiry_waiting_in(char *out, size_t size, const struct nt_inquiry *inquiry,
                            const struct nt_finding *finding, const struct nt_stuck *stuck) {
  char ranks[NT_DESCRIBE];
  char place[NT_DESCRIBE], time[NT_TIME_TEXT], since[NT_TIME_TEXT + 8] = "";
  const uint32_t count = nt_rank_set_count(&finding->waiting);
  const bool later = stuck->kind == NT_STUCK_COLLECTIVE && !stuck->waiter_count;
  if (stuck->kind != NT_STUCK_COLLECTIVE || (finding->seq == stuck->seq && !later) || !count)
    return nt_inquiry_waiting(out, size, finding);
  if (finding->since_ns >= NT_TIME_FIRST && !later)
    snprintf(since, sizeof since, " since %s", nt_time_short(time, finding->since_ns));
  nt_describe_ranks(ranks, sizeof ranks, &finding->waiting);
  if (later)
    snprintf(out, size, "; %s wait%s in a later call, %s", ranks, count == 1 ? "s" : "",
             later_place(place, sizeof place, inquiry, stuck));
  else
    snprintf(out, size, "; %s %s #%u%s, because every later call paired up with the wrong one",
             ranks,
             finding->only_called ? "called"
             : count == 1         ? "now waits in"
                                  : "now wait in",
             stuck->seq, since);
  return out;
}

/* " at train.py:41 step"; of a call without a stack, as a destructor makes it, " after AllReduce #9 on A at …" of the
 * last one before it that has one. */
static char *place_of(char *out, size_t size, const struct nt_inquiry *inquiry, uint32_t rank,
                      uint32_t last) {
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  const char *site = nt_model_site(model, model->calls[last].at);
  uint32_t before = NT_NONE;
  char call[NT_DESCRIBE];
  out[0] = '\0';
  if (site)
    snprintf(out, size, " at %s", site);
  for (uint32_t i = 0; !site && i < model->call_count; i++)
    if (model->calls[i].view != NT_NONE && nt_model_site(model, model->calls[i].at) &&
        model->calls[i].enter_ns <= model->calls[last].enter_ns &&
        (before == NT_NONE || model->calls[i].enter_ns >= model->calls[before].enter_ns))
      before = i;
  if (before != NT_NONE)
    snprintf(out, size, ", after %s at %s",
             nt_describe_call(call, sizeof call, inquiry->job, rank, before),
             nt_model_site(model, model->calls[before].at));
  return out;
}

char *nt_inquiry_rank(char *out, size_t size, const struct nt_inquiry *inquiry, uint32_t rank) {
  const struct nt_model_rank *model = &inquiry->job->model->ranks[rank];
  char state[NT_FATE_TEXT], told[NT_FATE_TEXT + 4] = "", call[NT_DESCRIBE], place[2 * NT_DESCRIBE];
  uint32_t last = nt_last_call(inquiry->job, rank);
  nt_describe_state(state, sizeof state, model);
  if (model->recorder == NT_RECORDER_TRACE || model->state != NT_PROCESS_UNKNOWN)
    snprintf(told, sizeof told, " (%s)", state); /* of the others no state is recorded */
  if (last == NT_NONE) {
    snprintf(out, size, "rank %d%s %s", model->world, told,
             model->overwritten ? "has no operation in what was recorded" : "made no call");
    return out;
  }
  snprintf(out, size, "rank %d%s last called %s%s%s", model->world, told,
           nt_launch_text(call, sizeof call, inquiry, rank, last),
           place_of(place, sizeof place, inquiry, rank, last),
           nt_call_is_open(inquiry->job, rank, last) ? " and did not return"
           : model->calls[last].pending              ? " in a group that it has not ended"
                                                     : "");
  return out;
}
