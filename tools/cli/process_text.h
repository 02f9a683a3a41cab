/* SPDX-License-Identifier: Apache-2.0 */
/* What became of a process, in words. Pure functions; nothing of a trace's own text is in them. */
#ifndef NT_PROCESS_TEXT_H
#define NT_PROCESS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/reader.h"

#define NT_FATE_TEXT 200

/* What tells that the kernel's out-of-memory killer ended a process that vanished. */
enum nt_oom_proof {
  NT_OOM_NONE,
  NT_OOM_LIKELY,  /* the count rose, but more than one process vanished, or it is the machine's */
  NT_OOM_COUNTED, /* the count of its cgroup rose as it vanished */
  NT_OOM_LOGGED,  /* the kernel's log names it */
};

struct nt_fate_facts {
  enum nt_process_state state;
  uint32_t phase; /* NT_PHASE_* */
  int exit_code;
  int64_t exit_ns, seen_ns; /* exit was called; as of when this is known */
  enum nt_oom_proof oom;
  bool oom_machine; /* it is the machine's count */
  uint64_t oom_from,
      oom_to; /* LIKELY, COUNTED: what had been counted before and after; from may be unknown */
  int64_t stood_ns; /* VANISHED: for so long it was stopped when it was killed */
};

/* "running", "exited", "ending", "replaced" …: one word for each state. */
const char *nt_process_state_text(enum nt_process_state state);

/* "running", "exited with code 1", "ending: exit(0) was called 41 s ago and has not finished", "killed by the
 * out-of-memory killer (its cgroup's count rose from 0 to 1)" …: stands behind "rank 2 is" or "rank 2: ". */
char *nt_fate_text(char *out, size_t size, const struct nt_fate_facts *fate);

/* What a living process is in the middle of that nobody comes back from: "is ending: exit(0) was called …",
 * "its Python interpreter is being finalized"; "" if nothing of the kind. */
char *nt_fate_now(char *out, size_t size, const struct nt_fate_facts *fate);

/* The same facts of a process whose trace is open; without what others noted of it. */
struct nt_fate_facts nt_fate_of(const struct nt_process_info *info);

#endif
