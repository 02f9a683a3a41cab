/* SPDX-License-Identifier: Apache-2.0 */
/* How far the device came with each launch of a stream, as a trace tells it to the model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "analysis/load_trace.h"
#include "nccl/nccl_api.h"
#include "trace/bytes.h"
#include "trace/clock.h"
#include "trace/format.h"
#include "trace/frame.h"
#include "trace/state_slot.h"
#include "trace_fixture.h"

enum { LAUNCHES = 600 }; /* all on stream 1, numbered like the calls */

static struct fixture fixture;

static int begin(void **state) {
  *state = &fixture;
  memset(&fixture, 0, sizeof fixture);
  fixture_begin(&fixture);
  fixture_area(&fixture, 1 << 20);
  fixture_drain(&fixture, 1 << 20);
  fixture_calls(&fixture, LAUNCHES);
  return 0;
}

static int end(void **state) {
  fixture_end(*state);
  return 0;
}

static void abort_it(struct fixture *f) {
  const struct nt_record record = {
      .enter = nt_clock_ticks(NT_CLOCK_MONOTONIC), .comm = 1, .fn = NT_FN_CommAbort, .peer = -1};
  fixture_record(f, &record);
}

/* The stream's numbers, seen a moment ago; then the model of that process. */
static void load(struct fixture *f, const struct nt_gpu_facts *gpu, struct nt_model *model) {
  struct nt_gpu_stream *stream = &f->area.gpu_streams[1];
  struct nt_trace_loader loader = {0};
  struct nt_trace *trace;
  struct nt_error err;
  atomic_store(&stream->issued, gpu->issued ? gpu->issued : LAUNCHES);
  atomic_store(&stream->reached, gpu->reached);
  atomic_store(&stream->finished, gpu->finished);
  atomic_store(&stream->followed, gpu->followed);
  atomic_store(&stream->unmarked, gpu->unmarked);
  atomic_store(&stream->unmarked_last, gpu->unmarked_last);
  atomic_store(&stream->frozen, gpu->frozen);
  atomic_store(&stream->frozen_after, gpu->frozen_after);
  atomic_store(&stream->polled, nt_clock_ticks(NT_CLOCK_MONOTONIC));
  assert_true(nt_drain_tick(f->drain, NT_DRAIN_FINAL) >= 0);
  assert_int_equal(nt_trace_open(f->area.header->file_path, NT_OPEN_NO_AREA, &trace, &err), 0);
  assert_int_equal(nt_trace_loader_add(&loader, trace, "a trace", &err), 0);
  nt_trace_close(trace);
  assert_int_equal(nt_trace_loader_finish(&loader, 0, model), 0);
  assert_int_equal(model->rank_count, 1);
}

static void expect(const struct nt_model *model, uint32_t first, uint32_t last,
                   enum nt_progress progress) {
  const struct nt_model_rank *rank = &model->ranks[0];
  assert_true(rank->call_count >= LAUNCHES);
  for (uint32_t launch = first; launch <= last; launch++) {
    const struct nt_model_call *call = &rank->calls[launch - 1];
    assert_int_equal(call->launch, launch);
    if (call->progress != progress)
      fail_msg("launch %u: %d instead of %d", launch, call->progress, progress);
  }
}

/* Work of the device never ends behind launch 1: 2 to 257 have marks, and then there were none left. */
static const struct nt_gpu_facts behind_one = {
    .reached = 1, .finished = 1, .followed = 2, .unmarked = 343, .unmarked_last = LAUNCHES};
/* 1 to 256 are complete, and what is behind them had no marks. */
static const struct nt_gpu_facts none_behind = {
    .reached = 256, .finished = 256, .unmarked = 344, .unmarked_last = LAUNCHES};

static void launches_without_marks_behind_one_that_waits_wait_as_well(void **state) {
  struct nt_model model;
  load(*state, &behind_one, &model);
  expect(&model, 1, 1, NT_PROGRESS_FINISHED);
  expect(&model, 2, LAUNCHES, NT_PROGRESS_ENQUEUED);
  nt_model_free(&model);
}

static void launches_without_marks_behind_the_last_complete_one_are_not_known(void **state) {
  struct nt_model model;
  load(*state, &none_behind, &model);
  expect(&model, 1, 256, NT_PROGRESS_FINISHED);
  expect(&model, 257, LAUNCHES, NT_PROGRESS_UNKNOWN);
  nt_model_free(&model);
}

static void what_is_not_known_ends_where_marks_begin_again(void **state) {
  struct nt_gpu_facts gpu = none_behind;
  struct nt_model model;
  gpu.followed = 400; /* and some behind it had none */
  load(*state, &gpu, &model);
  expect(&model, 257, 399, NT_PROGRESS_UNKNOWN);
  expect(&model, 400, LAUNCHES, NT_PROGRESS_ENQUEUED);
  nt_model_free(&model);
}

static void launches_since_the_last_look_have_marks_where_nobody_says_otherwise(void **state) {
  struct nt_gpu_facts gpu = none_behind;
  struct nt_model model;
  gpu.unmarked_last = 500;
  load(*state, &gpu, &model);
  expect(&model, 257, 500, NT_PROGRESS_UNKNOWN);
  expect(&model, 501, LAUNCHES, NT_PROGRESS_ENQUEUED);
  nt_model_free(&model);
}

static void what_is_in_front_of_a_launch_that_had_its_turn_is_complete(void **state) {
  struct nt_gpu_facts gpu = none_behind;
  struct nt_model model;
  gpu.reached = gpu.followed = 400;
  load(*state, &gpu, &model);
  expect(&model, 257, 399, NT_PROGRESS_FINISHED);
  expect(&model, 400, 400, NT_PROGRESS_REACHED);
  expect(&model, 401, LAUNCHES, NT_PROGRESS_ENQUEUED);
  nt_model_free(&model);
}

static void an_abort_changes_nothing_of_that(void **state) {
  struct nt_gpu_facts gpu = behind_one;
  struct nt_model model;
  gpu.frozen = LAUNCHES;
  gpu.frozen_after = 1;
  abort_it(*state);
  load(*state, &gpu, &model);
  expect(&model, 2, LAUNCHES, NT_PROGRESS_ENQUEUED);
  nt_model_free(&model);
}

static void nor_does_it_tell_what_was_not_known(void **state) {
  struct nt_gpu_facts gpu = none_behind;
  struct nt_model model;
  gpu.frozen = 550;
  gpu.frozen_after = 256;
  gpu.followed = 400;
  gpu.unmarked_last = 570; /* some were launched behind the abort */
  abort_it(*state);
  load(*state, &gpu, &model);
  expect(&model, 257, 399, NT_PROGRESS_UNKNOWN);
  expect(&model, 400, 550, NT_PROGRESS_ENQUEUED);
  expect(&model, 551, 570, NT_PROGRESS_UNKNOWN);
  expect(&model, 571, LAUNCHES, NT_PROGRESS_ENQUEUED);
  nt_model_free(&model);
}

/* As many as had no marks at all may be complete: more is not known. */
static void an_older_trace_tells_how_many_may_be_complete(void **state) {
  const struct nt_gpu_facts gpu = {.reached = 10, .finished = 10, .unmarked = 3};
  struct nt_model model;
  load(*state, &gpu, &model);
  expect(&model, 11, 13, NT_PROGRESS_UNKNOWN);
  expect(&model, 14, LAUNCHES, NT_PROGRESS_ENQUEUED);
  nt_model_free(&model);
}

static void a_stream_of_an_older_trace_is_read(void **state) {
  const struct nt_stream_facts stream = {.number = 7};
  struct nt_facts facts = {0};
  struct nt_buffer payload = {0};
  (void)state;
  nt_entry_stream(&payload, &stream);
  unsigned char *at = nt_entry_add(&payload, NT_ENTRY_GPU, NT_ENTRY_GPU_LEAST);
  assert_non_null(at);
  nt_put_u32(at + NT_GPU_FIELD_STREAM, 7);
  nt_put_u32(at + NT_GPU_FIELD_UNMARKED, 3);
  nt_put_u64(at + NT_GPU_FIELD_POLLED, UINT64_MAX);
  nt_entry_stream(&payload, &(struct nt_stream_facts){.number = 8}); /* not read as a part of it */
  assert_int_equal(nt_facts_merge(&facts, payload.data, payload.length), 0);
  assert_int_equal(facts.stream_count, 2);
  assert_int_equal(facts.streams[0].gpu.unmarked, 3);
  assert_int_equal(facts.streams[0].gpu.polled, UINT64_MAX);
  assert_int_equal(facts.streams[0].gpu.followed, 0);
  assert_int_equal(facts.streams[0].gpu.unmarked_last, 0);
  nt_facts_free(&facts);
  free(payload.data);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(launches_without_marks_behind_one_that_waits_wait_as_well),
      TEST(launches_without_marks_behind_the_last_complete_one_are_not_known),
      TEST(what_is_not_known_ends_where_marks_begin_again),
      TEST(launches_since_the_last_look_have_marks_where_nobody_says_otherwise),
      TEST(what_is_in_front_of_a_launch_that_had_its_turn_is_complete),
      TEST(an_abort_changes_nothing_of_that),
      TEST(nor_does_it_tell_what_was_not_known),
      TEST(an_older_trace_tells_how_many_may_be_complete),
      TEST(a_stream_of_an_older_trace_is_read),
  };
  return cmocka_run_group_tests_name("load_progress", tests, NULL, NULL);
}
