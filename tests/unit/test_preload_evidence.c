/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the evidence that are worked out rather than copied. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "preload/evidence_parts.h"
#include "tree_fixture.h"

static const char *root;
static char text[4096];
static struct nt_evidence_text out;

static int begin(void **state) {
  (void)state;
  root = tree_begin();
  memset(text, 0, sizeof text);
  out = (struct nt_evidence_text){text, text + sizeof text};
  return 0;
}

static int end(void **state) {
  (void)state;
  tree_end();
  return 0;
}

/* Arguments are separated by a bar. */
static void assert_script(const char *arguments, const char *script) {
  char words[256], wanted[256] = "";
  snprintf(words, sizeof words, "%s", arguments);
  const size_t length = strlen(words) + 1;
  for (size_t i = 0; i < length; i++)
    if (words[i] == '|')
      words[i] = 0;
  memset(text, 0, sizeof text);
  out.at = text;
  nt_evidence_script(&out, words, length);
  if (script)
    snprintf(wanted, sizeof wanted, "script=%s\n", script);
  assert_string_equal(text, wanted);
}

static void the_script_of_a_python_program_is_found_among_its_options(void **state) {
  (void)state;
  assert_script("python|train.py|--lr|1", "train.py");
  assert_script("/opt/conda/bin/python3.11|-u|/job/train.py", "/job/train.py");
  assert_script("python3|-W|ignore|-X|dev|-uB|train.py|-m|x", "train.py");
  assert_script("python3|-Wignore|--check-hash-based-pycs|always|train.py", "train.py");
  assert_script("python3|-um|torch.distributed.run|train.py", "-m torch.distributed.run");
  assert_script("python3|-mpdb|train.py", "-m pdb");
  assert_script("python3|-c|import torch|x", "-c");
  assert_script("python3|-c", "-c");
  assert_script("python3|-m", "-m ");
  assert_script("python3|-W", NULL);
  assert_script("python3", NULL);
  assert_script("/usr/bin/all_reduce_perf|-b|8", NULL);
}

static void a_gpu_s_index_is_its_place_among_the_driver_s(void **state) {
  (void)state;
  assert_int_equal(nt_evidence_gpu_index(root, "0000:4e:00.0"), -1);
  tree_file("/proc/driver/nvidia/gpus/0000:ca:00.0/information", "");
  tree_file("/proc/driver/nvidia/gpus/0000:1b:00.0/information", "");
  tree_file("/proc/driver/nvidia/gpus/0000:4E:00.0/information", "");
  tree_file("/proc/driver/nvidia/gpus/0001:00:00.0/information", "");
  assert_int_equal(nt_evidence_gpu_index(root, "0000:1b:00.0"), 0);
  assert_int_equal(nt_evidence_gpu_index(root, "0000:4e:00.0"), 1);
  assert_int_equal(nt_evidence_gpu_index(root, "0000:ca:00.0"), 2);
  assert_int_equal(nt_evidence_gpu_index(root, "0001:00:00.0"), 3);
  assert_int_equal(nt_evidence_gpu_index(root, "0000:99:00.0"), -1);
  assert_int_equal(nt_evidence_gpu_index(root, ""), -1);
}

static void infiniband_devices_are_listed(void **state) {
  (void)state;
  nt_evidence_infiniband(&out, root);
  assert_string_equal(text, "");
  tree_file("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  tree_file("/sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
  nt_evidence_infiniband(&out, root);
  assert_string_equal(text, "ib.mlx5_0=ACTIVE, 400 Gb/sec (4X NDR)\n");
}

static void a_start_is_told_in_utc(void **state) {
  struct timespec now, up;
  struct tm parts = {0};
  (void)state;
  nt_evidence_start(&out, 0);
  assert_string_equal(text, "");
  clock_gettime(CLOCK_REALTIME, &now);
  clock_gettime(CLOCK_BOOTTIME, &up);
  const time_t booted = now.tv_sec - up.tv_sec;
  for (uint64_t days = 0; days < 1500; days++) { /* over a leap day and ends of years */
    const uint64_t seconds = days * 86400 + 1;
    out.at = text;
    nt_evidence_start(&out, seconds * (uint64_t)sysconf(_SC_CLK_TCK));
    assert_non_null(strptime(text, "started=%Y-%m-%d %H:%M:%S UTC", &parts));
    const time_t told = timegm(&parts) - (time_t)seconds;
    assert_true(told >= booted - 2 && told <= booted + 2);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(the_script_of_a_python_program_is_found_among_its_options),
      TEST(a_gpu_s_index_is_its_place_among_the_driver_s),
      TEST(infiniband_devices_are_listed),
      TEST(a_start_is_told_in_utc),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
