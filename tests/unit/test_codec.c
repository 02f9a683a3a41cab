/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever goes into a frame comes out of it; whatever else is fed to the decoder is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "nccl/nccl_api.h"
#include "trace/codec.h"
#include "trace/error.h"
#include "trace/frame.h"
#include "trace_fixture.h"

enum { MOST = 5000 };

static struct nt_batch_call calls[MOST];
static struct nt_run runs[MOST];

static uint64_t any(unsigned bits) {
  return fixture_random() >> (64 - bits);
}

/* A value of very uneven size. */
static uint64_t skewed(void) {
  const unsigned bits = 1 + (unsigned)any(6);
  return any(bits > 64 ? 64 : bits);
}

static void random_call(struct nt_batch_call *out, bool wild) {
  struct nt_record *record = &out->record;
  memset(out, 0, sizeof *out);
  record->enter = wild ? any(60) : 1000000 + any(40);
  record->duration = nt_duration_encode(skewed() >> 8);
  record->seq = (uint32_t)skewed();
  record->count = skewed();
  record->send = skewed();
  record->recv = skewed();
  record->peer = (int32_t)skewed();
  record->stack = (uint32_t)skewed();
  record->launch = (uint32_t)skewed();
  record->group = (uint16_t)(any(1) ? 0 : skewed());
  record->fn = (uint8_t)(any(1) ? NT_FN_AllReduce + any(3) : any(8));
  record->dtype = (uint8_t)any(8);
  record->op = (uint8_t)any(8);
  record->result = (uint8_t)any(8);
  record->flags = (uint16_t)any(16);
  out->comm = (uint32_t)skewed();
  out->stream = (uint32_t)skewed();
}

static struct nt_batch random_batch(bool wild) {
  struct nt_batch batch = {calls, runs, 0, 0};
  const uint32_t total = (uint32_t)any(12);
  while (batch.call_count < total) {
    uint32_t count = 1 + (uint32_t)any(8);
    if (count > total - batch.call_count)
      count = total - batch.call_count;
    runs[batch.run_count++] = (struct nt_run){any(40), (uint32_t)any(7), count, (uint32_t)any(2)};
    while (count--)
      random_call(&calls[batch.call_count++], wild);
  }
  return batch;
}

static void expect_same(const struct nt_batch *is, const struct nt_batch *want, unsigned shift) {
  assert_int_equal(is->call_count, want->call_count);
  assert_int_equal(is->run_count, want->run_count);
  for (uint32_t r = 0; r < want->run_count; r++) {
    assert_int_equal(is->runs[r].serial, want->runs[r].serial);
    assert_int_equal(is->runs[r].first, want->runs[r].first);
    assert_int_equal(is->runs[r].count, want->runs[r].count);
    assert_int_equal(is->runs[r].thread, want->runs[r].thread);
  }
  for (uint32_t i = 0; i < want->call_count; i++) {
    struct nt_batch_call expected = want->calls[i];
    struct nt_record *record = &expected.record;
    const uint64_t end = record->enter + nt_duration_decode(record->duration);
    record->duration = nt_duration_encode(((end >> shift) - (record->enter >> shift)) << shift);
    record->enter = record->enter >> shift << shift;
    assert_memory_equal(&is->calls[i], &expected, sizeof expected);
  }
}

static void round_trip(struct nt_codec *codec, const struct nt_batch *batch, unsigned shift) {
  struct nt_buffer payload = {0}, index = {0};
  struct nt_batch out;
  const char *reason;
  assert_int_equal(nt_codec_encode(codec, batch, shift, &payload, &index), 0);
  if (nt_codec_decode(codec, payload.data, payload.length, index.data, index.length,
                      batch->call_count, &out, &reason))
    fail_msg("%s", reason);
  expect_same(&out, batch, shift);
  nt_batch_free(&out);
  free(payload.data);
  free(index.data);
}

static void random_calls_come_back_bit_for_bit(void **state) {
  (void)state;
  struct nt_codec *codec = nt_codec_new();
  for (int round = 0; round < 200; round++) {
    struct nt_batch batch = random_batch(round & 1);
    round_trip(codec, &batch, 0);
  }
  nt_codec_free(codec);
}

static void times_are_rounded_and_nothing_else(void **state) {
  (void)state;
  struct nt_codec *codec = nt_codec_new();
  for (int round = 0; round < 100; round++) {
    struct nt_batch batch = random_batch(false);
    round_trip(codec, &batch, (unsigned)any(4));
  }
  nt_codec_free(codec);
}

static void an_empty_batch_is_a_batch(void **state) {
  (void)state;
  struct nt_codec *codec = nt_codec_new();
  struct nt_batch batch = {calls, runs, 0, 0};
  round_trip(codec, &batch, 3);
  nt_codec_free(codec);
}

static void the_order_of_calls_survives_rounding(void **state) {
  (void)state;
  struct nt_codec *codec = nt_codec_new();
  struct nt_batch batch = {calls, runs, 1000, 1};
  runs[0] = (struct nt_run){1, 0, 1000, 1};
  uint64_t now = 12345;
  for (uint32_t i = 0; i < 1000; i++) {
    random_call(&calls[i], false);
    calls[i].record.enter = now += any(8);
    calls[i].record.duration = (uint32_t)any(8);
    now += calls[i].record.duration;
  }
  struct nt_buffer payload = {0}, index = {0};
  struct nt_batch out;
  const char *reason;
  assert_int_equal(nt_codec_encode(codec, &batch, 9, &payload, &index), 0);
  assert_int_equal(nt_codec_decode(codec, payload.data, payload.length, index.data, index.length,
                                   1000, &out, &reason),
                   0);
  for (uint32_t i = 1; i < 1000; i++)
    assert_true(out.calls[i].record.enter >=
                out.calls[i - 1].record.enter +
                    nt_duration_decode(out.calls[i - 1].record.duration));
  nt_batch_free(&out);
  free(payload.data);
  free(index.data);
  nt_codec_free(codec);
}

static void a_unit_is_at_most_a_microsecond(void **state) {
  (void)state;
  const struct nt_clock_sync first = {1000, 500, 500};
  struct nt_clock_sync last = {1000 + 2100000000u, 500 + 1000000000u, 500};
  assert_int_equal(nt_codec_shift(NT_CLOCK_TSC, &first, &last), 11);
  last.ticks = 1000 + 2000000000u;
  assert_int_equal(nt_codec_shift(NT_CLOCK_TSC, &first, &last), 10);
  assert_int_equal(nt_codec_shift(NT_CLOCK_TSC, &first, &first), 9);
  assert_int_equal(nt_codec_shift(NT_CLOCK_MONOTONIC, &first, &last), 9);
}

/* Bytes of the frame that the first `count` of `calls` make. */
static size_t packed_size(uint32_t count) {
  struct nt_codec *codec = nt_codec_new();
  struct nt_packer *packer = nt_packer_new();
  struct nt_buffer payload = {0}, index = {0}, out = {0};
  struct nt_batch batch = {calls, runs, count, 1};
  struct nt_frame frame = {.type = NT_FRAME_CALLS, .records = count};
  runs[0] = (struct nt_run){1, 0, count, 1};
  round_trip(codec, &batch, 0);
  assert_int_equal(nt_codec_encode(codec, &batch, 0, &payload, &index), 0);
  assert_int_equal(
      nt_frame_write(packer, &frame, index.data, index.length, payload.data, payload.length, &out),
      0);
  const size_t size = out.length;
  free(payload.data);
  free(index.data);
  free(out.data);
  nt_codec_free(codec);
  nt_packer_free(packer);
  return size;
}

static struct nt_record *regular_call(uint32_t i, uint8_t fn) {
  struct nt_record *record = &calls[i].record;
  memset(&calls[i], 0, sizeof calls[i]);
  *record = (struct nt_record){
      .enter = 1000 + 100 * (uint64_t)i, .duration = 20, .fn = fn, .seq = i + 1, .peer = 1};
  return record;
}

/* Tokens for experts: eight bits of each count are not known. */
static void counts_that_do_not_come_again_cost_two_bytes(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 4000; i++)
    regular_call(i, NT_FN_Send)->count = (512 + any(8)) * 4096;
  assert_true(packed_size(4000) < 2 * 4000);
}

/* Layers forwards and backwards, each with its buffers, a call with any of three buffers between them. */
static void buffers_that_take_turns_cost_nothing(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 4000; i++) {
    const uint64_t step = i / 2 % 48, layer = step < 24 ? step : 47 - step;
    struct nt_record *record = regular_call(i, i % 2 ? NT_FN_AllReduce : NT_FN_AllGather);
    record->send = i % 2 ? 0x7f2000000000 + any(1) * 0x1000000 : 0x7f0000000000 + layer * 0x180000;
    record->recv = i % 2 ? record->send : 0x7f1000000000 + (layer & 1) * 0x8000000;
    record->flags = i % 2 ? NT_CALL_IN_PLACE : 0;
  }
  assert_true(packed_size(4000) < 4000 / 2);
}

/* A pool of events, of which each is recorded, waited for and given back by calls at four places, in no order. */
static void events_that_go_round_cost_a_byte(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 4000; i += 2) {
    const uint64_t event = 0x7fd813000000 + any(6) * 0x2b70;
    for (uint32_t k = 0; k < 2; k++) {
      regular_call(i + k, k ? NT_FN_cudaStreamWaitEvent : NT_FN_cudaEventRecord)->recv = event;
      calls[i + k].stream = 1 + (uint32_t)any(1);
    }
  }
  assert_true(packed_size(4000) < 4000 * 5 / 4);
}

/* Any damage is refused or gives calls, but never more of them and never a crash (sanitizers look). */
static void damaged_columns_do_no_harm(void **state) {
  (void)state;
  struct nt_codec *codec = nt_codec_new();
  for (int round = 0; round < 300; round++) {
    struct nt_batch batch = random_batch(true), out;
    struct nt_buffer payload = {0}, index = {0};
    const char *reason;
    assert_int_equal(nt_codec_encode(codec, &batch, 4, &payload, &index), 0);
    for (int hit = 0; hit < 8; hit++) {
      struct nt_buffer *victim = any(1) ? &payload : &index;
      victim->data[fixture_random() % (hit < 4 && victim->length > 64 ? 64 : victim->length)] ^=
          (unsigned char)(1u << any(3));
      const size_t length = any(2) ? payload.length : fixture_random() % (payload.length + 1);
      if (nt_codec_decode(codec, payload.data, length, index.data, index.length, batch.call_count,
                          &out, &reason) == 0) {
        assert_int_equal(out.call_count, batch.call_count);
        nt_batch_free(&out);
      }
    }
    free(payload.data);
    free(index.data);
  }
  nt_codec_free(codec);
}

static void frames_say_what_is_in_them(void **state) {
  (void)state;
  struct nt_packer *packer = nt_packer_new();
  struct nt_buffer out = {0};
  unsigned char payload[5000], index[24] = {1, 2, 3}, *back;
  memset(payload, 'x', sizeof payload);
  struct nt_frame frame = {
      .type = 77, .version = 3, .epoch = 9, .records = 5, .first = 1, .last = 2};
  struct nt_frame read;
  assert_int_equal(
      nt_frame_write(packer, &frame, index, sizeof index, payload, sizeof payload, &out), 0);
  assert_true(out.length < 200 && out.length % NT_FRAME_ALIGN == 0);
  assert_int_equal(nt_frame_parse(out.data, out.length, &read), 0);
  assert_memory_equal(&read, &frame, sizeof frame);
  assert_int_equal(nt_frame_unpack(&read, out.data + NT_FRAME_HEADER, &back), 0);
  assert_memory_equal(back, payload, sizeof payload);
  free(back);
  assert_int_equal(nt_frame_parse(out.data, out.length - 8, &read), -NT_ERR_TRUNCATED);
  for (size_t i = 0; i < NT_FRAME_HEADER + (size_t)frame.stored; i++) {
    out.data[i] ^= 0x10;
    const bool head = nt_frame_parse(out.data, out.length, &read) == 0;
    assert_int_equal(head, i >= NT_FRAME_HEADER);
    if (head)
      assert_int_equal(nt_frame_unpack(&read, out.data + NT_FRAME_HEADER, &back), -NT_ERR_CORRUPT);
    out.data[i] ^= 0x10;
  }
  memset(out.data, 0, NT_FRAME_HEADER);
  assert_int_equal(nt_frame_parse(out.data, out.length, &read), -NT_ERR_FOREIGN);
  free(out.data);
  nt_packer_free(packer);
}

/* Of the second half of what is stored nothing is there. */
static void the_front_of_a_frame_is_unpacked_without_the_rest(void **state) {
  (void)state;
  enum { FRONT = 600, ALL = 6000 };
  struct nt_packer *packer = nt_packer_new();
  struct nt_unpacker *unpacker = nt_unpacker_new();
  unsigned char payload[ALL], back[ALL], *whole;
  for (uint32_t i = 0; i < ALL; i++)
    payload[i] = (unsigned char)any(i < FRONT ? 2 : 4);
  for (uint32_t front = FRONT; front <= ALL; front += ALL - FRONT) {
    struct nt_buffer out = {0};
    struct nt_frame frame = {.type = 1, .epoch = 1, .front = front};
    assert_int_equal(nt_frame_write(packer, &frame, NULL, 0, payload, ALL, &out), 0);
    const unsigned char *stored = out.data + NT_FRAME_HEADER;
    assert_int_equal(nt_frame_unpack_with(unpacker, &frame, stored, &whole), 0);
    assert_memory_equal(whole, payload, ALL);
    free(whole);
    frame.stored /= 2;
    frame.checksum = XXH64(stored, frame.stored, 0);
    assert_int_equal(nt_frame_unpack_begin(unpacker, &frame, stored), 0);
    const int found = nt_frame_unpack_next(unpacker, back, 20) ||
                      nt_frame_unpack_next(unpacker, back + 20, FRONT - 20);
    assert_int_equal(!found, front == FRONT);
    if (!found)
      assert_memory_equal(back, payload, FRONT);
    assert_int_equal(nt_frame_unpack_next(unpacker, back, ALL - FRONT), -NT_ERR_CORRUPT);
    frame.checksum++;
    assert_int_equal(nt_frame_unpack_begin(unpacker, &frame, stored), -NT_ERR_CORRUPT);
    free(out.data);
  }
  nt_unpacker_free(unpacker);
  nt_packer_free(packer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_calls_come_back_bit_for_bit),
      cmocka_unit_test(times_are_rounded_and_nothing_else),
      cmocka_unit_test(an_empty_batch_is_a_batch),
      cmocka_unit_test(the_order_of_calls_survives_rounding),
      cmocka_unit_test(a_unit_is_at_most_a_microsecond),
      cmocka_unit_test(counts_that_do_not_come_again_cost_two_bytes),
      cmocka_unit_test(buffers_that_take_turns_cost_nothing),
      cmocka_unit_test(events_that_go_round_cost_a_byte),
      cmocka_unit_test(damaged_columns_do_no_harm),
      cmocka_unit_test(frames_say_what_is_in_them),
      cmocka_unit_test(the_front_of_a_frame_is_unpacked_without_the_rest),
  };
  return cmocka_run_group_tests_name("codec", tests, NULL, NULL);
}
