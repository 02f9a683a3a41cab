/* SPDX-License-Identifier: Apache-2.0 */
/* Digests: what is in one, that it stands for its trace, and that it fits whatever the process did. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "nccl/nccl_api.h"
#include "trace/clock.h"
#include "trace/digest.h"
#include "trace/python_lines.h"
#include "trace_fixture.h"

static void begin(struct fixture *f, uint64_t size) {
  fixture_begin(f);
  fixture_area(f, 3 << 20);
  fixture_drain(f, size);
}

static struct nt_trace *open_one(const char *path) {
  struct nt_trace *trace;
  struct nt_error err;
  if (nt_trace_open(path, 0, &trace, &err))
    fail_msg("%s: %s", path, err.reason);
  return trace;
}

static struct nt_trace *open_area(struct fixture *f) {
  char path[700];
  assert_true(fixture_find(f->areas, ".area", path, sizeof path));
  return open_one(path);
}

/* The digest of `trace`, in a file. */
static struct nt_trace *digest(struct fixture *f, struct nt_trace *trace, uint64_t limit,
                               struct nt_digest_tally *tally) {
  struct nt_buffer bytes = {0};
  struct nt_error err = {0};
  char path[128];
  const struct nt_digest_order order = {.size = limit};
  if (nt_digest_make(trace, &order, &bytes, tally, &err))
    fail_msg("%s", err.reason);
  assert_true(bytes.length <= limit);
  snprintf(path, sizeof path, "%s/digest", f->files);
  fixture_store(path, bytes.data, bytes.length);
  free(bytes.data);
  struct nt_trace *made = open_one(path);
  for (size_t i = 0; i < nt_trace_warning_count(made); i++)
    print_message("%s\n", nt_trace_warning_at(made, i));
  assert_int_equal(nt_trace_warning_count(made), 0);
  return made;
}

static void expect_same_calls(struct nt_trace *a, struct nt_trace *b, size_t skipped) {
  const struct nt_call *x, *y;
  struct nt_error err;
  const int64_t count = nt_trace_calls(a, &x, &err), kept = nt_trace_calls(b, &y, &err);
  assert_int_equal(kept + (int64_t)skipped, count);
  x += skipped;
  for (int64_t i = 0; i < kept; i++) {
    assert_true(x[i].enter_ns - y[i].enter_ns >= 0 && x[i].enter_ns - y[i].enter_ns < 1024);
    assert_int_equal(x[i].exit_ns == 0, y[i].exit_ns == 0);
    assert_int_equal(x[i].seq, y[i].seq);
    assert_int_equal(x[i].recv, y[i].recv);
    assert_int_equal(x[i].thread, y[i].thread);
    assert_int_equal(x[i].comm, y[i].comm);
    assert_int_equal(x[i].stream, y[i].stream);
    assert_int_equal(x[i].launch, y[i].launch);
    assert_int_equal(x[i].fn, y[i].fn);
    assert_int_equal(x[i].flags, y[i].flags);
    assert_true(!i || y[i].order > y[i - 1].order);
  }
}

static void a_digest_tells_what_its_trace_tells(void **state) {
  (void)state;
  struct fixture f;
  struct nt_digest_tally tally;
  begin(&f, 8 << 20);
  fixture_calls(&f, 300);
  fixture_call(&f, true);
  struct nt_trace *trace = open_area(&f), *made = digest(&f, trace, NT_DIGEST_SIZE, &tally);
  const struct nt_process_info *is = nt_trace_process(made), *was = nt_trace_process(trace);
  expect_same_calls(trace, made, 0);
  assert_int_equal(tally.calls, 301);
  assert_int_equal(tally.left_out, 0);
  assert_int_equal(tally.lacks, 0);
  assert_true(is->digest_ns > 0);
  assert_int_equal(is->state, was->state);
  assert_int_equal(is->live, was->live);
  assert_int_equal(is->seen_ns, was->seen_ns);
  assert_int_equal(is->started_ns, was->started_ns);
  assert_int_equal(is->world_rank, 3);
  assert_string_equal(is->run_id, "test-run");
  assert_string_equal(nt_trace_evidence(made, "gpu.0.uuid"), "GPU-1");
  assert_int_equal(nt_trace_comm_at(made, 0)->collectives, 301);
  assert_int_equal(nt_trace_comm_at(made, 0)->last_enter_ns,
                   nt_trace_comm_at(trace, 0)->last_enter_ns);
  nt_trace_close(made);
  nt_trace_close(trace);
  fixture_end(&f);
}

static void a_digest_has_the_last_calls_and_counts_the_others(void **state) {
  (void)state;
  struct fixture f;
  struct nt_digest_tally tally;
  begin(&f, 8 << 20);
  for (int i = 0; i < 600; i++) {
    fixture_calls(&f, 100);
    nt_drain_tick(f.drain, NT_DRAIN_FLUSH);
  }
  fixture_call(&f, true);
  struct nt_trace *trace = open_area(&f), *made = digest(&f, trace, NT_DIGEST_MIN, &tally);
  assert_int_equal(tally.calls + tally.left_out, 60001);
  assert_true(tally.calls > 100 && tally.left_out > 100);
  expect_same_calls(trace, made, tally.left_out);
  assert_int_equal(nt_trace_process(made)->left_out, tally.left_out);
  assert_int_equal(nt_trace_process(made)->overwritten,
                   nt_trace_process(trace)->overwritten + tally.left_out);
  /* And once more: what was left out stays counted. */
  struct nt_digest_tally again;
  const uint64_t seen = (uint64_t)nt_trace_process(made)->digest_ns;
  struct nt_trace *second = digest(&f, made, NT_DIGEST_MIN, &again);
  assert_int_equal(nt_trace_process(second)->left_out, tally.left_out + again.left_out);
  assert_int_equal(nt_trace_process(second)->digest_ns, seen);
  nt_trace_close(second);
  nt_trace_close(made);
  nt_trace_close(trace);
  fixture_end(&f);
}

static void stacks_have_their_lines(void **state) {
  (void)state;
  struct fixture f;
  struct nt_digest_tally tally;
  begin(&f, 8 << 20);
  const uint32_t root = fixture_node(&f, 0, fixture_code(&f, "main", 1, 40), 0),
                 step = fixture_code(&f, "step", 10, 40);
  for (int i = 0; i < 4; i++) {
    const struct nt_record record = {.enter = nt_clock_ticks(NT_CLOCK_MONOTONIC),
                                     .seq = ++f.seq,
                                     .peer = -1,
                                     .comm = 1,
                                     .stack = fixture_node(&f, root, step, 2 * (i % 3)),
                                     .fn = NT_FN_AllReduce};
    fixture_record(&f, &record);
  }
  struct nt_trace *trace = open_area(&f), *made = digest(&f, trace, NT_DIGEST_SIZE, &tally);
  const struct nt_call *calls;
  struct nt_error err;
  assert_int_equal(nt_trace_calls(made, &calls, &err), 4);
  for (int i = 0; i < 4; i++) {
    const struct nt_stack_frame *frames;
    assert_int_equal(nt_trace_stack(made, calls[i].stack, &frames), 2);
    assert_string_equal(frames[0].file, "file.py");
    assert_string_equal(frames[0].function, "step");
    assert_int_equal(frames[0].line, 10 + i % 3);
    assert_string_equal(frames[1].function, "main");
    assert_int_equal(frames[1].line, 1);
  }
  nt_trace_close(made);
  nt_trace_close(trace);
  fixture_end(&f);
}

/* ---- the worst --------------------------------------------------------------------------------- */

enum { THREADS = 57, DEPTH = 64 };

static void fill_comms(struct fixture *f) {
  for (uint32_t slot = 1; slot < f->area.header->comm_count; slot++) {
    fixture_comm(f, slot, slot);
    struct nt_comm_slot *comm = &f->area.comms[slot];
    for (size_t i = 0; i < sizeof comm->def.id; i++)
      comm->def.id[i] = (uint8_t)fixture_random();
    comm->def.handle = fixture_random() >> 16;
    atomic_store(&comm->live.collectives, 1u << 22);
    atomic_store(&comm->live.sum, fixture_random());
    for (int j = 0; j < NT_SUM_LEVELS; j++)
      for (int k = 0; k < NT_SUM_KEPT; k++)
        atomic_store(&comm->live.sums[j][k], fixture_random());
    atomic_store(&comm->live.last_enter, nt_clock_ticks(NT_CLOCK_MONOTONIC));
  }
}

static void fill_threads(struct fixture *f) {
  struct nt_buffer section = {0};
  const struct nt_dump_head head = {.number = 1,
                                    .reason = NT_DUMP_WATCHDOG,
                                    .section = NT_DUMP_NATIVE,
                                    .asked = 1u << NT_DUMP_NATIVE,
                                    .began_ns = 1,
                                    .taken_ns = 2};
  nt_dump_add_head(&section, &head);
  for (uint32_t t = 1; t < THREADS; t++) {
    struct nt_ring_writer writer = {.thread = t + 1};
    struct nt_dump_frame frames[DEPTH];
    char texts[DEPTH][2][64];
    f->area.threads[t].index = t + 1;
    atomic_store(&f->area.threads[t].tid, 1000 + t);
    for (int i = 0; i < 250; i++) {
      const struct nt_record record = {.enter = nt_clock_ticks(NT_CLOCK_MONOTONIC),
                                       .duration = (uint32_t)fixture_random() & 0xffffff,
                                       .seq = (1u << 22) - 250u + (uint32_t)i,
                                       .count = fixture_random(),
                                       .send = fixture_random(),
                                       .recv = fixture_random(),
                                       .comm = (uint16_t)(1 + t),
                                       .stream = 1,
                                       .launch = (uint32_t)i + 1,
                                       .fn = NT_FN_AllReduce,
                                       .result = i == 249 ? NT_RESULT_OPEN : 0};
      struct nt_record *to = nt_ring_next(&f->area, &writer);
      assert_non_null(to);
      *to = record;
      nt_ring_publish(&writer);
      if (record.result != NT_RESULT_OPEN)
        nt_ring_close(&writer);
    }
    for (int i = 0; i < DEPTH; i++) {
      snprintf(texts[i][0], sizeof texts[i][0], "/opt/lib%016lx.so", (long)fixture_random());
      snprintf(texts[i][1], sizeof texts[i][1], "%016lx%016lx", (long)fixture_random(),
               (long)fixture_random());
      frames[i] = (struct nt_dump_frame){.at = fixture_random() & 0xffffff,
                                         .file = texts[i][0],
                                         .name = texts[i][1],
                                         .file_length = (uint16_t)strlen(texts[i][0]),
                                         .name_length = (uint16_t)strlen(texts[i][1])};
    }
    nt_dump_add_stack(&section, 1000 + t, NT_DUMP_STACK_NATIVE, 0, frames, DEPTH);
  }
  assert_int_equal(nt_drain_dump(f->drain, &section), 0);
  free(section.data);
}

static void the_worst_process_fits(void **state) {
  (void)state;
  struct fixture f;
  struct nt_digest_tally tally;
  begin(&f, 8 << 20);
  fill_comms(&f);
  fill_threads(&f);
  struct nt_trace *trace = open_area(&f), *made = digest(&f, trace, NT_DIGEST_SIZE, &tally);
  const struct nt_call *calls;
  struct nt_error err;
  const int64_t count = nt_trace_calls(made, &calls, &err);
  assert_int_equal(nt_trace_comm_count(made), f.area.header->comm_count - 1);
  assert_int_equal(nt_trace_comm_at(made, 9)->collectives, 1u << 22);
  assert_int_equal(nt_trace_comm_at(made, 9)->sum, nt_trace_comm_at(trace, 9)->sum);
  uint32_t open = 0;
  for (int64_t i = 0; i < count; i++)
    open += calls[i].exit_ns == 0;
  assert_int_equal(open, THREADS - 1);
  print_message("%llu calls of %llu, lacks 0x%x\n", (unsigned long long)tally.calls,
                (unsigned long long)(tally.calls + tally.left_out), tally.lacks);
  nt_trace_close(made);
  nt_trace_close(trace);
  fixture_end(&f);
}

static void dump_of(struct fixture *f, struct nt_buffer *section, const char *fact) {
  const struct nt_dump_head head = {.number = 1,
                                    .reason = NT_DUMP_REQUESTED,
                                    .section = NT_DUMP_THREADS,
                                    .asked = 1u << NT_DUMP_THREADS | 1u << NT_DUMP_NATIVE,
                                    .began_ns = 1000,
                                    .taken_ns = 2000};
  const struct nt_dump_thread_facts thread = {.tid = (uint32_t)getpid(),
                                              .state = 'S',
                                              .flags = NT_DUMP_THREAD_MAIN,
                                              .name = "python3",
                                              .wait = "pipe_read"};
  const struct nt_dump_frame frames[] = {
      {.at = 41, .file = "data.py", .file_length = 7, .name = "load", .name_length = 4},
      {.at = 3, .file = "train.py", .file_length = 8, .name = "main", .name_length = 4}};
  nt_dump_add_head(section, &head);
  nt_dump_add_thread(section, &thread);
  nt_dump_add_stack(section, thread.tid, NT_DUMP_STACK_PYTHON, NT_DUMP_STACK_CUT, frames, 2);
  nt_dump_add_fact(section, "kernel.0", "%s", fact);
  assert_int_equal(nt_drain_dump(f->drain, section), 0);
  free(section->data);
}

static void a_dump_is_whole(void **state) {
  (void)state;
  struct fixture f;
  struct nt_digest_tally tally;
  struct nt_buffer section = {0};
  const char *key, *value;
  begin(&f, 8 << 20);
  fixture_calls(&f, 3);
  dump_of(&f, &section, "1 s ago: NVRM: Xid 79");
  struct nt_trace *trace = open_area(&f), *made = digest(&f, trace, NT_DIGEST_SIZE, &tally);
  assert_int_equal(nt_trace_dump_count(made), 1);
  const struct nt_dump_view *view = nt_trace_dump_at(made, 0);
  assert_int_equal(view->number, 1);
  assert_int_equal(view->asked, 1u << NT_DUMP_THREADS | 1u << NT_DUMP_NATIVE);
  assert_int_equal(view->taken, 1u << NT_DUMP_THREADS);
  assert_int_equal(view->began_ns, 1000);
  assert_int_equal(view->thread_count, 1);
  assert_int_equal(view->threads[0].python_count, 2);
  assert_true(view->threads[0].python_cut);
  assert_string_equal(view->threads[0].python[0].file, "data.py");
  assert_int_equal(view->threads[0].python[0].line, 41);
  assert_string_equal(view->threads[0].wait, "pipe_read");
  assert_true(nt_trace_dump_fact_at(made, 0, 0, &key, &value));
  assert_string_equal(key, "kernel.0");
  assert_string_equal(value, "1 s ago: NVRM: Xid 79");
  nt_trace_close(made);
  nt_trace_close(trace);
  fixture_end(&f);
}

static void die(struct fixture *f) {
  fixture_area(f, 1 << 20);
  fixture_drain(f, 8 << 20);
  fixture_calls(f, 5);
}

/* On another node nobody could see that. */
static void what_was_seen_of_the_process_stays_true_elsewhere(void **state) {
  (void)state;
  struct fixture f;
  struct nt_digest_tally tally;
  fixture_begin(&f);
  fixture_doomed(&f, die);
  struct nt_trace *trace = open_area(&f), *made = digest(&f, trace, NT_DIGEST_SIZE, &tally);
  assert_int_equal(nt_trace_process(trace)->state, NT_PROCESS_VANISHED);
  assert_int_equal(nt_trace_process(made)->state, NT_PROCESS_VANISHED);
  assert_false(nt_trace_process(made)->live);
  assert_false(nt_trace_process(made)->from_area);
  nt_trace_close(made);
  nt_trace_close(trace);
  fixture_end(&f);
}

/* A file without its area may be behind its process, and one that is cut short may be so by much. */
static void what_a_file_alone_does_not_tell_its_digest_does_not_either(void **state) {
  (void)state;
  struct fixture f;
  struct nt_digest_tally tally;
  struct nt_error err = {0};
  const struct nt_digest_order order = {.size = NT_DIGEST_SIZE};
  char path[700], copy[128];
  uint64_t length;
  fixture_begin(&f);
  fixture_doomed(&f, die);
  assert_true(fixture_find(f.files, ".trace", path, sizeof path));
  unsigned char *file = fixture_load(path, &length);
  snprintf(copy, sizeof copy, "%s/copy", f.files);
  const uint64_t aged_length = nt_get_u64(file + NT_SUPER_STATE_OFFSET) + 100;
  if (aged_length > length) { /* it died before it wrote more than the superblock */
    file = realloc(file, aged_length);
    assert_non_null(file);
    memset(file + length, 0, aged_length - length);
  }
  for (int aged = 0; aged < 2; aged++) {
    struct nt_buffer bytes = {0};
    struct nt_trace *trace;
    fixture_store(copy, file, aged ? aged_length : length);
    assert_int_equal(nt_trace_open(copy, NT_OPEN_NO_AREA, &trace, &err), 0);
    assert_true(nt_trace_process(trace)->outlived);
    assert_int_equal(nt_trace_process(trace)->aged, aged);
    assert_int_equal(nt_digest_make(trace, &order, &bytes, &tally, &err), 0);
    nt_trace_close(trace);
    fixture_store(copy, bytes.data, bytes.length);
    struct nt_trace *made = open_one(copy);
    assert_true(nt_trace_process(made)->outlived);
    assert_int_equal(nt_trace_process(made)->aged, aged);
    nt_trace_close(made);
    free(bytes.data);
  }
  free(file);
  fixture_end(&f);
}

static void what_was_damaged_is_told(void **state) {
  (void)state;
  struct fixture f;
  struct nt_buffer bytes = {0};
  struct nt_digest_tally tally;
  struct nt_error err = {0};
  const struct nt_digest_order order = {.size = NT_DIGEST_SIZE};
  char path[700];
  uint64_t length;
  begin(&f, 8 << 20);
  fixture_calls(&f, 500);
  nt_drain_tick(f.drain, NT_DRAIN_FLUSH);
  nt_drain_close(f.drain, false);
  f.drain = NULL;
  assert_true(fixture_find(f.files, ".trace", path, sizeof path));
  unsigned char *file = fixture_load(path, &length);
  file[length - 200] ^= 1;
  snprintf(path, sizeof path, "%s/damaged", f.files);
  fixture_store(path, file, length);
  free(file);
  struct nt_trace *trace;
  if (nt_trace_open(path, NT_OPEN_NO_AREA, &trace, &err))
    fail_msg("%s", err.reason);
  assert_true(nt_trace_warning_count(trace) > 0);
  assert_int_equal(nt_digest_make(trace, &order, &bytes, &tally, &err), 0);
  nt_trace_close(trace);
  fixture_store(path, bytes.data, bytes.length);
  free(bytes.data);
  trace = open_one(path);
  assert_int_equal(nt_trace_warning_count(trace), 1);
  nt_trace_close(trace);
  fixture_end(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_digest_tells_what_its_trace_tells),
      cmocka_unit_test(a_digest_has_the_last_calls_and_counts_the_others),
      cmocka_unit_test(stacks_have_their_lines),
      cmocka_unit_test(the_worst_process_fits),
      cmocka_unit_test(a_dump_is_whole),
      cmocka_unit_test(what_was_seen_of_the_process_stays_true_elsewhere),
      cmocka_unit_test(what_a_file_alone_does_not_tell_its_digest_does_not_either),
      cmocka_unit_test(what_was_damaged_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
