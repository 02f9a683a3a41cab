/* SPDX-License-Identifier: Apache-2.0 */
/* nccltrace show: a trace for people and for scripts. One that cannot be read is reported on stderr and
 * the others are still shown. */
#include "nccltrace/show.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "analysis/load_source.h"
#include "cli/options.h"
#include "cli/process_text.h"
#include "cli/text.h"
#include "nccltrace/process_list.h"
#include "cli/process_words.h"
#include "nccltrace/show_dump.h"
#include "nccltrace/subcommands.h"

enum { OPT_COMM = 1, OPT_TAIL, OPT_HEADER, OPT_STACKS, OPT_DUMP, OPT_FULL, OPT_JSON, OPT_COLOR };

static const struct nt_option options[] = {
    {OPT_COMM, "comm", 'c', "NAME|NUMBER", "only calls on this communicator"},
    {OPT_TAIL, "tail", 'n', "N", "only the last N records"},
    {OPT_HEADER, "header", 'H', NULL,
     "the process, its communicators, counts and evidence instead of records"},
    {OPT_STACKS, "stacks", 's', NULL, "with the Python stack of each call, innermost frame first"},
    {OPT_DUMP, "dump", 0, "[=N]",
     "the dump with this number, or the newest: what all threads did, and facts of\n"
     "memory, network and GPUs"},
    {OPT_FULL, "full-stacks", 0, NULL, "in a dump every frame of every thread, nothing folded"},
    {OPT_JSON, "json", 'j', NULL, "print JSON: an array with one object for each trace"},
    {OPT_COLOR, "color", 0, "WHEN", "auto (default), always or never"},
};
static const struct nt_usage usage = {
    .tool = "nccltrace show",
    .synopsis = "[OPTION...] FILE|PID...",
    .summary = "Prints the records of trace files, areas or running processes.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .after =
        "Exit status: 0 everything was shown, 1 some trace could not be read or nothing matches,\n"
        "2 wrong usage.\n",
};

struct request {
  struct nt_show_filter filter;
  bool header, json, color;
  bool dump, full;
  uint64_t number; /* of the dump, 0: the newest */
  size_t shown;    /* traces so far */
};

/* The header always, records unless only the header is wanted. */
static int64_t show_json(struct nt_trace *trace, const char *name, struct request *request,
                         struct nt_error *error) {
  int64_t count = 0;
  json_t *head = nt_show_header_json(trace), *file = nt_json_text(name);
  fputs(request->shown++ > 0 ? ",\n" : "[\n", stdout);
  fputs("{\"trace\": ", stdout);
  json_dumpf(file, stdout, JSON_ENCODE_ANY);
  fputs(",\n\"header\": ", stdout);
  if (head == NULL || json_dumpf(head, stdout, JSON_COMPACT) != 0)
    fputs("null", stdout);
  if (request->dump) {
    int i = nt_show_find_dump(trace, (uint32_t)request->number);
    json_t *dump = i >= 0 ? nt_show_dump_json(trace, (size_t)i) : json_null();
    fputs(",\n\"dump\": ", stdout);
    json_dumpf(dump, stdout, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(dump);
    count = i >= 0;
  } else if (!request->header) {
    fputs(",\n\"calls\": ", stdout);
    count = nt_show_records_json(trace, &request->filter, stdout, error);
  }
  fputs("}", stdout);
  json_decref(head);
  json_decref(file);
  return request->header ? 1 : count;
}

static int64_t show_text(struct nt_trace *trace, const char *name, struct request *request,
                         bool several, struct nt_error *error) {
  if (several) {
    if (request->shown > 0)
      putchar('\n');
    printf("%s==> ", nt_style_text(request->color, NT_STYLE_BOLD));
    nt_text_escape_print(stdout, name);
    printf(" <==%s\n", nt_style_text(request->color, NT_STYLE_PLAIN));
  }
  request->shown++;
  if (request->dump) {
    int i = nt_show_find_dump(trace, (uint32_t)request->number);
    if (i >= 0)
      nt_show_dump(trace, (size_t)i, request->full, stdout, request->color);
    return i >= 0;
  }
  if (!request->header)
    return nt_show_records(trace, &request->filter, stdout, request->color, error);
  nt_show_header(trace, stdout, request->color);
  return 1;
}

static void warn(const char *name, const char *text) {
  fputs("nccltrace: ", stderr);
  nt_text_escape_print(stderr, name);
  fputs(": ", stderr);
  nt_text_escape_print(stderr, text);
  fputc('\n', stderr);
}

/* Where nothing else would tell of them. */
static void mention_dumps(const struct nt_trace *trace, const char *name) {
  char text[160], when[NT_TIME_TEXT];
  size_t count = nt_trace_dump_count(trace);
  if (count == 0)
    return;
  const struct nt_dump_view *newest = nt_trace_dump_at(trace, count - 1);
  snprintf(text, sizeof text, "%zu dump%s of the process, the newest of %s (--dump shows it)",
           count, count == 1 ? "" : "s", nt_time_text(when, newest->began_ns));
  warn(name, text);
}

static void complain_of_dumps(const struct nt_trace *trace, const char *name, uint64_t number) {
  char text[160];
  size_t count = nt_trace_dump_count(trace);
  const enum nt_process_state state = nt_trace_process(trace)->state;
  if (count == 0 &&
      (state == NT_PROCESS_EXITED || state == NT_PROCESS_VANISHED || state == NT_PROCESS_REPLACED))
    snprintf(text, sizeof text, "it has no dump, and its process can make none any more (%s)",
             nt_process_state_text(state));
  else if (count == 0)
    snprintf(text, sizeof text, "it has no dump (nccltrace dump asks for one)");
  else
    snprintf(text, sizeof text,
             "it has no dump %" PRIu64 ", but those from %" PRIu32 " to %" PRIu32, number,
             nt_trace_dump_at(trace, 0)->number, nt_trace_dump_at(trace, count - 1)->number);
  warn(name, text);
}

/* What is missing from the records above: never in silence. */
static void report_gaps(struct nt_trace *trace, const char *name) {
  char text[160];
  const struct nt_process_info *info = nt_trace_process(trace);
  for (size_t i = 0; i < nt_trace_warning_count(trace); i++)
    warn(name, nt_trace_warning_at(trace, i));
  const uint64_t overwritten = info->overwritten - info->left_out;
  if (info->left_out != 0) {
    snprintf(text, sizeof text, "%" PRIu64 " older calls are in the trace that this digest is of",
             info->left_out);
    warn(name, text);
  }
  if (info->lost != 0 || overwritten != 0) {
    snprintf(text, sizeof text,
             "%" PRIu64 " calls were lost and %" PRIu64 " older ones overwritten (NCCLTRACE_SIZE)",
             info->lost, overwritten);
    warn(name, text);
  }
}

static int show_one(const char *path, const char *name, struct request *request, bool several) {
  struct nt_trace *trace = NULL;
  struct nt_error error = {0};
  int rc = nt_trace_open(path, 0, &trace, &error);
  if (rc != 0) {
    error.code = error.code != 0 ? error.code : rc;
    const char *why = error.code == -NT_ERR_FOREIGN ? nt_source_refusal(path) : NULL;
    if (why != NULL)
      snprintf(error.reason, sizeof error.reason, "%s", why);
    nt_report_error(name, &error);
    return NT_EXIT_FAILED;
  }
  int64_t count = request->json ? show_json(trace, name, request, &error)
                                : show_text(trace, name, request, several, &error);
  const struct nt_process_info *info = nt_trace_process(trace);
  const bool unread =
      info->strange ||
      (count == 0 && info->calls > info->lost + info->overwritten && nt_trace_warning_count(trace));
  fflush(stdout); /* so that what stderr says comes after what it is about */
  if (count < 0)
    nt_report_error(name, &error);
  else if (count == 0 && request->dump)
    complain_of_dumps(trace, name, request->number);
  else if (count == 0 && request->filter.comm != NULL)
    warn(name, "no call on that communicator (--header lists them)");
  else if (count == 0 && request->filter.tail > 0)
    warn(name, unread ? "no call can be read" : "no call was recorded");
  if (!request->header)
    report_gaps(trace, name);
  if (!request->header && !request->dump)
    mention_dumps(trace, name);
  const bool failed = unread && !request->header && !request->dump;
  nt_trace_close(trace);
  bool needed = request->filter.comm != NULL || request->dump;
  return !failed && (count > 0 || (count == 0 && !needed)) ? NT_EXIT_OK : NT_EXIT_FAILED;
}

static void warn_of_process(const char *operand, uint32_t pid, bool dump) {
  char why[NT_ABSENCE_TEXT], text[NT_ABSENCE_TEXT + 128], hint[64] = "";
  if (dump) /* "--dump 1 FILE" */
    snprintf(hint, sizeof hint, "; a dump is chosen by --dump=%" PRIu32, pid);
  snprintf(text, sizeof text, "no such file; process %" PRIu32 ": %s%s", pid,
           nt_absence_of_process(why, pid), hint);
  warn(operand, text);
}

/* A number that is not the name of a file is a process. */
static int show_operand(const char *operand, struct request *request, bool several) {
  uint64_t pid;
  struct stat status;
  struct nt_process_list list;
  const bool there = stat(operand, &status) == 0;
  if (there && S_ISDIR(status.st_mode)) {
    warn(operand, "a directory: name a trace in it, or ask tracediff for all of them");
    return NT_EXIT_FAILED;
  }
  if (there || !nt_options_number(operand, 1, INT32_MAX, &pid))
    return show_one(operand, operand, request, several);
  int rc = nt_process_list_read(NT_LIST_AREAS, &list), result = NT_EXIT_FAILED;
  const struct nt_process *process = nt_process_by_pid(&list, (uint32_t)pid);
  if (rc == 0 && process != NULL)
    result = show_one(process->area, operand, request, several);
  else
    warn_of_process(operand, (uint32_t)pid, request->dump && request->number == 0);
  nt_process_list_free(&list);
  return result;
}

/* Options that would be ignored are refused. */
static int check_options(const struct request *request) {
  const struct nt_show_filter *filter = &request->filter;
  const char *with = request->dump ? "--dump" : "--header";
  if (request->dump && request->header)
    return nt_options_bad(&usage, "--dump does not go with --header: one of them is shown");
  if ((request->dump || request->header) &&
      (filter->comm != NULL || filter->tail != UINT64_MAX || filter->stacks))
    return nt_options_bad(&usage, "%s does not go with %s, which is about records", with,
                          filter->comm != NULL ? "--comm"
                          : filter->stacks     ? "--stacks"
                                               : "--tail");
  if (request->full && !request->dump)
    return nt_options_bad(&usage, "--full-stacks is about dumps: it needs --dump");
  return NT_EXIT_OK;
}

int nt_command_show(int argc, char **argv) {
  struct request request = {.filter.tail = UINT64_MAX};
  enum nt_color_when when = NT_COLOR_AUTO;
  struct nt_options parser;
  int id, status = NT_EXIT_OK;
  nt_options_start(&parser, &usage, argc, argv);
  while ((id = nt_options_next(&parser)) > 0) {
    if (id == OPT_COMM)
      request.filter.comm = parser.value;
    else if (id == OPT_TAIL &&
             !nt_options_number(parser.value, 0, UINT64_MAX, &request.filter.tail))
      return nt_options_bad(&usage, "--tail needs a number, not '%s'", parser.value);
    else if (id == OPT_COLOR && !nt_color_parse(parser.value, &when))
      return nt_options_bad(&usage, "--color is auto, always or never, not '%s'", parser.value);
    else if (id == OPT_DUMP && parser.value != NULL &&
             !nt_options_number(parser.value, 1, UINT32_MAX, &request.number))
      return nt_options_bad(&usage, "--dump takes the number of a dump, not '%s'", parser.value);
    request.dump |= id == OPT_DUMP;
    request.full |= id == OPT_FULL;
    request.header |= id == OPT_HEADER;
    request.filter.stacks |= id == OPT_STACKS;
    request.json |= id == OPT_JSON;
  }
  if (id == NT_OPTIONS_STOP)
    return parser.status;
  if (parser.first >= argc)
    return nt_options_bad(&usage, "no FILE or PID given");
  status = check_options(&request);
  if (status != NT_EXIT_OK)
    return status;
  request.color = nt_color_wanted(when, stdout);
  bool several = argc - parser.first > 1;
  for (int i = parser.first; i < argc; i++)
    if (show_operand(argv[i], &request, several) != NT_EXIT_OK)
      status = NT_EXIT_FAILED;
  if (request.json)
    fputs(request.shown > 0 ? "]\n" : "[]\n", stdout);
  return status;
}
