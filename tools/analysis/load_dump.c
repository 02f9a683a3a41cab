/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The newest dump of a trace, as far as a finding may need it: where the main thread and those that call NCCL are, and
 * the facts that tell of a fault. All else is for people, in nccltrace show --dump.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/load_parts.h"
#include "cli/dump_text.h"
#include "cli/native_symbols.h"
#include "cli/stack_lines.h"
#include "cli/text.h"

enum { THREADS_MAX = 64, FACTS_MAX = 64, KEY = 128 };

/* ---- threads ------------------------------------------------------------------------------------ */

/* "read_batch() at host.c:93", "read_batch() at libdata.so" or "libdata.so+0x1234"; NULL if there is no memory. */
static char *native_place(const struct nt_stack_frame *frame) {
  char function[NT_STACK_LINE_TEXT], line[NT_STACK_LINE_TEXT], *text;
  struct nt_native_symbol symbol;
  nt_stack_line_text(line, sizeof line, frame, false);
  const char *at = strstr(line, " at ");
  if (!at || !nt_native_symbol(frame, &symbol))
    return strdup(line);
  nt_text_escape(function, sizeof function, symbol.function);
  return asprintf(&text, "%s()%s", function, at) < 0 ? NULL : text;
}

/* "load_batch() at data.py:41" of the innermost frame of the program; NULL if there is none, or no memory. */
static char *place_of(const struct nt_stack_frame *frames, uint32_t count) {
  char function[NT_STACK_LINE_TEXT], site[NT_STACK_LINE_TEXT], *text;
  for (uint32_t i = 0; i < count; i++) {
    if (!nt_stack_is_program(&frames[i]))
      continue;
    if (frames[i].build_id)
      return native_place(&frames[i]);
    const struct nt_stack_frame where = {
        .file = frames[i].file, .line = frames[i].line, .function = ""};
    nt_text_escape(function, sizeof function, frames[i].function);
    nt_stack_line_text(site, sizeof site, &where, false);
    const char *brackets = *function && function[strlen(function) - 1] != '>' ? "()" : "";
    return asprintf(&text, "%s%s at %s", *function ? function : "?", brackets, site) < 0 ? NULL
                                                                                         : text;
  }
  return NULL;
}

/* The number that calls have for the thread, 0 if it made none. */
static uint32_t index_of(const struct nt_model_rank *rank, const struct nt_trace *trace,
                         uint32_t tid) {
  uint32_t found = 0, before = 0;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    if (i && rank->calls[i].thread == before)
      continue;
    before = rank->calls[i].thread;
    if (nt_trace_thread_tid(trace, before) == tid)
      found = before; /* numbers of threads that are gone are given again: the latest */
  }
  return found;
}

static int add_thread(struct nt_model_dump *dump, const struct nt_dump_thread *from,
                      uint32_t thread, enum nt_machine machine) {
  struct nt_model_dump_thread *to = &dump->threads[dump->thread_count++];
  char doing[NT_THREAD_TEXT];
  to->tid = from->tid;
  to->thread = thread;
  to->main = from->flags & NT_DUMP_THREAD_MAIN;
  to->stack.call = NT_NONE;
  to->name = nt_text_escape_new(from->name);
  const bool python = from->python_count != 0;
  const struct nt_stack_frame *frames = python ? from->python : from->native;
  const uint32_t count = python ? from->python_count : from->native_count;
  to->place = place_of(frames, count);
  if (from->kernel)
    to->doing = strdup(nt_thread_doing(doing, sizeof doing, from, machine, false));
  if (!to->name || (from->kernel && !to->doing))
    return -NT_ERR_MEMORY;
  if (count)
    return nt_load_stack(&to->stack, frames, count, python ? from->python_cut : from->native_cut);
  return 0;
}

static int add_threads(struct nt_model_rank *rank, const struct nt_trace *trace,
                       const struct nt_dump_view *view) {
  enum nt_machine machine = nt_machine_of(nt_trace_evidence(trace, "machine"));
  int status = 0;
  rank->dump->threads = calloc(THREADS_MAX, sizeof *rank->dump->threads);
  if (!rank->dump->threads)
    return -NT_ERR_MEMORY;
  for (size_t i = 0; i < view->thread_count && !status; i++) {
    const struct nt_dump_thread *thread = &view->threads[i];
    rank->dump->stacks |= thread->python_count || thread->native_count;
    uint32_t index = index_of(rank, trace, thread->tid);
    if ((index || thread->flags & NT_DUMP_THREAD_MAIN) && rank->dump->thread_count < THREADS_MAX)
      status = add_thread(rank->dump, thread, index, machine);
  }
  return status;
}

/* ---- facts -------------------------------------------------------------------------------------- */

/* What stands behind "PREFIX.NUMBER." or "PREFIX.NAME."; NULL if the key is not like that. */
static const char *behind(const char *key, const char *prefix) {
  size_t length = strlen(prefix);
  if (strncmp(key, prefix, length) != 0 || key[length] != '.')
    return NULL;
  const char *dot = strchr(key + length + 1, '.');
  return dot ? dot + 1 : NULL;
}

static bool gpu_matters(const char *what, const char *value) {
  if (!strcmp(what, "fault"))
    return true;
  if (!strcmp(what, "nvlink"))
    return strstr(value, " without ") != NULL;
  if (!strcmp(what, "clocks.held_by"))
    return strstr(value, "slowdown") || strstr(value, "brake");
  if (!strcmp(what, "rows.remapped"))
    return strstr(value, "reset") || strstr(value, "failed");
  return !strcmp(what, "ecc.uncorrected") ? strtoull(value, NULL, 10) != 0
                                          : !strncmp(what, "nvlink.", 7);
}

/* A port is "ib.DEVICE.PORT", its counters stand behind that. */
static bool port_matters(const char *what, const char *value) {
  const char *counter = strchr(what, '.');
  return counter ? strstr(counter, "link_down") != NULL : strncmp(value, "ACTIVE", 6) != 0;
}

/* An interface that is down and was up since the start; many never are. */
static bool interface_matters(const struct nt_trace *trace, size_t dump, const char *key,
                              const char *value) {
  char wanted[KEY];
  const char *other, *count;
  snprintf(wanted, sizeof wanted, "%s.carrier_changes", key);
  if (strncmp(value, "down", 4) != 0)
    return false;
  for (size_t k = 0; nt_trace_dump_fact_at(trace, dump, k, &other, &count); k++)
    if (!strcmp(other, wanted))
      return strtoul(count, NULL, 10) > 1;
  return false;
}

/* Whose fact it is, -1 if it is of no importance. */
static int judge(const struct nt_trace *trace, size_t dump, const char *key, const char *value) {
  const char *what;
  if (!strncmp(key, "kernel.", 7))
    return isdigit((unsigned char)key[7]) ? NT_FACT_OF_NODE : -1;
  if ((what = behind(key, "gpu")) != NULL)
    return gpu_matters(what, value) ? NT_FACT_OF_PROCESS : -1;
  if (!strncmp(key, "missing.gpu.", 12))
    return strstr(value, "lost") ? NT_FACT_OF_PROCESS : -1;
  if ((what = behind(key, "ib")) != NULL)
    return port_matters(what, value) ? NT_FACT_OF_NODE : -1;
  if (!strncmp(key, "net.", 4) && !strchr(key + 4, '.'))
    return interface_matters(trace, dump, key, value) ? NT_FACT_OF_NODE : -1;
  if (!strcmp(key, "cgroup.memory.oom_kill"))
    return strtoull(value, NULL, 10) ? NT_FACT_OF_PROCESS : -1;
  return -1;
}

/* "12 s ago: NVRM: Xid …" of the kernel's log: when that was, and the line. */
static const char *split_age(const char *value, int64_t now_ns, int64_t *at_ns) {
  char *end;
  unsigned long long seconds = strtoull(value, &end, 10);
  *at_ns = 0;
  if (end == value || strncmp(end, " s ago: ", 8) != 0)
    return value;
  if (seconds < (unsigned long long)now_ns / 1000000000)
    *at_ns = now_ns - (int64_t)seconds * 1000000000;
  return end + 8;
}

static int add_fact(struct nt_model_dump *dump, enum nt_fact_of of, const char *key,
                    const char *value) {
  struct nt_model_fact *fact = &dump->facts[dump->fact_count++];
  bool kernel = !strncmp(key, "kernel.", 7);
  char *text = NULL;
  fact->of = of;
  if (of == NT_FACT_OF_JOB)
    key = "NCCL RAS";
  if (!strncmp(key, "missing.", 8))
    key += 8;
  if (kernel)
    value = split_age(value, dump->began_ns, &fact->at_ns);
  if (asprintf(&text, "%s: %s", kernel ? "kernel log" : key, value) < 0)
    return -NT_ERR_MEMORY;
  fact->text = nt_text_escape_new(text);
  free(text);
  return fact->text ? 0 : -NT_ERR_MEMORY;
}

/* Sources that would tell of a fault of hardware. */
static bool is_hardware_source(const char *source) {
  static const char *const names[] = {"NVML", "gpu", "kernel log", "infiniband", "ib",
                                      "net",  "ras", "RAS",        "NCCL RAS"};
  size_t length = strcspn(source, ".");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strlen(names[i]) == length && !strncmp(source, names[i], length))
      return true;
  return false;
}

/* "NVML (…), kernel log (…)"; sections that were not finished belong to it. */
static int add_missing(struct nt_model_dump *dump, const struct nt_trace *trace, size_t i) {
  const uint32_t mine = 1u << NT_DUMP_HARDWARE | 1u << NT_DUMP_JOB;
  const uint32_t unfinished = nt_dump_unfinished(nt_trace_dump_at(trace, i)) & mine;
  const char *key, *value;
  char source[64], sections[NT_DUMP_SECTIONS_TEXT], *text = NULL;
  size_t size = 0, count = 0;
  FILE *out = open_memstream(&text, &size);
  if (!out)
    return -NT_ERR_MEMORY;
  for (size_t k = 0; nt_trace_dump_fact_at(trace, i, k, &key, &value); k++) {
    if (!nt_dump_missing_source(source, sizeof source, key) || !is_hardware_source(source) ||
        strstr(value, "asked by the process"))
      continue; /* the last: another one has it */
    fprintf(out, "%s%s (", count++ ? ", " : "", source);
    nt_text_escape_print(out, value);
    fputc(')', out);
  }
  if (unfinished)
    fprintf(out, "%s%s (not finished)", count++ ? ", " : "",
            nt_dump_sections_text(sections, sizeof sections, unfinished));
  if (fclose(out) != 0 || !count) {
    free(text);
    return count ? -NT_ERR_MEMORY : 0;
  }
  dump->missing = text;
  return 0;
}

/* RAS prints a summary; what it found stands below "Warnings" and "Errors", each underlined. */
static bool ras_matters(const char *value, bool *found) {
  bool title = !strncmp(value, "Warnings", 8) || !strncmp(value, "Errors", 6);
  *found |= title;
  return *found && !title && value[strspn(value, " =-")] != '\0';
}

static int add_facts(struct nt_model_dump *dump, const struct nt_trace *trace, size_t i) {
  const char *key, *value;
  int status = 0;
  bool found = false;
  dump->facts = calloc(FACTS_MAX, sizeof *dump->facts);
  if (!dump->facts)
    return -NT_ERR_MEMORY;
  for (size_t k = 0; !status && nt_trace_dump_fact_at(trace, i, k, &key, &value); k++) {
    int of = judge(trace, i, key, value);
    if (!strncmp(key, "ras.", 4) && ras_matters(value, &found))
      of = NT_FACT_OF_JOB;
    if (of >= 0 && dump->fact_count < FACTS_MAX)
      status = add_fact(dump, (enum nt_fact_of)of, key, value);
  }
  return status ? status : add_missing(dump, trace, i);
}

int nt_load_dump(struct nt_model_rank *rank, const struct nt_trace *trace) {
  size_t count = nt_trace_dump_count(trace);
  if (!count)
    return 0;
  const struct nt_dump_view *view = nt_trace_dump_at(trace, count - 1);
  rank->dump = calloc(1, sizeof *rank->dump);
  if (!rank->dump)
    return -NT_ERR_MEMORY;
  rank->dump->began_ns = view->began_ns;
  rank->dump->stacks = view->asked & 1u << NT_DUMP_NATIVE;
  int status = add_threads(rank, trace, view);
  return status ? status : add_facts(rank->dump, trace, count - 1);
}
