/* SPDX-License-Identifier: Apache-2.0 */
/* Native stacks of the calling thread, in regions of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "preload/modules.h"
#include "preload/native_stack.h"
#include "preload/stack_intern.h"
#include "trace/python_lines.h"
#include "trace/read_stacks.h"
#include "trace/reader.h"
#include "trace/record.h"

enum { CODE_BYTES = 64 * 1024, NODES = 1000 };

static struct nt_code_region *codes;
static struct nt_stack_region *stacks;

/* Room for `nodes` nodes. */
static void begin(uint32_t nodes) {
  free(codes);
  free(stacks);
  codes = calloc(1, CODE_BYTES);
  stacks = calloc(NODES + 4, sizeof(struct nt_stack_node));
  atomic_store(&codes->used, sizeof(*codes));
  codes->size = CODE_BYTES;
  atomic_store(&stacks->used, 1);
  stacks->count = nodes;
  assert_int_equal(nt_intern_start(codes, stacks), 0);
  nt_native_start(true);
  assert_string_equal(nt_native_describe(), "on");
  assert_true(nt_native_on);
}

#define KEEP __asm__ volatile("" ::: "memory")

/* The frames of the object that nt_native_stack is in are dropped, and here the test is in it too. So stacks are taken
 * from inside qsort: its frames come first, then this program's. */
static uint32_t python, taken, compared;
static uint16_t flags;

static int take(const void *a, const void *b) {
  (void)a, (void)b;
  if (!compared++)
    taken = nt_native_stack(python, &flags);
  KEEP;
  return 0;
}

static uint32_t take_in_sort(void) {
  int pair[2] = {2, 1};
  flags = 0;
  compared = 0;
  qsort(pair, 2, sizeof *pair, take);
  KEEP;
  return taken;
}

/* Valid until the next call. */
static int frames_of(uint32_t id, const struct nt_stack_frame **frames) {
  static struct nt_stack_table table;
  nt_stack_table_free(&table);
  assert_int_equal(nt_stack_table_area(&table, codes, CODE_BYTES, stacks,
                                       sizeof(*stacks) + NODES * sizeof(struct nt_stack_node)),
                   0);
  return nt_stack_table_get(&table, id, frames);
}

static void the_same_place_is_the_same_number_and_takes_room_once(void **state) {
  (void)state;
  begin(NODES);
  uint32_t ids[10];
  for (int i = 0; i < 10; i++) {
    ids[i] = take_in_sort();
    if (i == 1)
      ids[0] = atomic_load(&stacks->used);
  }
  assert_int_not_equal(ids[1], 0);
  for (int i = 2; i < 10; i++)
    assert_int_equal(ids[i], ids[1]);
  assert_int_equal(atomic_load(&stacks->used), ids[0]);
  assert_int_not_equal(take_in_sort(), ids[1]); /* another place */
}

static void frames_lie_in_the_modules_that_they_name(void **state) {
  const struct nt_stack_frame *frames;
  (void)state;
  begin(NODES);
  int count = frames_of(take_in_sort(), &frames);
  assert_true(count >= 3);
  for (int i = 0; i < count; i++) {
    assert_non_null(frames[i].build_id);
    assert_int_equal(frames[i].file[0], '/');
    assert_int_equal(frames[i].line, 0);
    assert_string_equal(frames[i].function, "");
  }
  struct nt_modules modules = {0};
  nt_modules_load(&modules);
  const struct nt_module *own = nt_modules_find(&modules, (uintptr_t)take);
  assert_non_null(own);
  int within = 0;
  for (int i = 0; i < count; i++)
    within += !strcmp(frames[i].file, own->path) && !strcmp(frames[i].build_id, own->build_id) &&
              frames[i].offset + own->base > own->low && frames[i].offset + own->base < own->high;
  assert_true(within >= 2); /* this function, and main */
  nt_modules_free(&modules);
}

static void native_frames_lie_inside_those_of_python(void **state) {
  const struct nt_stack_frame *frames;
  const struct nt_stack_node program = {.code = 0x1000, .offset = 4, .depth = 1};
  (void)state;
  begin(NODES);
  int alone = frames_of(take_in_sort(), &frames);
  python = nt_intern_node(&program);
  uint32_t id = take_in_sort();
  assert_int_equal(frames_of(id, &frames), alone + 1);
  assert_null(frames[alone].build_id);
  assert_non_null(frames[alone - 1].build_id);
  assert_int_equal(nt_intern_depth(id), alone + 1);
  python = 0;
}

static void what_finds_no_room_is_counted_and_leaves_python_s_stack(void **state) {
  (void)state;
  begin(2);
  assert_int_equal(take_in_sort(), 0);
  assert_int_equal(flags, NT_CALL_NO_STACK);
  python = 1;
  assert_int_equal(take_in_sort(), 1);
  assert_int_equal(flags, 0);
  python = 0;
  assert_int_equal(atomic_load(&stacks->lost), 2);
}

static void offsets_above_2_gib_are_not_negative(void **state) {
  const struct nt_stack_frame *frames;
  (void)state;
  begin(NODES);
  const struct nt_code_entry entry = {.lines = NT_LINES_MODULE, .file_length = 3, .name_length = 4};
  char *at = (char *)codes + sizeof(*codes);
  memcpy(at, &entry, sizeof(entry));
  memcpy(at + sizeof(entry), "/maabcd", 7);
  const struct nt_stack_node node = {
      .code = sizeof(*codes) / NT_CODE_UNIT, .offset = (int32_t)0xfffffff0u, .depth = 1};
  uint32_t id = nt_intern_node(&node);
  assert_int_equal(frames_of(id, &frames), 1);
  assert_string_equal(frames[0].file, "/ma");
  assert_string_equal(frames[0].build_id, "abcd");
  assert_true(frames[0].offset == 0xfffffff0u);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_same_place_is_the_same_number_and_takes_room_once),
      cmocka_unit_test(frames_lie_in_the_modules_that_they_name),
      cmocka_unit_test(native_frames_lie_inside_those_of_python),
      cmocka_unit_test(what_finds_no_room_is_counted_and_leaves_python_s_stack),
      cmocka_unit_test(offsets_above_2_gib_are_not_negative),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
