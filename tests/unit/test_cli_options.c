/* SPDX-License-Identifier: Apache-2.0 */
/* Option tables: what they accept, how they refuse, what --help shows. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"

enum { OPT_TAIL = 1, OPT_JSON, OPT_LONG_ONLY, OPT_LONG_NAME };

static const struct nt_option options[] = {
    {OPT_TAIL, "tail", 'n', "N", "the last N"},
    {OPT_JSON, "json", 'j', NULL, "JSON,\nin two lines"},
    {OPT_LONG_ONLY, "long-only", 0, NULL, "no letter"},
    {OPT_LONG_NAME, "long-name", 0, NULL, "no letter either"},
};
static struct nt_usage usage = {
    .tool = "tool sub",
    .synopsis = "[OPTION...] FILE",
    .summary = "Does things.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .after = "More.\n",
};

/* What was printed while the stream's descriptor pointed to a temporary file. */
struct capture {
  FILE *stream, *file;
  int saved;
  char text[4096];
};

static void capture_start(struct capture *capture, FILE *stream) {
  capture->stream = stream;
  fflush(stream);
  capture->file = tmpfile();
  capture->saved = dup(fileno(stream));
  dup2(fileno(capture->file), fileno(stream));
}

static const char *capture_end(struct capture *capture) {
  fflush(capture->stream);
  dup2(capture->saved, fileno(capture->stream));
  close(capture->saved);
  rewind(capture->file);
  size_t n = fread(capture->text, 1, sizeof capture->text - 1, capture->file);
  capture->text[n] = '\0';
  fclose(capture->file);
  return capture->text;
}

/* Parses until the end or a stop; writes ids and values as "1=5 2 " into `seen`. */
static int parse(char **argv, char *seen, size_t size, struct nt_options *parser) {
  int argc = 0, id;
  while (argv[argc] != NULL)
    argc++;
  seen[0] = '\0';
  nt_options_start(parser, &usage, argc, argv);
  while ((id = nt_options_next(parser)) > 0) {
    size_t used = strlen(seen);
    snprintf(seen + used, size - used, "%d%s%s ", id, parser->value ? "=" : "",
             parser->value ? parser->value : "");
  }
  return id;
}

static void long_and_short_forms_and_operands(void **state) {
  (void)state;
  char *argv[] = {"sub",    "--tail=5", "file",        "-n", "6", "-jn7",
                  "--tail", "8",        "--long-only", "x",  NULL};
  char seen[128];
  struct nt_options parser;
  assert_int_equal(parse(argv, seen, sizeof seen, &parser), 0);
  assert_string_equal(seen, "1=5 1=6 2 1=7 1=8 3 ");
  assert_int_equal(parser.first, 8);
  assert_string_equal(argv[8], "file");
  assert_string_equal(argv[9], "x");
}

static void options_end_at_two_dashes(void **state) {
  (void)state;
  char *argv[] = {"sub", "--", "-j", NULL};
  char seen[64];
  struct nt_options parser;
  assert_int_equal(parse(argv, seen, sizeof seen, &parser), 0);
  assert_string_equal(seen, "");
  assert_int_equal(parser.first, 2);
}

static void first_operand_ends_options_of_a_tool_with_subcommands(void **state) {
  (void)state;
  char *argv[] = {"tool", "-j", "sub", "-n", NULL};
  char seen[64];
  struct nt_options parser;
  usage.stop_at_operand = true;
  assert_int_equal(parse(argv, seen, sizeof seen, &parser), 0);
  usage.stop_at_operand = false;
  assert_string_equal(seen, "2 ");
  assert_int_equal(parser.first, 2);
}

static void wrong_options_are_one_line_and_status_2(void **state) {
  (void)state;
  static const struct {
    char *option;
    const char *message;
  } cases[] = {
      {"--what", "tool sub: unknown option '--what' (try 'tool sub --help')\n"},
      {"--long", "tool sub: ambiguous option '--long' (try 'tool sub --help')\n"},
      {"-x", "tool sub: unknown option '-x' (try 'tool sub --help')\n"},
      {"--tail", "tool sub: option '--tail' needs an argument (try 'tool sub --help')\n"},
      {"-n", "tool sub: option '-n' needs an argument (try 'tool sub --help')\n"},
      {"--json=3", "tool sub: option '--json=3' takes no argument (try 'tool sub --help')\n"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char *argv[] = {"sub", cases[i].option, NULL};
    char seen[64];
    struct nt_options parser;
    struct capture capture;
    capture_start(&capture, stderr);
    int id = parse(argv, seen, sizeof seen, &parser);
    assert_string_equal(capture_end(&capture), cases[i].message);
    assert_int_equal(id, NT_OPTIONS_STOP);
    assert_int_equal(parser.status, NT_EXIT_USAGE);
  }
}

static void help_is_made_from_the_table(void **state) {
  (void)state;
  char *argv[] = {"sub", "--help", NULL};
  char seen[64];
  struct nt_options parser;
  struct capture capture;
  capture_start(&capture, stdout);
  int id = parse(argv, seen, sizeof seen, &parser);
  const char *text = capture_end(&capture);
  assert_int_equal(id, NT_OPTIONS_STOP);
  assert_int_equal(parser.status, NT_EXIT_OK);
  assert_string_equal(text, "usage: tool sub [OPTION...] FILE\n\n"
                            "Does things.\n\n"
                            "options:\n"
                            "  -n, --tail=N     the last N\n"
                            "  -j, --json       JSON,\n"
                            "                   in two lines\n"
                            "      --long-only  no letter\n"
                            "      --long-name  no letter either\n"
                            "  -h, --help       print this text\n"
                            "      --version    print the version\n"
                            "\nMore.\n");
}

static void numbers_are_whole_and_bounded(void **state) {
  (void)state;
  uint64_t value = 0;
  assert_true(nt_options_number("42", 1, 100, &value));
  assert_int_equal(value, 42);
  assert_true(nt_options_number("18446744073709551615", 0, UINT64_MAX, &value));
  static const char *const bad[] = {"",   "-1", "+1",  " 1",
                                    "1x", "0",  "101", "99999999999999999999999"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
    assert_false(nt_options_number(bad[i], 1, 100, &value));
  assert_false(nt_options_number(NULL, 0, 1, &value));
}

static void seconds_may_have_a_fraction(void **state) {
  (void)state;
  uint64_t ms = 0;
  assert_true(nt_options_seconds("2", 10000, &ms));
  assert_int_equal(ms, 2000);
  assert_true(nt_options_seconds("0.5", 10000, &ms));
  assert_int_equal(ms, 500);
  assert_true(nt_options_seconds("1.2345678901234567890", 10000, &ms));
  assert_int_equal(ms, 1234);
  static const char *const bad[] = {"",   "-1", ".5", "1s", "11", "99999999999999999999999999",
                                    "1e3"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
    assert_false(nt_options_seconds(bad[i], 10000, &ms));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(long_and_short_forms_and_operands),
      cmocka_unit_test(options_end_at_two_dashes),
      cmocka_unit_test(first_operand_ends_options_of_a_tool_with_subcommands),
      cmocka_unit_test(wrong_options_are_one_line_and_status_2),
      cmocka_unit_test(help_is_made_from_the_table),
      cmocka_unit_test(numbers_are_whole_and_bounded),
      cmocka_unit_test(seconds_may_have_a_fraction),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
