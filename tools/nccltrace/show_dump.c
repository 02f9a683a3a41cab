/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Head; threads, the main one first, then whoever holds the GIL; facts by what they are of; the kernel's log. Threads that
 * stand alike, as a pool's do, are told of once, those of this library in one line. What is said once is not said again.
 */
#include "nccltrace/show_dump.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/dump_text.h"
#include "cli/stack_lines.h"
#include "cli/text.h"
#include "nccltrace/show_stacks.h"

enum { TIDS_SHOWN = 8, LOG_WIDTH = 120 /* characters of a kernel line */ };

int nt_show_find_dump(const struct nt_trace *trace, uint32_t number) {
  size_t count = nt_trace_dump_count(trace);
  for (size_t i = count; i-- > 0;)
    if (number == 0 || nt_trace_dump_at(trace, i)->number == number)
      return (int)i;
  return -1;
}

static void show_head(const struct nt_trace *trace, size_t i, FILE *out, bool color) {
  const struct nt_dump_view *dump = nt_trace_dump_at(trace, i);
  char when[NT_TIME_TEXT], took[NT_DURATION_TEXT], extent[NT_DUMP_EXTENT];
  char sections[NT_DUMP_SECTIONS_TEXT];
  fprintf(out, "%sdump %" PRIu32 "%s of %s, asked for by %s: %s, taken in %s\n",
          nt_style_text(color, NT_STYLE_BOLD), dump->number, nt_style_text(color, NT_STYLE_PLAIN),
          nt_time_text(when, dump->began_ns), nt_dump_reason_text(dump->reason),
          nt_dump_extent(extent, sizeof extent, dump),
          nt_duration_text(took,
                           dump->taken_ns > dump->began_ns ? dump->taken_ns - dump->began_ns : 0));
  fputs("missing: ", out);
  if (nt_dump_print_missing(out, trace, i, NULL, NULL) == 0)
    fputs("nothing", out);
  fputc('\n', out);
  if (nt_dump_unfinished(dump) != 0)
    fprintf(out, "not finished when this was written: %s\n",
            nt_dump_sections_text(sections, sizeof sections, nt_dump_unfinished(dump)));
}

/* ---- facts -------------------------------------------------------------------------------------- */

static bool same_group(const char *a, const char *b) {
  size_t length = strcspn(a, ".");
  return strcspn(b, ".") == length && strncmp(a, b, length) == 0;
}

/* A fact in front of the k-th is of the same group. */
static bool is_told(const struct nt_trace *trace, size_t i, size_t k, const char *group) {
  const char *key, *value;
  for (size_t before = 0; before < k; before++)
    if (nt_trace_dump_fact_at(trace, i, before, &key, &value) && strchr(key, '.') != NULL &&
        same_group(key, group))
      return true;
  return false;
}

/* A number of bytes, by its key. */
static bool is_size(const char *key) {
  static const char *const counts[] = {".group", ".refused", ".under_oom", ".oom", ".oom_kill"};
  const char *last = strrchr(key, '.');
  for (size_t i = 0; last != NULL && i < sizeof counts / sizeof *counts; i++)
    if (strcmp(last, counts[i]) == 0)
      return false;
  return strncmp(key, "shm.", 4) == 0 || strstr(key, ".memory") != NULL ||
         strstr(key, ".rss") != NULL || strstr(key, ".swap") != NULL ||
         strstr(key, ".locked") != NULL;
}

static void show_fact(const char *key, const char *name, const char *value, FILE *out) {
  char text[NT_SIZE_TEXT], *end;
  const unsigned long long bytes = strtoull(value, &end, 10);
  nt_text_escape_print(out, name);
  fputs(" = ", out);
  nt_text_escape_print(out, value);
  if (end != value && *end == '\0' && bytes >= 1024 && is_size(key))
    fprintf(out, " (%s)", nt_bytes_text(text, bytes));
  fputc('\n', out);
}

/* Said in the head, at a thread, or at the end. */
static bool is_elsewhere(const struct nt_dump_view *dump, const char *key, const char *value) {
  size_t kernel = 0, native = 0;
  for (size_t t = 0; t < dump->thread_count; t++) {
    kernel += dump->threads[t].kernel;
    native += dump->threads[t].native_count > 0;
  }
  if (strcmp(key, "threads") == 0 || strcmp(key, "process.threads") == 0)
    return strtoull(value, NULL, 10) == kernel;
  if (strcmp(key, "native.threads") == 0)
    return strtoull(value, NULL, 10) == native;
  if (strcmp(key, "python.gil") == 0)
    return strcmp(value, "none") != 0;
  return same_group(key, "missing") || same_group(key, "kernel");
}

/* The k-th fact's, with all facts of it. */
static void show_group(const struct nt_trace *trace, size_t i, size_t k, FILE *out, bool color) {
  const struct nt_dump_view *dump = nt_trace_dump_at(trace, i);
  const char *group, *key, *value;
  char name[64];
  bool titled = false;
  nt_trace_dump_fact_at(trace, i, k, &group, &value);
  snprintf(name, sizeof name, "%.*s", (int)strcspn(group, "."), group);
  for (; nt_trace_dump_fact_at(trace, i, k, &key, &value); k++) {
    if (!same_group(key, group) || strchr(key, '.') == NULL || is_elsewhere(dump, key, value))
      continue;
    if (!titled) {
      fprintf(out, "\n%s", nt_style_text(color, NT_STYLE_BOLD));
      nt_text_escape_print(out, name);
      fprintf(out, "%s\n", nt_style_text(color, NT_STYLE_PLAIN));
    }
    titled = true;
    fputs("  ", out);
    show_fact(key, strchr(key, '.') + 1, value, out);
  }
}

/* First those of no group, then groups in the order of their first fact. */
static void show_facts(const struct nt_trace *trace, size_t i, FILE *out, bool color) {
  const struct nt_dump_view *dump = nt_trace_dump_at(trace, i);
  const char *key, *value;
  bool any = false;
  for (size_t k = 0; nt_trace_dump_fact_at(trace, i, k, &key, &value); k++) {
    if (strchr(key, '.') != NULL || is_elsewhere(dump, key, value))
      continue;
    if (!any)
      fputc('\n', out);
    any = true;
    if (strcmp(key, "ras") == 0)
      fputs("NCCL RAS: asked by the process with local rank 0 of this node, whose dump has it\n",
            out);
    else
      show_fact(key, key, value, out);
  }
  for (size_t k = 0; nt_trace_dump_fact_at(trace, i, k, &key, &value); k++)
    if (strchr(key, '.') != NULL && !is_told(trace, i, k, key))
      show_group(trace, i, k, out, color);
}

static void show_log_line(const char *value, bool whole, FILE *out) {
  char *text = nt_text_escape_new(value);
  size_t length = text != NULL ? strlen(text) : 0, shown = length;
  if (!whole && length > LOG_WIDTH)
    for (shown = LOG_WIDTH; ((unsigned char)text[shown] & 0xc0) == 0x80; shown--)
      continue;
  if (text != NULL)
    fprintf(out, "  %.*s%s\n", (int)shown, text, shown < length ? "…" : "");
  free(text);
}

/* Lines of the out-of-memory killer that do not concern the job, as far as this process knows its others. */
static bool is_other_oom(const struct nt_trace *trace, size_t i, const char *value) {
  enum { PIDS = 256 };
  uint32_t pids[PIDS] = {nt_trace_process(trace)->pid};
  size_t count = 1;
  const int64_t ran_ns = nt_trace_dump_at(trace, i)->began_ns - nt_trace_process(trace)->started_ns;
  for (size_t p = 0; p < nt_trace_peer_count(trace) && count < PIDS; p++)
    pids[count++] = nt_trace_peer_at(trace, p)->pid;
  return nt_is_other_oom(value, ran_ns / 1000000000, pids, count);
}

static void show_kernel_log(const struct nt_trace *trace, size_t i, bool whole, FILE *out,
                            bool color) {
  const char *key, *value;
  size_t left_out = 0;
  bool titled = false;
  for (size_t k = 0; nt_trace_dump_fact_at(trace, i, k, &key, &value); k++) {
    if (!same_group(key, "kernel") || strcmp(key, "kernel.lines") == 0)
      continue;
    if (!whole && is_other_oom(trace, i, value)) {
      left_out++;
      continue;
    }
    if (!titled)
      fprintf(out, "\n%skernel log%s of the machine, lines that may matter, newest first\n",
              nt_style_text(color, NT_STYLE_BOLD), nt_style_text(color, NT_STYLE_PLAIN));
    titled = true;
    show_log_line(value, whole, out);
  }
  if (left_out > 0)
    fprintf(
        out,
        "\n%zu line%s of the kernel's log %s left out: out-of-memory kills of before the job, or "
        "of processes that are not its own\n",
        left_out, left_out == 1 ? "" : "s", left_out == 1 ? "is" : "are");
}

/* ---- threads ------------------------------------------------------------------------------------ */

static bool same_frames(const struct nt_stack_frame *a, uint32_t a_count,
                        const struct nt_stack_frame *b, uint32_t b_count) {
  if (a_count != b_count)
    return false;
  for (uint32_t i = 0; i < a_count; i++)
    if (a[i].line != b[i].line || a[i].offset != b[i].offset || strcmp(a[i].file, b[i].file) != 0 ||
        strcmp(a[i].function, b[i].function) != 0)
      return false;
  return true;
}

/* The main thread is like no other, and those of this library have names that tell them apart. */
static bool is_alike(const struct nt_dump_thread *a, const struct nt_dump_thread *b) {
  if (a->flags & NT_DUMP_THREAD_OURS && strcmp(a->name, b->name) != 0)
    return false;
  return a->flags == b->flags && !(a->flags & NT_DUMP_THREAD_MAIN) && a->kernel == b->kernel &&
         a->state == b->state && a->syscall == b->syscall && strcmp(a->wait, b->wait) == 0 &&
         same_frames(a->python, a->python_count, b->python, b->python_count) &&
         same_frames(a->native, a->native_count, b->native, b->native_count);
}

static void show_stacks(const struct nt_dump_thread *thread, bool whole, FILE *out) {
  struct nt_stack_style style = {.indent = "    ", .paths = true, .whole = whole};
  nt_stack_print(out, &style, thread->python, thread->python_count, thread->python_cut);
  if (thread->python_count > 0 && thread->native_count > 0)
    fputs("   native:\n", out);
  nt_stack_print(out, &style, thread->native, thread->native_count, thread->native_cut);
}

/* Facts have its number among those that hold a GIL: one for each interpreter that has its own. */
static bool holds_gil(const struct nt_trace *trace, size_t i, uint32_t tid) {
  const char *key, *value;
  for (size_t k = 0; nt_trace_dump_fact_at(trace, i, k, &key, &value); k++)
    if (strcmp(key, "python.gil") == 0)
      for (char *end; *value; value = *end == ' ' ? end + 1 : end) {
        if (strtoul(value, &end, 10) == tid && end != value)
          return true;
        if (end == value)
          break;
      }
  return false;
}

/* What all threads of one dump have in common. */
struct shown {
  const struct nt_trace *trace;
  size_t dump;
  enum nt_machine machine;
  bool whole, color;
  bool *told; /* by thread */
};

static void show_thread(const struct shown *shown, const struct nt_dump_thread *thread, FILE *out) {
  char doing[NT_THREAD_TEXT], cpu[NT_DURATION_TEXT];
  fprintf(out, "%sthread %" PRIu32 "%s ", nt_style_text(shown->color, NT_STYLE_BOLD), thread->tid,
          nt_style_text(shown->color, NT_STYLE_PLAIN));
  nt_text_escape_print(out, thread->name);
  if (thread->flags & NT_DUMP_THREAD_MAIN)
    fputs(", the main thread", out);
  if (holds_gil(shown->trace, shown->dump, thread->tid))
    fputs(", holds the GIL", out);
  if (thread->flags & NT_DUMP_THREAD_OURS)
    fputs(", of libnccltrace", out);
  if (thread->kernel)
    fprintf(out, ": %s", nt_thread_doing(doing, sizeof doing, thread, shown->machine, true));
  if (thread->wait[0] != '\0') {
    fputs(", wait channel ", out);
    nt_text_escape_print(out, thread->wait);
  }
  if (thread->kernel && thread->cpu_ns > 0) /* the kernel counts ticks: 0 is less than one */
    fprintf(out, ", cpu %s", nt_duration_text(cpu, (int64_t)(thread->cpu_ns & INT64_MAX)));
  fputc('\n', out);
  show_stacks(thread, shown->whole, out);
}

/* The t-th thread, and those after it that stand alike, which are marked as told. */
static void show_alike(const struct shown *shown, size_t t, FILE *out) {
  const struct nt_dump_view *dump = nt_trace_dump_at(shown->trace, shown->dump);
  const struct nt_dump_thread *first = &dump->threads[t];
  const bool gil = holds_gil(shown->trace, shown->dump, first->tid);
  size_t more = 0;
  shown->told[t] = true;
  fputc('\n', out);
  show_thread(shown, first, out);
  for (size_t k = t + 1; k < dump->thread_count && !shown->whole && !gil; k++) {
    const struct nt_dump_thread *other = &dump->threads[k];
    if (shown->told[k] || !is_alike(first, other))
      continue;
    shown->told[k] = true;
    if (more++ == 0)
      fputs("  and", out);
    if (more <= TIDS_SHOWN)
      fprintf(out, "%s %" PRIu32, more > 1 ? "," : "", other->tid);
  }
  if (more > TIDS_SHOWN)
    fputs(", …", out);
  if (more > 0)
    fprintf(out, ": %zu threads like this\n", more + 1);
}

/* "3 threads of libnccltrace: nccltrace 812, nccltrace-dump 813, nccltrace-gpu 815" */
static void show_ours(const struct shown *shown, FILE *out) {
  const struct nt_dump_view *dump = nt_trace_dump_at(shown->trace, shown->dump);
  size_t count = 0, told = 0;
  for (size_t t = 0; t < dump->thread_count; t++)
    count += (dump->threads[t].flags & NT_DUMP_THREAD_OURS) != 0;
  if (count == 0)
    return;
  fprintf(out, "\n%s%zu thread%s of libnccltrace%s:", nt_style_text(shown->color, NT_STYLE_BOLD),
          count, count == 1 ? "" : "s", nt_style_text(shown->color, NT_STYLE_PLAIN));
  for (size_t t = 0; t < dump->thread_count; t++) {
    if (!(dump->threads[t].flags & NT_DUMP_THREAD_OURS))
      continue;
    fputs(told++ > 0 ? ", " : " ", out);
    nt_text_escape_print(out, dump->threads[t].name);
    fprintf(out, " %" PRIu32, dump->threads[t].tid);
  }
  fputc('\n', out);
}

static void show_threads(const struct nt_trace *trace, size_t i, bool whole, FILE *out,
                         bool color) {
  enum { MAIN, GIL, OTHERS, OURS, ROUNDS };
  const struct nt_dump_view *dump = nt_trace_dump_at(trace, i);
  const struct shown shown = {.trace = trace,
                              .dump = i,
                              .machine = nt_machine_of(nt_trace_evidence(trace, "machine")),
                              .whole = whole,
                              .color = color,
                              .told = calloc(dump->thread_count + 1, sizeof *shown.told)};
  for (int round = 0; round < ROUNDS && shown.told != NULL; round++)
    for (size_t t = 0; t < dump->thread_count; t++) {
      const struct nt_dump_thread *thread = &dump->threads[t];
      const int of = thread->flags & NT_DUMP_THREAD_MAIN   ? MAIN
                     : thread->flags & NT_DUMP_THREAD_OURS ? OURS
                     : holds_gil(trace, i, thread->tid)    ? GIL
                                                           : OTHERS;
      if (!shown.told[t] && of == round && (of != OURS || whole))
        show_alike(&shown, t, out);
    }
  if (!whole)
    show_ours(&shown, out);
  free(shown.told);
}

void nt_show_dump(const struct nt_trace *trace, size_t i, bool whole, FILE *out, bool color) {
  show_head(trace, i, out, color);
  show_threads(trace, i, whole, out, color);
  show_facts(trace, i, out, color);
  show_kernel_log(trace, i, whole, out, color);
}

/* ---- JSON --------------------------------------------------------------------------------------- */

static json_t *syscall_json(const struct nt_dump_thread *thread, enum nt_machine machine) {
  if (thread->syscall < 0)
    return json_null();
  char text[NT_SYSCALL_TEXT];
  json_t *arguments = json_array();
  for (int k = 0; k < 6; k++) {
    snprintf(text, sizeof text, "0x%" PRIx64, thread->args[k]);
    json_array_append_new(arguments, json_string(text));
  }
  return json_pack("{s:I, s:o, s:s, s:o}", "number", (json_int_t)thread->syscall, "name",
                   nt_json_text(nt_syscall_name(machine, thread->syscall)), "text",
                   nt_syscall_text(text, sizeof text, machine, thread->syscall, thread->args, true),
                   "arguments", arguments);
}

static json_t *thread_json(const struct nt_dump_thread *thread, enum nt_machine machine) {
  json_t *out = json_pack("{s:I, s:o, s:b, s:b}", "tid", (json_int_t)thread->tid, "name",
                          nt_json_text(thread->kernel ? thread->name : NULL), "main",
                          (thread->flags & NT_DUMP_THREAD_MAIN) != 0, "ours",
                          (thread->flags & NT_DUMP_THREAD_OURS) != 0);
  json_object_set_new(out, "state",
                      thread->kernel ? json_string(nt_thread_state_text(thread->state))
                                     : json_null());
  json_object_set_new(out, "cpu_ns", thread->kernel ? nt_json_count(thread->cpu_ns) : json_null());
  json_object_set_new(out, "system_call", syscall_json(thread, machine));
  json_object_set_new(out, "wait_channel", nt_json_text(*thread->wait ? thread->wait : NULL));
  json_object_set_new(out, "python", nt_show_frames_json(thread->python, thread->python_count));
  json_object_set_new(out, "native", nt_show_frames_json(thread->native, thread->native_count));
  return out;
}

static json_t *sections_json(uint32_t sections) {
  json_t *list = json_array();
  for (unsigned i = 1; i < 32; i++)
    if (sections >> i & 1)
      json_array_append_new(list, json_string(nt_dump_section_name(i)));
  return list;
}

json_t *nt_show_dump_json(const struct nt_trace *trace, size_t i) {
  const struct nt_dump_view *dump = nt_trace_dump_at(trace, i);
  enum nt_machine machine = nt_machine_of(nt_trace_evidence(trace, "machine"));
  json_t *facts = json_object(), *missing = json_object(), *threads = json_array();
  const char *key, *value;
  for (size_t k = 0; nt_trace_dump_fact_at(trace, i, k, &key, &value); k++) {
    bool is_missing = same_group(key, "missing") && key[7] == '.';
    json_t *name = nt_json_text(is_missing ? key + 8 : key);
    if (name != NULL)
      json_object_set_new(is_missing ? missing : facts, json_string_value(name),
                          nt_json_text(value));
    json_decref(name);
  }
  for (size_t t = 0; t < dump->thread_count; t++)
    json_array_append_new(threads, thread_json(&dump->threads[t], machine));
  return json_pack("{s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "number",
                   (json_int_t)dump->number, "reason", nt_dump_reason_name(dump->reason), "began",
                   nt_json_time(dump->began_ns), "taken", nt_json_time(dump->taken_ns), "sections",
                   sections_json(dump->taken), "unfinished",
                   sections_json(nt_dump_unfinished(dump)), "missing", missing, "facts", facts,
                   "threads", threads);
}
