/* SPDX-License-Identifier: Apache-2.0 */
/* System calls by name. Numbers belong to the machine that made the trace, which need not be this one. */
#ifndef NT_CLI_SYSCALL_TEXT_H
#define NT_CLI_SYSCALL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum nt_machine { NT_MACHINE_OTHER, NT_MACHINE_X86_64, NT_MACHINE_AARCH64 };

/* What uname calls it; NULL: this machine. */
enum nt_machine nt_machine_of(const char *name);

/* NULL if it is not known. */
const char *nt_syscall_name(enum nt_machine machine, int64_t number);

#define NT_SYSCALL_TEXT 128

/* "read(fd 7, 0x7f21000, 4096)", "futex(0x7f21000, wait, 0)": its first three arguments; or, if not `whole`, only
 * descriptors and what a futex is asked for: "read(fd 7)". "system call 999" if it is not known. Returns `out`. */
char *nt_syscall_text(char *out, size_t size, enum nt_machine machine, int64_t number,
                      const uint64_t arguments[6], bool whole);

#endif
