/* SPDX-License-Identifier: Apache-2.0 */
/* The edit that explains a difference best. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "analysis/edit.h"

static struct nt_edit compare(const char *reference, const char *other) {
  uint64_t a[NT_EDIT_WINDOW], b[NT_EDIT_WINDOW];
  uint32_t n = 0, m = 0;
  while (reference[n])
    a[n] = (unsigned char)reference[n], n++;
  while (other[m])
    b[m] = (unsigned char)other[m], m++;
  return nt_edit_compare(a, n, b, m);
}

static void a_skip_that_explains_the_rest_wins(void **state) {
  (void)state;
  struct nt_edit edit = compare("ghij", "hij");
  assert_int_equal(edit.how, NT_EDIT_SKIPPED);
  assert_int_equal(edit.run, 1);
  assert_int_equal(edit.shift, 1);
  assert_int_equal(edit.matched, 3);
}

static void several_skips_in_a_row_are_counted(void **state) {
  (void)state;
  struct nt_edit edit = compare("abcxyz", "xyz");
  assert_int_equal(edit.how, NT_EDIT_SKIPPED);
  assert_int_equal(edit.run, 3);
}

static void an_extra_call_is_found(void **state) {
  (void)state;
  assert_int_equal(compare("bcd", "xbcd").how, NT_EDIT_EXTRA);
  assert_int_equal(compare("b", "xb").how, NT_EDIT_EXTRA);
}

static void a_swap_is_no_change(void **state) {
  (void)state;
  assert_int_equal(compare("ab", "ba").how, NT_EDIT_ORDER);
  assert_int_equal(compare("abcd", "bacd").how, NT_EDIT_ORDER);
}

static void a_call_that_comes_later_is_out_of_order(void **state) {
  (void)state;
  assert_int_equal(compare("abcdef", "bcdaef").how, NT_EDIT_ORDER);
  assert_int_equal(compare("bcdaef", "abcdef").how, NT_EDIT_ORDER);
}

static void without_what_follows_a_difference_is_a_change(void **state) {
  (void)state;
  assert_int_equal(compare("a", "b").how, NT_EDIT_CHANGED);
  assert_int_equal(compare("axyz", "bxyz").how, NT_EDIT_CHANGED);
  assert_int_equal(compare("a", "bcd").how, NT_EDIT_CHANGED);
}

static void ends_are_free(void **state) {
  (void)state;
  struct nt_edit edit = compare("abcdefgh", "bc");
  assert_int_equal(edit.how, NT_EDIT_SKIPPED);
  assert_int_equal(edit.run, 1);
}

static void a_reversed_run_is_out_of_order(void **state) {
  (void)state;
  assert_int_equal(compare("abcx", "cbax").how, NT_EDIT_ORDER);
  assert_int_equal(compare("abc", "cba").how, NT_EDIT_ORDER);
  assert_int_equal(compare("abcabc", "bcabc").how, NT_EDIT_SKIPPED);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_skip_that_explains_the_rest_wins),
      cmocka_unit_test(several_skips_in_a_row_are_counted),
      cmocka_unit_test(an_extra_call_is_found),
      cmocka_unit_test(a_swap_is_no_change),
      cmocka_unit_test(a_call_that_comes_later_is_out_of_order),
      cmocka_unit_test(without_what_follows_a_difference_is_a_change),
      cmocka_unit_test(ends_are_free),
      cmocka_unit_test(a_reversed_run_is_out_of_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
