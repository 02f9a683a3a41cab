/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, system calls and whole stacks in words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "cli/dump_text.h"
#include "cli/stack_lines.h"

static char out[512];

static const char *call(int64_t number, uint64_t a, uint64_t b, uint64_t c, bool whole) {
  const uint64_t arguments[6] = {a, b, c};
  return nt_syscall_text(out, sizeof out, NT_MACHINE_X86_64, number, arguments, whole);
}

static void system_calls_have_names_and_arguments(void **state) {
  (void)state;
  assert_string_equal(call(0, 7, 0x7f0000, 4096, true), "read(fd 7, 0x7f0000, 4096)");
  assert_string_equal(call(0, 7, 0x7f0000, 4096, false), "read(fd 7)");
  assert_string_equal(call(202, 0x1000, 0x189, 0, true), "futex(0x1000, wait bitset, 0)");
  assert_string_equal(call(202, 0x1000, 0x80, 0, false), "futex(wait)");
  assert_string_equal(call(7, 0x1000, 1, UINT64_C(0xffffffff), true), "poll(0x1000, 1, -1)");
  assert_string_equal(call(7, 0x1000, 1, 0, false), "poll");
  assert_string_equal(call(257, UINT64_C(0xffffff9c), 1, 2, true), "openat(AT_FDCWD, 0x1, 0x2)");
  assert_string_equal(call(24, 0, 0, 0, true), "sched_yield()");
  assert_string_equal(call(9999, 0, 0, 0, true), "system call 9999");
}

static void numbers_are_those_of_the_machine_that_was_traced(void **state) {
  (void)state;
  assert_string_equal(nt_syscall_name(nt_machine_of("aarch64"), 63), "read");
  assert_string_equal(nt_syscall_name(nt_machine_of("x86_64"), 63), "uname");
  assert_null(nt_syscall_name(nt_machine_of("riscv64"), 63));
  assert_null(nt_syscall_name(NT_MACHINE_AARCH64, -1));
}

static void numbers_are_those_of_this_machine_s_headers(void **state) {
  (void)state;
  const struct {
    const char *name;
    long number;
  } known[] = {{"read", SYS_read},
               {"futex", SYS_futex},
               {"ppoll", SYS_ppoll},
               {"recvmsg", SYS_recvmsg},
               {"ioctl", SYS_ioctl},
               {"openat", SYS_openat},
               {"wait4", SYS_wait4},
               {"flock", SYS_flock},
               {"fsync", SYS_fsync},
               {"epoll_pwait", SYS_epoll_pwait},
               {"mmap", SYS_mmap},
               {"connect", SYS_connect},
               {"clock_nanosleep", SYS_clock_nanosleep},
               {"io_uring_enter", SYS_io_uring_enter}};
  enum nt_machine here = nt_machine_of(NULL);
  for (size_t i = 0; here != NT_MACHINE_OTHER && i < sizeof known / sizeof *known; i++)
    assert_string_equal(nt_syscall_name(here, known[i].number), known[i].name);
}

static void no_number_has_two_names(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int x86_64, aarch64;
  } rows[] = {
#define X(name, x86_64, aarch64, arguments) {#name, x86_64, aarch64},
#include "cli/syscall_names.def"
#undef X
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].x86_64 >= 0)
      assert_string_equal(nt_syscall_name(NT_MACHINE_X86_64, rows[i].x86_64), rows[i].name);
    if (rows[i].aarch64 >= 0)
      assert_string_equal(nt_syscall_name(NT_MACHINE_AARCH64, rows[i].aarch64), rows[i].name);
  }
}

static void a_thread_s_state_is_said_in_words(void **state) {
  (void)state;
  struct nt_dump_thread thread = {.state = 'S', .syscall = 0, .args = {7}};
  nt_thread_doing(out, sizeof out, &thread, NT_MACHINE_X86_64, false);
  assert_string_equal(out, "sleeping in read(fd 7)");
  thread.state = 'D';
  nt_thread_doing(out, sizeof out, &thread, NT_MACHINE_X86_64, false);
  assert_string_equal(out, "in the kernel, not interruptible, in read(fd 7)");
  thread = (struct nt_dump_thread){.state = 'R', .syscall = NT_SYSCALL_NONE};
  assert_string_equal(nt_thread_doing(out, sizeof out, &thread, NT_MACHINE_X86_64, true),
                      "running");
  thread.state = 'q';
  assert_string_equal(nt_thread_doing(out, sizeof out, &thread, NT_MACHINE_X86_64, true),
                      "state not known");
}

static void an_extent_counts_threads_and_stacks(void **state) {
  (void)state;
  const struct nt_dump_thread threads[] = {{.kernel = true, .python_count = 3}, {.kernel = true}};
  const struct nt_dump_view dump = {.threads = threads, .thread_count = 2};
  assert_string_equal(nt_dump_extent(out, sizeof out, &dump),
                      "2 threads (1 Python stack, no native stacks)");
}

static void missing_sources_are_named_as_people_name_them(void **state) {
  (void)state;
  assert_string_equal(nt_dump_missing_source(out, sizeof out, "missing.kernel-log"), "kernel log");
  assert_string_equal(nt_dump_missing_source(out, sizeof out, "missing.a\033"), "a\\x1b");
  assert_null(nt_dump_missing_source(out, sizeof out, "missing."));
  assert_null(nt_dump_missing_source(out, sizeof out, "memory.rss"));
}

/* ---- stacks ------------------------------------------------------------------------------------- */

static const struct nt_stack_frame frames[] = {
    {.file = "/usr/lib/python3.11/threading.py", .function = "wait", .line = 320},
    {.file = "/v/site-packages/torch/utils/data.py", .function = "next", .line = 1},
    {.file = "/v/site-packages/torch/nn.py", .function = "go", .line = 2},
    {.file = "/home/me/data.py", .function = "load", .line = 41},
    {.file = "/v/site-packages/torch/nn.py", .function = "call", .line = 3},
    {.file = "/home/me/train.py", .function = "main", .line = 7},
    {.file = "/home/me/run.py", .function = "<module>", .line = 0},
};

static void expect(const struct nt_stack_style *style, const struct nt_stack_frame *list,
                   size_t count, bool cut, const char *wanted) {
  char *text = NULL;
  size_t size = 0;
  FILE *file = open_memstream(&text, &size);
  nt_stack_print(file, style, list, count, cut);
  fclose(file);
  assert_string_equal(text, wanted);
  free(text);
}

static void frames_of_frameworks_are_folded(void **state) {
  (void)state;
  struct nt_stack_style style = {.indent = "  "};
  expect(&style, frames, 7, true,
         "  (3 frames of the standard library, torch)\n  data.py:41 load\n  (1 frame of torch)\n"
         "  train.py:7 main\n  run.py <module>\n  (more frames, which the dump does not have)\n");
  style.program = 1;
  expect(&style, frames, 7, true,
         "  (3 frames of the standard library, torch)\n  data.py:41 load\n  (3 more)\n");
}

static void every_frame_is_shown_on_request(void **state) {
  (void)state;
  const struct nt_stack_style style = {.indent = "", .paths = true, .whole = true};
  expect(&style, frames, 4, false,
         "/usr/lib/python3.11/threading.py:320 wait\n/v/site-packages/torch/utils/data.py:1 next\n"
         "/v/site-packages/torch/nn.py:2 go\n/home/me/data.py:41 load\n");
}

static void without_the_program_the_innermost_frame_is_shown(void **state) {
  (void)state;
  const struct nt_stack_style style = {.indent = ""};
  expect(&style, frames, 3, false, "threading.py:320 wait\n(2 frames of torch)\n");
}

static void native_frames_are_places_in_modules(void **state) {
  (void)state;
  const struct nt_stack_style style = {.indent = ""};
  struct nt_stack_frame native[12];
  for (size_t i = 0; i < 12; i++)
    native[i] = (struct nt_stack_frame){
        .file = "/x/libtorch.so", .function = "", .build_id = "ab", .offset = i + 16};
  expect(&style, native, 2, false, "libtorch.so+0x10\nlibtorch.so+0x11\n");
  expect(&style, native, 12, false,
         "libtorch.so+0x10\nlibtorch.so+0x11\nlibtorch.so+0x12\nlibtorch.so+0x13\n"
         "libtorch.so+0x14\nlibtorch.so+0x15\nlibtorch.so+0x16\nlibtorch.so+0x17\n"
         "(4 more frames of native code)\n");
}

static void of_native_frames_the_program_s_own_stand_out(void **state) {
  (void)state;
  struct nt_stack_style style = {.indent = ""};
  const struct nt_stack_frame native[] = {
      {.file = "/lib/libc.so.6", .function = "", .build_id = "ab", .offset = 1},
      {.file = "/x/libdata.so", .function = "", .build_id = "ab", .offset = 2},
      {.file = "/x/train", .function = "", .build_id = "ab", .offset = 3},
      {.file = "/lib/libc.so.6", .function = "", .build_id = "ab", .offset = 4}};
  expect(&style, native, 4, false,
         "(1 frame of native code)\nlibdata.so+0x2\ntrain+0x3\n(1 frame of native code)\n");
  style.program = 3;
  expect(&style, native, 4, false, "libdata.so+0x2\ntrain+0x3\n");
  style.program = 1;
  expect(&style, native, 4, false, "libdata.so+0x2\n(2 more)\n");
}

static void texts_of_stacks_are_escaped(void **state) {
  (void)state;
  const struct nt_stack_style style = {.indent = ""};
  const struct nt_stack_frame hostile[] = {
      {.file = "/v/site-packages/a\033/b.py", .function = "f", .line = 1},
      {.file = "a\033.py", .function = "g\n", .line = 1}};
  expect(&style, hostile, 2, false, "(1 frame of a\\x1b)\na\\x1b.py:1 g\\n\n");
}

static void out_of_memory_kills_of_others_are_told_apart(void **state) {
  (void)state;
  static const char *const group =
      "12 s ago: Memory cgroup out of memory: Killed process 77 (train)";
  static const char *const machine = "12 s ago: Out of memory: Killed process 78 (chrome)";
  const uint32_t ours[] = {76, 77}, others[] = {76, 79};
  assert_false(nt_is_other_oom(group, 60, ours, 2));
  assert_true(nt_is_other_oom(group, 60, others, 2));
  assert_true(nt_is_other_oom(group, 10, ours, 2)); /* before it began */
  assert_false(nt_is_other_oom(machine, 60, others, 2));
  assert_true(nt_is_other_oom(machine, 10, others, 2));
  assert_false(nt_is_other_oom("12 s ago: NVRM: Xid 79, GPU has fallen off the bus", 1, ours, 2));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(system_calls_have_names_and_arguments),
      cmocka_unit_test(numbers_are_those_of_the_machine_that_was_traced),
      cmocka_unit_test(numbers_are_those_of_this_machine_s_headers),
      cmocka_unit_test(no_number_has_two_names),
      cmocka_unit_test(a_thread_s_state_is_said_in_words),
      cmocka_unit_test(an_extent_counts_threads_and_stacks),
      cmocka_unit_test(missing_sources_are_named_as_people_name_them),
      cmocka_unit_test(out_of_memory_kills_of_others_are_told_apart),
      cmocka_unit_test(frames_of_frameworks_are_folded),
      cmocka_unit_test(every_frame_is_shown_on_request),
      cmocka_unit_test(without_the_program_the_innermost_frame_is_shown),
      cmocka_unit_test(native_frames_are_places_in_modules),
      cmocka_unit_test(of_native_frames_the_program_s_own_stand_out),
      cmocka_unit_test(texts_of_stacks_are_escaped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
