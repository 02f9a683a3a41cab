/* SPDX-License-Identifier: Apache-2.0 */
/* nccltrace: looks at traced processes and at their traces. One row per subcommand. */
#include <stdio.h>
#include <string.h>

#include "cli/options.h"
#include "nccltrace/subcommands.h"

static const struct {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *help;
} commands[] = {
    {"ls", nt_command_ls, "list traced processes, and what each is doing in NCCL"},
    {"dump", nt_command_dump, "have running processes dump what they do"},
    {"show", nt_command_show, "print the records of a trace"},
    {"digest", nt_command_digest, "cut traces to what a verdict over many nodes needs"},
};
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

/* The commands, as --help shows them below the options. */
static void describe_commands(char *out, size_t size) {
  size_t used = (size_t)snprintf(out, size, "commands:\n");
  for (size_t i = 0; i < COMMAND_COUNT && used < size; i++)
    used += (size_t)snprintf(out + used, size - used, "  %-8s %s\n", commands[i].name,
                             commands[i].help);
  if (used < size)
    snprintf(out + used, size - used,
             "\n'nccltrace COMMAND --help' and nccltrace-COMMAND(1) tell more.\n");
}

static int run(int argc, char **argv) {
  char after[1024];
  const struct nt_usage usage = {
      .tool = "nccltrace",
      .synopsis = "COMMAND [OPTION...] [ARGUMENT...]",
      .summary = "Looks at processes traced by libnccltrace.so, and at their traces.",
      .after = after,
      .stop_at_operand = true,
  };
  struct nt_options parser;
  describe_commands(after, sizeof after);
  nt_options_start(&parser, &usage, argc, argv);
  if (nt_options_next(&parser) == NT_OPTIONS_STOP)
    return parser.status;
  if (parser.first >= argc)
    return nt_options_bad(&usage, "no command given");
  char **rest = argv + parser.first;
  static char help[] = "--help";
  char *of_command[] = {rest[0], help, NULL};
  if (strcmp(rest[0], "help") == 0) {
    if (rest[1] == NULL) {
      nt_options_help(&usage, stdout);
      return NT_EXIT_OK;
    }
    of_command[0] = rest[1];
    rest = of_command;
    argc = parser.first + 2;
  }
  for (size_t i = 0; i < COMMAND_COUNT; i++)
    if (strcmp(rest[0], commands[i].name) == 0)
      return commands[i].run(argc - parser.first, rest);
  return nt_options_bad(&usage, "no command is called '%s'", rest[0]);
}

int main(int argc, char **argv) {
  int status = run(argc, argv);
  if (fflush(stdout) == 0 && !ferror(stdout))
    return status;
  perror("nccltrace: cannot write the output");
  return NT_EXIT_FAILED;
}
