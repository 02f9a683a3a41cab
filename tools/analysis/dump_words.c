/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/dump_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/describe.h"
#include "cli/text.h"

#define BEFORE_NS INT64_C(600000000000) /* a fault may be told of that long before its effect */
enum { FACTS_MAX = 16, LINES_MAX = 12 /* of RAS */, FACT_TEXT = 160 /* bytes */ };

/* ---- where a rank is ---------------------------------------------------------------------------- */

static const struct nt_model_dump_thread *main_thread(const struct nt_model_dump *dump) {
  for (uint32_t i = 0; i < dump->thread_count; i++)
    if (dump->threads[i].main)
      return &dump->threads[i];
  return NULL;
}

const struct nt_model_dump_thread *nt_dump_thread_now(const struct nt_job *job, uint32_t rank,
                                                      uint32_t last_record) {
  const struct nt_model_rank *model = &job->model->ranks[rank];
  const struct nt_model_dump *dump = model->dump;
  if (!dump || dump->began_ns > job->cut_ns)
    return NULL;
  const struct nt_model_dump_thread *found = main_thread(dump);
  if (last_record != NT_NONE) {
    const struct nt_model_call *call = &model->calls[last_record];
    if (dump->began_ns < call->enter_ns || dump->began_ns < call->exit_ns)
      return NULL;
    for (uint32_t i = 0; i < dump->thread_count; i++)
      if (dump->threads[i].thread == call->thread && call->thread)
        found = &dump->threads[i];
  }
  return found && (found->place || found->doing) ? found : NULL;
}

/* "main thread sleeping in read(fd 7)", "thread pt_autograd_0 running". */
static void thread_words(char *out, size_t size, const struct nt_model_dump_thread *thread,
                         bool with_place) {
  char who[64];
  if (thread->main)
    snprintf(who, sizeof who, "main thread");
  else
    snprintf(who, sizeof who, "thread %s", *thread->name ? thread->name : "without a name");
  bool place = with_place && thread->place;
  snprintf(out, size, "%s%s%s%s%s", who, place ? " in " : "", place ? thread->place : "",
           thread->doing ? place ? ", " : " " : "", thread->doing ? thread->doing : "");
}

char *nt_dump_words(char *out, size_t size, const struct nt_model_rank *rank,
                    const struct nt_model_dump_thread *thread, int64_t since_ns) {
  const struct nt_model_dump_thread *leader = main_thread(rank->dump);
  char first[NT_DESCRIBE], second[NT_DESCRIBE] = "", since[NT_TIME_TEXT] = "", of[NT_TIME_TEXT];
  thread_words(first, sizeof first, thread, false);
  if (leader && leader != thread)
    thread_words(second, sizeof second, leader, true);
  if (since_ns)
    nt_time_short(since, since_ns);
  nt_time_short(of, rank->dump->began_ns);
  if (thread->place)
    snprintf(out, size, "in host code in %s (%s%s%s%s%s%s; from the dump of %s)", thread->place,
             *since ? "host code since " : "", since, *since ? ": " : "", first,
             *second ? "; " : "", second, of);
  else
    snprintf(out, size, "in host code%s%s: %s%s%s (from the dump of %s)", *since ? " since " : "",
             since, first, *second ? "; " : "", second, of);
  return out;
}

/* ---- evidence ----------------------------------------------------------------------------------- */

/* A line is told already, whatever time stands behind it: each dump reckons that anew. */
static bool is_told(const struct nt_lines *lines, const char *text) {
  const size_t length = strlen(text);
  for (uint32_t i = 0; i < lines->count; i++)
    if (!strncmp(lines->line[i], text, length) &&
        (!lines->line[i][length] || !strncmp(lines->line[i] + length, " (", 2)))
      return true;
  return false;
}

static bool has_process(const struct nt_model *model, const char *host, unsigned long pid) {
  for (uint32_t r = 0; r < model->rank_count; r++)
    if (model->ranks[r].pid == pid && model->ranks[r].host && host &&
        !strcmp(model->ranks[r].host, host))
      return true;
  return false;
}

/* The out-of-memory killer in the kernel's log: for want of the machine's memory, or it took a process of the job. */
static bool concerns_job(const struct nt_model *model, const char *host, const char *text) {
  static const char *const pids[] = {"Killed process ", "pid="};
  if (!strstr(text, "oom-kill") && !strstr(text, "out of memory") && !strstr(text, pids[0]))
    return true;
  if (strstr(text, "Out of memory") || strstr(text, "CONSTRAINT_NONE") ||
      strstr(text, "global_oom"))
    return true;
  for (size_t i = 0; i < sizeof pids / sizeof *pids; i++) {
    const char *at = strstr(text, pids[i]);
    if (at && has_process(model, host, strtoul(at + strlen(pids[i]), NULL, 10)))
      return true;
  }
  return false;
}

static int64_t job_start(const struct nt_model *model) {
  int64_t start = 0;
  for (uint32_t r = 0; r < model->rank_count; r++)
    if (model->ranks[r].started_ns && (!start || model->ranks[r].started_ns < start))
      start = model->ranks[r].started_ns;
  return start;
}

/* Those of a node or the job are told once, whoever has them. */
static bool say_fact(const struct nt_model *model, struct nt_finding *finding,
                     const struct nt_model_rank *rank, const struct nt_model_fact *fact) {
  char line[2 * NT_DESCRIBE], who[96] = "", time[NT_TIME_TEXT];
  size_t length = strlen(fact->text);
  if (fact->at_ns && ((finding->since_ns && fact->at_ns < finding->since_ns - BEFORE_NS) ||
                      fact->at_ns < job_start(model)))
    return false;
  if (!strncmp(fact->text, "kernel log", 10) && !concerns_job(model, rank->host, fact->text))
    return false;
  if (fact->of == NT_FACT_OF_NODE)
    snprintf(who, sizeof who, "host %.80s: ", rank->host ? rank->host : "unknown");
  else if (fact->of == NT_FACT_OF_PROCESS)
    snprintf(who, sizeof who, "rank %d: ", rank->world);
  bool cut = length > FACT_TEXT;
  for (length = cut ? FACT_TEXT : length; cut && (fact->text[length] & 0xc0) == 0x80; length--)
    continue;
  snprintf(line, sizeof line, "%s%.*s%s", who, (int)length, fact->text, cut ? "…" : "");
  if (is_told(&finding->evidence, line))
    return false;
  if (fact->at_ns)
    nt_lines_add(&finding->evidence, "%s (%.8s UTC)", line, nt_time_short(time, fact->at_ns));
  else
    nt_lines_add(&finding->evidence, "%s", line);
  return true;
}

/* Up to `most` facts that are of the job, or that are not. */
static void say_facts(const struct nt_model *model, struct nt_finding *finding, bool of_job,
                      uint32_t most) {
  uint32_t told = 0;
  for (uint32_t r = 0; r < model->rank_count; r++) {
    const struct nt_model_dump *dump = model->ranks[r].dump;
    for (uint32_t i = 0; dump && i < dump->fact_count && told < most; i++)
      if (dump->began_ns >= finding->since_ns && (dump->facts[i].of == NT_FACT_OF_JOB) == of_job)
        told += say_fact(model, finding, &model->ranks[r], &dump->facts[i]);
  }
}

void nt_say_dumps(struct nt_inquiry *inquiry, struct nt_finding *finding) {
  const struct nt_model *model = inquiry->job->model;
  if (finding->class != NT_CLASS_STALLED && finding->class != NT_CLASS_GPU &&
      finding->class != NT_CLASS_OUTSIDE)
    return;
  say_facts(model, finding, false, FACTS_MAX);
  say_facts(model, finding, true, LINES_MAX);
  for (uint32_t r = 0; r < model->rank_count; r++) {
    const struct nt_model_dump *dump = model->ranks[r].dump;
    if (dump && dump->missing && dump->began_ns >= finding->since_ns)
      nt_lines_add(&finding->evidence, "rank %d: not asked: %s", model->ranks[r].world,
                   dump->missing);
  }
}
