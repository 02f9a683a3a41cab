/* SPDX-License-Identifier: Apache-2.0 */
/* Where the process's control groups are, in the mounts that machines and containers have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "preload/cgroup.h"
#include "tree_fixture.h"

#define MOUNT_V1(tree, point)                                                                      \
  "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"                            \
  "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"                            \
  "35 31 0:32 " tree " " point " rw,relatime shared:12 - cgroup cgroup rw,memory\n"
#define MOUNT_V2(tree, point)                                                                      \
  "30 23 0:26 " tree " " point " rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"

static const char *root;

static int begin(void **state) {
  (void)state;
  root = tree_begin();
  return 0;
}

static int end(void **state) {
  (void)state;
  tree_end();
  return 0;
}

static void describe(const char *groups, const char *mounts) {
  tree_file("/proc/self/cgroup", groups);
  tree_file("/proc/self/mountinfo", mounts);
}

static void assert_found(const char *controller, int version, const char *dir) {
  struct nt_cgroup group;
  assert_int_equal(nt_cgroup_find(root, controller, &group), 0);
  assert_int_equal(group.version, version);
  assert_string_equal(group.dir + strlen(root), dir);
}

static void version_2_is_found_by_its_path(void **state) {
  (void)state;
  describe("0::/system.slice/job.scope\n", MOUNT_V2("/", "/sys/fs/cgroup"));
  tree_file("/sys/fs/cgroup/system.slice/job.scope/memory.current", "5\n");
  assert_found("memory", 2, "/sys/fs/cgroup/system.slice/job.scope");
}

static void
a_version_2_group_without_the_controller_is_accounted_by_the_one_around_it(void **state) {
  (void)state;
  describe("0::/slurm/job_7/step_0\n", MOUNT_V2("/", "/sys/fs/cgroup"));
  tree_file("/sys/fs/cgroup/slurm/job_7/memory.current", "5\n");
  tree_file("/sys/fs/cgroup/slurm/job_7/step_0/cgroup.procs", "1\n");
  assert_found("memory", 2, "/sys/fs/cgroup/slurm/job_7");
}

static void version_1_is_found_where_its_controller_is_mounted(void **state) {
  (void)state;
  describe("5:cpu,cpuacct:/other\n4:memory:/job\n0::/user.slice\n",
           MOUNT_V1("/", "/sys/fs/cgroup/memory") MOUNT_V2("/", "/sys/fs/cgroup/unified"));
  tree_file("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5\n");
  tree_file("/sys/fs/cgroup/cpu/other/cpu.stat", "nr_throttled 5\n");
  assert_found("memory", 1, "/sys/fs/cgroup/memory/job");
  assert_found("cpu", 1, "/sys/fs/cgroup/cpu/other");
}

static void a_container_sees_its_group_as_the_mount_s_root(void **state) {
  (void)state;
  describe("4:memory:/docker/abc/inner\n", MOUNT_V1("/docker/abc", "/sys/fs/cgroup/memory"));
  tree_file("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "5\n");
  assert_found("memory", 1, "/sys/fs/cgroup/memory/inner");
  describe("4:memory:/docker/abc\n", MOUNT_V1("/docker/abc", "/sys/fs/cgroup/memory"));
  assert_found("memory", 1, "/sys/fs/cgroup/memory");
  describe("0::/../outside\n", MOUNT_V2("/", "/sys/fs/cgroup/memory"));
  assert_found("memory", 2, "/sys/fs/cgroup/memory");
}

static void blanks_in_a_mount_point_are_read(void **state) {
  (void)state;
  describe("0::/\n", MOUNT_V2("/", "/mnt/control\\040groups"));
  tree_file("/mnt/control groups/memory.current", "5\n");
  assert_found("memory", 2, "/mnt/control groups");
}

static void what_is_not_mounted_is_not_found(void **state) {
  struct nt_cgroup group;
  (void)state;
  assert_int_equal(nt_cgroup_find(root, "memory", &group), -1);
  describe("4:memory:/job\n", MOUNT_V2("/", "/sys/fs/cgroup"));
  assert_int_equal(nt_cgroup_find(root, "memory", &group), -1);
  describe("\n:\n4:memory\n0::/gone\n", "garbage\n1 2 3 4 5 - \n" MOUNT_V2("/", "/nowhere"));
  assert_int_equal(nt_cgroup_find(root, "memory", &group), -1);
}

static void the_way_up_ends_at_the_mount(void **state) {
  struct nt_cgroup group;
  (void)state;
  describe("0::/a/b\n", MOUNT_V2("/", "/sys/fs/cgroup"));
  tree_file("/sys/fs/cgroup/a/b/memory.current", "5\n");
  assert_int_equal(nt_cgroup_find(root, "memory", &group), 0);
  assert_true(nt_cgroup_up(&group));
  assert_string_equal(group.dir + strlen(root), "/sys/fs/cgroup/a");
  assert_true(nt_cgroup_up(&group));
  assert_string_equal(group.dir + strlen(root), "/sys/fs/cgroup");
  assert_false(nt_cgroup_up(&group));
}

static bool read_value(const char *file, const char *key, uint64_t *value) {
  char dir[512];
  snprintf(dir, sizeof dir, "%s/group", root);
  return nt_cgroup_read(dir, file, key, value);
}

static void numbers_are_read_alone_and_by_key(void **state) {
  uint64_t value;
  (void)state;
  tree_file("/group/memory.current", "8589934592\n");
  tree_file("/group/memory.max", "max\n");
  tree_file("/group/cpu.max", "max 100000\n");
  tree_file("/group/memory.events", "low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\noom_group_kill 5\n");
  tree_file("/group/empty", "");
  tree_file("/group/text", "word\n");
  assert_true(read_value("memory.current", NULL, &value));
  assert_int_equal(value, 8589934592);
  assert_true(read_value("memory.max", NULL, &value));
  assert_true(value == NT_CGROUP_UNLIMITED);
  assert_true(read_value("cpu.max", NULL, &value));
  assert_true(value == NT_CGROUP_UNLIMITED);
  assert_true(read_value("memory.events", "oom", &value));
  assert_int_equal(value, 3);
  assert_true(read_value("memory.events", "oom_kill", &value));
  assert_int_equal(value, 4);
  assert_false(read_value("memory.events", "kill", &value));
  assert_false(read_value("empty", NULL, &value));
  assert_false(read_value("text", NULL, &value));
  assert_false(read_value("none", NULL, &value));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(version_2_is_found_by_its_path),
      TEST(a_version_2_group_without_the_controller_is_accounted_by_the_one_around_it),
      TEST(version_1_is_found_where_its_controller_is_mounted),
      TEST(a_container_sees_its_group_as_the_mount_s_root),
      TEST(blanks_in_a_mount_point_are_read),
      TEST(what_is_not_mounted_is_not_found),
      TEST(the_way_up_ends_at_the_mount),
      TEST(numbers_are_read_alone_and_by_key),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
