/* SPDX-License-Identifier: Apache-2.0 */
/* The last calls of a file alone. */
#include <stdio.h>
#include <stdlib.h>

#include "nccl/nccl_api.h"
#include "trace/clock.h"
#include "trace_fixture.h"

enum { EACH = 100, FRAMES = 12, CALLS = EACH * FRAMES };

static int begin(void **state) {
  static struct fixture f;
  fixture_begin(&f);
  *state = &f;
  return 0;
}

static int end(void **state) {
  fixture_end(*state);
  return 0;
}

/* Frames of 100 calls each; the device has finished the first `finished`, 0: nobody looked. */
static void make_file(struct fixture *f, uint64_t size, uint32_t finished) {
  fixture_area(f, 1 << 20);
  fixture_drain(f, size);
  for (uint32_t i = 0; i < FRAMES; i++) {
    fixture_calls(f, EACH);
    assert_true(nt_drain_tick(f->drain, NT_DRAIN_FLUSH) >= 0);
  }
  struct nt_gpu_stream *stream = &f->area.gpu_streams[1];
  atomic_store(&stream->issued, CALLS);
  atomic_store(&stream->reached, finished);
  atomic_store(&stream->finished, finished);
  atomic_store(&stream->polled, finished ? nt_clock_ticks(NT_CLOCK_MONOTONIC) : 0);
  assert_true(nt_drain_tick(f->drain, NT_DRAIN_FINAL) >= 0);
}

/* What is read if the last `window` calls are wanted: *count of them from *first on. */
static struct nt_trace *read_last(const struct fixture *f, struct nt_read_room *room,
                                  uint32_t window, uint32_t *first, uint32_t *count) {
  struct nt_trace *trace;
  struct nt_error err;
  const struct nt_call *calls;
  nt_read_room_window(room, window);
  assert_int_equal(nt_trace_open_in(room, f->area.header->file_path, NT_OPEN_NO_AREA, &trace, &err),
                   0);
  const int64_t got = nt_trace_calls(trace, &calls, &err);
  assert_true(got > 0);
  *count = (uint32_t)got;
  *first = calls[0].seq;
  for (uint32_t i = 0; i < *count; i++)
    assert_int_equal(calls[i].seq, *first + i);
  return trace;
}

/* Times in a file are in units of up to a microsecond: calls that share one with the first are there too. */
static void assert_last(uint32_t wanted, uint32_t first, uint32_t count) {
  assert_int_equal(first + count - 1, CALLS);
  assert_true(count >= wanted && count < wanted + EACH / 2);
}

static void only_the_last_calls_are_there(void **state) {
  struct fixture *f = *state;
  struct nt_read_room *room = nt_read_room_new();
  uint32_t first, count;
  make_file(f, 1 << 20, 0);
  struct nt_trace *trace = read_last(f, room, 150, &first, &count);
  assert_last(150, first, count);
  assert_true(nt_trace_is_cut(trace));
  assert_false(nt_trace_is_short(trace));
  assert_int_equal(nt_trace_process(trace)->calls, CALLS); /* what the state tells is whole */
  assert_int_equal(nt_trace_comm_count(trace), 1);
  nt_trace_close(trace);
  nt_read_room_free(room);
}

static void all_are_there_where_more_are_wanted(void **state) {
  struct fixture *f = *state;
  struct nt_read_room *room = nt_read_room_new();
  uint32_t first, count;
  make_file(f, 1 << 20, 7);
  for (uint32_t window = CALLS; window <= 2 * CALLS; window += CALLS) {
    struct nt_trace *trace = read_last(f, room, window, &first, &count);
    assert_int_equal(count, CALLS);
    assert_int_equal(first, 1);
    assert_false(nt_trace_is_cut(trace));
    assert_false(nt_trace_is_short(trace));
    nt_trace_close(trace);
  }
  nt_read_room_free(room);
}

static void what_the_device_has_not_finished_is_there_as_well(void **state) {
  struct fixture *f = *state;
  struct nt_read_room *room = nt_read_room_new();
  uint32_t first, count;
  make_file(f, 1 << 20, CALLS - 190);
  struct nt_trace *trace = read_last(f, room, 150, &first, &count);
  assert_last(190, first, count);
  assert_false(nt_trace_is_short(trace));
  nt_trace_close(trace);
  trace = read_last(f, room, 90, &first, &count); /* in frames that were not read */
  assert_true(nt_trace_is_short(trace));
  nt_trace_close(trace);
  nt_read_room_free(room);
}

/* Segments of 4 KiB hold some of the frames each. */
static void the_last_calls_may_lie_in_several_segments(void **state) {
  struct fixture *f = *state;
  struct nt_read_room *room = nt_read_room_new();
  uint32_t first, count;
  make_file(f, 1 << 17, 0);
  struct nt_trace *trace = read_last(f, room, CALLS - 50, &first, &count);
  assert_last(CALLS - 50, first, count);
  nt_trace_close(trace);
  nt_read_room_free(room);
}

static void a_damaged_file_is_wanted_as_a_whole(void **state) {
  struct fixture *f = *state;
  struct nt_read_room *room = nt_read_room_new();
  uint32_t first, count;
  uint64_t length;
  make_file(f, 1 << 20, 0);
  unsigned char *bytes = fixture_load(f->area.header->file_path, &length);
  bytes[length - 9] ^= 1; /* of the last frame */
  fixture_store(f->area.header->file_path, bytes, length);
  struct nt_trace *trace = read_last(f, room, 150, &first, &count);
  assert_true(nt_trace_is_short(trace));
  nt_trace_close(trace);
  free(bytes);
  nt_read_room_free(room);
}

static void groups_stay_whole(void **state) {
  struct fixture *f = *state;
  struct nt_read_room *room = nt_read_room_new();
  uint32_t first, count;
  fixture_area(f, 1 << 20);
  fixture_drain(f, 1 << 20);
  for (uint32_t i = 0; i < 300; i++) {
    const struct nt_record record = {.enter = nt_clock_ticks(NT_CLOCK_MONOTONIC),
                                     .seq = i + 1,
                                     .peer = -1,
                                     .comm = 1,
                                     .stream = 1,
                                     .group = (uint16_t)(1 + i / 8),
                                     .fn = 1,
                                     .dtype = 7};
    fixture_record(f, &record);
  }
  assert_true(nt_drain_tick(f->drain, NT_DRAIN_FINAL) >= 0);
  struct nt_trace *trace = read_last(f, room, 101, &first, &count);
  assert_int_equal(first % 8, 1);
  assert_int_equal(count, 108);
  nt_trace_close(trace);
  nt_read_room_free(room);
}

/* Frames of 100 sends, each frame with a size of its own. */
static void make_sends(struct fixture *f, uint64_t size) {
  fixture_area(f, 1 << 20);
  fixture_drain(f, size);
  for (uint32_t i = 0; i < CALLS; i++) {
    const struct nt_record record = {.enter = nt_clock_ticks(NT_CLOCK_MONOTONIC),
                                     .seq = i + 1,
                                     .count = 1 + i / EACH,
                                     .peer = 3,
                                     .comm = 1,
                                     .stream = 1,
                                     .fn = NT_FN_Send,
                                     .dtype = 7};
    fixture_record(f, &record);
    if (i % EACH == EACH - 1)
      assert_true(nt_drain_tick(f->drain, NT_DRAIN_FINAL) >= 0);
  }
}

static int note_size(const struct nt_call_kind *kind, void *ctx) {
  if (kind->fn != NT_FN_Send)
    return 0;
  assert_int_equal(kind->peer, 3);
  assert_int_equal(kind->comm, 1);
  *(uint32_t *)ctx |= 1u << kind->count;
  return 0;
}

static void the_kinds_of_all_calls_are_told_whatever_the_window(void **state) {
  struct fixture *f = *state;
  for (uint64_t size = 1 << 17; size <= 1 << 20; size <<= 3) { /* several segments, one */
    struct nt_read_room *room = nt_read_room_new();
    uint32_t first, count, sizes = 0;
    make_sends(f, size);
    struct nt_trace *trace = read_last(f, room, 150, &first, &count);
    assert_last(150, first, count);
    assert_int_equal(nt_trace_kinds(trace, note_size, &sizes), 0);
    assert_int_equal(sizes, (2u << FRAMES) - 2);
    nt_trace_close(trace);
    nt_read_room_free(room);
    fixture_end(f);
    fixture_begin(f);
  }
}

static void no_kind_is_told_of_a_file_that_is_damaged_in_front_of_the_window(void **state) {
  struct fixture *f = *state;
  struct nt_read_room *room = nt_read_room_new();
  uint32_t first, count, sizes = 0;
  uint64_t length, at = 0;
  make_sends(f, 1 << 17);
  unsigned char *bytes = fixture_load(f->area.header->file_path, &length);
  const uint32_t magic = NT_FRAME_MAGIC;
  for (int found = 0; at + 8 < length && found < 1; at += found < 1)
    found += !memcmp(bytes + at, &magic, 4) && bytes[at + 4] == NT_FRAME_CALLS;
  bytes[at + NT_FRAME_HEADER] ^= 1;
  fixture_store(f->area.header->file_path, bytes, length);
  struct nt_trace *trace = read_last(f, room, 150, &first, &count);
  assert_int_equal(nt_trace_kinds(trace, note_size, &sizes), -NT_ERR_CORRUPT);
  nt_trace_close(trace);
  free(bytes);
  nt_read_room_free(room);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(only_the_last_calls_are_there, begin, end),
      cmocka_unit_test_setup_teardown(all_are_there_where_more_are_wanted, begin, end),
      cmocka_unit_test_setup_teardown(what_the_device_has_not_finished_is_there_as_well, begin,
                                      end),
      cmocka_unit_test_setup_teardown(the_last_calls_may_lie_in_several_segments, begin, end),
      cmocka_unit_test_setup_teardown(a_damaged_file_is_wanted_as_a_whole, begin, end),
      cmocka_unit_test_setup_teardown(groups_stay_whole, begin, end),
      cmocka_unit_test_setup_teardown(the_kinds_of_all_calls_are_told_whatever_the_window, begin,
                                      end),
      cmocka_unit_test_setup_teardown(
          no_kind_is_told_of_a_file_that_is_damaged_in_front_of_the_window, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
