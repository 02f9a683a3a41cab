/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracediff: aligns the traces of all ranks of a job and says which rank, which call.
 *
 * A live job is looked at twice: what seems to be outstanding may just be on its way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "analysis/verdict.h"
#include "cli/options.h"
#include "cli/text.h"
#include "tracediff/gather.h"
#include "tracediff/report.h"
#include "tracediff/unusable.h"

#define LOOK_MS 250
#define YOUNG_MS 1100
#define JITTER_NS INT64_C(10000000) /* each look translates the clock anew */

/* Of each trace the last calls are read first, if the traces are large; and where these do not tell, as many as memory is
 * meant for, 64 bytes each. */
enum { WINDOW = 256, WIDER = 16 };
#define SMALL_BYTES (UINT64_C(8) << 20)
#define CALLS_MAX (UINT64_C(24) << 20)

enum { OPT_JSON = 1, OPT_COLOR, OPT_FULL_STACKS, OPT_FULL, OPT_WINDOW };

static const struct nt_option options[] = {
    {OPT_JSON, "json", 'j', NULL, "print the verdict as JSON"},
    {OPT_FULL_STACKS, "full-stacks", 0, NULL, "print every frame of a culprit's stack"},
    {OPT_FULL, "full", 0, NULL, "read all calls, not only the last ones where these decide"},
    {OPT_WINDOW, "window", 0, "CALLS", "how many calls of each rank are read first (256)"},
    {OPT_COLOR, "color", 0, "WHEN", "auto (default), always or never"},
};

static const struct nt_usage usage = {
    .tool = "tracediff",
    .synopsis = "[OPTION...] [FILE|DIR...]",
    .summary =
        "Aligns the traces of all ranks of a job and says which rank, which call.\n"
        "A directory stands for all *.trace files in it and for the running processes that write\n"
        "there; without an argument it is ./nccltrace. Where there are none, dumps of PyTorch's\n"
        "flight recorder are read, and where there are none of these, NCCL's own logs\n"
        "(NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL).",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .after = "Exit status: 0 consistent, 1 findings, 2 the input or the arguments are unusable.",
};

static bool any_live(const struct nt_model *model) {
  for (uint32_t i = 0; i < model->rank_count; i++)
    if (model->ranks[i].live && !model->ranks[i].digest_ns)
      return true;
  return false;
}

/* Calls of CUDA are none of NCCL: a rank that loads data or writes a checkpoint makes many. */
static int64_t last_call_ns(const struct nt_model_rank *rank) {
  int64_t last = 0;
  for (uint32_t i = 0; i < rank->call_count; i++)
    if (rank->calls[i].view != NT_NONE && rank->calls[i].enter_ns > last)
      last = rank->calls[i].enter_ns;
  return last;
}

/* Which ranks made a call between the two looks, or saw their device get any further? */
static void mark_moved(const struct nt_model *before, struct nt_model *after) {
  for (uint32_t i = 0; i < after->rank_count; i++) {
    struct nt_model_rank *rank = &after->ranks[i];
    uint32_t index = nt_model_find(before, rank->world);
    if (index == NT_NONE || before->ranks[index].pid != rank->pid)
      continue;
    const struct nt_model_rank *old = &before->ranks[index];
    rank->moved |=
        last_call_ns(rank) - last_call_ns(old) > JITTER_NS || old->gpu_steps != rank->gpu_steps;
  }
}

/* Long enough for those that are behind by a moment, and for the youngest wait to come of age. */
static void pause_between(const struct nt_verdict *verdict) {
  int64_t ms = LOOK_MS;
  if (verdict->moving)
    ms = YOUNG_MS;
  struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  while (nanosleep(&time, &time) != 0)
    continue;
}

static uint64_t total_calls(const struct nt_model *model) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < model->rank_count; i++)
    total += model->ranks[i].total_calls;
  return total;
}

static int look(char **paths, int count, const struct nt_look *how, struct nt_model *model,
                struct nt_verdict *verdict) {
  const int loaded = nt_gather(paths, count, how, model);
  const int status = loaded > 0 ? nt_verdict_make(model, verdict) : 0;
  return status ? status : loaded;
}

/* All that memory is meant for. */
static uint32_t wider(const struct nt_model *model) {
  const uint64_t total = total_calls(model), each = CALLS_MAX / model->rank_count;
  return total <= CALLS_MAX ? 0 : each > WINDOW * WIDER ? (uint32_t)each : WINDOW * WIDER;
}

/* At the last calls, and at all where they do not decide: what is found then is all that is said. */
static int look_twice(char **paths, int count, struct nt_look how, struct nt_model *model,
                      struct nt_verdict *verdict) {
  char *complaints = NULL;
  size_t size = 0;
  how.complaints = how.window ? open_memstream(&complaints, &size) : NULL;
  int loaded = how.complaints ? look(paths, count, &how, model, verdict) : 0;
  const bool again = !how.complaints || (loaded > 0 && verdict->lacks);
  if (how.complaints)
    (void)fclose(how.complaints);
  if (again) {
    how.window = loaded > 0 ? wider(model) : 0;
    how.complaints = stderr;
    nt_verdict_free(verdict);
    nt_model_free(model);
    loaded = look(paths, count, &how, model, verdict);
  } else if (complaints) {
    fputs(complaints, stderr);
  }
  free(complaints);
  return loaded;
}

static int analyse(char **paths, int count, const struct nt_look *how, struct nt_model *model,
                   struct nt_verdict *verdict) {
  const struct nt_look all = {.window = 0};
  int loaded = look_twice(paths, count, *how, model, verdict), status = 0;
  if (loaded <= 0 || !any_live(model) || (!verdict->count && !verdict->moving))
    return loaded;
  struct nt_model again;
  pause_between(verdict);
  loaded = nt_gather(paths, count, &all, &again);
  if (loaded > 0) {
    mark_moved(model, &again);
    nt_verdict_free(verdict);
    nt_model_free(model);
    *model = again;
    status = nt_verdict_make(model, verdict);
  } else {
    nt_model_free(&again);
    loaded = 1; /* the files are gone meanwhile: the first look stands */
  }
  return status ? status : loaded;
}

/* Why there is no verdict, on standard error and, for programs, as JSON. */
static void complain(const struct nt_model *model, int loaded, char **paths, int count,
                     bool implied, bool json) {
  char *text = loaded == 0 ? nt_unusable_text(paths, count, implied) : NULL;
  const char *message = text ? text : "out of memory";
  fputs("tracediff: ", stderr);
  nt_text_escape_print(stderr, message);
  fputc('\n', stderr);
  if (json && nt_report_json_error(message, model, stdout) != 0)
    fputs("tracediff: the report could not be written\n", stderr);
  free(text);
}

static bool parse_window(const char *text, uint32_t *out) {
  char *end;
  const unsigned long value = strtoul(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || !value || value > UINT32_MAX)
    return false;
  *out = (uint32_t)value;
  return true;
}

int main(int argc, char **argv) {
  static char standard[] = "./nccltrace";
  char *standard_paths[] = {standard, NULL};
  enum nt_color_when color = NT_COLOR_AUTO;
  struct nt_report_style style = {false, false};
  bool json = false;
  struct nt_look how = {.window = WINDOW, .small_bytes = SMALL_BYTES};
  struct nt_options parser;
  nt_options_start(&parser, &usage, argc, argv);
  int id;
  while ((id = nt_options_next(&parser)) > 0) {
    if (id == OPT_JSON)
      json = true;
    else if (id == OPT_FULL_STACKS)
      style.full_stacks = true;
    else if (id == OPT_FULL)
      how.window = 0;
    else if (id == OPT_WINDOW) {
      how.small_bytes = 0;
      if (!parse_window(parser.value, &how.window))
        return nt_options_bad(&usage, "--window takes a number of calls, from 1");
    } else if (!nt_color_parse(parser.value, &color))
      return nt_options_bad(&usage, "--color takes auto, always or never");
  }
  if (id == NT_OPTIONS_STOP)
    return parser.status;
  char **paths = parser.first < argc ? argv + parser.first : standard_paths;
  int count = parser.first < argc ? argc - parser.first : 1;

  struct nt_model model = {0};
  struct nt_verdict verdict = {0};
  int loaded = analyse(paths, count, &how, &model, &verdict), status = NT_EXIT_USAGE;
  if (loaded <= 0) {
    complain(&model, loaded, paths, count, parser.first >= argc, json);
  } else {
    style.color = nt_color_wanted(color, stdout);
    int failed = json ? nt_report_json(&verdict, stdout) : nt_report_text(&verdict, &style, stdout);
    if (failed || fflush(stdout) != 0)
      fputs("tracediff: the report could not be written\n", stderr);
    else
      status = verdict.count ? 1 : 0;
  }
  nt_verdict_free(&verdict);
  nt_model_free(&model);
  return status;
}
