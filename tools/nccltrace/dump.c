/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccltrace dump: asks helpers to write everything out now, and waits until they have.
 *
 * The request goes through the area: one more in `request`, and a futex wake on it. The helper
 * answers by copying the request number it has served into `acknowledged` and waking that. All
 * processes are asked before any is waited for, so the whole takes one timeout at most. No signal is
 * sent, nothing is attached to. Who cannot answer (stopped, dead, helper gone) loses nothing by it:
 * its area is read as it is by nccltrace show and by tracediff.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cli/call_text.h"
#include "cli/json_output.h"
#include "cli/options.h"
#include "cli/rank_set.h"
#include "cli/text.h"
#include "nccltrace/process_list.h"
#include "nccltrace/subcommands.h"

enum { OPT_RANK = 1, OPT_ALL, OPT_DIR, OPT_TIMEOUT, OPT_JSON };
enum { TIMEOUT_MS = 2000, TIMEOUT_MAX_MS = 3600 * 1000 };

static const struct nt_option options[] = {
    {OPT_RANK, "rank", 'r', "RANKS", "the processes of these world ranks, such as 0-1,3"},
    {OPT_ALL, "all", 'a', NULL, "every traced process of this user"},
    {OPT_DIR, "dir", 'd', "DIR", "only processes whose trace lies in DIR or below it"},
    {OPT_TIMEOUT, "timeout", 't', "SECONDS", "how long to wait for answers (default 2)"},
    {OPT_JSON, "json", 'j', NULL, "print JSON"},
};
static const struct nt_usage usage = {
    .tool = "nccltrace dump",
    .synopsis = "[OPTION...] [PID...|--rank=RANKS|--all|--dir=DIR]",
    .summary = "Has traced processes write their traces to their files now.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .after =
        "Exit status: 0 every trace is complete and readable, 1 nothing found or some process\n"
        "did not answer, 2 wrong usage.\n",
};

enum outcome { WRITTEN, NOT_ASKED, NO_ANSWER, NO_FILE, WRITE_FAILED, NO_ACCESS };

struct dump {
  const struct nt_process *process;
  struct nt_area area;
  bool open, asked;
  uint32_t request;      /* the number that the answer must reach */
  uint64_t write_errors; /* before */
  enum outcome outcome;
  char text[512]; /* what happened, escaped */
};

struct choice {
  struct nt_rank_set ranks;
  const uint32_t *pids;
  size_t pid_count;
  bool all, json;
  const char *directory; /* NULL: anywhere */
  uint64_t timeout_ms;
};

static int futex(_Atomic uint32_t *word, int what, uint32_t value, const struct timespec *timeout) {
  return (int)syscall(SYS_futex, word, what, value, timeout, NULL, 0);
}

static int64_t monotonic_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Puts the request into the area and wakes the helper; fills outcome where nobody can answer. */
static void ask(struct dump *dump) {
  const struct nt_process_info *info = nt_trace_process(dump->process->trace);
  if (info->state == NT_PROCESS_STOPPED) {
    dump->outcome = NOT_ASKED;
    snprintf(dump->text, sizeof dump->text,
             "stopped: nothing is written; its area is complete and is read as it is by tracediff "
             "and nccltrace show");
    return;
  }
  if (!info->live) {
    dump->outcome = NOT_ASKED;
    snprintf(dump->text, sizeof dump->text,
             "%s: its left-over area is read as it is by tracediff and nccltrace show",
             nt_process_state_text(info->state));
    return;
  }
  int rc = nt_area_open(dump->process->area, 1, &dump->area);
  if (rc != 0) {
    dump->outcome = NO_ACCESS;
    snprintf(dump->text, sizeof dump->text, "its area cannot be opened for writing: %s",
             rc == -NT_ERR_IO ? strerror(errno) : "it has changed meanwhile");
    return;
  }
  struct nt_area_header *header = dump->area.header;
  dump->open = dump->asked = true;
  dump->write_errors = atomic_load_explicit(&header->write_errors, memory_order_relaxed);
  /* The kind is read by the helper after it has seen the request (acquire, there). */
  atomic_store_explicit(&header->request_kind, NT_REQUEST_FLUSH, memory_order_relaxed);
  dump->request = atomic_fetch_add_explicit(&header->request, 1, memory_order_release) + 1;
  futex(&header->request, FUTEX_WAKE, INT_MAX, NULL);
}

/* Waits until the answer has reached our number. Signed distance: the counters wrap. */
static bool wait_for_answer(struct nt_area_header *header, uint32_t request, int64_t deadline_ns) {
  for (;;) {
    uint32_t answered = atomic_load_explicit(&header->acknowledged, memory_order_acquire);
    int64_t left = deadline_ns - monotonic_ns();
    if ((int32_t)(answered - request) >= 0)
      return true;
    if (left <= 0)
      return false;
    /* A helper that forgets to wake costs at most 50 ms. */
    left = left < 50000000 ? left : 50000000;
    struct timespec timeout = {.tv_sec = 0, .tv_nsec = left};
    futex(&header->acknowledged, FUTEX_WAIT, answered, &timeout);
  }
}

static void describe_silence(struct dump *dump, uint64_t timeout_ms) {
  struct nt_area_header *header = dump->area.header;
  struct timespec now;
  char waited[NT_DURATION_TEXT], beat[NT_DURATION_TEXT];
  clock_gettime(CLOCK_REALTIME, &now);
  int64_t last = (int64_t)atomic_load_explicit(&header->heartbeat_ns, memory_order_relaxed);
  int64_t age = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - last;
  nt_duration_text(waited, (int64_t)timeout_ms * 1000000);
  dump->outcome = NO_ANSWER;
  if (nt_area_is_locked(dump->area.fd) == 0)
    snprintf(dump->text, sizeof dump->text,
             "ended meanwhile: its left-over area is read as it is by tracediff");
  else if (last == 0)
    snprintf(dump->text, sizeof dump->text,
             "no answer in %s: its helper thread has not started; the area is read as it is by "
             "tracediff",
             waited);
  else
    snprintf(dump->text, sizeof dump->text,
             "no answer in %s: its helper thread was last alive %s ago; the area is read as it is "
             "by tracediff",
             waited, nt_duration_text(beat, age));
}

static void describe_file(struct dump *dump) {
  struct nt_area_header *header = dump->area.header;
  struct stat status;
  char path[sizeof header->file_path + 1], safe[300] = "", bytes[NT_SIZE_TEXT];
  uint64_t errors = atomic_load_explicit(&header->write_errors, memory_order_relaxed);
  uint64_t calls = atomic_load_explicit(&header->calls, memory_order_relaxed);
  int error = atomic_load_explicit(&header->last_errno, memory_order_relaxed);
  if (atomic_load_explicit(&header->file_ready, memory_order_acquire) == 0) {
    dump->outcome = NO_FILE;
    snprintf(dump->text, sizeof dump->text,
             "it has no trace file%s%s; set NCCLTRACE_DIR to a writable "
             "directory. The area is read as it is by tracediff",
             error != 0 ? ": " : "", error != 0 ? strerror(error) : "");
    return;
  }
  memcpy(path, header->file_path, sizeof header->file_path);
  path[sizeof header->file_path] = '\0';
  nt_text_escape(safe, sizeof safe, path);
  if (errors != dump->write_errors) {
    dump->outcome = WRITE_FAILED;
    snprintf(dump->text, sizeof dump->text, "%s cannot be written: %s", safe, strerror(error));
    return;
  }
  dump->outcome = WRITTEN;
  if (stat(path, &status) == 0)
    snprintf(dump->text, sizeof dump->text, "written to %s (%s, %" PRIu64 " call%s recorded)", safe,
             nt_bytes_text(bytes, (uint64_t)status.st_size), calls, calls == 1 ? "" : "s");
  else
    snprintf(dump->text, sizeof dump->text,
             "written to %s (the process's own name for it: not visible from here)", safe);
}

static bool is_chosen(const struct nt_process *process, const struct choice *choice) {
  if (process->presence != NT_PRESENT_AREA)
    return false;
  if (choice->all)
    return true;
  for (size_t i = 0; i < choice->pid_count; i++)
    if (choice->pids[i] == process->pid)
      return true;
  if (process->trace == NULL)
    return false;
  int rank = nt_trace_process(process->trace)->world_rank;
  return rank >= 0 && nt_rank_set_has(&choice->ranks, (uint32_t)rank);
}

static const char *outcome_name(enum outcome outcome) {
  static const char *const names[] = {"written", "not asked",    "no answer",
                                      "no file", "write failed", "no access"};
  return names[outcome];
}

static void print_one(const struct dump *dump, json_t *array) {
  const struct nt_process *process = dump->process;
  const struct nt_process_info *info = process->trace ? nt_trace_process(process->trace) : NULL;
  int rank = info != NULL ? info->world_rank : -1;
  if (array != NULL) {
    json_array_append_new(array, json_pack("{s:I, s:i, s:s, s:s, s:o, s:o}", "pid",
                                           (json_int_t)process->pid, "rank", rank, "outcome",
                                           outcome_name(dump->outcome), "text", dump->text, "trace",
                                           nt_json_text(info != NULL ? info->file_path : NULL),
                                           "area", nt_json_text(process->area)));
    return;
  }
  printf("pid %" PRIu32, process->pid);
  if (rank >= 0)
    printf(" rank %d", rank);
  printf(": %s\n", dump->text);
}

/* Above the first of each job, if there are several. */
static void print_job(const struct dump *dumps, size_t count, size_t i) {
  bool several = false;
  for (size_t k = 1; k < count && !several; k++)
    several = !nt_process_same_job(dumps[0].process, dumps[k].process);
  if (several && (i == 0 || !nt_process_same_job(dumps[i - 1].process, dumps[i].process)))
    nt_process_print_job(dumps[i].process, stdout);
}

/* Asks all, then collects the answers. Returns the exit status. */
static int dump_all(struct dump *dumps, size_t count, const struct choice *choice) {
  json_t *array = choice->json ? json_array() : NULL;
  int status = NT_EXIT_OK;
  for (size_t i = 0; i < count; i++) {
    if (dumps[i].process->trace != NULL) {
      ask(&dumps[i]);
      continue;
    }
    char safe[300];
    dumps[i].outcome = NO_ACCESS;
    snprintf(dumps[i].text, sizeof dumps[i].text, "its area cannot be read: %s",
             nt_text_escape(safe, sizeof safe, dumps[i].process->error.reason));
  }
  int64_t deadline = monotonic_ns() + (int64_t)choice->timeout_ms * 1000000;
  for (size_t i = 0; i < count; i++) {
    struct dump *dump = &dumps[i];
    if (dump->asked && wait_for_answer(dump->area.header, dump->request, deadline))
      describe_file(dump);
    else if (dump->asked)
      describe_silence(dump, choice->timeout_ms);
    if (dump->open)
      nt_area_close(&dump->area);
    if (dump->outcome != WRITTEN && dump->outcome != NOT_ASKED)
      status = NT_EXIT_FAILED;
    if (array == NULL)
      print_job(dumps, count, i);
    print_one(dump, array);
  }
  if (choice->json && nt_json_print(array, stdout) != 0)
    status = NT_EXIT_FAILED;
  return status;
}

/* Says which of the pids that were asked for are not there. */
static int report_missing(const struct nt_process_list *list, const struct choice *choice) {
  int status = NT_EXIT_OK;
  for (size_t i = 0; i < choice->pid_count; i++) {
    if (nt_process_by_pid(list, choice->pids[i]) != NULL)
      continue;
    fprintf(stderr,
            "nccltrace: process %" PRIu32 " has no area: it is not traced, or made no "
            "communicator yet\n",
            choice->pids[i]);
    status = NT_EXIT_FAILED;
  }
  return status;
}

static int run(const struct choice *choice) {
  struct nt_process_list list;
  int rc = nt_process_list_read(NT_LIST_AREAS, &list), status = NT_EXIT_FAILED;
  struct dump *dumps = NULL;
  size_t count = 0;
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
  status = report_missing(&list, choice);
  if (count == 0 && choice->pid_count == 0)
    fputs("nccltrace: no such traced process on this node (nccltrace ls lists them)\n", stderr);
  if (count == 0)
    status = NT_EXIT_FAILED;
  if (dump_all(dumps, count, choice) != NT_EXIT_OK)
    status = NT_EXIT_FAILED;
out:
  free(dumps);
  nt_process_list_free(&list);
  return status;
}

static int read_options(struct nt_options *parser, struct choice *choice) {
  int id;
  while ((id = nt_options_next(parser)) > 0) {
    if (id == OPT_RANK && nt_rank_set_parse(parser->value, &choice->ranks) != 0)
      return nt_options_bad(&usage, "'%s' is not a list of ranks such as 0-1,3", parser->value);
    if (id == OPT_TIMEOUT &&
        !nt_options_seconds(parser->value, TIMEOUT_MAX_MS, &choice->timeout_ms))
      return nt_options_bad(&usage, "'%s' is not a number of seconds up to 3600", parser->value);
    choice->all |= id == OPT_ALL;
    choice->json |= id == OPT_JSON;
    if (id == OPT_DIR)
      choice->directory = parser->value;
  }
  return id == NT_OPTIONS_STOP ? parser->status : -1;
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
  if (operands == 0 && nt_rank_set_count(&choice.ranks) == 0)
    choice.all |= choice.directory != NULL;
  if (status < 0 && !choice.all && operands == 0 && nt_rank_set_count(&choice.ranks) == 0)
    status = nt_options_bad(&usage, "say which: a PID, --rank, --all or --dir");
  if (status < 0)
    status = pids != NULL ? run(&choice) : NT_EXIT_FAILED;
  free(pids);
  nt_rank_set_free(&choice.ranks);
  return status;
}
