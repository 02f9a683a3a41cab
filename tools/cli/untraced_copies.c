/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/untraced_copies.h"

#include <stdio.h>
#include <string.h>

enum { LIBRARIES = 16 };

static const char *look_up(const struct nt_trace *trace, const char *group, unsigned i,
                           const char *name) {
  char key[64];
  snprintf(key, sizeof key, "%s.%u.%s", group, i, name);
  return nt_trace_evidence(trace, key);
}

/* Others come by the library, so some of its calls are there. */
static bool is_called(const struct nt_trace *trace, const char *path) {
  for (unsigned i = 0; i < LIBRARIES; i++) {
    const char *called = look_up(trace, "nccl", i, "path");
    if (called != NULL && strcmp(called, path) == 0)
      return true;
  }
  return false;
}

bool nt_untraced_copy(char out[NT_UNTRACED_TEXT], const struct nt_trace *trace, unsigned i) {
  const char *copy = look_up(trace, "nccl.untraced", i, "copy");
  const char *by = look_up(trace, "nccl.untraced", i, "by");
  if (copy == NULL || by == NULL)
    return false;
  if (strcmp(copy, by) == 0)
    snprintf(
        out, NT_UNTRACED_TEXT,
        "an NCCL copy is loaded whose calls are not traced: %s; if NCCL is called inside it, the "
        "linker has bound the calls there (-Bsymbolic, or hidden symbols)",
        copy);
  else
    snprintf(out, NT_UNTRACED_TEXT,
             "an NCCL copy is loaded whose calls are not %straced: %s; %s is bound to it past "
             "libnccltrace.so, as RTLD_DEEPBIND does",
             is_called(trace, copy) ? "all " : "", copy, by);
  return true;
}

void nt_untraced_process(char out[NT_UNTRACED_TEXT], const char *path) {
  snprintf(out, NT_UNTRACED_TEXT,
           "an NCCL copy is loaded whose calls are not traced: %s; memory that NCCL shares with "
           "other processes is mapped, and no call has been seen",
           path);
}
