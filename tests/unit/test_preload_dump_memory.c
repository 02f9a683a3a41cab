/* SPDX-License-Identifier: Apache-2.0 */
/* The section on memory: the process, its control groups, the machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "emulated.h"
#include "fact_fixture.h"
#include "preload/dump_parts.h"
#include "preload/dump_thread.h"
#include "tree_fixture.h"

#define V2 "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1(name) "3 31 0:3 / /sys/fs/cgroup/" name " rw,relatime - cgroup cgroup rw," name "\n"

static const char *root;
static struct nt_buffer facts;

static int begin(void **state) {
  (void)state;
  root = tree_begin();
  return 0;
}

static int end(void **state) {
  (void)state;
  tree_end();
  fact_clear(&facts);
  return 0;
}

static void sizes_of_the_process_are_bytes(void **state) {
  (void)state;
  tree_file("/proc/self/status", "Name:\tpython\nFDSize:\t256\nVmHWM:\t    2048 kB\n"
                                 "VmRSS:\t    1024 kB\nVmSwap:\t 0 kB\nThreads:\t7\n");
  tree_file("/proc/self/fd/0", "");
  tree_file("/proc/self/fd/1", "");
  tree_file("/proc/self/fd/5", "");
  nt_dump_process_memory(&facts, root);
  assert_fact(&facts, "process.rss", "1048576");
  assert_fact(&facts, "process.rss.peak", "2097152");
  assert_fact(&facts, "process.swap", "0");
  assert_fact(&facts, "process.threads", "7");
  assert_fact(&facts, "process.descriptors.table", "256");
  assert_fact(&facts, "process.descriptors", "3");
  assert_no_fact(&facts, "process.locked");
  assert_no_fact(&facts, "missing.process");
}

static void the_machine_s_memory_load_and_pressure_are_told(void **state) {
  (void)state;
  tree_file("/proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 500 kB\n"
                             "SwapCached: 3 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n");
  tree_file("/proc/loadavg", "1.50 0.75 0.25 2/100 4711\n");
  tree_file("/proc/pressure/memory", "some avg10=31.00 avg60=0.00 avg300=0.00 total=7\n"
                                     "full avg10=12.00 avg60=0.00 avg300=0.00 total=5\n");
  tree_file("/proc/pressure/cpu", "some avg10=2.00 avg60=0.00 avg300=0.00 total=7\n");
  tree_file("/dev/shm/x", "");
  nt_dump_machine(&facts, root);
  assert_fact(&facts, "machine.memory", "1024000");
  assert_fact(&facts, "machine.memory.available", "512000");
  assert_fact(&facts, "machine.swap", "10240");
  assert_fact(&facts, "machine.swap.free", "4096");
  assert_fact(&facts, "machine.load", "1.50 0.75 0.25 2/100 4711");
  assert_fact(&facts, "pressure.memory.full", "avg10=12.00 avg60=0.00 avg300=0.00 total=5");
  assert_fact(&facts, "pressure.cpu.some", "avg10=2.00 avg60=0.00 avg300=0.00 total=7");
  assert_non_null(fact(&facts, "missing.pressure.io"));
  assert_non_null(fact(&facts, "shm.size"));
}

static void what_cannot_be_read_is_named(void **state) {
  static const char *const keys[] = {
      "missing.process",     "missing.descriptors", "missing.machine",
      "missing.load",        "missing.shm",         "missing.cgroup.memory",
      "missing.cgroup.cpu",  "missing.cgroup.pids", "missing.pressure.memory",
      "missing.pressure.io",
  };
  (void)state;
  nt_dump_process_memory(&facts, root);
  nt_dump_cgroups(&facts, root);
  nt_dump_machine(&facts, root);
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    assert_non_null(fact(&facts, keys[i]));
}

static void the_limit_with_the_least_room_is_told(void **state) {
  char group[512];
  (void)state;
  tree_file("/proc/self/cgroup", "0::/job/step/task\n");
  tree_file("/proc/self/mountinfo", V2);
  tree_file("/sys/fs/cgroup/job/step/task/memory.current", "100\n");
  tree_file("/sys/fs/cgroup/job/step/task/memory.max", "500\n");
  tree_file("/sys/fs/cgroup/job/step/task/memory.events",
            "low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\n");
  tree_file("/sys/fs/cgroup/job/step/memory.current", "900\n");
  tree_file("/sys/fs/cgroup/job/step/memory.max", "1000\n");
  tree_file("/sys/fs/cgroup/job/memory.current", "950\n");
  tree_file("/sys/fs/cgroup/job/memory.max", "max\n");
  tree_file("/sys/fs/cgroup/job/step/task/memory.high", "max\n");
  nt_dump_cgroups(&facts, root);
  snprintf(group, sizeof group, "%s/sys/fs/cgroup/job/step", root);
  assert_fact(&facts, "cgroup.version", "2");
  assert_fact(&facts, "cgroup.memory.used", "100");
  assert_fact(&facts, "cgroup.memory.limit", "1000");
  assert_fact(&facts, "cgroup.memory.limit.used", "900");
  assert_fact(&facts, "cgroup.memory.limit.group", group);
  assert_fact(&facts, "cgroup.memory.high", "unlimited");
  assert_fact(&facts, "cgroup.memory.oom", "2");
  assert_fact(&facts, "cgroup.memory.oom_kill", "1");
  assert_fact(&facts, "cgroup.memory.refused", "9");
}

static void throttling_is_told_of_the_group_that_throttles(void **state) {
  (void)state;
  tree_file("/proc/self/cgroup", "0::/job/task\n");
  tree_file("/proc/self/mountinfo", V2);
  tree_file("/sys/fs/cgroup/job/task/cpu.max", "max 100000\n");
  tree_file("/sys/fs/cgroup/job/task/cpu.stat", "nr_periods 1\nnr_throttled 0\n");
  tree_file("/sys/fs/cgroup/job/cpu.max", "250000 100000\n");
  tree_file("/sys/fs/cgroup/job/cpu.stat",
            "nr_periods 200\nnr_throttled 50\nthrottled_usec 123456\n");
  tree_file("/sys/fs/cgroup/job/task/pids.current", "12\n");
  tree_file("/sys/fs/cgroup/job/task/pids.max", "64\n");
  nt_dump_cgroups(&facts, root);
  assert_fact(&facts, "cgroup.cpu.limit", "2.50");
  assert_fact(&facts, "cgroup.cpu.periods", "200");
  assert_fact(&facts, "cgroup.cpu.throttled", "50");
  assert_fact(&facts, "cgroup.cpu.throttled.ms", "123");
  assert_fact(&facts, "cgroup.pids.used", "12");
  assert_fact(&facts, "cgroup.pids.limit", "64");
}

static void version_1_is_read_by_its_own_files(void **state) {
  (void)state;
  tree_file("/proc/self/cgroup", "4:memory:/job/task\n3:cpu:/job\n2:pids:/\n0::/\n");
  tree_file("/proc/self/mountinfo", V1("memory") V1("cpu") V1("pids"));
  tree_file("/sys/fs/cgroup/memory/job/task/memory.usage_in_bytes", "70\n");
  tree_file("/sys/fs/cgroup/memory/job/task/memory.limit_in_bytes", "9223372036854771712\n");
  tree_file("/sys/fs/cgroup/memory/job/task/memory.failcnt", "3\n");
  tree_file("/sys/fs/cgroup/memory/job/task/memory.oom_control",
            "oom_kill_disable 0\nunder_oom 1\noom_kill 4\n");
  tree_file("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "80\n");
  tree_file("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "100\n");
  tree_file("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  tree_file("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  tree_file("/sys/fs/cgroup/cpu/job/cpu.stat",
            "nr_periods 5\nnr_throttled 1\nthrottled_time 7000000\n");
  tree_file("/sys/fs/cgroup/pids/cgroup.procs", "1\n");
  nt_dump_cgroups(&facts, root);
  assert_fact(&facts, "cgroup.version", "1");
  assert_fact(&facts, "cgroup.memory.limit", "100");
  assert_fact(&facts, "cgroup.memory.limit.used", "80");
  assert_fact(&facts, "cgroup.memory.under_oom", "1");
  assert_fact(&facts, "cgroup.memory.oom_kill", "4");
  assert_fact(&facts, "cgroup.memory.refused", "3");
  assert_fact(&facts, "cgroup.cpu.limit", "unlimited");
  assert_fact(&facts, "cgroup.cpu.throttled.ms", "7");
  assert_fact(&facts, "cgroup.pids.limit", "unlimited"); /* the outermost group has no such file */
}

static void this_process_has_memory_threads_and_descriptors(void **state) {
  SKIP_IF_EMULATED("the emulator has a thread of its own");
  (void)state;
  nt_dump_memory(&facts);
  assert_true(strtoull(fact(&facts, "process.rss"), NULL, 10) > 100000);
  assert_fact(&facts, "process.threads", "1");
  assert_true(strtoul(fact(&facts, "process.descriptors"), NULL, 10) >= 3);
  assert_true(strtoull(fact(&facts, "machine.memory"), NULL, 10) >
              strtoull(fact(&facts, "process.rss"), NULL, 10));
  assert_non_null(fact(&facts, "machine.load"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(sizes_of_the_process_are_bytes),
      TEST(the_machine_s_memory_load_and_pressure_are_told),
      TEST(what_cannot_be_read_is_named),
      TEST(the_limit_with_the_least_room_is_told),
      TEST(throttling_is_told_of_the_group_that_throttles),
      TEST(version_1_is_read_by_its_own_files),
      TEST(this_process_has_memory_threads_and_descriptors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
