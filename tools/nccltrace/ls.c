/* SPDX-License-Identifier: Apache-2.0 */
/* nccltrace ls: one line for each process, from its area alone; nobody is asked or stopped. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/call_text.h"
#include "cli/json_output.h"
#include "cli/options.h"
#include "cli/process_text.h"
#include "cli/rank_name.h"
#include "cli/rank_set.h"
#include "cli/text.h"
#include "cli/untraced_copies.h"
#include "nccl/nccl_api.h"
#include "nccltrace/process_list.h"
#include "cli/process_words.h"
#include "nccltrace/subcommands.h"

enum { OPT_JSON = 1, OPT_DIR, OPT_COLOR };

static const struct nt_option options[] = {
    {OPT_DIR, "dir", 'd', "DIR", "only processes whose trace lies in DIR or below it"},
    {OPT_JSON, "json", 'j', NULL, "print JSON"},
    {OPT_COLOR, "color", 0, "WHEN", "auto (default), always or never"},
};
static const struct nt_usage usage = {
    .tool = "nccltrace ls",
    .synopsis = "[OPTION...]",
    .summary = "Lists the traced processes of this user on this node (root: of all users), by job.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .after = "Exit status: 0 something is listed, 1 nothing found, 2 wrong usage.\n",
};

/* What both outputs say about one process. */
struct row {
  const struct nt_process *process;
  const struct nt_process_info *info; /* NULL without a trace */
  const struct nt_call *call;         /* NULL if it made none */
  const struct nt_call *wait;         /* the host waits in it; NULL if it does not */
  bool open;
  int64_t since_ns;        /* entered, or returned */
  struct nt_rank_name gpu; /* if it has one alone */
  uint32_t parent;         /* of one without a communicator, if that is listed; else 0 */
  char command[NT_COMMAND_TEXT];
  char gpus[128], text[NT_CALL_TEXT], fate[NT_FATE_TEXT + 64];
};

static const char *state_of(const struct row *row) {
  if (row->process->presence == NT_PRESENT_IDLE)
    return "no communicator yet";
  if (row->process->presence == NT_PRESENT_PRIVATE)
    return "area not in shared memory";
  if (row->info == NULL)
    return "unreadable";
  return nt_process_state_text(row->info->state);
}

/* All its communicators are ended. */
static bool has_parted(const struct nt_trace *trace) {
  size_t count = nt_trace_comm_count(trace);
  for (size_t i = 0; i < count; i++) {
    uint32_t state = nt_trace_comm_at(trace, i)->state;
    if (state != NT_COMM_DESTROYED && state != NT_COMM_ABORTED && state != NT_COMM_FAILED)
      return false;
  }
  return count > 0;
}

/* What the state alone does not say. */
static void fill_fate(struct row *row) {
  const struct nt_fate_facts fate = nt_fate_of(row->info);
  const bool lives =
      row->info->state == NT_PROCESS_RUNNING || row->info->state == NT_PROCESS_STOPPED;
  nt_fate_text(row->fate, sizeof row->fate, &fate);
  if (lives && has_parted(row->process->trace))
    strcat(row->fate, ", all its communicators are destroyed");
  if (lives && row->info->gpu_blocked)
    strcat(row->fate, ", GPU not seen");
}

/* Those of a dead process, and of one whose numbers mean nothing here, are not known. */
static bool is_in_proc(const struct row *row) {
  struct stat status;
  if (row->process->presence != NT_PRESENT_AREA)
    return true;
  return row->info != NULL && row->info->live && stat("/proc/self/ns/pid", &status) == 0 &&
         row->info->pid_ns == (uint64_t)status.st_ino;
}

static const struct nt_process *find_process(const struct nt_process_list *list, uint32_t pid) {
  for (size_t i = 0; i < list->count; i++)
    if (list->items[i].pid == pid &&
        (list->items[i].trace == NULL || nt_trace_process(list->items[i].trace)->live))
      return &list->items[i];
  return NULL;
}

/* What /proc knows. A process without a communicator often belongs to one that has them: a data loader. */
static void fill_from_proc(struct row *row, const struct nt_process_list *list) {
  if (!is_in_proc(row))
    return;
  nt_command_of_process(row->command, row->process->pid);
  if (row->process->presence != NT_PRESENT_IDLE)
    return;
  const struct nt_process *parent = find_process(list, nt_parent_of_process(row->process->pid));
  row->parent = parent != NULL ? parent->pid : 0;
  if (row->parent != 0)
    snprintf(row->fate, sizeof row->fate, "no communicator yet, child of %" PRIu32, row->parent);
}

static void fill_row(const struct nt_process *process, const struct nt_process_list *list,
                     struct row *row) {
  struct nt_rank_set gpus = {0};
  char label[NT_LABEL_TEXT];
  *row = (struct row){.process = process, .gpu = {.gpu_index = -1, .cuda_device = -1}};
  snprintf(row->gpus, sizeof row->gpus, "-");
  row->info = process->trace != NULL ? nt_trace_process(process->trace) : NULL;
  fill_from_proc(row, list);
  if (process->trace == NULL)
    return;
  fill_fate(row);
  for (size_t i = 0; i < nt_trace_comm_count(process->trace); i++) {
    int32_t device = nt_trace_comm_at(process->trace, i)->def.device;
    if (device >= 0)
      nt_rank_set_add(&gpus, (uint32_t)device);
  }
  if (nt_rank_set_count(&gpus) > 0)
    nt_rank_set_text(row->gpus, sizeof row->gpus, &gpus);
  if (nt_rank_set_count(&gpus) == 1)
    nt_rank_name_gpu(&row->gpu, process->trace, atoi(row->gpus));
  nt_rank_set_free(&gpus);
  row->call = nt_process_last_call(process->trace);
  if (row->call == NULL)
    return;
  row->open = row->call->result == NT_RESULT_OPEN && !(row->call->flags & NT_CALL_ABANDONED);
  row->since_ns = row->open || row->call->exit_ns == 0 ? row->call->enter_ns : row->call->exit_ns;
  row->wait = row->open ? NULL : nt_process_host_wait(process->trace);
  if (row->wait != NULL)
    row->since_ns = row->wait->enter_ns;
  nt_call_name(row->text, sizeof row->text, row->call,
               nt_process_comm_label(process->trace, row->call->comm, label, sizeof label));
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static enum nt_style style_of(const struct row *row) {
  if (row->info == NULL)
    return row->process->presence == NT_PRESENT_AREA ? NT_STYLE_BAD : NT_STYLE_DIM;
  switch (row->info->state) {
  case NT_PROCESS_VANISHED:
    return NT_STYLE_BAD;
  case NT_PROCESS_STOPPED:
  case NT_PROCESS_ENDING:
  case NT_PROCESS_REPLACED:
    return NT_STYLE_WARN;
  default:
    return row->info->phase || row->info->gpu_blocked ? NT_STYLE_WARN : NT_STYLE_PLAIN;
  }
}

static void rank_cell(struct nt_table *table, const struct nt_process_info *info) {
  if (info == NULL || info->world_rank < 0)
    nt_table_cell(table, NT_STYLE_PLAIN, "-");
  else if (info->world_size > 0)
    nt_table_cell(table, NT_STYLE_PLAIN, "%d/%d", info->world_rank, info->world_size);
  else
    nt_table_cell(table, NT_STYLE_PLAIN, "%d", info->world_rank);
}

/* The machine's number of the GPU and the process's; several by the process's alone. */
static void gpu_cell(struct nt_table *table, const struct row *row) {
  if (row->gpu.gpu_index >= 0)
    nt_table_cell(table, NT_STYLE_PLAIN, "%" PRId32 " = cuda:%" PRId32, row->gpu.gpu_index,
                  row->gpu.cuda_device);
  else
    nt_table_cell(table, NT_STYLE_PLAIN, "%s", row->gpus);
}

static void call_cells(struct nt_table *table, const struct row *row) {
  char at[NT_TIME_TEXT], elapsed[NT_DURATION_TEXT];
  if (row->call == NULL) {
    nt_table_cell(table, NT_STYLE_PLAIN, "-");
    nt_table_cell(table, NT_STYLE_PLAIN, "-");
    return;
  }
  if (row->wait != NULL)
    nt_table_cell(table, NT_STYLE_WARN, "left %s, in %s", row->text, nt_fn_name(row->wait->fn));
  else
    nt_table_cell(table, row->open ? NT_STYLE_WARN : NT_STYLE_PLAIN, "%s %s",
                  row->open ? "in" : "left", row->text);
  nt_time_short(at, row->since_ns);
  if (row->info->live)
    nt_table_cell(table, NT_STYLE_PLAIN, "%s (%s)", at,
                  nt_duration_text(elapsed, now_ns() - row->since_ns));
  else
    nt_table_cell(table, NT_STYLE_PLAIN, "%s", at);
}

/* Items first … end - 1 of the list. */
static int print_rows(const struct nt_process_list *list, size_t first, size_t end, bool color) {
  static const struct nt_column columns[] = {
      {"PID", true},    {"RANK", false},      {"HOST", false},  {"COMMAND", false}, {"GPU", false},
      {"STATE", false}, {"LAST CALL", false}, {"SINCE", false}, {"TRACE", false},
  };
  struct nt_table *table = nt_table_new(columns, sizeof columns / sizeof columns[0]);
  for (size_t i = first; i < end; i++) {
    struct row row;
    fill_row(&list->items[i], list, &row);
    nt_table_cell(table, NT_STYLE_BOLD, "%" PRIu32, row.process->pid);
    rank_cell(table, row.info);
    nt_table_cell(table, NT_STYLE_PLAIN, "%s", row.info ? row.info->host : "-");
    nt_table_cell(table, NT_STYLE_PLAIN, "%s", row.command[0] ? row.command : "-");
    gpu_cell(table, &row);
    nt_table_cell(table, style_of(&row), "%s", row.fate[0] ? row.fate : state_of(&row));
    call_cells(table, &row);
    nt_table_cell(table, NT_STYLE_PLAIN, "%s",
                  row.info && row.info->file_path ? row.info->file_path : "-");
  }
  int rc = nt_table_print(table, stdout, color);
  nt_table_free(table);
  return rc;
}

/* One table; with several jobs one for each, below a line that tells which. */
static int print_table(const struct nt_process_list *list, bool color) {
  int rc = 0;
  if (!nt_process_has_jobs(list))
    return print_rows(list, 0, list->count, color);
  for (size_t first = 0, end; rc == 0 && first < list->count; first = end) {
    for (end = first + 1; end < list->count; end++)
      if (!nt_process_same_job(&list->items[first], &list->items[end]))
        break;
    if (first > 0)
      putchar('\n');
    nt_process_print_job(&list->items[first], stdout);
    rc = print_rows(list, first, end, color);
  }
  return rc;
}

/* The i-th copy of NCCL whose calls are not traced; false past the last. */
static bool untraced_copy(char out[NT_UNTRACED_TEXT], const struct nt_process *process,
                          unsigned i) {
  if (process->trace != NULL)
    return nt_untraced_copy(out, process->trace, i);
  if (i > 0 || process->nccl[0] == '\0')
    return false;
  nt_untraced_process(out, process->nccl);
  return true;
}

static void print_untraced(const struct nt_process_list *list) {
  char text[NT_UNTRACED_TEXT];
  for (size_t i = 0; i < list->count; i++)
    for (unsigned k = 0; untraced_copy(text, &list->items[i], k); k++) {
      printf("\n%" PRIu32 ": ", list->items[i].pid);
      nt_text_escape_print(stdout, text);
      putchar('\n');
    }
}

static json_t *untraced_json(const struct nt_process *process) {
  json_t *out = json_array();
  char text[NT_UNTRACED_TEXT];
  for (unsigned k = 0; untraced_copy(text, process, k); k++)
    json_array_append_new(out, nt_json_text(text));
  return out;
}

/* It can be asked for a dump. */
static bool can_dump(const struct nt_process *process) {
  return process->trace != NULL && nt_trace_process(process->trace)->live;
}

/* The signal that asks it; NULL: none. */
static const char *dump_signal(const struct nt_process *process) {
  return can_dump(process) ? nt_trace_evidence(process->trace, "dump.signal") : NULL;
}

/* Usually all have the same: one line. Others have no handler, and die of that signal. */
static void print_signals(const struct nt_process_list *list) {
  const struct nt_process *first = NULL;
  bool same = true, others = false;
  for (size_t i = 0; i < list->count; i++) {
    const struct nt_process *process = &list->items[i];
    others |= process->presence == NT_PRESENT_IDLE;
    if (!can_dump(process))
      continue;
    first = first ? first : process;
    const char *number = dump_signal(process), *wanted = dump_signal(first);
    same = same && !number == !wanted && (!number || strcmp(number, wanted) == 0);
  }
  if (first == NULL)
    return;
  printf("\nA dump of a process with a rank: nccltrace dump PID");
  if (same && dump_signal(first) != NULL)
    printf(", or kill -%s PID%s", dump_signal(first),
           others ? " (others have no handler: the signal would kill them)" : "");
  putchar('\n');
  for (size_t i = 0; i < list->count && !same; i++)
    if (dump_signal(&list->items[i]) != NULL)
      printf("  or kill -%s %" PRIu32 "\n", dump_signal(&list->items[i]), list->items[i].pid);
}

/* One line, however many there are. */
static void report_unreadable(const struct nt_process_list *list) {
  const struct nt_process *first = NULL;
  size_t more = 0;
  for (size_t i = 0; i < list->count; i++) {
    if (list->items[i].error.code == 0)
      continue;
    if (first == NULL)
      first = &list->items[i];
    else
      more++;
  }
  if (first == NULL)
    return;
  struct nt_error error = first->error;
  size_t used = strlen(error.reason);
  if (more > 0)
    snprintf(error.reason + used, sizeof error.reason - used, "; and %zu more that cannot be read",
             more);
  nt_report_error(first->area, &error);
}

static json_t *call_json(const struct row *row) {
  char function[64], label[NT_LABEL_TEXT], result[NT_RESULT_TEXT];
  const struct nt_call *call = row->call;
  if (call == NULL)
    return json_null();
  const char *comm = nt_process_comm_label(row->process->trace, call->comm, label, sizeof label);
  return json_pack(
      "{s:o, s:s, s:I, s:o, s:I, s:b, s:o, s:o, s:s, s:o}", "text", nt_json_text(row->text),
      "function", nt_call_function(function, sizeof function, call->fn), "seq",
      (json_int_t)call->seq, "comm", nt_json_text(comm), "thread", (json_int_t)call->thread,
      "in_call", row->open, "enter", nt_json_time(call->enter_ns), "exit",
      nt_json_time(call->exit_ns), "result", nt_call_result(result, sizeof result, call),
      "host_wait", nt_json_text(row->wait ? nt_fn_name(row->wait->fn) : NULL));
}

/* What only a trace tells. */
static void add_trace_json(json_t *out, const struct row *row) {
  const struct nt_process_info *info = row->info;
  const char *number = dump_signal(row->process);
  json_object_set_new(out, "rank", json_integer(info->world_rank));
  json_object_set_new(out, "world_size", json_integer(info->world_size));
  json_object_set_new(out, "local_rank", json_integer(info->local_rank));
  json_object_set_new(out, "host", nt_json_text(info->host));
  json_object_set_new(out, "gpus", nt_json_text(row->gpus));
  json_object_set_new(out, "gpu_index", nt_json_index(row->gpu.gpu_index));
  json_object_set_new(out, "cuda_device", nt_json_index(row->gpu.cuda_device));
  json_object_set_new(out, "pci", nt_json_text(row->gpu.pci));
  json_object_set_new(out, "started", nt_json_time(info->started_ns));
  json_object_set_new(out, "last_sign_of_life", nt_json_time(info->last_beat_ns));
  json_object_set_new(out, "last_gpu_look", nt_json_time(info->gpu_beat_ns));
  json_object_set_new(out, "gpu_blocked", json_boolean(info->gpu_blocked));
  if (info->state == NT_PROCESS_EXITED || info->state == NT_PROCESS_ENDING)
    json_object_set_new(out, "exit_code", json_integer(info->exit_code));
  json_object_set_new(out, "calls", nt_json_count(info->calls));
  json_object_set_new(out, "lost", nt_json_count(info->lost));
  json_object_set_new(out, "last_call", call_json(row));
  json_object_set_new(out, "trace", nt_json_text(info->file_path));
  if (number != NULL)
    json_object_set_new(out, "dump_signal", json_integer(atoi(number)));
  if (info->run_id != NULL && info->run_id[0] != '\0')
    json_object_set_new(out, "run", nt_json_text(info->run_id));
}

/* Every key is always there: null where it is not known. */
static json_t *row_json(const struct row *row) {
  static const char *const unknown[] = {
      "error",       "rank",        "world_size",  "local_rank", "host",
      "gpus",        "gpu_index",   "cuda_device", "pci",        "started",
      "gpu_blocked", "calls",       "lost",        "last_call",  "last_sign_of_life",
      "trace",       "dump_signal", "run",         "exit_code",  "last_gpu_look",
  };
  const struct nt_process *process = row->process;
  json_t *out = json_object();
  for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
    json_object_set_new(out, unknown[i], json_null());
  json_object_set_new(out, "pid", json_integer(process->pid));
  json_object_set_new(out, "uid", json_integer(process->uid));
  json_object_set_new(out, "state", json_string(state_of(row)));
  json_object_set_new(out, "state_text", nt_json_text(row->fate[0] ? row->fate : state_of(row)));
  json_object_set_new(out, "area", nt_json_text(process->area[0] ? process->area : NULL));
  json_object_set_new(out, "command", nt_json_text(row->command[0] ? row->command : NULL));
  json_object_set_new(out, "parent", row->parent ? json_integer(row->parent) : json_null());
  json_object_set_new(out, "untraced", untraced_json(process));
  if (process->error.code != 0)
    json_object_set_new(out, "error", nt_json_text(process->error.reason));
  if (row->info != NULL)
    add_trace_json(out, row);
  return out;
}

static int print_json(const struct nt_process_list *list) {
  json_t *out = json_array();
  for (size_t i = 0; i < list->count; i++) {
    struct row row;
    fill_row(&list->items[i], list, &row);
    json_array_append_new(out, row_json(&row));
  }
  return nt_json_print(out, stdout);
}

static size_t count_private(const struct nt_process_list *list) {
  size_t count = 0;
  for (size_t i = 0; i < list->count; i++)
    count += list->items[i].presence == NT_PRESENT_PRIVATE;
  return count;
}

static bool has_traces(const char *directory) {
  const size_t end = sizeof ".trace" - 1;
  DIR *dir = opendir(directory);
  bool found = false;
  for (struct dirent *entry; dir != NULL && !found && (entry = readdir(dir)) != NULL;) {
    const size_t length = strlen(entry->d_name);
    found = length > end && strcmp(entry->d_name + length - end, ".trace") == 0;
  }
  if (dir != NULL)
    closedir(dir);
  return found;
}

/* The directory itself, or the first below it that holds trace files; NULL if none does. To be freed. */
static char *find_traces(const char *directory) {
  struct dirent **entries;
  char *found = NULL;
  if (has_traces(directory))
    return strdup(directory);
  const int count = scandir(directory, &entries, NULL, alphasort);
  for (int i = 0; i < count; i++) {
    char *path = NULL;
    if (found == NULL && entries[i]->d_name[0] != '.' &&
        asprintf(&path, "%s/%s", directory, entries[i]->d_name) >= 0 && has_traces(path))
      found = path;
    else
      free(path);
    free(entries[i]);
  }
  if (count >= 0)
    free(entries);
  return found;
}

/* Of processes whose area is not in shared memory the directory is not known: those that write traces there may be among
 * them, but nobody's are where there is none. */
static void report_nothing_in(const char *directory, size_t private) {
  const bool there = access(directory, F_OK) == 0;
  const char *error = there ? NULL : strerror(errno);
  char *traces = there ? find_traces(directory) : NULL;
  fputs("nccltrace: no process on this node has its trace in ", stderr);
  nt_text_escape_print(stderr, directory);
  if (!there) {
    fprintf(stderr, ": %s", error);
  } else if (traces == NULL) {
    fputs(", and no trace file is there: it is where NCCLTRACE_DIR of the job says", stderr);
  } else {
    fputs("; trace files are there, which tracediff ", stderr);
    nt_text_escape_print(stderr, traces);
    fputs(" reads: ", stderr);
    if (private > 0)
      fprintf(stderr,
              "who writes them has ended, runs elsewhere, or is one of %zu processes whose area is "
              "not in shared memory and whose directory is not known (nccltrace ls)",
              private);
    else
      fputs("those that wrote them have ended or run elsewhere", stderr);
  }
  free(traces);
  fputc('\n', stderr);
}

int nt_command_ls(int argc, char **argv) {
  struct nt_options parser;
  struct nt_process_list list;
  enum nt_color_when when = NT_COLOR_AUTO;
  const char *directory = NULL;
  bool json = false;
  int id;
  nt_options_start(&parser, &usage, argc, argv);
  while ((id = nt_options_next(&parser)) > 0) {
    if (id == OPT_JSON)
      json = true;
    else if (id == OPT_DIR)
      directory = parser.value;
    else if (!nt_color_parse(parser.value, &when))
      return nt_options_bad(&usage, "--color is auto, always or never, not '%s'", parser.value);
  }
  if (id == NT_OPTIONS_STOP)
    return parser.status;
  if (parser.first < argc)
    return nt_options_bad(&usage, "no argument is expected, but there is '%s'", argv[parser.first]);
  int rc = nt_process_list_read(NT_LIST_AREAS | NT_LIST_LOADED, &list);
  const size_t private = count_private(&list);
  if (directory != NULL)
    nt_process_keep_directory(&list, directory);
  report_unreadable(&list);
  if (rc == 0 && json)
    rc = print_json(&list);
  else if (rc == 0 && list.count > 0) {
    rc = print_table(&list, nt_color_wanted(when, stdout));
    print_untraced(&list);
    print_signals(&list);
  } else if (rc == 0 && directory != NULL)
    report_nothing_in(directory, private);
  else if (rc == 0)
    fputs("nccltrace: no process of this user on this node carries libnccltrace.so\n", stderr);
  if (rc != 0)
    fputs("nccltrace: the list is incomplete: out of memory\n", stderr);
  int status = rc != 0 || list.count == 0 ? NT_EXIT_FAILED : NT_EXIT_OK;
  nt_process_list_free(&list);
  return status;
}
