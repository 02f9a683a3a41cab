/* SPDX-License-Identifier: Apache-2.0 */
/* What became of a process, word for word. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/process_text.h"

#define SECOND INT64_C(1000000000)

static void assert_words(struct nt_fate_facts fate, const char *wanted, const char *now) {
  char text[NT_FATE_TEXT];
  assert_string_equal(nt_fate_text(text, sizeof text, &fate), wanted);
  assert_string_equal(nt_fate_now(text, sizeof text, &fate), now);
}

static void every_state_has_its_words(void **state) {
  (void)state;
  assert_words((struct nt_fate_facts){.state = NT_PROCESS_RUNNING}, "running", "");
  assert_words((struct nt_fate_facts){.state = NT_PROCESS_STOPPED}, "stopped", "");
  assert_words((struct nt_fate_facts){.state = NT_PROCESS_VANISHED}, "vanished", "");
  assert_words((struct nt_fate_facts){.state = NT_PROCESS_UNKNOWN}, "unknown", "");
  assert_words((struct nt_fate_facts){.state = NT_PROCESS_EXITED, .exit_code = 143},
               "exited with code 143", "");
  assert_words((struct nt_fate_facts){.state = NT_PROCESS_REPLACED},
               "replaced by another program (exec)", "runs another program (exec)");
  assert_string_equal(nt_process_state_text((enum nt_process_state)99), "unknown");
}

static void what_nobody_comes_back_from_is_said(void **state) {
  (void)state;
  assert_words((struct nt_fate_facts){.state = NT_PROCESS_ENDING,
                                      .exit_code = 1,
                                      .exit_ns = 5 * SECOND,
                                      .seen_ns = 46 * SECOND},
               "ending: exit(1) was called 41 s ago and has not finished",
               "is ending: exit(1) was called 41 s ago and has not finished");
  assert_words((struct nt_fate_facts){.state = NT_PROCESS_RUNNING, .phase = NT_PHASE_PYTHON_ENDS},
               "running, its Python interpreter is being finalized",
               "its Python interpreter is being finalized");
  assert_words((struct nt_fate_facts){.state = NT_PROCESS_EXITED,
                                      .exit_code = 1,
                                      .exit_ns = 5 * SECOND,
                                      .seen_ns = 46 * SECOND},
               "exited with code 1, still there 41 s after exit was called", "");
  assert_words((struct nt_fate_facts){.state = NT_PROCESS_VANISHED, .phase = NT_PHASE_PYTHON_ENDS},
               "vanished while its Python interpreter was being finalized", "");
  /* It is over. */
  assert_words((struct nt_fate_facts){.state = NT_PROCESS_EXITED, .phase = NT_PHASE_PYTHON_ENDS},
               "exited with code 0", "");
}

static void a_kill_for_lack_of_memory_says_how_it_is_known(void **state) {
  (void)state;
  struct nt_fate_facts fate = {
      .state = NT_PROCESS_VANISHED, .oom = NT_OOM_COUNTED, .oom_from = 0, .oom_to = 1};
  assert_words(fate, "killed by the out-of-memory killer (its cgroup's count rose from 0 to 1)",
               "");
  fate.oom = NT_OOM_LIKELY;
  assert_words(
      fate,
      "vanished, likely killed by the out-of-memory killer (its cgroup's count rose from 0 to 1)",
      "");
  fate.oom_machine = true;
  fate.oom_from = NT_OOM_UNKNOWN;
  assert_words(
      fate, "vanished, likely killed by the out-of-memory killer (the machine's count rose to 1)",
      "");
  fate.oom = NT_OOM_LOGGED;
  assert_words(fate, "killed by the out-of-memory killer (the kernel's log names it)", "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_state_has_its_words),
      cmocka_unit_test(what_nobody_comes_back_from_is_said),
      cmocka_unit_test(a_kill_for_lack_of_memory_says_how_it_is_known),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
