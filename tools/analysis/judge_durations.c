/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warnings: operations that take longer than they did, or than on other communicators of the same kind.
 *
 * An exact duration holds the wait for others. Only positions count at which every member has one: the shortest of
 * these is of the member that came last, which waited for nobody.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "analysis/rounds.h"
#include "cli/call_text.h"
#include "cli/text.h"

#define LEAST_US 50 /* a difference that matters */
#define FACTOR 2    /* between medians … */
#define APART 3 / 2 /* … and between the outer fifths that face each other */
enum {
  SERIES = 15,  /* samples of a series: thirds of five are compared */
  THIRD = 5,    /* samples of a communicator that is compared with others */
  SIBLINGS = 4, /* communicators, of which the others are the measure */
  WARNINGS_MAX = 4,
  LINES_MAX = 6,
};

struct sample {
  uint64_t sig;
  uint32_t size, hosts, joint, position, us;
  int64_t ns;
};

struct durations {
  struct nt_inquiry *inquiry;
  struct sample *list;
  size_t count, room;
  uint32_t *sorted; /* room for one number a sample */
  uint32_t first_warning;
};

/* One kind of operation on one communicator. */
struct series {
  const struct sample *list;
  uint32_t count, us; /* median */
};

static int by_series(const void *a, const void *b) {
  const struct sample *x = a, *y = b;
  if (x->sig != y->sig)
    return x->sig < y->sig ? -1 : 1;
  if (x->size != y->size)
    return x->size < y->size ? -1 : 1;
  if (x->hosts != y->hosts)
    return x->hosts < y->hosts ? -1 : 1;
  if (x->joint != y->joint)
    return x->joint < y->joint ? -1 : 1;
  return x->position < y->position ? -1 : x->position > y->position;
}

static int by_value(const void *a, const void *b) {
  const uint32_t *x = a, *y = b;
  return *x < *y ? -1 : *x > *y;
}

static bool same_kind(const struct sample *x, const struct sample *y) {
  return x->sig == y->sig && x->size == y->size && x->hosts == y->hosts;
}

/* Of so many hundredths of the samples, sorted, not more. */
static uint32_t part_of(struct durations *d, const struct sample *list, uint32_t count,
                        uint32_t percent) {
  for (uint32_t i = 0; i < count; i++)
    d->sorted[i] = list[i].us;
  qsort(d->sorted, count, sizeof *d->sorted, by_value);
  return d->sorted[(uint64_t)(count - 1) * percent / 100];
}

static uint32_t hosts_of(const struct nt_inquiry *inquiry, const struct nt_joint *joint) {
  uint32_t count = 0, last = NT_NONE;
  for (uint32_t m = 0; m < joint->member_count; m++) {
    const uint32_t host = inquiry->clocks.host[joint->members[m].rank];
    count += host != last; /* members are mostly by host: a measure of likeness, no more */
    last = host;
  }
  return count;
}

static int make_room(struct durations *d, uint32_t count) {
  const size_t wanted = 2 * (d->count + count);
  if (d->count + count <= d->room)
    return 0;
  struct sample *list = realloc(d->list, wanted * sizeof *list);
  if (!list)
    return -NT_ERR_MEMORY;
  d->list = list;
  d->room = wanted;
  return 0;
}

static int collect(struct durations *d, uint32_t index) {
  const struct nt_job *job = d->inquiry->job;
  const struct nt_joint *joint = &job->joints[index];
  const uint32_t hosts = hosts_of(d->inquiry, joint);
  struct nt_rounds rounds = {0};
  int status = joint->absent ? 0 : nt_rounds_find(job, joint, true, &rounds);
  if (!status)
    status = make_room(d, rounds.count);
  for (uint32_t r = 0; r < rounds.count && !status; r++) {
    const struct nt_meeting *at = nt_round(&rounds, r);
    const struct nt_member *first = &joint->members[0];
    struct sample sample = {.sig = first->sig[rounds.position[r] - first->first],
                            .size = joint->member_count,
                            .hosts = hosts,
                            .joint = index,
                            .position = rounds.position[r],
                            .us = at->took_us,
                            .ns = at->enter_ns};
    for (uint32_t m = 1; m < rounds.members; m++)
      sample.us = at[m].took_us < sample.us ? at[m].took_us : sample.us;
    d->list[d->count++] = sample;
  }
  nt_rounds_free(&rounds);
  return status;
}

/* The warning of this communicator, a new one or one there is; NULL if there are too many, or no memory. */
static struct nt_finding *warning_of(struct durations *d, uint32_t joint, bool *made) {
  struct nt_verdict *verdict = d->inquiry->verdict;
  *made = false;
  for (uint32_t i = d->first_warning; i < verdict->warning_count; i++)
    if (verdict->warnings[i].joint == joint)
      return &verdict->warnings[i];
  if (verdict->warning_count - d->first_warning >= WARNINGS_MAX)
    return NULL;
  *made = true;
  return nt_inquiry_warn(d->inquiry, NT_CLASS_SLOW, joint);
}

/* "AllReduce (1 Mi x f32 sum) on A" */
static void say_kind(char *out, size_t size, const struct durations *d,
                     const struct sample *sample) {
  const struct nt_job *job = d->inquiry->job;
  const struct nt_model_call *call =
      nt_member_call(job, &job->joints[sample->joint].members[0], sample->position);
  char name[NT_DESCRIBE / 2], function[64], arguments[128];
  snprintf(out, size, "%s (%s) on %s", nt_call_function(function, sizeof function, call->fn),
           nt_describe_arguments(arguments, sizeof arguments, call),
           nt_describe_joint(name, sizeof name, job, sample->joint));
}

static void warn(struct durations *d, const struct sample *from, const char *text) {
  static const char *const steps[] = {
      "look at the links and counters of these hosts and GPUs: nccltrace dump, then nccltrace show "
      "--dump (NVLink, PCIe, ports, clocks)",
      "nccl-tests over the same ranks tell whether it is the fabric or what runs beside it"};
  const struct nt_job *job = d->inquiry->job;
  bool made;
  struct nt_finding *finding = warning_of(d, from->joint, &made);
  if (!finding)
    return;
  if (!made) {
    if (finding->evidence.count < LINES_MAX)
      nt_lines_add(&finding->evidence, "likewise %s", text);
    return;
  }
  finding->confidence = NT_LIKELY;
  finding->fn = nt_member_call(job, &job->joints[from->joint].members[0], from->position)->fn;
  finding->seq = from->position;
  finding->since_ns = from->ns;
  nt_finding_say(finding, "%s", text);
  nt_lines_add(&finding->evidence, "exact durations of one launch in 64, of the member that came "
                                   "last each time: no waiting for others is in them");
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
    nt_lines_add(&finding->next, "%s", steps[i]);
}

/* The first sample from which on nearly all are above the middle of the two. */
static uint32_t turn_of(const struct series *series, uint32_t before_us, uint32_t after_us) {
  const uint64_t middle = ((uint64_t)before_us + after_us) / 2;
  uint32_t turn = series->count - 1, below = 0;
  for (uint32_t i = series->count; i-- > 0;) {
    below += series->list[i].us <= middle;
    if (10 * below > series->count - i)
      break;
    if (series->list[i].us > middle)
      turn = i;
  }
  return turn;
}

static void compare_with_before(struct durations *d, const struct series *series) {
  const uint32_t third = series->count / 3;
  if (series->count < SERIES)
    return;
  const struct sample *late = &series->list[series->count - third];
  const uint32_t before = part_of(d, series->list, third, 50), after = part_of(d, late, third, 50);
  if (after < FACTOR * (uint64_t)before || after - before < LEAST_US ||
      part_of(d, late, third, 20) < (uint64_t)part_of(d, series->list, third, 80) * APART)
    return;
  const struct sample *from = &series->list[turn_of(series, before, after)];
  char kind[NT_DESCRIBE], text[2 * NT_DESCRIBE], now[NT_DURATION_TEXT], once[NT_DURATION_TEXT],
      time[NT_TIME_TEXT];
  say_kind(kind, sizeof kind, d, from);
  snprintf(text, sizeof text, "%s takes %s since #%u (%s), %.1f times as long as before (%s)", kind,
           nt_duration_text(now, INT64_C(1000) * after), from->position,
           nt_time_short(time, from->ns), (double)after / before,
           nt_duration_text(once, INT64_C(1000) * before));
  warn(d, from, text);
}

/* Communicators of one size and extent, with one operation: the median of their medians is the measure. */
static void compare_with_others(struct durations *d, const struct series *list, uint32_t count) {
  if (count < SIBLINGS)
    return;
  for (uint32_t i = 0; i < count; i++)
    d->sorted[i] = list[i].us;
  qsort(d->sorted, count, sizeof *d->sorted, by_value);
  const uint32_t measure = d->sorted[(count - 1) / 2];
  for (uint32_t i = 0; i < count; i++) {
    if (list[i].us < FACTOR * (uint64_t)measure || list[i].us - measure < LEAST_US ||
        part_of(d, list[i].list, list[i].count, 20) < (uint64_t)measure * APART)
      continue;
    char kind[NT_DESCRIBE], text[2 * NT_DESCRIBE], here[NT_DURATION_TEXT], there[NT_DURATION_TEXT];
    say_kind(kind, sizeof kind, d, list[i].list);
    snprintf(text, sizeof text,
             "%s takes %s, %.1f times as long as on %u other communicators of that size (%s)", kind,
             nt_duration_text(here, INT64_C(1000) * list[i].us), (double)list[i].us / measure,
             count - 1, nt_duration_text(there, INT64_C(1000) * measure));
    warn(d, list[i].list, text);
  }
}

static int judge(struct durations *d) {
  struct series *series = malloc((d->count + 1) * sizeof *series);
  d->sorted = malloc((d->count + 1) * sizeof *d->sorted);
  int status = series && d->sorted ? 0 : -NT_ERR_MEMORY;
  if (d->count)
    qsort(d->list, d->count, sizeof *d->list, by_series);
  for (size_t i = 0; i < d->count && !status;) {
    const struct sample *first = &d->list[i];
    uint32_t kinds = 0;
    while (i < d->count && same_kind(first, &d->list[i])) {
      struct series one = {&d->list[i], 0, 0};
      for (; i < d->count && same_kind(first, &d->list[i]) && d->list[i].joint == one.list->joint;
           i++)
        one.count++;
      compare_with_before(d, &one);
      one.us = part_of(d, one.list, one.count, 50);
      if (one.count >= THIRD)
        series[kinds++] = one;
    }
    compare_with_others(d, series, kinds);
  }
  free(series);
  free(d->sorted);
  return status;
}

int nt_judge_durations(struct nt_inquiry *inquiry) {
  struct durations d = {.inquiry = inquiry, .first_warning = inquiry->verdict->warning_count};
  int status = 0;
  for (uint32_t i = 0; i < inquiry->job->joint_count && !status; i++)
    status = collect(&d, i);
  if (!status)
    status = judge(&d);
  free(d.list);
  return status;
}
