/* SPDX-License-Identifier: Apache-2.0 */
/* Marks of GPU progress, through the columns of their frames and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trace/error.h"
#include "trace/frame.h"
#include "trace/mark_codec.h"
#include "trace_fixture.h"

enum { MOST = 400, STREAMS = 3 };

static struct nt_gpu_mark marks[MOST];

static uint64_t any(unsigned bits) {
  return fixture_random() >> (64 - bits);
}

static void random_marks(uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    const uint16_t kind = (uint16_t)(any(4) ? 1 + any(2) : any(16) | 1);
    marks[i] = (struct nt_gpu_mark){.stream = (uint32_t)any(any(1) ? 2 : 32),
                                    .kind = kind,
                                    .first = (uint32_t)any(32),
                                    .last = (uint32_t)any(32),
                                    .not_before = any(63),
                                    .by = kind == NT_GPU_DURATION ? 0 : any(63)};
  }
}

/* Looks every 20 ms at streams that go on by some launches: one that runs, one that is complete, a duration now and then. */
static uint32_t looks(uint32_t count) {
  uint64_t now = 123456789012, before = 0;
  uint32_t at = 0, done[STREAMS] = {7, 70000, 0};
  while (at + 3 <= count) {
    const uint64_t next = now + 42000000 + any(16);
    for (uint32_t s = 0; s < STREAMS && at + 3 <= count; s++) {
      const uint32_t more = 1 + (uint32_t)any(4);
      const uint64_t moment = next + s * 5000;
      marks[at++] = (struct nt_gpu_mark){s + 1,       NT_GPU_REACHED, 0,
                                         done[s] + 1, done[s] + more, before ? now + s * 5000 : 0,
                                         moment};
      marks[at] = marks[at - 1];
      marks[at++].kind = NT_GPU_FINISHED;
      if (done[s] % 64 + more >= 64)
        marks[at++] = (struct nt_gpu_mark){s + 1,
                                           NT_GPU_DURATION,
                                           0,
                                           done[s] / 64 * 64 + 64,
                                           done[s] / 64 * 64 + 64,
                                           300000 + any(12),
                                           0};
      done[s] += more;
    }
    before = now;
    now = next;
  }
  return at;
}

static void back(const struct nt_buffer *payload, uint32_t count, struct nt_buffer *out) {
  assert_int_equal(nt_marks_decode(payload->data, payload->length, count, out), 0);
  assert_int_equal(out->length, count * sizeof *marks);
}

static void any_marks_come_back_as_they_were(void **state) {
  (void)state;
  for (int round = 0; round < 300; round++) {
    const uint32_t count = round < 2 ? (uint32_t)round : (uint32_t)any(8);
    struct nt_buffer payload = {0}, out = {0};
    random_marks(count);
    assert_int_equal(nt_marks_encode(marks, count, 0, &payload), 0);
    back(&payload, count, &out);
    if (count)
      assert_memory_equal(out.data, marks, count * sizeof *marks);
    free(payload.data);
    free(out.data);
  }
}

static void what_happened_between_two_looks_did_so_once_they_are_rounded(void **state) {
  (void)state;
  const unsigned shift = 11;
  struct nt_buffer payload = {0}, out = {0};
  const uint32_t count = looks(MOST);
  assert_int_equal(nt_marks_encode(marks, count, shift, &payload), 0);
  back(&payload, count, &out);
  for (uint32_t i = 0; i < count; i++) {
    const struct nt_gpu_mark *is = (const struct nt_gpu_mark *)(const void *)out.data + i;
    const struct nt_gpu_mark *was = &marks[i];
    assert_int_equal(is->stream, was->stream);
    assert_int_equal(is->kind, was->kind);
    assert_int_equal(is->first, was->first);
    assert_int_equal(is->last, was->last);
    if (was->kind == NT_GPU_DURATION) {
      assert_int_equal(is->not_before, was->not_before);
      continue;
    }
    assert_true(is->not_before <= was->not_before &&
                is->not_before + (1u << shift) > was->not_before);
    assert_true(is->by >= was->by && is->by < was->by + (1u << shift));
  }
  free(payload.data);
  free(out.data);
}

static void a_mark_takes_three_bytes(void **state) {
  (void)state;
  struct nt_packer *packer = nt_packer_new();
  struct nt_buffer payload = {0}, out = {0};
  const uint32_t count = looks(MOST);
  struct nt_frame frame = {.type = NT_FRAME_GPU, .version = NT_MARKS_VERSION, .records = count};
  assert_int_equal(nt_marks_encode(marks, count, 11, &payload), 0);
  assert_int_equal(nt_frame_write(packer, &frame, NULL, 0, payload.data, payload.length, &out), 0);
  assert_true(out.length < 3 * count);
  free(payload.data);
  free(out.data);
  nt_packer_free(packer);
}

/* Any damage is refused or gives marks, but never more of them and never a crash (sanitizers look). */
static void damaged_marks_do_no_harm(void **state) {
  (void)state;
  for (int round = 0; round < 1000; round++) {
    struct nt_buffer payload = {0};
    const uint32_t count = looks(1 + (uint32_t)any(8));
    assert_int_equal(nt_marks_encode(marks, count, 11, &payload), 0);
    for (int hit = 0; hit < 8; hit++) {
      struct nt_buffer out = {0};
      const size_t where = hit < 4 && payload.length > 64 ? 64 : payload.length;
      payload.data[fixture_random() % where] ^= (unsigned char)(1u << any(3));
      const size_t length = any(2) ? payload.length : fixture_random() % (payload.length + 1);
      if (nt_marks_decode(payload.data, length, count, &out) == 0)
        assert_int_equal(out.length, count * sizeof *marks);
      free(out.data);
    }
    assert_int_equal(
        nt_marks_decode(payload.data, payload.length, UINT32_MAX, &(struct nt_buffer){0}),
        -NT_ERR_CORRUPT);
    free(payload.data);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_marks_come_back_as_they_were),
      cmocka_unit_test(what_happened_between_two_looks_did_so_once_they_are_rounded),
      cmocka_unit_test(a_mark_takes_three_bytes),
      cmocka_unit_test(damaged_marks_do_no_harm),
  };
  return cmocka_run_group_tests_name("mark_codec", tests, NULL, NULL);
}
