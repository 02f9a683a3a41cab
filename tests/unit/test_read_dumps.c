/* SPDX-License-Identifier: Apache-2.0 */
/* Dumps on their way through the spool and the file, and back out of both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trace/bytes.h"
#include "trace/format.h"
#include "trace/read_dumps.h"
#include "trace_fixture.h"

enum { BEGAN = 1000, TAKEN = 2000, MAIN = 100 };

static void begin_section(struct nt_buffer *out, uint32_t number, enum nt_dump_section section) {
  const struct nt_dump_head head = {.number = number,
                                    .reason = NT_DUMP_REQUESTED,
                                    .section = section,
                                    .asked = 1u << NT_DUMP_THREADS | 1u << NT_DUMP_PYTHON |
                                             1u << NT_DUMP_HARDWARE,
                                    .began_ns = BEGAN * number,
                                    .taken_ns = TAKEN * number + section};
  memset(out, 0, sizeof *out);
  nt_dump_add_head(out, &head);
}

static void add_thread(struct nt_buffer *out, uint32_t tid, const char *name, uint8_t flags) {
  struct nt_dump_thread_facts thread = {.tid = tid,
                                        .state = 'S',
                                        .flags = flags,
                                        .cpu_ns = 5,
                                        .syscall = 0,
                                        .args = {7, 0x1000, 4096}};
  snprintf(thread.name, sizeof thread.name, "%s", name);
  snprintf(thread.wait, sizeof thread.wait, "pipe_read");
  nt_dump_add_thread(out, &thread);
}

static void add_stack(struct nt_buffer *out, uint32_t tid, enum nt_dump_stack_kind kind,
                      uint16_t flags) {
  const struct nt_dump_frame frames[] = {
      {.at = 41, .file = "data.py", .file_length = 7, .name = "load", .name_length = 4},
      {.at = 12, .file = "", .file_length = 0, .name = NULL, .name_length = 0},
      {.at = 3, .file = "train.py....", .file_length = 8, .name = "mainXX", .name_length = 4}};
  nt_dump_add_stack(out, tid, kind, flags, frames, 3);
}

static void put(struct fixture *f, struct nt_buffer *section) {
  assert_false(section->failed);
  assert_int_equal(nt_drain_dump(f->drain, section), 0);
  free(section->data);
}

/* Threads 100 (main), 7 and 9; Python stacks of 100 and 5. */
static void put_dump(struct fixture *f, uint32_t number) {
  struct nt_buffer section;
  begin_section(&section, number, NT_DUMP_THREADS);
  add_thread(&section, 9, "late", 0);
  add_thread(&section, 7, "sixteen bytes ok", NT_DUMP_THREAD_OURS);
  add_thread(&section, MAIN, "python3", NT_DUMP_THREAD_MAIN);
  nt_dump_add_fact(&section, "threads", "%d", 3);
  nt_dump_add_fact(&section, "missing.syscall", "a=b\nc");
  put(f, &section);
  begin_section(&section, number, NT_DUMP_PYTHON);
  add_stack(&section, MAIN, NT_DUMP_STACK_PYTHON, 0);
  add_stack(&section, 5, NT_DUMP_STACK_PYTHON, NT_DUMP_STACK_CUT);
  add_stack(&section, 9, NT_DUMP_STACK_NATIVE, 0);
  put(f, &section);
}

static void begin(struct fixture *f) {
  fixture_begin(f);
  fixture_area(f, 1 << 20);
  fixture_drain(f, 8 << 20);
}

static struct nt_trace *open_trace(struct fixture *f, const char *suffix, unsigned flags,
                                   size_t warnings) {
  char path[700];
  struct nt_trace *trace;
  struct nt_error err;
  assert_true(fixture_find(suffix[1] == 'a' ? f->areas : f->files, suffix, path, sizeof path));
  assert_int_equal(nt_trace_open(path, flags, &trace, &err), 0);
  for (size_t i = warnings; i < nt_trace_warning_count(trace); i++)
    print_message("warning: %s\n", nt_trace_warning_at(trace, i));
  assert_int_equal(nt_trace_warning_count(trace), warnings);
  return trace;
}

static void expect_threads(const struct nt_dump_view *dump) {
  static const uint32_t order[] = {MAIN, 5, 7, 9};
  assert_int_equal(dump->thread_count, 4);
  for (size_t i = 0; i < 4; i++) {
    assert_int_equal(dump->threads[i].tid, order[i]);
    assert_int_equal(dump->threads[i].kernel, order[i] != 5);
    assert_int_equal(dump->threads[i].python_count, i < 2 ? 3 : 0);
    assert_int_equal(dump->threads[i].native_count, i == 3 ? 3 : 0);
  }
  const struct nt_dump_thread *main_thread = &dump->threads[0], *stack_only = &dump->threads[1];
  assert_string_equal(main_thread->name, "python3");
  assert_string_equal(main_thread->wait, "pipe_read");
  assert_int_equal(main_thread->state, 'S');
  assert_int_equal(main_thread->flags, NT_DUMP_THREAD_MAIN);
  assert_int_equal(main_thread->syscall, 0);
  assert_int_equal(main_thread->args[2], 4096);
  assert_string_equal(main_thread->python[0].file, "data.py");
  assert_string_equal(main_thread->python[0].function, "load");
  assert_int_equal(main_thread->python[0].line, 41);
  assert_null(main_thread->python[0].build_id);
  assert_string_equal(main_thread->python[1].file, "");
  assert_string_equal(main_thread->python[2].file, "train.py");
  assert_string_equal(main_thread->python[2].function, "main");
  assert_false(main_thread->python_cut);
  assert_true(stack_only->python_cut);
  assert_int_equal(stack_only->syscall, NT_SYSCALL_UNKNOWN);
  assert_string_equal(dump->threads[2].name, "sixteen bytes o");
  assert_int_equal(dump->threads[3].native[0].offset, 41);
  assert_string_equal(dump->threads[3].native[0].build_id, "load");
}

/* The dump that put_dump makes, as the i-th of the trace. */
static void expect_dump(const struct nt_trace *trace, size_t i, uint32_t number) {
  const struct nt_dump_view *dump = nt_trace_dump_at(trace, i);
  const char *key, *value;
  assert_non_null(dump);
  assert_int_equal(dump->number, number);
  assert_int_equal(dump->reason, NT_DUMP_REQUESTED);
  assert_int_equal(dump->taken, 1u << NT_DUMP_THREADS | 1u << NT_DUMP_PYTHON);
  assert_int_equal(dump->asked & ~dump->taken, 1u << NT_DUMP_HARDWARE);
  assert_int_equal(dump->began_ns, BEGAN * number);
  assert_int_equal(dump->taken_ns, TAKEN * number + NT_DUMP_PYTHON);
  expect_threads(dump);
  assert_int_equal(dump->fact_count, 2);
  assert_true(nt_trace_dump_fact_at(trace, i, 1, &key, &value));
  assert_string_equal(key, "missing.syscall");
  assert_string_equal(value, "a=b c");
  assert_false(nt_trace_dump_fact_at(trace, i, 2, &key, &value));
}

static void dumps_come_back_from_the_file(void **state) {
  (void)state;
  struct fixture f;
  begin(&f);
  put_dump(&f, 1);
  put_dump(&f, 2);
  nt_drain_tick(f.drain, NT_DRAIN_FLUSH);
  struct nt_trace *trace = open_trace(&f, ".trace", NT_OPEN_NO_AREA, 0);
  assert_int_equal(nt_trace_dump_count(trace), 2);
  expect_dump(trace, 0, 1);
  expect_dump(trace, 1, 2);
  assert_null(nt_trace_dump_at(trace, 2));
  nt_trace_close(trace);
  fixture_end(&f);
}

static void dumps_in_the_spool_alone_are_found(void **state) {
  (void)state;
  struct fixture f;
  begin(&f);
  put_dump(&f, 1);
  assert_true(atomic_load(&f.area.header->spool_used) > 0);
  struct nt_trace *trace = open_trace(&f, ".area", 0, 0);
  assert_int_equal(nt_trace_dump_count(trace), 1);
  expect_dump(trace, 0, 1);
  nt_trace_close(trace);
  fixture_end(&f);
}

static void a_section_in_file_and_spool_counts_once(void **state) {
  (void)state;
  struct fixture f;
  begin(&f);
  put_dump(&f, 1);
  uint32_t used = atomic_load(&f.area.header->spool_used);
  unsigned char *copy = malloc(used);
  memcpy(copy, f.area.spool, used);
  nt_drain_tick(f.drain, NT_DRAIN_FLUSH);
  assert_int_equal(atomic_load(&f.area.header->spool_used), 0);
  memcpy(f.area.spool, copy, used);
  atomic_store(&f.area.header->spool_used, used);
  free(copy);
  struct nt_trace *trace = open_trace(&f, ".trace", 0, 0);
  assert_int_equal(nt_trace_dump_count(trace), 1);
  expect_dump(trace, 0, 1);
  nt_trace_close(trace);
  fixture_end(&f);
}

static void sections_may_come_apart_in_file_and_spool(void **state) {
  (void)state;
  struct fixture f;
  struct nt_buffer section;
  begin(&f);
  begin_section(&section, 4, NT_DUMP_PYTHON);
  add_stack(&section, MAIN, NT_DUMP_STACK_PYTHON, 0);
  put(&f, &section);
  nt_drain_tick(f.drain, NT_DRAIN_FLUSH);
  begin_section(&section, 4, NT_DUMP_THREADS);
  add_thread(&section, MAIN, "python3", NT_DUMP_THREAD_MAIN);
  put(&f, &section);
  struct nt_trace *trace = open_trace(&f, ".trace", 0, 0);
  const struct nt_dump_view *dump = nt_trace_dump_at(trace, 0);
  assert_int_equal(nt_trace_dump_count(trace), 1);
  assert_int_equal(dump->thread_count, 1);
  assert_true(dump->threads[0].kernel);
  assert_int_equal(dump->threads[0].python_count, 3);
  nt_trace_close(trace);
  fixture_end(&f);
}

/* A section 3 of dump 1 whose stack claims more frames than there are. */
static void a_damaged_section_costs_only_itself(void **state) {
  (void)state;
  struct fixture f;
  struct nt_buffer section;
  begin(&f);
  begin_section(&section, 1, NT_DUMP_THREADS);
  add_thread(&section, MAIN, "python3", NT_DUMP_THREAD_MAIN);
  put(&f, &section);
  begin_section(&section, 1, NT_DUMP_PYTHON);
  const size_t at = section.length + NT_ENTRY_HEAD;
  add_stack(&section, MAIN, NT_DUMP_STACK_PYTHON, 0);
  nt_put_u32(section.data + at + NT_DUMP_STACK_COUNT, 4);
  put(&f, &section);
  begin_section(&section, 1, NT_DUMP_HARDWARE);
  nt_dump_add_fact(&section, "nvml.version", "1");
  put(&f, &section);
  nt_drain_tick(f.drain, NT_DRAIN_FLUSH);
  struct nt_trace *trace = open_trace(&f, ".trace", NT_OPEN_NO_AREA, 1);
  const char *warning = nt_trace_warning_at(trace, 0);
  unsigned long long byte;
  assert_int_equal(sscanf(warning, "byte %llu of segment 1: ", &byte), 1);
  assert_non_null(strstr(warning, ": section 3 of dump 1 damaged"));
  const struct nt_dump_view *dump = nt_trace_dump_at(trace, 0);
  assert_int_equal(dump->taken, 1u << NT_DUMP_THREADS | 1u << NT_DUMP_HARDWARE);
  assert_int_equal(dump->threads[0].python_count, 0);
  assert_int_equal(dump->fact_count, 1);
  nt_trace_close(trace);
  fixture_end(&f);
}

static void the_newest_dumps_are_kept(void **state) {
  (void)state;
  struct fixture f;
  begin(&f);
  for (uint32_t number = 1; number <= NT_DUMPS_MAX + 3; number++)
    put_dump(&f, number);
  nt_drain_tick(f.drain, NT_DRAIN_FLUSH);
  struct nt_trace *trace = open_trace(&f, ".trace", NT_OPEN_NO_AREA, 1);
  assert_int_equal(nt_trace_dump_count(trace), NT_DUMPS_MAX);
  expect_dump(trace, 0, 4);
  expect_dump(trace, NT_DUMPS_MAX - 1, NT_DUMPS_MAX + 3);
  nt_trace_close(trace);
  fixture_end(&f);
}

static void take(struct nt_known_dumps *dumps, struct nt_buffer *section, int expected) {
  uint32_t number, which;
  assert_int_equal(
      nt_known_dumps_take(dumps, section->data, (uint32_t)section->length, &number, &which),
      expected);
}

static void threads_and_facts_are_bounded_and_the_main_thread_stays(void **state) {
  (void)state;
  struct nt_known_dumps dumps = {0};
  struct nt_buffer section;
  begin_section(&section, 1, NT_DUMP_THREADS);
  for (uint32_t tid = 1; tid <= NT_DUMP_THREADS_MAX + 10; tid++)
    add_thread(&section, tid, "t", 0);
  add_thread(&section, 50000, "main", NT_DUMP_THREAD_MAIN);
  for (uint32_t i = 0; i < NT_DUMP_FACTS_MAX + 10; i++)
    nt_dump_add_fact(&section, "key", "%u", i);
  take(&dumps, &section, 0);
  assert_int_equal(nt_known_dumps_finish(&dumps, 1), 0);
  const struct nt_dump_view *view = &dumps.list[0]->view;
  assert_int_equal(view->thread_count, NT_DUMP_THREADS_MAX);
  assert_int_equal(view->threads[0].tid, 50000);
  assert_int_equal(view->fact_count, NT_DUMP_FACTS_MAX);
  nt_known_dumps_free(&dumps);
}

static void deep_stacks_keep_their_innermost_frames(void **state) {
  (void)state;
  struct nt_known_dumps dumps = {0};
  struct nt_buffer section;
  struct nt_dump_frame frames[NT_DUMP_FRAMES_MAX + 1];
  for (uint32_t i = 0; i <= NT_DUMP_FRAMES_MAX; i++)
    frames[i] = (struct nt_dump_frame){.at = i + 1, .file = "f.py", .file_length = 4};
  begin_section(&section, 1, NT_DUMP_PYTHON);
  nt_dump_add_stack(&section, 3, NT_DUMP_STACK_PYTHON, 0, frames, NT_DUMP_FRAMES_MAX + 1);
  take(&dumps, &section, 0);
  assert_int_equal(nt_known_dumps_finish(&dumps, 3), 0);
  const struct nt_dump_thread *thread = &dumps.list[0]->view.threads[0];
  assert_int_equal(thread->python_count, NT_DUMP_FRAMES_MAX);
  assert_int_equal(thread->python[NT_DUMP_FRAMES_MAX - 1].line, NT_DUMP_FRAMES_MAX);
  assert_true(thread->python_cut);
  assert_int_equal(thread->flags, NT_DUMP_THREAD_MAIN);
  nt_known_dumps_free(&dumps);
}

static void sections_of_later_versions_are_read_as_far_as_known(void **state) {
  (void)state;
  struct nt_known_dumps dumps = {0};
  struct nt_buffer section;
  begin_section(&section, 1, (enum nt_dump_section)30);
  nt_entry_add(&section, 999, 40);
  nt_dump_add_fact(&section, "new", "1");
  take(&dumps, &section, 0);
  begin_section(&section, 1, (enum nt_dump_section)32);
  take(&dumps, &section, -NT_ERR_CORRUPT);
  begin_section(&section, 0, NT_DUMP_THREADS);
  take(&dumps, &section, -NT_ERR_CORRUPT);
  assert_int_equal(nt_known_dumps_finish(&dumps, 1), 0);
  assert_int_equal(dumps.count, 1);
  assert_int_equal(dumps.list[0]->view.fact_count, 1);
  nt_known_dumps_free(&dumps);
}

static void damaged_sections_are_read_safely(void **state) {
  (void)state;
  for (int round = 0; round < 3000; round++) {
    struct nt_known_dumps dumps = {0};
    struct nt_buffer section;
    uint32_t number, which;
    begin_section(&section, 1, NT_DUMP_PYTHON);
    add_thread(&section, 5, "t", 0);
    add_stack(&section, 5, NT_DUMP_STACK_PYTHON, 0);
    nt_dump_add_fact(&section, "key", "value");
    for (int k = 0; k < 3; k++)
      section.data[fixture_random() % section.length] = (unsigned char)(fixture_random() % 40);
    /* An exact allocation, so that a sanitizer sees the first byte read past the end. */
    const uint32_t length = (uint32_t)(section.length - fixture_random() % 2 * 8);
    unsigned char *exact = malloc(length);
    memcpy(exact, section.data, length);
    free(section.data);
    nt_known_dumps_take(&dumps, exact, length, &number, &which);
    assert_int_equal(nt_known_dumps_finish(&dumps, 5), 0);
    nt_known_dumps_free(&dumps);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dumps_come_back_from_the_file),
      cmocka_unit_test(dumps_in_the_spool_alone_are_found),
      cmocka_unit_test(a_section_in_file_and_spool_counts_once),
      cmocka_unit_test(sections_may_come_apart_in_file_and_spool),
      cmocka_unit_test(a_damaged_section_costs_only_itself),
      cmocka_unit_test(the_newest_dumps_are_kept),
      cmocka_unit_test(threads_and_facts_are_bounded_and_the_main_thread_stays),
      cmocka_unit_test(deep_stacks_keep_their_innermost_frames),
      cmocka_unit_test(sections_of_later_versions_are_read_as_far_as_known),
      cmocka_unit_test(damaged_sections_are_read_safely),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
