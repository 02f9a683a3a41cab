/* SPDX-License-Identifier: Apache-2.0 */
/*
 * getopt_long behind a table. Long options get the value id + 256, so that getopt's own report of
 * a wrong option tells a letter from a name.
 */
#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#ifndef NT_VERSION
#define NT_VERSION "development"
#endif

enum { LONG_BASE = 256, ID_HELP = NT_OPTION_IDS + 1, ID_VERSION };

static const struct nt_option builtin[] = {
    {ID_HELP, "help", 'h', NULL, "print this text"},
    {ID_VERSION, "version", 0, NULL, "print the version"},
};
enum { BUILTIN_COUNT = sizeof builtin / sizeof builtin[0] };

static const struct nt_option *option_at(const struct nt_usage *usage, size_t i) {
  return i < usage->option_count ? &usage->options[i] : &builtin[i - usage->option_count];
}

/* Then parser->value may be NULL. */
static bool is_optional(const struct nt_option *option) {
  return option->argument != NULL && option->argument[0] == '[';
}

static size_t option_total(const struct nt_usage *usage) {
  size_t total = usage->option_count + BUILTIN_COUNT;
  return total < NT_OPTIONS_MAX ? total : NT_OPTIONS_MAX;
}

void nt_options_start(struct nt_options *parser, const struct nt_usage *usage, int argc,
                      char **argv) {
  memset(parser, 0, sizeof *parser);
  parser->usage = usage;
  parser->argc = argc;
  parser->argv = argv;
  parser->first = argc;
  char *s = parser->shorts;
  if (usage->stop_at_operand)
    *s++ = '+';
  *s++ = ':';
  for (size_t i = 0; i < option_total(usage); i++) {
    const struct nt_option *option = option_at(usage, i);
    parser->longs[i] = (struct option){
        .name = option->name,
        .has_arg = option->argument == NULL ? no_argument
                   : is_optional(option)    ? optional_argument
                                            : required_argument,
        .val = LONG_BASE + option->id,
    };
    if (option->letter != 0) {
      *s++ = option->letter;
      if (option->argument != NULL)
        *s++ = ':';
      if (is_optional(option))
        *s++ = ':';
    }
  }
  *s = '\0';
  optind = 0; /* GNU: forget an earlier parse */
  opterr = 0;
}

/* Is it the beginning of an option's name? getopt does not tell that from an unknown one. */
static bool is_ambiguous(const struct nt_options *parser, const char *word) {
  const char *name = word + strspn(word, "-");
  for (const struct option *option = parser->longs; *name && option->name; option++)
    if (!strncmp(option->name, name, strcspn(name, "=")))
      return true;
  return false;
}

/* What getopt disliked, in one line. */
static int report(struct nt_options *parser, int code) {
  const char *word = optind > 0 && optind <= parser->argc ? parser->argv[optind - 1] : "";
  if (code == ':' && optopt < LONG_BASE)
    return nt_options_bad(parser->usage, "option '-%c' needs an argument", optopt);
  if (code == ':')
    return nt_options_bad(parser->usage, "option '%s' needs an argument", word);
  if (optopt >= LONG_BASE)
    return nt_options_bad(parser->usage, "option '%s' takes no argument", word);
  if (optopt != 0)
    return nt_options_bad(parser->usage, "unknown option '-%c'",
                          isprint((unsigned char)optopt) ? optopt : '?');
  return nt_options_bad(parser->usage, "%s option '%s'",
                        is_ambiguous(parser, word) ? "ambiguous" : "unknown", word);
}

static int stop(struct nt_options *parser, int status) {
  parser->status = status;
  parser->first = optind;
  return NT_OPTIONS_STOP;
}

int nt_options_next(struct nt_options *parser) {
  int code = getopt_long(parser->argc, parser->argv, parser->shorts, parser->longs, NULL);
  parser->value = optarg;
  if (code == -1) {
    parser->first = optind;
    return 0;
  }
  if (code == '?' || code == ':')
    return stop(parser, report(parser, code));
  int id = code - LONG_BASE;
  for (size_t i = 0; code < LONG_BASE && i < option_total(parser->usage); i++)
    if (option_at(parser->usage, i)->letter == (char)code)
      id = option_at(parser->usage, i)->id;
  if (id == ID_HELP) {
    nt_options_help(parser->usage, stdout);
    return stop(parser, NT_EXIT_OK);
  }
  if (id == ID_VERSION) {
    printf("%s %s\n", parser->usage->tool, NT_VERSION);
    return stop(parser, NT_EXIT_OK);
  }
  return id;
}

int nt_options_bad(const struct nt_usage *usage, const char *format, ...) {
  va_list args;
  fprintf(stderr, "%s: ", usage->tool);
  va_start(args, format);
  vfprintf(stderr, format, args);
  va_end(args);
  fprintf(stderr, " (try '%s --help')\n", usage->tool);
  return NT_EXIT_USAGE;
}

static int option_width(const struct nt_option *option) {
  size_t width = strlen(option->name);
  if (option->argument != NULL)
    width += !is_optional(option) + strlen(option->argument);
  return (int)width;
}

static void print_option(const struct nt_option *option, int width, FILE *out) {
  if (option->letter != 0)
    fprintf(out, "  -%c, --%s", option->letter, option->name);
  else
    fprintf(out, "      --%s", option->name);
  if (option->argument != NULL)
    fprintf(out, "%s%s", is_optional(option) ? "" : "=", option->argument);
  int gap = width - option_width(option) + 2;
  for (const char *line = option->help;;) {
    size_t length = strcspn(line, "\n");
    fprintf(out, "%*s%.*s\n", gap, "", (int)length, line);
    if (line[length] == '\0')
      return;
    line += length + 1;
    gap = 8 + width + 2;
  }
}

void nt_options_help(const struct nt_usage *usage, FILE *out) {
  int width = 0;
  for (size_t i = 0; i < option_total(usage); i++)
    if (option_width(option_at(usage, i)) > width)
      width = option_width(option_at(usage, i));
  fprintf(out, "usage: %s %s\n\n%s\n\noptions:\n", usage->tool, usage->synopsis, usage->summary);
  for (size_t i = 0; i < option_total(usage); i++)
    print_option(option_at(usage, i), width, out);
  if (usage->after != NULL)
    fprintf(out, "\n%s%s", usage->after,
            *usage->after && usage->after[strlen(usage->after) - 1] == '\n' ? "" : "\n");
}

bool nt_options_number(const char *text, uint64_t low, uint64_t high, uint64_t *out) {
  char *end;
  if (text == NULL || !isdigit((unsigned char)text[0]))
    return false;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (errno != 0 || *end != '\0' || value < low || value > high)
    return false;
  *out = value;
  return true;
}

bool nt_options_seconds(const char *text, uint64_t high_ms, uint64_t *out_ms) {
  if (text == NULL || !isdigit((unsigned char)text[0]))
    return false;
  uint64_t value = 0, place = 1000;
  for (; isdigit((unsigned char)*text); text++) {
    value = value * 10 + (uint64_t)(*text - '0') * 1000;
    if (value > high_ms)
      return false;
  }
  if (*text == '.')
    for (text++; isdigit((unsigned char)*text); text++)
      value += (uint64_t)(*text - '0') * (place /= 10);
  if (*text != '\0' || value > high_ms)
    return false;
  *out_ms = value;
  return true;
}
