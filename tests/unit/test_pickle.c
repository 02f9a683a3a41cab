/* SPDX-License-Identifier: Apache-2.0 */
/* The pickle reader: what it reads, what it refuses, and that no input makes it read past its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/pickle.h"

/* A pickle as a C string with its length. */
#define BYTES(text) (const uint8_t *)(text), sizeof(text) - 1

static struct nt_value_store store;
static struct nt_error error;

static const struct nt_value *read_pickle(const uint8_t *bytes, size_t size) {
  const struct nt_value *value = NULL;
  uint8_t *exact = malloc(size ? size : 1); /* a sanitizer sees a read past it */
  memset(&error, 0, sizeof error);
  nt_value_free(&store);
  memcpy(exact, bytes, size);
  int status = nt_pickle_read(exact, size, &store, &value, &error);
  assert_int_equal(status, error.code);
  assert_true((status == 0) == (value != NULL));
  if (value && value->type == NT_VALUE_TEXT && value->count)
    ((struct nt_value *)value)->text = (const char *)bytes + (value->text - (const char *)exact);
  free(exact);
  return value;
}

static void refused(const uint8_t *bytes, size_t size, uint64_t offset, const char *reason) {
  assert_null(read_pickle(bytes, size));
  if (!strstr(error.reason, reason))
    fail_msg("\"%s\" does not say \"%s\"", error.reason, reason);
  assert_int_equal(error.offset, offset);
}

static void numbers_of_all_widths_are_read(void **state) {
  (void)state;
  assert_int_equal(read_pickle(BYTES("\x80\x02K\xff."))->integer, 255);
  assert_int_equal(read_pickle(BYTES("\x80\x02M\x34\x12."))->integer, 0x1234);
  assert_int_equal(read_pickle(BYTES("\x80\x02J\xff\xff\xff\xff."))->integer, -1);
  assert_int_equal(read_pickle(BYTES("\x80\x02\x8a\x08\x38\x0b\x21\x93\x10\x8a\xec\x18."))->integer,
                   INT64_C(0x18ec8a1093210b38));
  assert_int_equal(read_pickle(BYTES("\x80\x02\x8a\x00."))->integer, 0);
  assert_int_equal(read_pickle(BYTES("\x80\x02\x8a\x01\x80."))->integer, -128);
  assert_int_equal(
      read_pickle(BYTES("\x80\x02\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00."))->integer,
      INT64_MAX); /* 2^63 does not fit */
  assert_int_equal(read_pickle(BYTES("\x80\x02I42\n."))->integer, 42);
  assert_int_equal(read_pickle(BYTES("\x80\x02L-7L\n."))->integer, -7);
  assert_true(read_pickle(BYTES("\x80\x02G\x3f\xf8\0\0\0\0\0\0."))->real == 1.5);
  assert_int_equal(read_pickle(BYTES("\x80\x02\x88."))->type, NT_VALUE_BOOL);
  assert_int_equal(read_pickle(BYTES("\x80\x02N."))->type, NT_VALUE_NONE);
}

static void containers_are_read_in_all_forms(void **state) {
  (void)state;
  const struct nt_value *value = read_pickle(BYTES("\x80\x04}(\x8c\x01"
                                                   "a\x94K\x01\x8c\x01"
                                                   "b](K\x02K\x03"
                                                   "eu."));
  assert_int_equal(value->type, NT_VALUE_MAP);
  assert_int_equal(value->count, 2);
  assert_int_equal(value->items[3]->count, 2);
  assert_int_equal(value->items[3]->items[1]->integer, 3);
  assert_int_equal(read_pickle(BYTES("\x80\x02(K\x01K\x02t."))->count, 2);
  assert_int_equal(read_pickle(BYTES("\x80\x02K\x01\x85."))->count, 1);
  assert_int_equal(read_pickle(BYTES("\x80\x02]K\x07"
                                     "a."))
                       ->count,
                   1);
  assert_int_equal(read_pickle(BYTES("\x80\x02}K\x07K\x08s."))->count, 1);
}

static void memo_entries_are_shared(void **state) {
  (void)state;
  const struct nt_value *list = read_pickle(BYTES("\x80\x02](X\x02\0\0\0hiq\0h\0e."));
  assert_int_equal(list->count, 2);
  assert_ptr_equal(list->items[0], list->items[1]);
  list = read_pickle(BYTES("\x80\x04](\x8c\x02hi\x94h\0e."));
  assert_ptr_equal(list->items[0], list->items[1]);
}

static void whatever_imports_or_calls_is_refused_by_name(void **state) {
  (void)state;
  refused(BYTES("\x80\x02"
                "cos\nsystem\n(X\x02\0\0\0lstR."),
          2, "GLOBAL (opcode 0x63)");
  refused(BYTES("\x80\x04\x8c\x02os\x8c\x06system\x93."), 14, "STACK_GLOBAL (opcode 0x93)");
  static const struct {
    char opcode;
    const char *name;
  } opcodes[] = {{'R', "REDUCE"},      {'b', "BUILD"},     {'i', "INST"},
                 {'o', "OBJ"},         {'\x81', "NEWOBJ"}, {'\x92', "NEWOBJ_EX"},
                 {'\x82', "EXT1"},     {'\x83', "EXT2"},   {'\x84', "EXT4"},
                 {'P', "PERSID"},      {'Q', "BINPERSID"}, {'\x97', "NEXT_BUFFER"},
                 {'\x8f', "EMPTY_SET"}};
  for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; i++) {
    const char pickle[] = {'\x80', 2, 'N', opcodes[i].opcode, '.'};
    refused((const uint8_t *)pickle, sizeof pickle, 3, opcodes[i].name);
  }
}

static void lengths_are_checked_against_the_file(void **state) {
  (void)state;
  refused(BYTES("\x80\x02X\xff\xff\xff\x7fhi."), 2, "does not fit into the file");
  refused(BYTES("\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xffhi."), 2,
          "does not fit into the file");
  refused(BYTES("\x80\x02\x8b\xff\xff\xff\xff\x01."), 2, "does not fit into the file");
  refused(BYTES("\x80\x02r\xff\xff\xff\xff."), 2, "lacks its operands");
  refused(BYTES("\x80\x02Nr\xff\xff\xff\xff."), 3, "memo entry 4294967295 in a file of 9 bytes");
  refused(BYTES("\x80\x02h\x05."), 2, "memo entry 5 was never made");
  refused(BYTES("\x80\x02K"), 2, "the pickle ends inside a value");
  refused(BYTES("\x80\x02N"), 3, "the pickle has no end");
}

static void operations_without_operands_are_refused(void **state) {
  (void)state;
  refused(BYTES("\x80\x02"
                "0."),
          2, "lacks its operands");
  refused(BYTES("\x80\x02"
                "e."),
          2, "lacks its mark");
  refused(BYTES("\x80\x02(K\x01"
                "e."),
          5, "items are added to what is no list");
  refused(BYTES("\x80\x02](}(K\x01u."), 8, "a key has no value");
  refused(BYTES("\x80\x02](0."), 4, "lacks its operands"); /* a mark is not to be reached across */
  refused(BYTES("\x80\x02NN."), 4, "ends with 2 values");
  refused(BYTES("\x80\x01N."), 0, "no pickle of protocol 2 to 5");
  refused(BYTES(""), 0, "no pickle of protocol 2 to 5");
}

static void nesting_costs_no_stack(void **state) {
  (void)state;
  enum { DEEP = 1 << 20 };
  uint8_t *bytes = malloc(2 * DEEP + 4);
  size_t size = 2;
  memcpy(bytes, "\x80\x02", 2);
  memset(bytes + size, ']', DEEP);
  size += DEEP;
  memset(bytes + size, 'a', DEEP - 1);
  size += DEEP - 1;
  bytes[size++] = '.';
  assert_int_equal(read_pickle(bytes, size)->count, 1);
  memset(bytes + 2, '(', DEEP);
  refused(bytes, DEEP, 2 + 256, "nested more than 256 deep");
  free(bytes);
}

static void a_list_that_holds_itself_is_no_trap(void **state) {
  (void)state;
  const struct nt_value *list = read_pickle(BYTES("\x80\x02]q\0h\0a."));
  assert_ptr_equal(list->items[0], list);
}

static void every_truncation_is_refused(void **state) {
  (void)state;
  static const char whole[] = "\x80\x04\x95\x20\0\0\0\0\0\0\0}(\x8c\x01"
                              "a\x94(K\x01M\x02\x03\x88t\x94"
                              "X\x01\0\0\0b](N\x8a\x02\x01\x02G?\xf0\0\0\0\0\0\0eu.";
  assert_non_null(read_pickle(BYTES(whole)));
  for (size_t size = 0; size < sizeof whole - 1; size++)
    assert_null(read_pickle((const uint8_t *)whole, size));
}

static void memory_is_proportional_to_the_file(void **state) {
  (void)state;
  enum { COUNT = 1 << 20 };
  uint8_t *bytes = malloc(COUNT + 8);
  memcpy(bytes, "\x80\x02](", 4);
  memset(bytes + 4, ')', COUNT);
  memcpy(bytes + 4 + COUNT, "e.", 2);
  assert_int_equal(read_pickle(bytes, COUNT + 6)->count, COUNT);
  free(bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_of_all_widths_are_read),
      cmocka_unit_test(containers_are_read_in_all_forms),
      cmocka_unit_test(memo_entries_are_shared),
      cmocka_unit_test(whatever_imports_or_calls_is_refused_by_name),
      cmocka_unit_test(lengths_are_checked_against_the_file),
      cmocka_unit_test(operations_without_operands_are_refused),
      cmocka_unit_test(nesting_costs_no_stack),
      cmocka_unit_test(a_list_that_holds_itself_is_no_trap),
      cmocka_unit_test(every_truncation_is_refused),
      cmocka_unit_test(memory_is_proportional_to_the_file),
  };
  int status = cmocka_run_group_tests(tests, NULL, NULL);
  nt_value_free(&store);
  return status;
}
