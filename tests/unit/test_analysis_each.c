/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/each.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MANY = 5000 };

static uint8_t done[MANY];

static int note(void *ctx, uint32_t i) {
  const uint32_t *bad = ctx;
  done[i]++;
  return i == *bad ? -7 : 0;
}

static void each_is_done_once(void **state) {
  (void)state;
  static const uint32_t counts[] = {0, 1, 63, 511, 512, 513, MANY};
  uint32_t none = MANY;
  for (uint32_t c = 0; c < sizeof counts / sizeof *counts; c++) {
    for (uint32_t i = 0; i < MANY; i++)
      done[i] = 0;
    assert_int_equal(nt_each(counts[c], note, &none), 0);
    for (uint32_t i = 0; i < MANY; i++)
      assert_int_equal(done[i], i < counts[c]);
  }
}

static void what_fails_is_told(void **state) {
  (void)state;
  for (uint32_t bad = 3; bad < MANY; bad += 611)
    assert_int_equal(nt_each(MANY, note, &bad), -7);
}

static void at_least_one_processor_is_there(void **state) {
  (void)state;
  assert_in_range(nt_each_processors(), 1, 16);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_is_done_once),
      cmocka_unit_test(what_fails_is_told),
      cmocka_unit_test(at_least_one_processor_is_there),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
