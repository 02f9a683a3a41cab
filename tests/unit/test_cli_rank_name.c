/* SPDX-License-Identifier: Apache-2.0 */
/* How a rank is introduced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/rank_name.h"

static void assert_text(const char *wanted, struct nt_rank_name name) {
  char text[NT_RANK_NAME];
  assert_string_equal(nt_rank_name_text(text, sizeof text, &name), wanted);
}

static void a_rank_is_introduced_by_process_and_gpu(void **state) {
  (void)state;
  assert_text("rank 3 (gpu-07, pid 8123, GPU 3 = cuda:0, 0000:4e:00.0)",
              (struct nt_rank_name){3, 8123, "gpu-07", 3, 0, "0000:4e:00.0"});
}

static void what_is_not_known_is_left_out(void **state) {
  (void)state;
  assert_text("rank 3", (struct nt_rank_name){3, 0, NULL, -1, -1, NULL});
  assert_text("rank 3", (struct nt_rank_name){3, 0, "", -1, -1, ""});
  assert_text("rank 0 (pid 5)", (struct nt_rank_name){0, 5, NULL, -1, -1, NULL});
  assert_text("rank 0 (a, cuda:1)", (struct nt_rank_name){0, 0, "a", -1, 1, NULL});
  assert_text("rank 0 (GPU 2, 0000:4e:00.0)",
              (struct nt_rank_name){0, 0, NULL, 2, -1, "0000:4e:00.0"});
  assert_text("rank unknown (a)", (struct nt_rank_name){-1, 0, "a", -1, -1, NULL});
}

static void names_are_harmless_and_cut(void **state) {
  char text[16];
  char long_host[300];
  (void)state;
  assert_text("rank 1 (a\\x1b[2J, b\\n)", (struct nt_rank_name){1, 0, "a\x1b[2J", -1, -1, "b\n"});
  memset(long_host, 'h', sizeof long_host - 1);
  long_host[sizeof long_host - 1] = '\0';
  struct nt_rank_name name = {1, 4711, long_host, 1, 1, long_host};
  assert_string_equal(nt_rank_name_text(text, sizeof text, &name), "rank 1 (hhhhhhh");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_is_introduced_by_process_and_gpu),
      cmocka_unit_test(what_is_not_known_is_left_out),
      cmocka_unit_test(names_are_harmless_and_cut),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
