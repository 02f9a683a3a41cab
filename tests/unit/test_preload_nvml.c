/* SPDX-License-Identifier: Apache-2.0 */
/* NVML, from a library that answers as NVML does (tests/preload/stub_nvml.c). */
#include <dlfcn.h>
#include <libgen.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fact_fixture.h"
#include "preload/dump_parts.h"
#include "preload/own_thread.h"

static const struct nt_gpu gpus[] = {
    {.device = 0, .pci = "0000:4e:00.0"},
    {.device = 1, .pci = "0000:5f:00.0"},
    {.device = 2, .pci = "0000:aa:00.0"},
    {.device = 3},
};
static struct nt_buffer facts;
static char library[4096 + 64];
static _Atomic int *users, *hangs;
static sem_t *gate;

static int find_stub(void **state) {
  char path[4096];
  (void)state;
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  assert_true(n > 0);
  path[n] = 0;
  snprintf(library, sizeof library, "%s/../preload/libnvidia-ml-stub.so", dirname(path));
  void *stub = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  assert_non_null(stub);
  users = dlsym(stub, "stub_users");
  hangs = dlsym(stub, "stub_hangs");
  gate = dlsym(stub, "stub_gate");
  return users && hangs && gate ? 0 : -1;
}

static int clear(void **state) {
  (void)state;
  fact_clear(&facts);
  return 0;
}

static void a_gpu_s_state_is_told_as_far_as_the_version_knows_it(void **state) {
  (void)state;
  nt_dump_nvml(&facts, library, gpus, 1, 60000, nt_own_thread_start);
  assert_fact(&facts, "gpu.0.temperature", "71 C");
  assert_fact(&facts, "gpu.0.power", "312 of 700 W");
  assert_fact(&facts, "gpu.0.clocks.held_by", "hardware slowdown, thermal slowdown by hardware");
  assert_fact(&facts, "gpu.0.ecc.corrected", "40");
  assert_fact(&facts, "gpu.0.ecc.uncorrected", "2");
  assert_fact(&facts, "gpu.0.rows.remapped", "3, more at the next reset");
  assert_fact(&facts, "gpu.0.memory", "1000");
  assert_fact(&facts, "gpu.0.memory.used", "900");
  assert_fact(&facts, "gpu.0.processes", "3");
  assert_fact(&facts, "gpu.0.pcie", "generation 5 x8 of generation 5 x16");
  assert_fact(&facts, "gpu.0.nvlink", "16 of 18 links are up, without 3 7");
  assert_fact(&facts, "gpu.0.nvlink.5.crc_flit", "6");
  assert_no_fact(&facts, "gpu.0.nvlink.5.replay");
  assert_no_fact(&facts, "gpu.0.nvlink.6.crc_flit");
  /* Refused, and not there at all. */
  assert_no_fact(&facts, "gpu.0.pages.retiring");
  assert_no_fact(&facts, "gpu.0.busy");
  assert_no_fact(&facts, "gpu.0.fault");
}

static void a_lost_gpu_and_one_that_is_not_there_are_named(void **state) {
  (void)state;
  nt_dump_nvml(&facts, library, gpus, 4, 60000, nt_own_thread_start);
  assert_fact(&facts, "gpu.1.fault", "GPU is lost");
  assert_no_fact(&facts, "gpu.1.temperature");
  assert_fact(&facts, "missing.gpu.2", "NVML on 0000:aa:00.0: Not Found");
  assert_fact(&facts, "missing.gpu.3", "its PCI id is not known");
}

static void nvml_has_as_many_users_afterwards_as_before(void **state) {
  (void)state;
  *users = 1;
  nt_dump_nvml(&facts, library, gpus, 1, 60000, nt_own_thread_start);
  assert_int_equal(*users, 1);
}

static void a_driver_that_never_answers_is_told_and_not_asked_again(void **state) {
  (void)state;
  *hangs = 1;
  nt_dump_nvml(&facts, library, gpus, 1, 50, nt_own_thread_start);
  assert_fact(&facts, "missing.NVML", "it has not answered for 50 ms");
  fact_clear(&facts);
  nt_dump_nvml(&facts, library, gpus, 1, 60000, nt_own_thread_start);
  assert_fact(&facts, "missing.NVML", "it has not answered since it was asked before");
  *hangs = 0;
  sem_post(gate);
  do {
    fact_clear(&facts);
    nt_dump_nvml(&facts, library, gpus, 1, 60000, nt_own_thread_start);
  } while (fact(&facts, "missing.NVML"));
  assert_fact(&facts, "gpu.0.temperature", "71 C");
}

static void a_machine_without_nvml_or_gpus_is_told(void **state) {
  (void)state;
  nt_dump_nvml(&facts, "libnvidia-ml-that-is-nowhere.so.1", gpus, 1, 60000, nt_own_thread_start);
  assert_non_null(strstr(fact(&facts, "missing.NVML"), "libnvidia-ml-that-is-nowhere.so.1"));
  fact_clear(&facts);
  nt_dump_nvml(&facts, library, NULL, 0, 60000, nt_own_thread_start);
  assert_fact(&facts, "missing.NVML", "no GPU of this process is known");
}

#define TEST(name) cmocka_unit_test_teardown(name, clear)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_gpu_s_state_is_told_as_far_as_the_version_knows_it),
      TEST(a_lost_gpu_and_one_that_is_not_there_are_named),
      TEST(nvml_has_as_many_users_afterwards_as_before),
      TEST(a_driver_that_never_answers_is_told_and_not_asked_again),
      TEST(a_machine_without_nvml_or_gpus_is_told),
  };
  return cmocka_run_group_tests(tests, find_stub, NULL);
}
