/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subcommands of nccltrace: one file and one man page each, one row in main.c.
 *
 * Each takes argv from its own name on and returns the exit status: 0 done, 1 nothing found or
 * something failed (said on stderr), 2 the command line is wrong.
 */
#ifndef NT_SUBCOMMANDS_H
#define NT_SUBCOMMANDS_H

int nt_command_ls(int argc, char **argv);
int nt_command_dump(int argc, char **argv);
int nt_command_show(int argc, char **argv);
int nt_command_digest(int argc, char **argv);

#endif
