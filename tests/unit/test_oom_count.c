/* SPDX-License-Identifier: Apache-2.0 */
/* Out-of-memory kills as cgroups count them, and how a process that is gone is told from its cgroup's count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "trace/area.h"
#include "trace/oom_count.h"
#include "tree_fixture.h"

static char group[200];

static const char *in_group(const char *file, const char *text) {
  tree_file(file, text);
  return group;
}

static int begin(void **state) {
  (void)state;
  snprintf(group, sizeof group, "%s/group", tree_begin());
  return 0;
}

static int end(void **state) {
  (void)state;
  tree_end();
  return 0;
}

static void version_2_counts_in_memory_events(void **state) {
  (void)state;
  in_group("/group/memory.events", "low 0\nhigh 9\nmax 8\noom 7\noom_kill 3\noom_group_kill 1\n");
  assert_int_equal(nt_oom_count(group), 3);
}

static void version_1_counts_in_oom_control(void **state) {
  (void)state;
  in_group("/group/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 12\n");
  assert_int_equal(nt_oom_count(group), 12);
}

static void what_does_not_count_is_unknown(void **state) {
  (void)state;
  assert_true(nt_oom_count("/nowhere/at/all") == NT_OOM_UNKNOWN);
  in_group("/group/memory.events", "oom 4\noom_kill_disable 0\noom_kill much\n");
  assert_true(nt_oom_count(group) == NT_OOM_UNKNOWN);
}

static void an_early_kernel_without_the_count_is_unknown(void **state) {
  (void)state;
  in_group("/group/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n");
  assert_true(nt_oom_count(group) == NT_OOM_UNKNOWN);
}

static void the_machine_as_a_whole_counts_too(void **state) {
  (void)state;
  assert_true(nt_oom_count(NULL) != NT_OOM_UNKNOWN);
}

static void another_cgroup_at_the_same_place_is_not_asked(void **state) {
  (void)state;
  struct stat found;
  in_group("/group/memory.events", "oom_kill 3\n");
  assert_int_equal(stat(group, &found), 0);
  assert_int_equal(nt_oom_count_of(group, found.st_ino), 3);
  assert_true(nt_oom_count_of(group, found.st_ino + 1) == NT_OOM_UNKNOWN);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(version_2_counts_in_memory_events, begin, end),
      cmocka_unit_test_setup_teardown(version_1_counts_in_oom_control, begin, end),
      cmocka_unit_test_setup_teardown(what_does_not_count_is_unknown, begin, end),
      cmocka_unit_test_setup_teardown(an_early_kernel_without_the_count_is_unknown, begin, end),
      cmocka_unit_test_setup_teardown(the_machine_as_a_whole_counts_too, begin, end),
      cmocka_unit_test_setup_teardown(another_cgroup_at_the_same_place_is_not_asked, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
