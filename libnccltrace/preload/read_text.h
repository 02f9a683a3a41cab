/* SPDX-License-Identifier: Apache-2.0 */
/* Small files of /proc and /sys. The descriptor is closed at once: the table is the application's. */
#ifndef NT_READ_TEXT_H
#define NT_READ_TEXT_H

#include <stddef.h>
#include <sys/types.h>

/* Reads what fits into `out`, ended by 0 and without blanks at its end. Its length, or -1 with errno and "". */
ssize_t nt_read_text(const char *path, char *out, size_t size);
/* The same, the path given as for printf; -1 too if it is longer than 1023 bytes. */
ssize_t nt_read_text_at(char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
