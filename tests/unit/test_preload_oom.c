/* SPDX-License-Identifier: Apache-2.0 */
/* What an observer makes of the cgroup of a process that is gone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "preload/oom.h"
#include "tree_fixture.h"

static struct nt_area area;
static char group[200];

/* `inode_off`: 0 for the directory's own. */
static void tell(uint64_t inode_off) {
  struct stat found;
  assert_int_equal(stat(group, &found), 0);
  const int length = snprintf(area.evidence, area.header->evidence_size,
                              "host=here\ncgroup.memory=%s\ncgroup.memory.inode=%llu\ncpus=4\n",
                              group, (unsigned long long)(found.st_ino + inode_off));
  atomic_store(&area.header->evidence_length, (uint32_t)length);
}

static int begin(void **state) {
  (void)state;
  snprintf(group, sizeof group, "%s/group", tree_begin());
  tree_file("/group/memory.events", "oom_kill 2\n");
  assert_int_equal(nt_area_create(NULL, 512 << 10, &area), 0);
  tell(0);
  return 0;
}

static int end(void **state) {
  (void)state;
  nt_area_close(&area);
  tree_end();
  return 0;
}

static void a_count_that_rose_since_the_last_sample_is_told(void **state) {
  (void)state;
  nt_oom_sample(&area);
  assert_int_equal(area.header->oom_kills, 2);
  assert_int_equal(nt_oom_risen(&area), 0);
  tree_file("/group/memory.events", "oom_kill 5\n");
  assert_int_equal(nt_oom_risen(&area), 3);
}

static void without_a_sample_nothing_is_told(void **state) {
  (void)state;
  assert_true(area.header->oom_kills == NT_OOM_UNKNOWN);
  assert_int_equal(nt_oom_risen(&area), 0);
}

static void the_cgroup_of_another_container_tells_nothing(void **state) {
  (void)state;
  nt_oom_sample(&area);
  tree_file("/group/memory.events", "oom_kill 5\n");
  tell(1);
  assert_int_equal(nt_oom_risen(&area), 0);
}

static void evidence_that_is_being_written_tells_nothing(void **state) {
  (void)state;
  nt_oom_sample(&area);
  tree_file("/group/memory.events", "oom_kill 5\n");
  atomic_store(&area.header->evidence_length, 0);
  assert_int_equal(nt_oom_risen(&area), 0);
}

static void damaged_evidence_tells_nothing(void **state) {
  (void)state;
  nt_oom_sample(&area);
  atomic_store(&area.header->evidence_length, area.header->evidence_size + 1);
  assert_int_equal(nt_oom_risen(&area), 0);
  memset(area.evidence, 'x', area.header->evidence_size);
  memcpy(area.evidence, "cgroup.memory=", 14);
  atomic_store(&area.header->evidence_length, area.header->evidence_size);
  nt_oom_risen(&area); /* reads within its bounds */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_count_that_rose_since_the_last_sample_is_told, begin, end),
      cmocka_unit_test_setup_teardown(without_a_sample_nothing_is_told, begin, end),
      cmocka_unit_test_setup_teardown(the_cgroup_of_another_container_tells_nothing, begin, end),
      cmocka_unit_test_setup_teardown(evidence_that_is_being_written_tells_nothing, begin, end),
      cmocka_unit_test_setup_teardown(damaged_evidence_tells_nothing, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
