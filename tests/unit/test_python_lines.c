/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trace/python_lines.h"
#include "trace_fixture.h"

static const struct sample {
  const char *name;
  unsigned format;
  int first_line;
  unsigned table_length, lines;
  const unsigned char *table;
  const int *line; /* of each second byte of the code */
} samples[] = {
#include "python_lines_data.h"
};

enum { SAMPLES = sizeof samples / sizeof *samples };

static void tables_of_all_releases_give_their_lines(void **state) {
  (void)state;
  for (unsigned s = 0; s < SAMPLES; s++) {
    const struct sample *sample = &samples[s];
    for (unsigned i = 0; i < sample->lines; i++) {
      int line = nt_python_line(sample->format, sample->table, sample->table_length,
                                sample->first_line, (int)i * 2);
      if (line != sample->line[i])
        fail_msg("%s, offset %u: %d, not %d", sample->name, i * 2, line, sample->line[i]);
    }
  }
}

static void in_front_of_the_first_instruction_is_the_first_line(void **state) {
  (void)state;
  for (unsigned format = 0; format < 3; format++)
    assert_int_equal(nt_python_line(format, NULL, 0, 42, -1), 42);
  assert_int_equal(nt_python_line(NT_PYTHON_LINES_3_11, NULL, 0, -7, -1), 0);
}

static void beyond_the_table_there_is_no_line(void **state) {
  (void)state;
  assert_int_equal(nt_python_line(NT_PYTHON_LINES_3_10, NULL, 0, 42, 0), 0);
  assert_int_equal(nt_python_line(NT_PYTHON_LINES_3_11, NULL, 0, 42, 0), 0);
  for (unsigned s = 0; s < SAMPLES; s++)
    if (samples[s].format != NT_PYTHON_LINES_3_8)
      assert_int_equal(nt_python_line(samples[s].format, samples[s].table, samples[s].table_length,
                                      samples[s].first_line, 1 << 20),
                       0);
}

static void an_unknown_format_has_no_lines(void **state) {
  (void)state;
  assert_int_equal(nt_python_line(3, samples[0].table, samples[0].table_length, 1, 4), 0);
}

/* Exact allocations, so that a sanitizer sees every read beyond the end. */
static void any_table_is_read_safely(void **state) {
  (void)state;
  for (int round = 0; round < 20000; round++) {
    const size_t length = fixture_random() % 40;
    unsigned char *table = malloc(length ? length : 1);
    for (size_t i = 0; i < length; i++)
      table[i] = (unsigned char)fixture_random();
    for (unsigned format = 0; format < 3; format++)
      assert_true(nt_python_line(format, table, length, (int)fixture_random(),
                                 (int)(fixture_random() % 600)) >= 0);
    free(table);
  }
}

/* A varint that never ends must neither overflow a shift nor run on. */
static void endless_numbers_are_cut_off(void **state) {
  (void)state;
  unsigned char table[4096];
  memset(table, 0x7f, sizeof table);
  table[0] = 0x80 | 14 << 3;
  assert_int_equal(nt_python_line(NT_PYTHON_LINES_3_11, table, sizeof table, 1, 0), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tables_of_all_releases_give_their_lines),
      cmocka_unit_test(in_front_of_the_first_instruction_is_the_first_line),
      cmocka_unit_test(beyond_the_table_there_is_no_line),
      cmocka_unit_test(an_unknown_format_has_no_lines),
      cmocka_unit_test(any_table_is_read_safely),
      cmocka_unit_test(endless_numbers_are_cut_off),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
