/* SPDX-License-Identifier: Apache-2.0 */
/* Small files of /proc and /sys, and what stands in some of them. A descriptor is closed at once: the table may be the
 * application's. */
#ifndef NT_READ_TEXT_H
#define NT_READ_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads what fits into `out`, ended by 0 and without blanks at its end. Its length, or -1 with errno and "". */
ssize_t nt_read_text(const char *path, char *out, size_t size);
/* The same, the path given as for printf; -1 too if it is longer than 1023 bytes. */
ssize_t nt_read_text_at(char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Of /proc/PID/stat (proc(5)): where field `number`, 3 or higher, begins; NULL: there are fewer. The command name in front
 * of them may contain anything. */
const char *nt_stat_field(const char *stat, int number);
/* Of /proc/PID/status: the signals of "SigBlk" and its like, signal n at bit n - 1; 0 if there is no such line. */
uint64_t nt_status_signals(const char *status, const char *name);

#endif
