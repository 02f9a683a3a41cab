/* SPDX-License-Identifier: Apache-2.0 */
/* Python stacks on their way from the area into the file and back out of both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nccl/nccl_api.h"
#include "trace/bytes.h"
#include "trace/clock.h"
#include "trace/format.h"
#include "trace/python_lines.h"
#include "trace/read_stacks.h"
#include "trace/stack_frames.h"
#include "trace_fixture.h"

/* main at line 1 calls step, which is at line 10 + `at`. */
static uint32_t add_stack(struct fixture *f, int at) {
  static uint32_t program, step;
  if (atomic_load(&f->area.stacks->used) == 1) {
    program = fixture_code(f, "main", 1, 10);
    step = fixture_code(f, "step", 10, 100);
    fixture_node(f, 0, program, 0);
  }
  return fixture_node(f, 1, step, at * 2);
}

static void call(struct fixture *f, uint32_t stack, bool open) {
  const struct nt_record record = {.enter = nt_clock_ticks(NT_CLOCK_MONOTONIC),
                                   .seq = ++f->seq,
                                   .count = 1,
                                   .peer = -1,
                                   .comm = 1,
                                   .stream = 1,
                                   .stack = stack,
                                   .fn = NT_FN_AllReduce,
                                   .result = open ? NT_RESULT_OPEN : 0};
  fixture_record(f, &record);
}

static struct nt_trace *open_trace(struct fixture *f, const char *suffix, unsigned flags) {
  char path[700];
  struct nt_trace *trace;
  struct nt_error err;
  assert_true(fixture_find(suffix[1] == 'a' ? f->areas : f->files, suffix, path, sizeof path));
  assert_int_equal(nt_trace_open(path, flags, &trace, &err), 0);
  assert_int_equal(nt_trace_warning_count(trace), 0);
  return trace;
}

/* The last call's stack is the one of add_stack(…, at). */
static void expect(struct nt_trace *trace, int at, bool lines) {
  const struct nt_call *calls;
  const struct nt_stack_frame *frames;
  struct nt_error err;
  const int64_t count = nt_trace_calls(trace, &calls, &err);
  assert_true(count > 0);
  assert_int_equal(nt_trace_stack(trace, calls[count - 1].stack, &frames), 2);
  assert_string_equal(frames[0].function, "step");
  assert_string_equal(frames[0].file, "file.py");
  assert_int_equal(frames[0].line, lines ? 10 + at : 0);
  assert_string_equal(frames[1].function, "main");
  assert_int_equal(frames[1].line, lines ? 1 : 0);
  nt_trace_close(trace);
}

static void begin(struct fixture *f, uint64_t file_size) {
  fixture_begin(f);
  fixture_area(f, 3 << 20);
  fixture_drain(f, file_size);
}

static void stacks_reach_the_file_with_their_calls(void **state) {
  (void)state;
  struct fixture f;
  begin(&f, 8 << 20);
  for (int at = 0; at < 20; at++)
    call(&f, add_stack(&f, at), false);
  assert_int_equal(nt_drain_tick(f.drain, NT_DRAIN_FLUSH), 20);
  expect(open_trace(&f, ".trace", NT_OPEN_NO_AREA), 19, true);
  expect(open_trace(&f, ".trace", 0), 19, true);
  fixture_end(&f);
}

static void a_call_that_hangs_has_its_stack_in_the_file(void **state) {
  (void)state;
  struct fixture f;
  begin(&f, 8 << 20);
  call(&f, add_stack(&f, 7), true);
  assert_int_equal(nt_drain_tick(f.drain, NT_DRAIN_FLUSH), 0);
  expect(open_trace(&f, ".trace", NT_OPEN_NO_AREA), 7, true);
  fixture_end(&f);
}

static void an_area_alone_has_the_stacks(void **state) {
  (void)state;
  struct fixture f;
  begin(&f, 8 << 20);
  atomic_store(&f.area.header->ready, 1);
  call(&f, add_stack(&f, 3), false);
  expect(open_trace(&f, ".area", 0), 3, true);
  fixture_end(&f);
}

static void each_segment_defines_the_stacks_of_its_calls(void **state) {
  (void)state;
  struct fixture f;
  begin(&f, 2 << 20);
  const uint32_t stack = add_stack(&f, 5);
  for (int i = 0; i < 300; i++) {
    /* Calls that do not pack, so that segments fill. */
    for (int k = 0; k < 1000; k++) {
      call(&f, stack, false);
      struct nt_record *record = &f.writer.chunk->records[f.writer.next - 1];
      record->send = fixture_random();
      record->recv = fixture_random();
    }
    assert_true(nt_drain_tick(f.drain, NT_DRAIN_FLUSH) >= 0);
  }
  assert_true(atomic_load(&f.area.header->overwritten) > 0);
  expect(open_trace(&f, ".trace", NT_OPEN_NO_AREA), 5, true);
  fixture_end(&f);
}

static void calls_come_before_line_tables_where_room_is_short(void **state) {
  (void)state;
  struct fixture f;
  begin(&f, 8 * NT_SEGMENT_MIN);
  uint32_t stack = add_stack(&f, 0);
  for (int i = 0; i < 20; i++)
    call(&f, fixture_node(&f, 1, fixture_code(&f, "large", 1, 16 * 1024), 0), false);
  call(&f, stack, false);
  assert_int_equal(nt_drain_tick(f.drain, NT_DRAIN_FLUSH), 21);
  expect(open_trace(&f, ".trace", NT_OPEN_NO_AREA), 0, false);
  expect(open_trace(&f, ".trace", 0), 0, true);
  fixture_end(&f);
}

static void ids_without_a_meaning_have_no_stack(void **state) {
  (void)state;
  struct fixture f;
  const struct nt_stack_frame *frames;
  begin(&f, 8 << 20);
  add_stack(&f, 0);
  call(&f, 12345, false);
  call(&f, UINT32_MAX, false);
  assert_int_equal(nt_drain_tick(f.drain, NT_DRAIN_FLUSH), 2);
  struct nt_trace *trace = open_trace(&f, ".trace", 0);
  assert_int_equal(nt_trace_stack(trace, 0, &frames), 0);
  assert_int_equal(nt_trace_stack(trace, 12345, &frames), 0);
  assert_int_equal(nt_trace_stack(trace, UINT32_MAX, &frames), 0);
  nt_trace_close(trace);
  fixture_end(&f);
}

static void put_node(unsigned char *at, uint32_t id, uint32_t parent, uint32_t code) {
  memset(at, 0, NT_NODE_SIZE);
  nt_put_u32(at + NT_NODE_ID, id);
  nt_put_u32(at + NT_NODE_PARENT, parent);
  nt_put_u32(at + NT_NODE_CODE, code);
}

static void circles_end(void **state) {
  (void)state;
  struct nt_stack_table table = {0};
  const struct nt_stack_frame *frames;
  unsigned char nodes[3 * NT_NODE_SIZE];
  put_node(nodes, 5, 5, 1);
  put_node(nodes + NT_NODE_SIZE, 6, 7, 1);
  put_node(nodes + 2 * NT_NODE_SIZE, 7, 6, 1);
  assert_int_equal(nt_stack_table_nodes(&table, nodes, sizeof nodes), 0);
  assert_int_equal(nt_stack_table_get(&table, 5, &frames), 1);
  assert_string_equal(frames[0].file, "?");
  assert_int_equal(nt_stack_table_get(&table, 7, &frames), 2);
  assert_int_equal(nt_stack_table_nodes(&table, nodes, sizeof nodes - 1), -NT_ERR_CORRUPT);
  nt_stack_table_free(&table);
}

static void damaged_payloads_are_read_safely(void **state) {
  (void)state;
  for (int round = 0; round < 3000; round++) {
    struct nt_stack_table table = {0};
    const struct nt_stack_frame *frames;
    const size_t length = 8 * (fixture_random() % 30);
    unsigned char *bytes = malloc(length ? length : 1);
    for (size_t i = 0; i < length; i++)
      bytes[i] = fixture_random() % 3 ? 0 : (unsigned char)(fixture_random() % 30);
    if (length >= 8) { /* an entry to begin with */
      nt_put_u32(bytes, NT_ENTRY_CODE);
      nt_put_u32(bytes + 4, (uint32_t)(fixture_random() % (length + 20)));
    }
    nt_stack_table_codes(&table, bytes, length);
    nt_stack_table_nodes(&table, bytes, length / NT_NODE_SIZE * NT_NODE_SIZE);
    for (uint32_t id = 0; id < 30; id++)
      assert_true(nt_stack_table_get(&table, id, &frames) >= 0);
    nt_stack_table_free(&table);
    free(bytes);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(stacks_reach_the_file_with_their_calls),
      cmocka_unit_test(a_call_that_hangs_has_its_stack_in_the_file),
      cmocka_unit_test(an_area_alone_has_the_stacks),
      cmocka_unit_test(each_segment_defines_the_stacks_of_its_calls),
      cmocka_unit_test(calls_come_before_line_tables_where_room_is_short),
      cmocka_unit_test(ids_without_a_meaning_have_no_stack),
      cmocka_unit_test(circles_end),
      cmocka_unit_test(damaged_payloads_are_read_safely),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
