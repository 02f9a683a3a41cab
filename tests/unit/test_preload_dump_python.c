/* SPDX-License-Identifier: Apache-2.0 */
/* The Python section of a dump, on an interpreter made of bytes: everything in it may be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/dump_thread.h"
#include "preload/python_code.h"
#include "preload/python_layout.h"

#define FREED                                                                                      \
  UINT64_C(0x00007f1234567890) /* what the allocator puts in place of a reference count */

static uint64_t heap[8192], pristine[8192];
static size_t used;
static struct nt_python fake;
static const struct nt_python_layout *const layout = &fake.layout;
static const struct nt_python_lists *const lists = &fake.lists;
static char code_type, text_type, bytes_type, frame_type, *interpreter, *state, *frames[3];
static bool ended;
static char text[1 << 20];

static void *get_first_interpreter(void) {
  return interpreter;
}

static int get_ended(void) {
  return ended;
}

static char *make(size_t size, const void *type) {
  char *object = (char *)&heap[used];
  used += (size + 7) / 8;
  memset(object, 0, size);
  *(uint64_t *)(void *)object = 1;
  memcpy(object + 8, &type, sizeof type);
  return object;
}

static void set(char *object, unsigned offset, uint64_t value) {
  memcpy(object + offset, &value, 8);
}

static void set_int(char *object, unsigned offset, int32_t value) {
  memcpy(object + offset, &value, 4);
}

static uint64_t at(const void *object) {
  return (uint64_t)(uintptr_t)object;
}

static char *make_text(const char *characters) {
  size_t length = strlen(characters);
  char *object = make(layout->text_ascii + length + 1, &text_type);
  set(object, layout->text_length, length);
  set_int(object, layout->text_state, (1 | 1 << 3 | 1 << 4) << layout->text_kind);
  memcpy(object + layout->text_ascii, characters, length);
  return object;
}

/* One entry: eight units on the line after the first. */
static char *make_table(void) {
  char *object = make(40, &bytes_type);
  set(object, layout->bytes_length, 1);
  object[layout->bytes_data] = (char)(0x80 | 11 << 3 | 7);
  return object;
}

static char *make_code(const char *name, int line) {
  char *code = make(layout->code_size + 64u, &code_type);
  set(code, layout->code_file, at(make_text("train.py")));
  set(code, layout->code_name, at(make_text(name)));
  set(code, layout->code_table, at(make_table()));
  set_int(code, layout->code_first_line, line);
  return code;
}

static char *make_frame(const char *name, int line, const char *back) {
  char *code = make_code(name, line), *frame = make(128, NULL);
  memset(frame, 0, 128);
  set(frame, layout->frame_code, at(code));
  set(frame, layout->frame_at, at(code) + layout->code_bytes + 4);
  set(frame, layout->frame_back, at(back));
  return frame;
}

static char *make_state(const char *frame, uint64_t tid, const char *previous) {
  char *cframe = make(32, NULL), *new = make(512, NULL);
  memset(new, 0, 512);
  set(cframe, layout->cframe_frame, at(frame));
  set(new, layout->thread_frame, at(cframe));
  set(new, lists->thread_interp, at(interpreter));
  set(new, lists->thread_native, tid);
  set(new, lists->thread_prev, at(previous));
  return new;
}

/* Three frames on this thread, which holds the GIL. */
static int make_interpreter(void **unused) {
  (void)unused;
  used = 0;
  ended = false;
  fake = (struct nt_python){.layout = *nt_python_layout_at(NT_PYTHON_ROW_3_12),
                            .row = NT_PYTHON_ROW_3_12,
                            .is_finalizing = get_ended,
                            .first_interpreter = get_first_interpreter,
                            .runtime = heap,
                            .code_type = &code_type,
                            .text_type = &text_type,
                            .bytes_type = &bytes_type,
                            .frame_type = &frame_type};
  assert_true(nt_python_read_lists(NULL, 0x030c0000, &fake.lists));
  interpreter = make(1024, NULL);
  memset(interpreter, 0, 1024);
  frames[2] = make_frame("main", 30, NULL);
  frames[1] = make_frame("train", 20, frames[2]);
  frames[0] = make_frame("step", 10, frames[1]);
  state = make_state(frames[0], (uint64_t)syscall(SYS_gettid), NULL);
  char *gil = make(64, NULL);
  set(gil, lists->gil_holder, at(state));
  set_int(gil, lists->gil_locked, 1);
  set(interpreter, lists->interp_threads, at(state));
  set(interpreter, lists->interp_gil, at(gil));
  nt_python_found = &fake;
  return 0;
}

/* The section as "TID/FLAGS name:line …; key=value; …", this thread being "me". */
static const char *dump(void) {
  struct nt_buffer out = {0};
  nt_dump_python(&out);
  struct nt_cursor cursor = {.at = out.data, .left = out.length};
  const unsigned char *entry;
  uint16_t kind;
  uint32_t length;
  size_t n = 0;
  text[0] = 0;
  while (nt_entry_next(&cursor, &kind, &entry, &length)) {
    if (kind == NT_ENTRY_DUMP_FACT) {
      n += (size_t)sprintf(text + n, "%.*s; ", (int)length, (const char *)entry);
      continue;
    }
    assert_int_equal(kind, NT_ENTRY_DUMP_STACK);
    uint32_t tid = nt_get_u32(entry + NT_DUMP_STACK_TID), count = nt_get_u32(entry + 8);
    assert_true(count <= NT_DUMP_FRAMES_MAX);
    n += (size_t)sprintf(text + n, "%s/%u", tid == (uint32_t)syscall(SYS_gettid) ? "me" : "?",
                         nt_get_u16(entry + NT_DUMP_STACK_FLAGS));
    entry += NT_DUMP_STACK_HEAD;
    for (uint32_t i = 0; i < count; i++) {
      unsigned file = nt_get_u16(entry + NT_DUMP_FRAME_FILE),
               name = nt_get_u16(entry + NT_DUMP_FRAME_NAME);
      n += (size_t)sprintf(text + n, " %.*s:%u", (int)name,
                           (const char *)entry + NT_DUMP_FRAME_HEAD + file,
                           (unsigned)nt_get_u64(entry));
      entry += nt_round_up(NT_DUMP_FRAME_HEAD + (uint64_t)file + name, 8);
    }
    n += (size_t)sprintf(text + n, "; ");
  }
  free(out.data);
  return text;
}

#define ASSERT_DUMP(begin) assert_memory_equal(dump(), begin, sizeof(begin) - 1)

static void a_stack_is_read_and_the_holder_of_the_gil(void **unused) {
  char want[256];
  (void)unused;
  sprintf(want,
          "me/0 step:11 train:21 main:31; python.threads=1 of 1 thread states walked; "
          "python.gil=%d; ",
          (int)syscall(SYS_gettid));
  assert_string_equal(dump(), want);
}

static void frames_in_a_circle_end(void **unused) {
  (void)unused;
  set(frames[2], layout->frame_back, at(frames[0]));
  const char *got = dump();
  assert_memory_equal(got, "me/1 step:11 train:21 main:31 step:11 ", 38);
  set(frames[2], layout->frame_back, at(frames[2]));
  memset(frames[2] + layout->frame_owner, 3, 1); /* such frames are passed over, but not for ever */
  ASSERT_DUMP("me/1 step:11 train:21; ");
}

static void a_pointer_to_nowhere_ends_the_stack(void **unused) {
  (void)unused;
  set(frames[1], layout->frame_back, 16);
  ASSERT_DUMP("me/1 step:11 train:21; ");
  set(frames[0], layout->frame_code, UINT64_C(1) << 62);
  ASSERT_DUMP("me/1; ");
}

static void what_is_not_alive_is_not_shown(void **unused) {
  (void)unused;
  char *code = (char *)(uintptr_t)nt_python_word(frames[0], layout->frame_code);
  set(code, 0, FREED);
  ASSERT_DUMP("me/0 train:21 main:31; ");
  set(code, 0, 1);
  char *name = (char *)(uintptr_t)nt_python_word(code, layout->code_name);
  set(name, 0, FREED);
  ASSERT_DUMP("me/0 ?:11 train:21 main:31; ");
  set(name, 0, UINT32_MAX); /* lives for ever, and with flags as 3.14 has them */
  ASSERT_DUMP("me/0 step:11 train:21 main:31; ");
  set(name, 0, UINT64_C(0x00010000c0000000) << 4);
  char *table = (char *)(uintptr_t)nt_python_word(code, layout->code_table);
  set(name, 0, 1);
  set(table, 8, at(&text_type));
  ASSERT_DUMP("me/0 step:0 train:21 main:31; ");
}

static void a_string_that_is_longer_than_memory_is_not_shown(void **unused) {
  (void)unused;
  char *code = (char *)(uintptr_t)nt_python_word(frames[0], layout->frame_code);
  char *name = (char *)(uintptr_t)nt_python_word(code, layout->code_name);
  static const uint64_t lengths[] = {UINT64_C(1) << 63, UINT64_MAX, UINT32_MAX};
  for (unsigned i = 0; i < 3; i++) {
    set(name, layout->text_length, lengths[i]);
    ASSERT_DUMP("me/0 ?:11 train:21 main:31; ");
  }
  set(name, layout->text_length,
      INT32_MAX - 1); /* not mapped that far: no frame that could be believed */
  ASSERT_DUMP("me/2 train:21 main:31; ");
}

static void a_list_of_threads_in_a_circle_ends(void **unused) {
  (void)unused;
  char *other = make_state(NULL, 0, state);
  set(state, lists->thread_next, at(other));
  assert_non_null(strstr(dump(), "python.threads=2 of 2 thread states walked"));
  set(other, lists->thread_next, at(state));
  assert_non_null(strstr(dump(), "me/0 step:11 train:21 main:31; "));
  assert_non_null(strstr(text, "python.threads=2 of at least 2 thread states walked"));
  set(interpreter, lists->interp_next, at(interpreter));
  assert_non_null(strstr(dump(), "of at least "));
}

static void a_state_of_another_interpreter_is_not_believed(void **unused) {
  (void)unused;
  set(state, lists->thread_interp, at(state));
  assert_string_equal(dump(), "missing.python=no thread states where this release has them; ");
}

static void a_thread_without_frames_has_a_stack_without_frames(void **unused) {
  (void)unused;
  set((char *)(uintptr_t)nt_python_word(state, layout->thread_frame), layout->cframe_frame, 0);
  ASSERT_DUMP("me/0; ");
}

static void the_end_of_the_interpreter_is_said(void **unused) {
  (void)unused;
  ended = true;
  assert_non_null(strstr(dump(), "me/0 step:11"));
  assert_non_null(strstr(text, "python.finalizing="));
}

static void a_gil_that_cannot_be_told_is_left_out(void **unused) {
  (void)unused;
  char *gil = (char *)(uintptr_t)nt_python_word(interpreter, lists->interp_gil);
  set_int(gil, lists->gil_locked, 0);
  assert_non_null(strstr(dump(), "python.gil=none; "));
  set_int(gil, lists->gil_locked, 7);
  assert_null(strstr(dump(), "python.gil"));
  set_int(gil, lists->gil_locked, 1);
  set(gil, lists->gil_holder, at(heap));
  assert_null(strstr(dump(), "python.gil"));
}

static void damage_of_any_kind_ends(void **unused) {
  (void)unused;
  srand(1);
  memcpy(pristine, heap, sizeof heap);
  for (int i = 0; i < 3000; i++) {
    memcpy(heap, pristine, sizeof heap);
    for (int j = rand() % 12; j >= 0; j--) {
      uint64_t *word = &heap[(size_t)rand() % used];
      switch (rand() % 4) {
      case 0:
        *word = at(&heap[(size_t)rand() % used]);
        break;
      case 1:
        *word ^= UINT64_C(1) << rand() % 64;
        break;
      case 2:
        *word = (uint64_t)rand() << 40 ^ (uint64_t)rand();
        break;
      default:
        *word = heap[(size_t)rand() % used];
      }
    }
    dump();
  }
}

static void without_an_interpreter_there_is_nothing(void **unused) {
  (void)unused;
  nt_python_found = NULL;
  assert_string_equal(dump(), "");
}

static void switched_off_is_said(void **unused) {
  (void)unused;
  nt_python_allow(false);
  assert_string_equal(dump(), "missing.python=NCCLTRACE_PYTHON=off; ");
  nt_python_allow(true);
}

#define TEST(name) cmocka_unit_test_setup(name, make_interpreter)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_stack_is_read_and_the_holder_of_the_gil),
      TEST(frames_in_a_circle_end),
      TEST(a_pointer_to_nowhere_ends_the_stack),
      TEST(what_is_not_alive_is_not_shown),
      TEST(a_string_that_is_longer_than_memory_is_not_shown),
      TEST(a_list_of_threads_in_a_circle_ends),
      TEST(a_state_of_another_interpreter_is_not_believed),
      TEST(a_thread_without_frames_has_a_stack_without_frames),
      TEST(the_end_of_the_interpreter_is_said),
      TEST(a_gil_that_cannot_be_told_is_left_out),
      TEST(damage_of_any_kind_ends),
      TEST(without_an_interpreter_there_is_nothing),
      TEST(switched_off_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
