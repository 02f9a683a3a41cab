/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/dump_text.h"

#include <stdlib.h>
#include <string.h>

#include "cli/text.h"

const char *nt_dump_reason_text(uint32_t reason) {
  switch (reason) {
  case NT_DUMP_REQUESTED:
    return "nccltrace dump";
  case NT_DUMP_SIGNAL:
    return "a signal";
  case NT_DUMP_WATCHDOG:
    return "the watchdog";
  default:
    return "nobody knows who";
  }
}

const char *nt_dump_reason_name(uint32_t reason) {
  static const char *const names[] = {"unknown", "request", "signal", "watchdog"};
  return names[reason < sizeof names / sizeof names[0] ? reason : 0];
}

const char *nt_thread_state_text(char state) {
  switch (state) {
  case 'R':
    return "running";
  case 'S':
    return "sleeping";
  case 'D':
    return "in the kernel, not interruptible";
  case 'T':
    return "stopped";
  case 't':
    return "stopped by a debugger";
  case 'Z':
    return "ended, not waited for";
  case 'X':
    return "dead";
  case 'I':
    return "idle";
  default:
    return "state not known";
  }
}

char *nt_thread_doing(char *out, size_t size, const struct nt_dump_thread *thread,
                      enum nt_machine machine, bool whole) {
  char call[NT_SYSCALL_TEXT];
  const char *state = nt_thread_state_text(thread->state);
  if (thread->syscall >= 0)
    snprintf(out, size, thread->state == 'D' ? "%s, in %s" : "%s in %s", state,
             nt_syscall_text(call, sizeof call, machine, thread->syscall, thread->args, whole));
  else
    snprintf(out, size, "%s", state);
  return out;
}

static void count_text(char *out, size_t size, size_t count, const char *what) {
  if (count == 0)
    snprintf(out, size, "no %ss", what);
  else
    snprintf(out, size, "%zu %s%s", count, what, count == 1 ? "" : "s");
}

char *nt_dump_extent(char *out, size_t size, const struct nt_dump_view *dump) {
  size_t threads = 0, python = 0, native = 0;
  char first[48], second[48], third[48];
  for (size_t i = 0; i < dump->thread_count; i++) {
    threads += dump->threads[i].kernel;
    python += dump->threads[i].python_count > 0;
    native += dump->threads[i].native_count > 0;
  }
  count_text(first, sizeof first, threads > 0 ? threads : dump->thread_count, "thread");
  count_text(second, sizeof second, python, "Python stack");
  count_text(third, sizeof third, native, "native stack");
  snprintf(out, size, "%s (%s, %s)", first, second, third);
  return out;
}

const char *nt_dump_missing_source(char *out, size_t size, const char *key) {
  if (strncmp(key, "missing.", 8) != 0 || key[8] == '\0')
    return NULL;
  nt_text_escape(out, size, key + 8);
  for (char *at = out; *at; at++)
    if (*at == '-')
      *at = ' ';
  return out;
}

uint32_t nt_dump_unfinished(const struct nt_dump_view *dump) {
  return dump->asked & ~dump->taken;
}

char *nt_dump_sections_text(char *out, size_t size, uint32_t sections) {
  size_t used = 0;
  out[0] = '\0';
  for (unsigned i = 1; i < 32 && used < size; i++)
    if (sections >> i & 1)
      used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "",
                               nt_dump_section_name(i));
  return out;
}

size_t nt_dump_print_missing(FILE *out, const struct nt_trace *trace, size_t i,
                             bool (*told)(const void *ctx, const char *key, const char *value),
                             const void *ctx) {
  const char *key, *value;
  char source[64];
  size_t count = 0;
  for (size_t k = 0; nt_trace_dump_fact_at(trace, i, k, &key, &value); k++) {
    if (nt_dump_missing_source(source, sizeof source, key) == NULL)
      continue;
    fprintf(out, "%s%s (", count++ > 0 ? ", " : "", source);
    nt_text_escape_print(out, told != NULL && told(ctx, key, value) ? "as above" : value);
    fputc(')', out);
  }
  return count;
}

bool nt_is_other_oom(const char *line, int64_t ran_s, const uint32_t *pids, size_t pid_count) {
  static const char *const before[] = {"Killed process ", ",pid="};
  if (strstr(line, "oom-kill:") == NULL && strstr(line, "ut of memory:") == NULL &&
      strstr(line, "Killed process") == NULL)
    return false;
  if ((int64_t)(strtoull(line, NULL, 10) & INT64_MAX) > ran_s)
    return true;
  if (strstr(line, "Out of memory:") != NULL || strstr(line, "CONSTRAINT_NONE") != NULL ||
      strstr(line, "global_oom") != NULL)
    return false; /* of the machine */
  for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
    const char *at = strstr(line, before[i]);
    const unsigned long pid = at != NULL ? strtoul(at + strlen(before[i]), NULL, 10) : 0;
    for (size_t k = 0; k < pid_count; k++)
      if (pid != 0 && pid == pids[k])
        return false;
  }
  return true;
}
