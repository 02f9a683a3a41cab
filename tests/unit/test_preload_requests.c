/* SPDX-License-Identifier: Apache-2.0 */
/* Requests as the helper serves them, with real dumps of the test itself; the test plays the helper. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "preload/dump_thread.h"
#include "preload/process.h"
#include "preload/requests.h"
#include "trace/clock.h"
#include "trace_fixture.h"

enum { LONGEST_S = 20 };

static struct fixture f;
static struct nt_area_header *header;

static int begin(void **state) {
  (void)state;
  fixture_begin(&f);
  fixture_area(&f, 1 << 20);
  fixture_drain(&f, 8 << 20);
  nt_process.area = f.area;
  header = nt_process.area.header;
  nt_requests_start();
  return nt_dump_start();
}

static int end(void **state) {
  struct nt_buffer *section;
  (void)state;
  while (nt_dump_running())
    nt_requests_wait(1);
  while ((section = nt_dump_take()))
    nt_dump_free(section);
  fixture_end(&f);
  return 0;
}

static void tick(struct nt_drain *drain) {
  enum nt_drain_how how = nt_requests_take(drain);
  nt_drain_tick(f.drain, how);
  nt_requests_answer(drain);
}

/* The number of the dump that answers the request. */
static uint32_t await(uint32_t mine) {
  uint32_t number = 0;
  uint64_t end_ns = nt_clock_ns(CLOCK_MONOTONIC) + LONGEST_S * UINT64_C(1000000000);
  while (!nt_area_find_answer(header, mine, &number) && nt_clock_ns(CLOCK_MONOTONIC) < end_ns) {
    nt_requests_wait(10);
    tick(f.drain);
  }
  return number;
}

static uint32_t asked_sections(uint32_t number, bool *complete) {
  struct nt_trace *trace = NULL;
  struct nt_error error;
  uint32_t asked = 0;
  assert_int_equal(nt_trace_open(f.area.path, 0, &trace, &error), 0);
  for (size_t i = 0; i < nt_trace_dump_count(trace); i++) {
    const struct nt_dump_view *dump = nt_trace_dump_at(trace, i);
    if (dump->number != number)
      continue;
    asked = dump->asked;
    *complete = dump->taken == dump->asked;
  }
  nt_trace_close(trace);
  return asked;
}

static void those_who_ask_before_a_dump_begins_share_it(void **state) {
  (void)state;
  uint32_t first = nt_area_ask(header, NT_REQUEST_DUMP);
  uint32_t second = nt_area_ask(header, NT_REQUEST_DUMP);
  assert_int_equal(await(first), 1);
  assert_int_equal(await(second), 1);
  assert_int_equal(atomic_load(&header->dumps), 1);
}

static void who_asks_while_a_dump_goes_on_gets_the_next(void **state) {
  (void)state;
  bool complete = false;
  uint32_t first = nt_area_ask(header, NT_REQUEST_DUMP);
  nt_requests_take(f.drain);
  assert_int_equal(atomic_load(&header->dumps), 1);
  uint32_t second = nt_area_ask(header, NT_REQUEST_DUMP | NT_REQUEST_NATIVE);
  assert_int_equal(await(second), 2);
  assert_int_equal(await(first), 1);
  assert_int_equal(asked_sections(1, &complete) >> NT_DUMP_NATIVE & 1, 0);
  assert_true(complete);
  assert_int_equal(asked_sections(2, &complete) >> NT_DUMP_NATIVE & 1, 1);
  assert_true(complete);
}

static void the_watchdogs_dump_answers_nobody(void **state) {
  (void)state;
  assert_int_equal(nt_requests_dump(true, 0), 1);
  uint32_t mine = nt_area_ask(header, NT_REQUEST_DUMP);
  assert_int_equal(await(mine), 2);
  bool complete = false;
  assert_int_equal(asked_sections(1, &complete) >> NT_DUMP_NATIVE & 1, 1);
}

static void a_flush_waits_for_no_dump(void **state) {
  (void)state;
  nt_area_ask(header, NT_REQUEST_DUMP);
  nt_requests_take(f.drain);
  uint32_t mine = nt_area_ask(header, NT_REQUEST_FLUSH), number;
  assert_int_equal(nt_requests_take(f.drain), NT_DRAIN_FLUSH);
  nt_requests_answer(f.drain);
  assert_true(nt_area_has_reached(atomic_load(&header->acknowledged), mine));
  assert_false(nt_area_find_answer(header, mine, &number));
}

static void an_exit_waits_for_no_dump_nor_sync(void **state) {
  (void)state;
  nt_area_ask(header, NT_REQUEST_DUMP);
  atomic_store(&header->run_state, NT_RUN_EXITING);
  nt_area_ask(header, NT_REQUEST_FLUSH);
  assert_int_equal(nt_requests_take(f.drain), NT_DRAIN_FINAL);
  nt_requests_answer(f.drain);
  /* One that hangs in its exit is dumped like any other. */
  assert_int_equal(await(nt_area_ask(header, NT_REQUEST_DUMP)), 2);
}

static void without_a_file_there_is_no_dump_and_no_wait(void **state) {
  (void)state;
  uint32_t number = 0, mine = nt_area_ask(header, NT_REQUEST_DUMP);
  tick(NULL);
  assert_true(nt_area_find_answer(header, mine, &number));
  assert_int_equal(number, NT_DUMP_NO_THREAD);
}

static void numbers_wrap(void **state) {
  (void)state;
  atomic_store(&header->request, UINT32_MAX & ~NT_REQUEST_KINDS);
  uint32_t mine = nt_area_ask(header, NT_REQUEST_DUMP);
  assert_int_equal(mine, 0);
  assert_true(nt_area_has_reached(0, UINT32_MAX >> NT_REQUEST_BITS));
  assert_false(nt_area_has_reached(UINT32_MAX >> NT_REQUEST_BITS, mine));
  assert_int_equal(await(mine), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(those_who_ask_before_a_dump_begins_share_it, begin, end),
      cmocka_unit_test_setup_teardown(who_asks_while_a_dump_goes_on_gets_the_next, begin, end),
      cmocka_unit_test_setup_teardown(the_watchdogs_dump_answers_nobody, begin, end),
      cmocka_unit_test_setup_teardown(a_flush_waits_for_no_dump, begin, end),
      cmocka_unit_test_setup_teardown(an_exit_waits_for_no_dump_nor_sync, begin, end),
      cmocka_unit_test_setup_teardown(without_a_file_there_is_no_dump_and_no_wait, begin, end),
      cmocka_unit_test_setup_teardown(numbers_wrap, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
