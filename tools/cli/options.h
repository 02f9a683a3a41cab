/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines, declared as tables: one row per option gives parsing and --help.
 *
 *   nt_options_start(&parser, &usage, argc, argv);
 *   while ((id = nt_options_next(&parser)) > 0)
 *     switch (id) { case OPT_TAIL: … parser.value … }
 *   if (id == NT_OPTIONS_STOP)
 *     return parser.status;
 *   operands are argv[parser.first] … argv[argc - 1]
 *
 * --help (-h) and --version are answered for every table. Nothing here exits: the status goes back
 * to main. Not for two parsers at once (getopt has one global state).
 */
#ifndef NT_CLI_OPTIONS_H
#define NT_CLI_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Exit statuses of every tool. tracediff adds its own meanings to 1. */
#define NT_EXIT_OK 0
#define NT_EXIT_FAILED 1
#define NT_EXIT_USAGE 2

struct nt_option {
  int id;           /* what nt_options_next returns; 1 … NT_OPTION_IDS */
  const char *name; /* without the dashes */
  char letter;      /* 0: no short form */
  const char
      *argument; /* its name in --help; NULL: the option takes none; "[=N]": it may be left out */
  const char *help; /* one line, or several separated by newlines */
};
#define NT_OPTION_IDS 1000

/* A heading and its lines for --help: the subcommands of a tool, the exit statuses. */
struct nt_usage {
  const char *tool;     /* "nccltrace show": in front of every message */
  const char *synopsis; /* "[OPTION...] FILE|PID..." */
  const char *summary;  /* one sentence */
  const struct nt_option *options;
  size_t option_count;  /* at most NT_OPTIONS_MAX - 2 */
  const char *after;    /* printed after the options, NULL for nothing */
  bool stop_at_operand; /* the first operand ends the options: a tool with subcommands */
};

#define NT_OPTIONS_MAX 48
#define NT_OPTIONS_STOP (-1)

struct nt_options {
  const char *value; /* argument of the option just returned, NULL if it takes none */
  int status;        /* after NT_OPTIONS_STOP: what main returns */
  int first;         /* after the last option: index of the first operand */
  /* private */
  const struct nt_usage *usage;
  int argc;
  char **argv;
  struct option longs[NT_OPTIONS_MAX + 1];
  char shorts[3 * NT_OPTIONS_MAX + 4]; /* a letter and two colons each */
};

void nt_options_start(struct nt_options *parser, const struct nt_usage *usage, int argc,
                      char **argv);

/* The next option's id; 0 after the last; NT_OPTIONS_STOP when help was printed or the line is wrong
 * (already reported on stderr). Operands may stand between options, unless stop_at_operand. */
int nt_options_next(struct nt_options *parser);

/* Prints "TOOL: MESSAGE (try 'TOOL --help')" on stderr. Returns NT_EXIT_USAGE. */
int nt_options_bad(const struct nt_usage *usage, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void nt_options_help(const struct nt_usage *usage, FILE *out);

/* Whole decimal numbers without sign, and seconds such as "2" or "0.5" (as milliseconds). Return
 * false if the text is anything else or out of [low, high]. */
bool nt_options_number(const char *text, uint64_t low, uint64_t high, uint64_t *out);
bool nt_options_seconds(const char *text, uint64_t high_ms, uint64_t *out_ms);

#endif
