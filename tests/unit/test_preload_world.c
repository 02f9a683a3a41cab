/* SPDX-License-Identifier: Apache-2.0 */
/* Who a process is by what launchers have put into its environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trace/world.h"

static struct nt_world world;

/* Reads an environment of just these, NAME=VALUE with blanks between. */
static void read_with(const char *variables) {
  char text[1024], *rest = text, *one;
  const char *output = getenv("CMOCKA_MESSAGE_OUTPUT"), *kept = output ? strdup(output) : NULL;
  clearenv();
  if (kept)
    setenv("CMOCKA_MESSAGE_OUTPUT", kept, 1);
  free((void *)(uintptr_t)kept);
  snprintf(text, sizeof text, "%s", variables);
  while ((one = strsep(&rest, " "))) {
    char *value = strchr(one, '=');
    if (!value)
      continue;
    *value++ = 0;
    setenv(one, value, 1);
  }
  memset(&world, 0x55, sizeof world);
  nt_world_read(getenv, &world);
}

static void expect(int rank, int size, int local_rank) {
  assert_int_equal(world.rank, rank);
  assert_int_equal(world.size, size);
  assert_int_equal(world.local_rank, local_rank);
}

static void each_launcher_is_understood(void **state) {
  (void)state;
  static const char *const by[] = {
      "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1",
      "PADDLE_GLOBAL_RANK=5 PADDLE_GLOBAL_SIZE=8 PADDLE_LOCAL_RANK=1",
      "OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1",
      "MV2_COMM_WORLD_RANK=5 MV2_COMM_WORLD_SIZE=8 MV2_COMM_WORLD_LOCAL_RANK=1",
      "JSM_NAMESPACE_RANK=5 JSM_NAMESPACE_SIZE=8 JSM_NAMESPACE_LOCAL_RANK=1",
      "FLUX_TASK_RANK=5 FLUX_JOB_SIZE=8 FLUX_TASK_LOCAL_ID=1",
      "PMI_RANK=5 PMI_SIZE=8 MPI_LOCALRANKID=1",
      "PMI_RANK=5 PMI_SIZE=8 PMI_LOCAL_RANK=1",
      "SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=1",
      "PMIX_RANK=5 SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=1",
  };
  for (size_t i = 0; i < sizeof by / sizeof *by; i++) {
    read_with(by[i]);
    expect(5, 8, 1);
  }
}

static void nothing_is_known_without_a_launcher(void **state) {
  (void)state;
  read_with("HOME=/root");
  expect(-1, -1, -1);
  assert_int_equal(world.restart, 0);
  assert_string_equal(world.run_id, "");
}

static void the_inner_of_two_launchers_wins(void **state) {
  (void)state;
  read_with(
      "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 RANK=9 WORLD_SIZE=16 LOCAL_RANK=1");
  expect(9, 16, 1);
  read_with("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 "
            "OMPI_COMM_WORLD_LOCAL_RANK=3");
  expect(3, 4, 3);
}

static void a_batch_script_of_slurm_launches_nothing(void **state) {
  (void)state;
  read_with("SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=16 SLURM_LOCALID=0");
  expect(-1, -1, -1);
  assert_string_equal(world.run_id, "7");
}

static void values_that_make_no_sense_are_passed_over(void **state) {
  (void)state;
  static const char *const by[] = {
      "RANK=5",
      "RANK= WORLD_SIZE=",
      "RANK=five WORLD_SIZE=8",
      "RANK=5x WORLD_SIZE=8",
      "RANK=-1 WORLD_SIZE=8",
      "RANK=8 WORLD_SIZE=8",
      "RANK=0 WORLD_SIZE=0",
      "RANK=5 WORLD_SIZE=99999999999999999999",
      "RANK=18446744073709551617 WORLD_SIZE=8",
  };
  for (size_t i = 0; i < sizeof by / sizeof *by; i++) {
    char both[256];
    read_with(by[i]);
    expect(-1, -1, -1);
    snprintf(both, sizeof both, "%s PMI_RANK=2 PMI_SIZE=3", by[i]);
    read_with(both);
    expect(2, 3, -1);
  }
  read_with("RANK=5 WORLD_SIZE=8 LOCAL_RANK=gpu TORCHELASTIC_RESTART_COUNT=-3");
  expect(5, 8, -1);
  assert_int_equal(world.restart, 0);
}

static void attempts_and_runs_are_told_apart(void **state) {
  (void)state;
  read_with("TORCHELASTIC_RESTART_COUNT=3 SLURM_RESTART_COUNT=1 TORCHELASTIC_RUN_ID=nightly "
            "SLURM_JOB_ID=7");
  assert_int_equal(world.restart, 3);
  assert_string_equal(world.run_id, "nightly");
  read_with("SLURM_RESTART_COUNT=1 SLURM_JOB_ID=7");
  assert_int_equal(world.restart, 1);
  assert_string_equal(world.run_id, "7");
  read_with("TORCHELASTIC_RUN_ID=none SLURM_JOB_ID=7");
  assert_string_equal(world.run_id, "7");
  read_with("TORCHELASTIC_RUN_ID=none");
  assert_string_equal(world.run_id, "");
}

int main(void) {
#define TEST(name) cmocka_unit_test(name)
  const struct CMUnitTest tests[] = {
      TEST(each_launcher_is_understood),
      TEST(nothing_is_known_without_a_launcher),
      TEST(the_inner_of_two_launchers_wins),
      TEST(a_batch_script_of_slurm_launches_nothing),
      TEST(values_that_make_no_sense_are_passed_over),
      TEST(attempts_and_runs_are_told_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
