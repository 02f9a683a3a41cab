/* SPDX-License-Identifier: Apache-2.0 */
/* Rank sets: text to set to text, bounds, and cutting. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "cli/rank_set.h"
#include "trace/error.h"

static void ranges_survive_the_way_there_and_back(void **state) {
  (void)state;
  static const struct {
    const char *in, *out;
  } cases[] = {
      {"0", "0"},           {"0-1,3", "0-1,3"}, {"3,1,0", "0-1,3"},
      {"5-9,0-6,5", "0-9"}, {"63,64", "63-64"}, {"0-0,127-129,4095", "0,127-129,4095"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct nt_rank_set set = {0};
    char text[64];
    assert_int_equal(nt_rank_set_parse(cases[i].in, &set), 0);
    assert_string_equal(nt_rank_set_text(text, sizeof text, &set), cases[i].out);
    nt_rank_set_free(&set);
  }
}

static void what_is_no_list_of_ranges_is_refused(void **state) {
  (void)state;
  static const char *const bad[] = {
      "",    ",",     "1,", "1,,2", "a",        "1-",         "-1",
      "2-1", "1-2-3", "1 ", " 1",   "16777216", "0-16777216", "99999999999999999999"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    struct nt_rank_set set = {0};
    assert_int_equal(nt_rank_set_parse(bad[i], &set), -NT_ERR_CORRUPT);
    nt_rank_set_free(&set);
  }
}

static void membership_and_iteration(void **state) {
  (void)state;
  struct nt_rank_set set = {0};
  char text[16];
  assert_int_equal(nt_rank_set_count(&set), 0);
  assert_int_equal(nt_rank_set_next(&set, 0), NT_RANK_MAX);
  assert_string_equal(nt_rank_set_text(text, sizeof text, &set), "none");
  assert_int_equal(nt_rank_set_add(&set, 5), 0);
  assert_int_equal(nt_rank_set_add(&set, NT_RANK_MAX - 1), 0);
  assert_int_equal(nt_rank_set_add(&set, NT_RANK_MAX), -NT_ERR_CORRUPT);
  assert_true(nt_rank_set_has(&set, 5));
  assert_false(nt_rank_set_has(&set, 6));
  assert_false(nt_rank_set_has(&set, UINT32_MAX));
  assert_int_equal(nt_rank_set_count(&set), 2);
  assert_int_equal(nt_rank_set_next(&set, 0), 5);
  assert_int_equal(nt_rank_set_next(&set, 6), NT_RANK_MAX - 1);
  nt_rank_set_free(&set);
}

static void long_lists_are_cut_at_a_comma(void **state) {
  (void)state;
  struct nt_rank_set set = {0};
  char text[16];
  assert_int_equal(nt_rank_set_parse("10,20,30,40,50,60", &set), 0);
  assert_string_equal(nt_rank_set_text(text, sizeof text, &set), "10,20,30,40,...");
  nt_rank_set_free(&set);
}

static void lists_of_ranks_become_ranges(void **state) {
  (void)state;
  static const int32_t ranks[] = {0, 1, 1, 2, 7, 9, 10};
  char text[64];
  assert_string_equal(nt_rank_list_text(text, sizeof text, ranks, 7), "0-2,7,9-10");
  assert_string_equal(nt_rank_list_text(text, sizeof text, ranks, 0), "none");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranges_survive_the_way_there_and_back),
      cmocka_unit_test(what_is_no_list_of_ranges_is_refused),
      cmocka_unit_test(membership_and_iteration),
      cmocka_unit_test(long_lists_are_cut_at_a_comma),
      cmocka_unit_test(lists_of_ranks_become_ranges),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
