/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccltrace dump: asks helpers to dump their processes and to write everything out, and waits until they have.
 *
 * All processes are asked before any is waited for, so the whole takes one timeout at most. No signal is sent
 * unless that is asked for, nothing is attached to.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/json_output.h"
#include "cli/options.h"
#include "cli/rank_set.h"
#include "cli/text.h"
#include "nccltrace/dump_request.h"
#include "cli/process_words.h"
#include "nccltrace/subcommands.h"

enum { OPT_RANK = 1, OPT_ALL, OPT_DIR, OPT_TIMEOUT, OPT_FLUSH, OPT_NATIVE, OPT_SIGNAL, OPT_JSON };
enum { TIMEOUT_MS = 2000, TIMEOUT_MAX_MS = 3600 * 1000 };

static const struct nt_option options[] = {
    {OPT_RANK, "rank", 'r', "RANKS",
     "only processes of these world ranks, such as 0-1,3; with several jobs on the\n"
     "node --dir has to say of which"},
    {OPT_ALL, "all", 'a', NULL, "every traced process of this user; for root of every user"},
    {OPT_DIR, "dir", 'd', "DIR", "only processes whose trace lies in DIR or below it"},
    {OPT_TIMEOUT, "timeout", 't', "SECONDS", "how long to wait for answers (default 2)"},
    {OPT_NATIVE, "native", 0, NULL,
     "with native stacks of all threads: each is interrupted for it, and system calls of\n"
     "the application that are not restarted may return EINTR"},
    {OPT_FLUSH, "flush", 0, NULL, "only have the traces written out, without a dump"},
    {OPT_SIGNAL, "signal", 0, NULL,
     "ask by the signal that 'nccltrace ls' names: where areas cannot be written"},
    {OPT_JSON, "json", 'j', NULL, "print JSON"},
};
static const struct nt_usage usage = {
    .tool = "nccltrace dump",
    .synopsis = "[OPTION...] --all | [PID...] [--rank=RANKS] [--dir=DIR]",
    .summary = "Has traced processes dump what they do, and write their traces to their files now.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .after =
        "PIDs, --rank and --dir narrow each other: a process has to be all that is given.\n\n"
        "--all as root asks the processes of every user's jobs.\n\n"
        "Exit status: 0 every trace is complete and readable, 1 nothing found, some process did\n"
        "not answer, or there is no dump of any, 2 wrong usage.\n",
};

struct choice {
  struct nt_rank_set ranks;
  const uint32_t *pids;
  size_t pid_count;
  bool all, json, by_signal;
  uint32_t kinds;        /* NT_REQUEST_* */
  const char *directory; /* NULL: anywhere */
  uint64_t timeout_ms;
};

static int64_t monotonic_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static bool is_chosen(const struct nt_process *process, const struct choice *choice) {
  if (process->presence != NT_PRESENT_AREA)
    return false;
  bool named = choice->pid_count == 0;
  for (size_t i = 0; i < choice->pid_count && !named; i++)
    named = choice->pids[i] == process->pid;
  if (!named || nt_rank_set_count(&choice->ranks) == 0)
    return named;
  int rank = process->trace != NULL ? nt_trace_process(process->trace)->world_rank : -1;
  return rank >= 0 && nt_rank_set_has(&choice->ranks, (uint32_t)rank);
}

/* A rank means something within a job only. Where one job alone lives it is that one; returns false, with the jobs named,
 * if there are several. */
static bool settle_job(struct nt_dump_request *dumps, size_t *count) {
  char directory[PATH_MAX];
  size_t jobs = 0, kept = 0;
  for (size_t i = 0; i < *count; i++)
    jobs += dumps[i].process->job_lives &&
            (i == 0 || !nt_process_same_job(dumps[i - 1].process, dumps[i].process));
  if (jobs == 0)
    return true;
  if (jobs > 1)
    fputs("nccltrace: several jobs have such ranks here: say which by --dir, or name PIDs:",
          stderr);
  for (size_t i = 0; i < *count; i++) {
    const struct nt_process *process = dumps[i].process;
    bool first = i == 0 || !nt_process_same_job(dumps[i - 1].process, process);
    if (jobs > 1 && process->job_lives && first) {
      fputs(" --dir=", stderr);
      nt_text_escape_print(stderr, nt_process_directory(process, directory, sizeof directory));
    }
  }
  if (jobs > 1) {
    fputc('\n', stderr);
    return false;
  }
  for (size_t i = 0; i < *count; i++)
    if (dumps[i].process->job_lives)
      dumps[kept++] = dumps[i];
  *count = kept;
  return true;
}

static void print_one(const struct nt_dump_request *dump, json_t *array) {
  const struct nt_process *process = dump->process;
  const struct nt_process_info *info = process->trace ? nt_trace_process(process->trace) : NULL;
  int rank = info != NULL ? info->world_rank : -1;
  if (array != NULL) {
    json_array_append_new(
        array,
        json_pack("{s:I, s:i, s:s, s:o, s:o, s:o, s:o}", "pid", (json_int_t)process->pid, "rank",
                  rank, "outcome", nt_outcome_name(dump->outcome), "text", nt_json_text(dump->text),
                  "trace", nt_json_text(info != NULL ? info->file_path : NULL), "area",
                  nt_json_text(process->area), "dump", nt_dump_request_json(dump)));
    return;
  }
  printf("pid %" PRIu32, process->pid);
  if (rank >= 0)
    printf(" rank %d", rank);
  printf(": %s\n", dump->text != NULL ? dump->text : "out of memory");
}

/* Above the first of each job, if there are several. */
static void print_job(const struct nt_dump_request *dumps, size_t count, size_t i) {
  bool several = false;
  for (size_t k = 1; k < count && !several; k++)
    several = !nt_process_same_job(dumps[0].process, dumps[k].process);
  if (several && (i == 0 || !nt_process_same_job(dumps[i - 1].process, dumps[i].process)))
    nt_process_print_job(dumps[i].process, stdout);
}

static void refuse(struct nt_dump_request *dump) {
  char safe[300];
  dump->outcome = NT_NO_ACCESS;
  if (asprintf(&dump->text, "its area cannot be read: %s",
               nt_text_escape(safe, sizeof safe, dump->process->error.reason)) < 0)
    dump->text = NULL;
}

/* Asks all, then collects the answers. Returns the exit status. */
static int dump_all(struct nt_dump_request *dumps, size_t count, const struct choice *choice) {
  json_t *array = choice->json ? json_array() : NULL;
  int status = NT_EXIT_OK;
  bool dumped = choice->kinds == NT_REQUEST_FLUSH; /* or none was asked for */
  int64_t timeout = (int64_t)choice->timeout_ms * 1000000, deadline = monotonic_ns() + timeout;
  for (size_t i = 0; i < count; i++) {
    dumps[i].first = array == NULL ? dumps : NULL;
    if (dumps[i].process->trace != NULL)
      nt_dump_request_ask(&dumps[i], choice->kinds, choice->by_signal);
    else
      refuse(&dumps[i]);
  }
  for (size_t i = 0; i < count; i++) {
    struct nt_dump_request *dump = &dumps[i];
    nt_dump_request_await(dump, deadline, timeout);
    if (dump->outcome != NT_WRITTEN && dump->outcome != NT_NOT_ASKED)
      status = NT_EXIT_FAILED;
    dumped |= dump->outcome == NT_WRITTEN;
    if (array == NULL)
      print_job(dumps, count, i);
    print_one(dump, array);
    fflush(stdout);
  }
  for (size_t i = 0; i < count; i++)
    nt_dump_request_free(&dumps[i]);
  if (choice->json && nt_json_print(array, stdout) != 0)
    status = NT_EXIT_FAILED;
  return dumped ? status : NT_EXIT_FAILED;
}

/* Says why pids that were asked for are not there: `list` has all processes. */
static int report_missing(const struct nt_process_list *list, const struct choice *choice) {
  char text[NT_ABSENCE_TEXT];
  int status = NT_EXIT_OK;
  for (size_t i = 0; i < choice->pid_count; i++) {
    if (nt_process_by_pid(list, choice->pids[i]) != NULL)
      continue;
    fprintf(stderr, "nccltrace: process %" PRIu32 ": %s\n", choice->pids[i],
            nt_absence_of_process(text, choice->pids[i]));
    status = NT_EXIT_FAILED;
  }
  return status;
}

/* Of those that are there: whether the other selectors leave any. */
static void report_nothing(const struct choice *choice) {
  if (choice->directory != NULL && access(choice->directory, F_OK) != 0)
    fprintf(stderr, "nccltrace: no trace lies in that directory: %s\n", strerror(errno));
  else if (choice->pid_count > 0)
    fputs("nccltrace: none of these processes has that rank or directory\n", stderr);
  else
    fputs("nccltrace: no such traced process on this node that can be asked: nccltrace ls lists "
          "all there are\n",
          stderr);
}

static int run(const struct choice *choice) {
  struct nt_process_list list;
  int rc = nt_process_list_read(NT_LIST_AREAS, &list), status = NT_EXIT_FAILED;
  struct nt_dump_request *dumps = NULL;
  size_t count = 0;
  int missing = rc == 0 ? report_missing(&list, choice) : NT_EXIT_OK;
  if (choice->directory != NULL)
    nt_process_keep_directory(&list, choice->directory);
  dumps = calloc(list.count + 1, sizeof *dumps);
  if (rc != 0 || dumps == NULL) {
    fputs("nccltrace: out of memory\n", stderr);
    goto out;
  }
  for (size_t i = 0; i < list.count; i++)
    if (is_chosen(&list.items[i], choice))
      dumps[count++].process = &list.items[i];
  if (count == 0 && missing == NT_EXIT_OK)
    report_nothing(choice);
  if (choice->pid_count == 0 && !choice->all && choice->directory == NULL &&
      !settle_job(dumps, &count)) {
    status = NT_EXIT_USAGE;
    goto out;
  }
  status = count == 0 ? NT_EXIT_FAILED : missing;
  if (dump_all(dumps, count, choice) != NT_EXIT_OK)
    status = NT_EXIT_FAILED;
out:
  free(dumps);
  nt_process_list_free(&list);
  return status;
}

static int read_options(struct nt_options *parser, struct choice *choice) {
  int id;
  bool native = false, flush = false;
  while ((id = nt_options_next(parser)) > 0) {
    if (id == OPT_RANK && nt_rank_set_parse(parser->value, &choice->ranks) != 0)
      return nt_options_bad(&usage, "'%s' is not a list of ranks such as 0-1,3", parser->value);
    if (id == OPT_TIMEOUT &&
        !nt_options_seconds(parser->value, TIMEOUT_MAX_MS, &choice->timeout_ms))
      return nt_options_bad(&usage, "'%s' is not a number of seconds up to 3600", parser->value);
    if (id == OPT_TIMEOUT && choice->timeout_ms == 0)
      return nt_options_bad(&usage, "--timeout: an answer takes longer than no time");
    choice->all |= id == OPT_ALL;
    choice->by_signal |= id == OPT_SIGNAL;
    native |= id == OPT_NATIVE;
    flush |= id == OPT_FLUSH;
    choice->json |= id == OPT_JSON;
    if (id == OPT_DIR)
      choice->directory = parser->value;
  }
  if (id == NT_OPTIONS_STOP)
    return parser->status;
  if (native && flush)
    return nt_options_bad(&usage, "--native is for dumps: it does not go with --flush");
  if (choice->by_signal && (native || flush))
    return nt_options_bad(&usage, "--signal does not go with %s: a signal asks for a plain dump",
                          native ? "--native" : "--flush");
  choice->kinds = flush ? NT_REQUEST_FLUSH : NT_REQUEST_DUMP;
  if (native)
    choice->kinds |= NT_REQUEST_NATIVE;
  return -1;
}

int nt_command_dump(int argc, char **argv) {
  struct choice choice = {.timeout_ms = TIMEOUT_MS};
  struct nt_options parser;
  nt_options_start(&parser, &usage, argc, argv);
  int status = read_options(&parser, &choice);
  size_t operands = (size_t)(argc - parser.first);
  uint32_t *pids = calloc(operands + 1, sizeof *pids);
  for (size_t i = 0; status < 0 && pids != NULL && i < operands; i++) {
    uint64_t pid;
    if (!nt_options_number(argv[parser.first + (int)i], 1, INT32_MAX, &pid))
      status = nt_options_bad(&usage, "'%s' is not a process id", argv[parser.first + (int)i]);
    else
      pids[choice.pid_count++] = (uint32_t)pid;
  }
  choice.pids = pids;
  bool narrowed = operands > 0 || nt_rank_set_count(&choice.ranks) > 0 || choice.directory != NULL;
  if (status < 0 && choice.all && narrowed)
    status = nt_options_bad(&usage,
                            "--all is every process: it does not go with a PID, --rank or --dir");
  if (status < 0 && !choice.all && !narrowed)
    status = nt_options_bad(&usage, "say which: a PID, --rank, --all or --dir");
  if (status < 0)
    status = pids != NULL ? run(&choice) : NT_EXIT_FAILED;
  free(pids);
  nt_rank_set_free(&choice.ranks);
  return status;
}
