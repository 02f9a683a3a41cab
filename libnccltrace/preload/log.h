/* SPDX-License-Identifier: Apache-2.0 */
/* Words to stderr: only when asked for, or when nothing at all can be traced. */
#ifndef NT_LOG_H
#define NT_LOG_H

#include "trace/area.h"

void nt_log_enable(int on);

/* "nccltrace: …" if NCCLTRACE_LOG is set. Keeps errno, allocates nothing. */
void nt_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same without being asked, but once per process and only from the node's first rank. */
void nt_complain(const struct nt_area_header *header, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
