/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog on an area of its own, with the clock given to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "preload/watchdog.h"
#include "trace/ring.h"

#define S UINT64_C(1000000000)

static struct nt_area area;
static uint64_t now;

static int make_area(void **state) {
  (void)state;
  assert_int_equal(nt_area_create("/nowhere/at/all", 1 << 20, &area), 0); /* a memory file */
  now = 1000 * S;
  nt_watchdog_start(0);
  return 0;
}

static int drop_area(void **state) {
  (void)state;
  nt_area_close(&area);
  return 0;
}

/* Looks twice a second for `seconds`; returns how often a dump was due, and after how many seconds first. */
static unsigned watch(unsigned seconds, unsigned *first) {
  unsigned due = 0;
  for (unsigned i = 1; i <= 2 * seconds; i++) {
    now += S / 2;
    if (nt_watchdog_look(&area, now) && !due++ && first)
      *first = i / 2;
  }
  return due;
}

static void issue_calls(unsigned count, unsigned pause) {
  for (unsigned i = 0; i < count; i++) {
    atomic_fetch_add(&area.comms[1].live.collectives, 1);
    watch(pause, NULL);
  }
}

static void set_stream(uint32_t issued, uint32_t finished) {
  atomic_store(&area.gpu_streams[3].issued, issued);
  atomic_store(&area.gpu_streams[3].finished, finished);
}

static void a_call_that_does_not_return_is_told_once_after_the_floor(void **state) {
  struct nt_ring_writer writer = {.thread = 1, .tid = 1};
  unsigned first = 0;
  (void)state;
  issue_calls(5, 1);
  assert_non_null(nt_ring_next(&area, &writer));
  nt_ring_publish(&writer);
  assert_int_equal(watch(1000, &first), 1);
  assert_in_range(first, 29, 32);
  nt_ring_close(&writer);
}

static void a_call_that_returns_in_time_is_not_told(void **state) {
  struct nt_ring_writer writer = {.thread = 1, .tid = 1};
  (void)state;
  for (unsigned i = 0; i < 20; i++) {
    assert_non_null(nt_ring_next(&area, &writer));
    nt_ring_publish(&writer);
    atomic_fetch_add(&area.comms[1].live.collectives, 1);
    assert_int_equal(watch(25, NULL), 0);
    nt_ring_close(&writer);
    assert_int_equal(watch(1, NULL), 0);
  }
}

static void a_launch_that_the_gpu_does_not_finish_is_told_though_calls_go_on(void **state) {
  (void)state;
  set_stream(8, 7);
  unsigned due = 0;
  for (unsigned i = 0; i < 60; i++) {
    atomic_fetch_add(&area.comms[1].live.collectives, 1);
    due += watch(1, NULL);
  }
  assert_int_equal(due, 1);
}

static void waits_that_the_job_has_shown_count_as_normal(void **state) {
  unsigned first = 0;
  (void)state;
  /* The first wait of 100 s is told; once it has ended by itself, the next may take several times that. */
  set_stream(1, 0);
  assert_int_equal(watch(100, &first), 1);
  set_stream(1, 1);
  watch(1, NULL);
  set_stream(2, 1);
  assert_int_equal(watch(390, NULL), 0);
  assert_int_equal(watch(30, NULL), 1);
}

static void a_new_stall_is_told_anew(void **state) {
  (void)state;
  set_stream(1, 0);
  assert_int_equal(watch(40, NULL), 1);
  set_stream(2, 1);
  assert_int_equal(watch(400, NULL), 1);
}

static void outside_nccl_the_floor_is_higher(void **state) {
  unsigned first = 0;
  (void)state;
  issue_calls(10, 1);
  assert_int_equal(watch(110, NULL), 0);
  assert_int_equal(watch(100, &first), 1);
}

static void after_an_abort_unfinished_launches_are_nothing_to_wait_for(void **state) {
  (void)state;
  set_stream(8, 7);
  atomic_store(&area.gpu_streams[3].frozen, 8);
  issue_calls(60, 1);
  assert_int_equal(watch(60, NULL), 0);
}

static void a_limit_that_is_given_counts_for_all(void **state) {
  unsigned first = 0;
  (void)state;
  nt_watchdog_start((int64_t)(5 * S));
  issue_calls(3, 1);
  assert_int_equal(watch(60, &first), 1);
  assert_in_range(first, 4, 6);
}

static void off_is_off(void **state) {
  (void)state;
  nt_watchdog_start(-1);
  set_stream(8, 7);
  assert_int_equal(watch(1000, NULL), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_area, drop_area)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_call_that_does_not_return_is_told_once_after_the_floor),
      TEST(a_call_that_returns_in_time_is_not_told),
      TEST(a_launch_that_the_gpu_does_not_finish_is_told_though_calls_go_on),
      TEST(waits_that_the_job_has_shown_count_as_normal),
      TEST(a_new_stall_is_told_anew),
      TEST(outside_nccl_the_floor_is_higher),
      TEST(after_an_abort_unfinished_launches_are_nothing_to_wait_for),
      TEST(a_limit_that_is_given_counts_for_all),
      TEST(off_is_off),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
