/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/stack_lines.h"

static char out[NT_SITE_TEXT];

static void the_site_is_the_program_s_own_frame(void **state) {
  (void)state;
  static const struct nt_stack_frame frames[] = {
      {"/usr/lib/python3.11/contextlib.py", "inner", 80, NULL, 0},
      {"/opt/venv/lib/python3.11/site-packages/torch/distributed/c10d.py", "all_reduce", 2810, NULL,
       0},
      {"<frozen importlib._bootstrap>", "_call", 241, NULL, 0},
      {"/home/me/train.py", "Trainer.step", 88, NULL, 0},
      {"/home/me/main.py", "<module>", 3, NULL, 0},
  };
  assert_int_equal(nt_stack_site(frames, 5), 3);
  assert_string_equal(nt_stack_site_text(out, sizeof out, frames, 5), "train.py:88 Trainer.step");
}

static void of_installed_frames_alone_it_is_the_innermost(void **state) {
  (void)state;
  static const struct nt_stack_frame frames[] = {{"/x/site-packages/a.py", "f", 1, NULL, 0},
                                                 {"/x/site-packages/b.py", "g", 2, NULL, 0}};
  assert_string_equal(nt_stack_site_text(out, sizeof out, frames, 2), "a.py:1 f");
}

static void native_frames_are_the_site_only_where_there_is_no_python(void **state) {
  (void)state;
  static const struct nt_stack_frame frames[] = {
      {.file = "/usr/lib/libffi.so.8", .function = "", .build_id = "00", .offset = 16},
      {.file = "/gone/libtrain.so", .function = "", .build_id = "00", .offset = 0x1234},
      {.file = "/home/me/train.py", .function = "step", .line = 88},
  };
  assert_string_equal(nt_stack_site_text(out, sizeof out, frames, 3), "train.py:88 step");
  assert_string_equal(nt_stack_site_text(out, sizeof out, frames, 2), "libtrain.so+0x1234");
  assert_string_equal(nt_stack_site_text(out, sizeof out, frames, 1), "libffi.so.8+0x10");
}

static void a_native_frame_without_its_module_is_an_offset(void **state) {
  (void)state;
  static const struct nt_stack_frame gone = {
      .file = "/gone/lib\033.so", .function = "", .build_id = "", .offset = 0xfffffff0};
  /* There, but of another build; and what is no file at all. */
  static const struct nt_stack_frame other = {
      .file = "/proc/self/exe", .function = "", .build_id = "00", .offset = 1};
  static const struct nt_stack_frame device = {
      .file = "/dev/zero", .function = "", .build_id = "00", .offset = 1};
  assert_string_equal(nt_stack_line_text(out, sizeof out, &gone, true),
                      "/gone/lib\\x1b.so+0xfffffff0");
  assert_string_equal(nt_stack_line_text(out, sizeof out, &other, true), "/proc/self/exe+0x1");
  assert_string_equal(nt_stack_line_text(out, sizeof out, &device, false), "zero+0x1");
}

static void an_unknown_line_is_left_out(void **state) {
  (void)state;
  static const struct nt_stack_frame frame = {"<string>", "f", 0, NULL, 0};
  assert_string_equal(nt_stack_site_text(out, sizeof out, &frame, 1), "<string> f");
  assert_string_equal(nt_stack_site_text(out, sizeof out, NULL, 0), "");
}

static void names_are_escaped(void **state) {
  (void)state;
  static const struct nt_stack_frame frame = {"a\033[2J.py", "f\n", 1, NULL, 0};
  assert_string_equal(nt_stack_site_text(out, sizeof out, &frame, 1), "a\\x1b[2J.py:1 f\\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_site_is_the_program_s_own_frame),
      cmocka_unit_test(of_installed_frames_alone_it_is_the_innermost),
      cmocka_unit_test(native_frames_are_the_site_only_where_there_is_no_python),
      cmocka_unit_test(a_native_frame_without_its_module_is_an_offset),
      cmocka_unit_test(an_unknown_line_is_left_out),
      cmocka_unit_test(names_are_escaped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
