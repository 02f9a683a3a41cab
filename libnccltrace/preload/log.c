/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int enabled;

void nt_log_enable(int on) {
  enabled = on;
}

static void say(const char *format, va_list args) {
  char line[1024] = "nccltrace: ";
  int n = vsnprintf(line + 11, sizeof(line) - 12, format, args);
  if (n < 0)
    return;
  size_t length = 11 + (size_t)n;
  if (length > sizeof(line) - 2)
    length = sizeof(line) - 2;
  line[length++] = '\n';
  ssize_t written = write(STDERR_FILENO, line, length);
  (void)written;
}

void nt_log(const char *format, ...) {
  if (!enabled)
    return;
  int saved_errno = errno;
  va_list args;
  va_start(args, format);
  say(format, args);
  va_end(args);
  errno = saved_errno;
}

void nt_complain(const struct nt_area_header *header, const char *format, ...) {
  static _Atomic int said;
  if (atomic_exchange(&said, 1) || (header && header->local_rank > 0))
    return;
  int saved_errno = errno;
  va_list args;
  va_start(args, format);
  say(format, args);
  va_end(args);
  errno = saved_errno;
}
