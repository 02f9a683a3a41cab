/* SPDX-License-Identifier: Apache-2.0 */
/* Dumps in words; the same in every tool. Texts from traces are escaped. */
#ifndef NT_CLI_DUMP_TEXT_H
#define NT_CLI_DUMP_TEXT_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/syscall_text.h"
#include "trace/reader.h"

/* "nccltrace dump", "a signal", "the watchdog", "nobody knows who". */
const char *nt_dump_reason_text(uint32_t reason);
/* The same for programs: "request", "signal", "watchdog", "unknown". */
const char *nt_dump_reason_name(uint32_t reason);

/* The letter of /proc/PID/stat in words: "running", "sleeping", "in the kernel, not interruptible" … */
const char *nt_thread_state_text(char state);

#define NT_THREAD_TEXT 256
/* "sleeping in read(fd 7, 0x7f21000, 4096)", "running"; arguments as nt_syscall_text has them. Returns `out`. */
char *nt_thread_doing(char *out, size_t size, const struct nt_dump_thread *thread,
                      enum nt_machine machine, bool whole);

/* "14 threads (12 Python stacks, no native stacks)". Returns `out`. */
#define NT_DUMP_EXTENT 96
char *nt_dump_extent(char *out, size_t size, const struct nt_dump_view *dump);

/* "NVML" of the fact "missing.NVML", "kernel log" of "missing.kernel-log"; NULL if the fact is of another kind. */
const char *nt_dump_missing_source(char *out, size_t size, const char *key);
/* "NVML (libnvidia-ml.so.1 is not there), kernel log (no permission)": what the i-th dump could not have. Reasons that are
 * `told` already are "as above"; NULL: none is. Returns how many. */
size_t nt_dump_print_missing(FILE *out, const struct nt_trace *trace, size_t i,
                             bool (*told)(const void *ctx, const char *key, const char *value),
                             const void *ctx);

/* Sections that were asked for and are not there: bits. */
uint32_t nt_dump_unfinished(const struct nt_dump_view *dump);
#define NT_DUMP_SECTIONS_TEXT 128
/* "hardware, NCCL RAS". Returns `out`. */
char *nt_dump_sections_text(char *out, size_t size, uint32_t sections);

/* Does a line of the kernel's log, "SECONDS s ago: TEXT", tell of an out-of-memory kill that is no concern of a job: of before
 * it began, `ran_s` seconds ago, or for a limit of memory under which none of its processes was killed? */
bool nt_is_other_oom(const char *line, int64_t ran_s, const uint32_t *pids, size_t pid_count);

#endif
