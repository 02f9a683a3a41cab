/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/process_text.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli/text.h"

#define LINGERED_NS INT64_C(2000000000)

static const char finalizing[] = "its Python interpreter is being finalized";

const char *nt_process_state_text(enum nt_process_state state) {
  static const char *const words[] = {
      [NT_PROCESS_UNKNOWN] = "unknown",   [NT_PROCESS_RUNNING] = "running",
      [NT_PROCESS_STOPPED] = "stopped",   [NT_PROCESS_EXITED] = "exited",
      [NT_PROCESS_VANISHED] = "vanished", [NT_PROCESS_ENDING] = "ending",
      [NT_PROCESS_REPLACED] = "replaced",
  };
  const size_t index = (size_t)state;
  return index < sizeof words / sizeof words[0] ? words[index] : "unknown";
}

static void oom_text(char *out, size_t size, const struct nt_fate_facts *fate) {
  char before[32] = "";
  if (fate->oom == NT_OOM_LOGGED) {
    snprintf(out, size, "killed by the out-of-memory killer (the kernel's log names it)");
    return;
  }
  if (fate->oom_from != NT_OOM_UNKNOWN)
    snprintf(before, sizeof before, " from %" PRIu64, fate->oom_from);
  snprintf(out, size, "%skilled by the out-of-memory killer (%s count rose%s to %" PRIu64 ")",
           fate->oom == NT_OOM_LIKELY ? "vanished, likely " : "",
           fate->oom_machine ? "the machine's" : "its cgroup's", before, fate->oom_to);
}

static void ending_text(char *out, size_t size, const struct nt_fate_facts *fate) {
  char ago[NT_DURATION_TEXT];
  const int64_t since = fate->seen_ns - fate->exit_ns;
  snprintf(out, size, "ending: exit(%d) was called %s ago and has not finished", fate->exit_code,
           nt_duration_text(ago, since > 0 ? since : 0));
}

/* Handlers took long, or it was killed in them. */
static void exited_text(char *out, size_t size, const struct nt_fate_facts *fate) {
  char after[NT_DURATION_TEXT];
  const int64_t lingered = fate->exit_ns ? fate->seen_ns - fate->exit_ns : 0;
  if (lingered > LINGERED_NS)
    snprintf(out, size, "exited with code %d, still there %s after exit was called",
             fate->exit_code, nt_duration_text(after, lingered));
  else
    snprintf(out, size, "exited with code %d", fate->exit_code);
}

char *nt_fate_text(char *out, size_t size, const struct nt_fate_facts *fate) {
  const char *word = nt_process_state_text(fate->state);
  const bool ends = fate->phase & NT_PHASE_PYTHON_ENDS;
  char stood[NT_DURATION_TEXT];
  switch (fate->state) {
  case NT_PROCESS_EXITED:
    exited_text(out, size, fate);
    break;
  case NT_PROCESS_ENDING:
    ending_text(out, size, fate);
    break;
  case NT_PROCESS_REPLACED:
    snprintf(out, size, "replaced by another program (exec)");
    break;
  case NT_PROCESS_VANISHED:
    if (fate->stood_ns)
      snprintf(out, size, "stopped for %s when it was killed",
               nt_duration_text(stood, fate->stood_ns));
    else if (fate->oom == NT_OOM_NONE)
      snprintf(out, size, "%s%s", word,
               ends ? " while its Python interpreter was being finalized" : "");
    else
      oom_text(out, size, fate);
    break;
  default:
    snprintf(out, size, "%s%s%s", word, ends ? ", " : "", ends ? finalizing : "");
  }
  return out;
}

char *nt_fate_now(char *out, size_t size, const struct nt_fate_facts *fate) {
  char ending[NT_FATE_TEXT];
  out[0] = '\0';
  if (fate->state == NT_PROCESS_ENDING) {
    ending_text(ending, sizeof ending, fate);
    snprintf(out, size, "is %s", ending);
  } else if (fate->phase & NT_PHASE_PYTHON_ENDS &&
             (fate->state == NT_PROCESS_RUNNING || fate->state == NT_PROCESS_STOPPED)) {
    snprintf(out, size, "%s", finalizing);
  } else if (fate->state == NT_PROCESS_REPLACED) {
    snprintf(out, size, "runs another program (exec)");
  }
  return out;
}

struct nt_fate_facts nt_fate_of(const struct nt_process_info *info) {
  struct nt_fate_facts fate = {.state = info->state,
                               .phase = info->phase,
                               .exit_code = info->exit_code,
                               .exit_ns = info->exit_ns,
                               .seen_ns = info->seen_ns,
                               .oom_machine = info->oom_machine,
                               .oom_from = info->oom_kills,
                               .oom_to = info->oom_now};
  if (info->state == NT_PROCESS_VANISHED && info->oom_kills != NT_OOM_UNKNOWN &&
      info->oom_now != NT_OOM_UNKNOWN && info->oom_now > info->oom_kills)
    fate.oom = info->oom_machine ? NT_OOM_LIKELY : NT_OOM_COUNTED;
  return fate;
}
