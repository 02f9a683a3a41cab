/* SPDX-License-Identifier: Apache-2.0 */
/* Words for people: nothing hostile reaches a terminal, and numbers read as they should. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json_output.h"
#include "cli/text.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void terminal_sequences_are_escaped(void **state) {
  (void)state;
  static const struct {
    const char *in, *out;
  } cases[] = {
      {"plain text, \xc3\xa4\xe4\xb8\xad\xf0\x9f\x98\x80",
       "plain text, \xc3\xa4\xe4\xb8\xad\xf0\x9f\x98\x80"},
      {"\033[31mred\033[0m", "\\x1b[31mred\\x1b[0m"},
      {"a\nb\tc\rd\x7f", "a\\nb\\tc\\rd\\x7f"},
      {"\xc2\x9b"
       "31m",
       "\\u{9b}31m"}, /* CSI as one character */
      {"\xe2\x80\xae"
       "cba",
       "\\u{202e}cba"},                             /* right-to-left override */
      {"\xff\xfe", "\\xff\\xfe"},                   /* never valid */
      {"\xc0\xaf", "\\xc0\\xaf"},                   /* overlong '/' */
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},          /* surrogate */
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, /* above U+10FFFF */
      {"cut \xe4\xb8", "cut \\xe4\\xb8"},           /* ends inside a character */
      {"", ""},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    char out[128];
    assert_string_equal(nt_text_escape(out, sizeof out, cases[i].in), cases[i].out);
    char *fresh = nt_text_escape_new(cases[i].in);
    assert_string_equal(fresh, cases[i].out);
    free(fresh);
  }
}

static void escaping_never_cuts_inside_an_escape(void **state) {
  (void)state;
  char out[8];
  assert_string_equal(nt_text_escape(out, 8, "abcd\033x"), "abcd");
  assert_string_equal(nt_text_escape(out, 8, "abcdef\xc3\xa4"), "abcdef");
  assert_string_equal(nt_text_escape(out, 1, "abc"), "");
  assert_string_equal(nt_text_escape(out, 8, NULL), "");
}

static void times_are_utc_with_milliseconds(void **state) {
  (void)state;
  static const struct {
    int64_t ns;
    const char *full, *brief;
  } cases[] = {
      {1795920077120000000, "2026-11-29T02:41:17.120Z", "02:41:17.120 UTC"},
      {1795920077120999999, "2026-11-29T02:41:17.120Z", "02:41:17.120 UTC"},
      {0, "1970-01-01T00:00:00.000Z", "00:00:00.000 UTC"},
      {-1, "1969-12-31T23:59:59.999Z", "23:59:59.999 UTC"},
      {INT64_MAX, "2262-04-11T23:47:16.854Z", "23:47:16.854 UTC"},
      {INT64_MIN, "1677-09-21T00:12:43.145Z", "00:12:43.145 UTC"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    char out[NT_TIME_TEXT];
    assert_string_equal(nt_time_text(out, cases[i].ns), cases[i].full);
    assert_string_equal(nt_time_short(out, cases[i].ns), cases[i].brief);
  }
}

static void durations_have_two_units_at_most(void **state) {
  (void)state;
  static const struct {
    int64_t ns;
    const char *text;
  } cases[] = {
      {0, "0 ns"},
      {850, "850 ns"},
      {12345, "12.3 us"},
      {999499, "999 us"},
      {999500, "1 ms"},
      {412000000, "412 ms"},
      {999499999, "999 ms"},
      {999600000, "1 s"},
      {1050000000, "1.05 s"},
      {59400000000, "59.4 s"},
      {59600000000, "1 min"},
      {187000000000, "3 min 7 s"},
      {3600000000000, "1 h"},
      {7500000000000, "2 h 5 min"},
      {273600000000000, "3 d 4 h"},
      {-187000000000, "-3 min 7 s"},
      {INT64_MAX, "106751 d 23 h"},
      {INT64_MIN, "-106751 d 23 h"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    char out[NT_DURATION_TEXT];
    assert_string_equal(nt_duration_text(out, cases[i].ns), cases[i].text);
  }
}

static void sizes_are_rounded_and_counts_are_exact(void **state) {
  (void)state;
  char out[NT_SIZE_TEXT];
  assert_string_equal(nt_bytes_text(out, 0), "0 B");
  assert_string_equal(nt_bytes_text(out, 1023), "1023 B");
  assert_string_equal(nt_bytes_text(out, 16384), "16 KiB");
  assert_string_equal(nt_bytes_text(out, 1572864), "1.5 MiB");
  assert_string_equal(nt_bytes_text(out, UINT64_MAX), "16 EiB");
  assert_string_equal(nt_count_text(out, 0), "0");
  assert_string_equal(nt_count_text(out, 1000), "1000");
  assert_string_equal(nt_count_text(out, 4194304), "4 Mi");
  assert_string_equal(nt_count_text(out, 4194305), "4194305");
  assert_string_equal(nt_count_text(out, 1536 * 1024), "1536 Ki");
  assert_string_equal(nt_count_text(out, UINT64_MAX), "18446744073709551615");
}

static void colours_follow_the_option_and_no_color(void **state) {
  (void)state;
  enum nt_color_when when = NT_COLOR_AUTO;
  FILE *file = tmpfile();
  assert_true(nt_color_parse("always", &when));
  assert_true(nt_color_wanted(when, file));
  assert_true(nt_color_parse("never", &when));
  assert_false(nt_color_wanted(when, file));
  assert_true(nt_color_parse("auto", &when));
  assert_false(nt_color_wanted(when, file)); /* no terminal */
  assert_false(nt_color_parse("sometimes", &when));
  assert_false(nt_color_parse(NULL, &when));
  setenv("NO_COLOR", "1", 1);
  assert_false(nt_color_wanted(NT_COLOR_AUTO, file));
  assert_true(nt_color_wanted(NT_COLOR_ALWAYS, file));
  unsetenv("NO_COLOR");
  assert_string_equal(nt_style_text(false, NT_STYLE_BAD), "");
  fclose(file);
}

static void table_columns_are_aligned_and_cells_escaped(void **state) {
  (void)state;
  static const struct nt_column columns[] = {{"PID", true}, {"NAME", false}, {"END", false}};
  struct nt_table *table = nt_table_new(columns, COUNT(columns));
  nt_table_cell(table, NT_STYLE_PLAIN, "%d", 7);
  nt_table_cell(table, NT_STYLE_BAD, "%s", "\xc3\xa4\033");
  nt_table_cell(table, NT_STYLE_PLAIN, "x");
  nt_table_cell(table, NT_STYLE_PLAIN, "%d", 12345);
  nt_table_cell(table, NT_STYLE_PLAIN, "%s", "long name");
  nt_table_cell(table, NT_STYLE_PLAIN, "%s", "");
  nt_table_cell(table, NT_STYLE_PLAIN, "an unfinished row is not printed");
  assert_int_equal(nt_table_rows(table), 2);
  char text[512] = "";
  FILE *file = fmemopen(text, sizeof text, "w");
  assert_int_equal(nt_table_print(table, file, false), 0);
  fclose(file);
  assert_string_equal(text, "  PID  NAME       END\n"
                            "    7  \xc3\xa4\\x1b      x\n"
                            "12345  long name  \n");
  nt_table_free(table);
  nt_table_cell(NULL, NT_STYLE_PLAIN, "no memory is no crash");
  assert_int_equal(nt_table_print(NULL, stdout, false), -1);
}

static void json_takes_what_is_not_utf8(void **state) {
  (void)state;
  json_t *value = nt_json_text("a\xff\xc3\xa4\033");
  assert_non_null(value);
  assert_string_equal(json_string_value(value), "a\\xff\xc3\xa4\033");
  json_decref(value);
  value = nt_json_text(NULL);
  assert_true(json_is_null(value));
  value = nt_json_time(1795920077120000000);
  assert_string_equal(json_string_value(value), "2026-11-29T02:41:17.120Z");
  json_decref(value);
  value = nt_json_count(UINT64_MAX);
  assert_true(json_integer_value(value) == INT64_MAX);
  json_decref(value);
  value = nt_json_address(UINT64_C(0xfffffffffffffff0));
  assert_string_equal(json_string_value(value), "0xfffffffffffffff0");
  json_decref(value);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(terminal_sequences_are_escaped),
      cmocka_unit_test(escaping_never_cuts_inside_an_escape),
      cmocka_unit_test(times_are_utc_with_milliseconds),
      cmocka_unit_test(durations_have_two_units_at_most),
      cmocka_unit_test(sizes_are_rounded_and_counts_are_exact),
      cmocka_unit_test(colours_follow_the_option_and_no_color),
      cmocka_unit_test(table_columns_are_aligned_and_cells_escaped),
      cmocka_unit_test(json_takes_what_is_not_utf8),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
