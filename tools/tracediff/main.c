/* SPDX-License-Identifier: Apache-2.0 */
/* tracediff: aligns the traces of all ranks of a job and says which rank, which call. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/verdict.h"
#include "cli/options.h"
#include "cli/text.h"
#include "tracediff/look.h"
#include "tracediff/report.h"
#include "tracediff/unusable.h"

/* Of each trace the last calls are read first, if the traces are large; and where these do not tell, as many as memory is
 * meant for, some 85 bytes each. A file has no fewer than two bytes a call. */
enum { WINDOW = 128, CALL_BYTES = 2 };
enum { HEAP_STEP = 8 << 20 }; /* bytes; jobs need hundreds of MB in small pieces */
#define SMALL_BYTES (UINT64_C(8) << 20)
#define CALLS_MAX (UINT64_C(20) << 20)

enum { OPT_JSON = 1, OPT_COLOR, OPT_FULL_STACKS, OPT_FULL, OPT_WINDOW, OPT_MAX_CALLS };

static const struct nt_option options[] = {
    {OPT_JSON, "json", 'j', NULL, "print the verdict as JSON"},
    {OPT_FULL_STACKS, "full-stacks", 0, NULL, "print every frame of a culprit's stack"},
    {OPT_FULL, "full", 0, NULL, "read all calls, not only the last ones where these decide"},
    {OPT_WINDOW, "window", 0, "CALLS", "how many calls of each rank are read first (128)"},
    {OPT_MAX_CALLS, "max-calls", 0, "CALLS", "how many calls memory is meant for (20 million)"},
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
    .after =
        "Exit status: 0 consistent, 1 findings, 2 the input or the arguments are unusable.\n"
        "What each finding means: share/doc/libnccltrace/docs/DIAGNOSES.md of the installation.",
};

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

/* One trace was named, and the others that it would need lie beside it. */
static void hint_beside(const struct nt_verdict *verdict, char **paths, int count) {
  char *directory =
      count == 1 && nt_rank_set_count(&verdict->missing) ? nt_unusable_beside(paths[0]) : NULL;
  if (directory) {
    fputs("tracediff: one trace was named, and more lie beside it: tracediff ", stderr);
    nt_text_escape_print(stderr, directory);
    fputc('\n', stderr);
  }
  free(directory);
}

static bool parse_calls(const char *text, uint64_t most, uint64_t *out) {
  char *end;
  *out = strtoull(text, &end, 10);
  return *text >= '0' && *text <= '9' && !*end && *out && *out <= most;
}

int main(int argc, char **argv) {
  static char standard[] = "./nccltrace";
  char *standard_paths[] = {standard, NULL};
  enum nt_color_when color = NT_COLOR_AUTO;
  struct nt_report_style style = {false, false};
  bool json = false;
  struct nt_looking how = {.window = WINDOW, .small_bytes = SMALL_BYTES, .most = CALLS_MAX};
  uint64_t calls;
  struct nt_options parser;
  nt_options_start(&parser, &usage, argc, argv);
  int id;
  (void)mallopt(M_TOP_PAD, HEAP_STEP);
  while ((id = nt_options_next(&parser)) > 0) {
    if (id == OPT_JSON)
      json = true;
    else if (id == OPT_FULL_STACKS)
      style.full_stacks = true;
    else if (id == OPT_FULL)
      how.full = true;
    else if (id == OPT_WINDOW) {
      if (!parse_calls(parser.value, UINT32_MAX, &calls))
        return nt_options_bad(&usage, "--window takes a number of calls, from 1");
      how.small_bytes = 0;
      how.window = (uint32_t)calls;
    } else if (id == OPT_MAX_CALLS) {
      if (!parse_calls(parser.value, UINT64_MAX / 2, &how.most))
        return nt_options_bad(&usage, "--max-calls takes a number of calls, from 1");
    } else if (!nt_color_parse(parser.value, &color))
      return nt_options_bad(&usage, "--color takes auto, always or never");
  }
  if (id == NT_OPTIONS_STOP)
    return parser.status;
  char **paths = parser.first < argc ? argv + parser.first : standard_paths;
  int count = parser.first < argc ? argc - parser.first : 1;
  how.paths = paths;
  how.count = count;
  if (how.full || how.small_bytes / CALL_BYTES > how.most)
    how.small_bytes = CALL_BYTES * how.most;

  struct nt_model model = {0};
  struct nt_verdict verdict = {0};
  int loaded = nt_look(&how, &model, &verdict), status = NT_EXIT_USAGE;
  if (loaded <= 0) {
    complain(&model, loaded, paths, count, parser.first >= argc, json);
  } else {
    style.color = nt_color_wanted(color, stdout);
    int failed = json ? nt_report_json(&verdict, stdout) : nt_report_text(&verdict, &style, stdout);
    if (failed || fflush(stdout) != 0)
      fputs("tracediff: the report could not be written\n", stderr);
    else
      status = verdict.count ? 1 : 0;
    hint_beside(&verdict, paths, count);
  }
  nt_verdict_free(&verdict);
  nt_model_free(&model);
  return status;
}
