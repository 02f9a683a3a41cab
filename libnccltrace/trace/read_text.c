/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/read_text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ssize_t nt_read_text(const char *path, char *out, size_t size) {
  size_t length = 0;
  out[0] = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return -1;
  ssize_t n = 1;
  while (n > 0 && length < size - 1) {
    n = read(fd, out + length, size - 1 - length);
    if (n > 0)
      length += (size_t)n;
  }
  int error = errno;
  close(fd);
  while (length && (out[length - 1] == '\n' || out[length - 1] == ' '))
    length--;
  out[length] = 0;
  errno = error;
  return n < 0 && !length ? -1 : (ssize_t)length;
}

ssize_t nt_read_text_at(char *out, size_t size, const char *format, ...) {
  char path[1024];
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(path, sizeof path, format, arguments);
  va_end(arguments);
  out[0] = 0;
  if (n < 0 || (size_t)n >= sizeof path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  return nt_read_text(path, out, size);
}

const char *nt_stat_field(const char *stat, int number) {
  const char *at = strrchr(stat, ')');
  for (int field = 2; at && field < number; field++)
    at = strchr(at + 1, ' ');
  return at ? at + 1 : NULL;
}

uint64_t nt_status_signals(const char *status, const char *name) {
  const size_t length = strlen(name);
  for (const char *at = status; at; at = strchr(at, '\n')) {
    at += *at == '\n';
    if (!strncmp(at, name, length) && at[length] == ':')
      return strtoull(at + length + 1, NULL, 16);
  }
  return 0;
}
