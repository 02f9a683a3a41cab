/* SPDX-License-Identifier: Apache-2.0 */
/* Interpreters that must be left alone: what they publish is not what is known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "preload/python_layout.h"

#define HEX_3_13 0x030d00f0u
#define HEX_3_14 0x030e00f0u

/* What CPython 3.13.0 and 3.14.0 publish, as far as it is read: index of a 64-bit word, value. */
struct word {
  unsigned index;
  uint64_t value;
};
static const struct word words_3_13[] = {
    {19, 328}, {23, 72},  {28, 88}, {29, 8},   {30, 0},  {31, 56}, {33, 70}, {34, 208}, {35, 112},
    {37, 128}, {38, 136}, {39, 68}, {43, 200}, {65, 16}, {66, 32}, {68, 32}, {69, 16},  {70, 40},
};
static const struct word words_3_14[] = {
    {22, 328}, {26, 72},  {31, 88}, {32, 8},   {33, 0},  {34, 56}, {36, 74}, {39, 216}, {40, 112},
    {42, 128}, {43, 136}, {44, 68}, {48, 208}, {75, 16}, {76, 32}, {78, 32}, {79, 16},  {80, 40},
};

static uint64_t offsets[NT_PYTHON_OFFSETS / 8];
static struct nt_python_layout layout;
static const char *reason;

static void publish(uint32_t hex) {
  const struct word *words = hex == HEX_3_13 ? words_3_13 : words_3_14;
  memset(offsets, 0, sizeof offsets);
  memcpy(offsets, "xdebugpy", 8);
  offsets[1] = hex;
  for (unsigned i = 0; i < sizeof words_3_13 / sizeof *words_3_13; i++)
    offsets[words[i].index] = words[i].value;
}

static bool known(uint32_t hex) {
  reason = NULL;
  return nt_python_read_offsets(offsets, hex, &layout, &reason);
}

static void what_3_13_and_3_14_publish_is_the_table_s_row(void **state) {
  (void)state;
  publish(HEX_3_13);
  assert_true(known(HEX_3_13));
  assert_memory_equal(&layout, nt_python_layout_at(NT_PYTHON_ROW_3_13), sizeof layout);
  publish(HEX_3_14);
  assert_true(known(HEX_3_14));
  assert_memory_equal(&layout, nt_python_layout_at(NT_PYTHON_ROW_3_14), sizeof layout);
}

static void a_layout_of_its_own_is_taken_as_published(void **state) {
  (void)state;
  publish(HEX_3_13);
  offsets[31] = 64;
  assert_true(known(HEX_3_13));
  assert_int_equal(layout.frame_at, 64);
}

/* As published by 3.13.0 and 3.14.0: words of what the lists of threads need. */
static const struct word lists_3_13[] = {{6, 197776}, {8, 7264},  {9, 7344}, {14, 16}, {15, 9416},
                                         {17, 9432},  {18, 9424}, {19, 328}, {20, 0},  {21, 8},
                                         {22, 16},    {24, 152},  {25, 160}};
static const struct word lists_3_14[] = {{6, 197776}, {8, 7272},  {9, 7344}, {15, 16}, {16, 9416},
                                         {18, 9432},  {19, 9424}, {22, 328}, {23, 0},  {24, 8},
                                         {25, 16},    {27, 152},  {28, 160}};

static void the_lists_of_threads_are_taken_as_published(void **state) {
  (void)state;
  struct nt_python_lists lists;
  for (unsigned release = 0; release < 2; release++) {
    const struct word *words = release ? lists_3_14 : lists_3_13;
    const uint32_t hex = release ? HEX_3_14 : HEX_3_13;
    publish(hex);
    assert_false(nt_python_read_lists(offsets, hex, &lists));
    assert_int_equal(lists.version, 0);
    for (unsigned i = 0; i < sizeof lists_3_13 / sizeof *lists_3_13; i++)
      offsets[words[i].index] = words[i].value;
    assert_true(nt_python_read_lists(offsets, hex, &lists));
    assert_int_equal(lists.version, hex >> 16);
    assert_int_equal(lists.interp_next, release ? 7272 : 7264);
    assert_int_equal(lists.interp_threads, 7344);
    assert_int_equal(lists.gil_holder, 8);
    assert_int_equal(lists.gil_locked, 16);
    assert_int_equal(lists.thread_native, 160);
    for (unsigned i = 1; i < sizeof lists_3_13 / sizeof *lists_3_13; i++) {
      offsets[words[i].index] = UINT64_C(1) << 40;
      bool size = words[i].index == (release ? 22 : 19); /* may be any, if it is large enough */
      assert_int_equal(nt_python_read_lists(offsets, hex, &lists), size);
      offsets[words[i].index] = words[i].value;
    }
  }
  assert_true(nt_python_read_lists(NULL, 0x030800f0, &lists));
  assert_false(nt_python_read_lists(NULL, 0x030700f0, &lists));
  assert_false(nt_python_read_lists(NULL, 0x030f00f0, &lists));
}

static void free_threaded_interpreters_are_refused(void **state) {
  (void)state;
  publish(HEX_3_14);
  offsets[2] = 1;
  assert_false(known(HEX_3_14));
  assert_non_null(strstr(reason, "free-threaded"));
}

static void another_version_or_cookie_is_refused(void **state) {
  (void)state;
  publish(HEX_3_14);
  assert_false(known(HEX_3_14 + 0x100));
  assert_false(known(0x030f00f0));
  offsets[0]++;
  assert_false(known(HEX_3_14));
  publish(HEX_3_14);
  offsets[1] = 0x030e00a3;
  assert_false(known(0x030e00a3));
  assert_non_null(strstr(reason, "pre-release"));
}

static void impossible_offsets_are_refused(void **state) {
  (void)state;
  for (unsigned i = 0; i < sizeof words_3_14 / sizeof *words_3_14; i++) {
    publish(HEX_3_14);
    offsets[words_3_14[i].index] = UINT64_C(1) << 40;
    assert_false(known(HEX_3_14));
    assert_non_null(reason);
  }
}

static void a_process_without_python_has_none(void **state) {
  (void)state;
  const char *version, *text;
  nt_python_find();
  assert_null(nt_python_get());
  assert_false(nt_python_describe(&version, &text));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_3_13_and_3_14_publish_is_the_table_s_row),
      cmocka_unit_test(a_layout_of_its_own_is_taken_as_published),
      cmocka_unit_test(the_lists_of_threads_are_taken_as_published),
      cmocka_unit_test(free_threaded_interpreters_are_refused),
      cmocka_unit_test(another_version_or_cookie_is_refused),
      cmocka_unit_test(impossible_offsets_are_refused),
      cmocka_unit_test(a_process_without_python_has_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
