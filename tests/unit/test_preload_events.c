/* SPDX-License-Identifier: Apache-2.0 */
/* An event that was just recorded is known, however many there were before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "preload/event_set.h"

static const void *event(uint32_t i) {
  return (const void *)(uintptr_t)(UINT64_C(0x7f12a4000010) + (uint64_t)i * 0x60);
}

static void as_many_as_a_pool_holds_are_all_known(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 1500; i++)
    nt_event_keep(event(i));
  for (uint32_t i = 0; i < 1500; i++)
    assert_true(nt_event_known(event(i)));
  assert_false(nt_event_known(event(1500)));
  assert_false(nt_event_known(NULL));
}

static void the_latest_of_a_great_many_are_known(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 300000; i++) {
    nt_event_keep(event(i));
    for (uint32_t k = i < 200 ? 0 : i - 200; k <= i; k += 50)
      assert_true(nt_event_known(event(k)));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_many_as_a_pool_holds_are_all_known),
      cmocka_unit_test(the_latest_of_a_great_many_are_known),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
