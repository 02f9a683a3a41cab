/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int enabled;

/* stderr as it was when the library was loaded: an application may close it and get its number for a file
 * of its own, which is no place for our words. */
static struct stat at_load;

__attribute__((constructor)) static void remember_stderr(void) {
  int saved_errno = errno;
  if (fstat(STDERR_FILENO, &at_load) != 0)
    at_load.st_ino = 0;
  errno = saved_errno;
}

void nt_log_enable(int on) {
  enabled = on;
}

static bool is_stderr(int fd) {
  struct stat now;
  return at_load.st_ino && fstat(fd, &now) == 0 && now.st_dev == at_load.st_dev &&
         now.st_ino == at_load.st_ino;
}

/* The helper has no copy of the application's stderr in its own table. It borrows the first thread's, which is the
 * application's, by a call that shares the position in the file (Linux 5.6): what another opening appends to a file, the
 * application's next line would overwrite. Where that call is missing it has to be another opening. */
static int borrow_stderr(void) {
#if defined(SYS_pidfd_open) && defined(SYS_pidfd_getfd)
  int process = (int)syscall(SYS_pidfd_open, getpid(), 0);
  int fd = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, STDERR_FILENO, 0);
  if (process >= 0)
    close(process);
  if (fd >= 0)
    return fd;
#endif
  return open("/proc/self/fd/2", O_WRONLY | O_APPEND | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
}

/* A pipe that nobody empties holds nobody up, and one that nobody reads ends nobody, nor does a file that has come to
 * its limit (ulimit -f): a signal that our own write raises is taken back. */
static void write_quietly(int fd, const char *line, size_t length) {
  struct pollfd room = {fd, POLLOUT, 0};
  sigset_t broken, before, pending;
  if (poll(&room, 1, 0) != 1 || room.revents != POLLOUT)
    return;
  sigemptyset(&broken);
  sigaddset(&broken, SIGPIPE);
  sigaddset(&broken, SIGXFSZ);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &broken, &before);
  if (write(fd, line, length) < 0 && (errno == EPIPE || errno == EFBIG)) {
    const int raised = errno == EPIPE ? SIGPIPE : SIGXFSZ;
    const struct timespec none = {0};
    sigemptyset(&broken);
    sigaddset(&broken, raised);
    if (!sigismember(&pending, raised))
      sigtimedwait(&broken, NULL, &none);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void write_line(const char *line, size_t length) {
  int fd = STDERR_FILENO;
  if (!is_stderr(fd)) {
    fd = borrow_stderr();
    if (fd < 0)
      return;
  }
  if (is_stderr(fd))
    write_quietly(fd, line, length);
  if (fd != STDERR_FILENO)
    close(fd);
}

__attribute__((format(printf, 1, 0))) static void say(const char *format, va_list args) {
  char line[1024] = "nccltrace: ";
  int n = vsnprintf(line + 11, sizeof(line) - 12, format, args);
  if (n < 0)
    return;
  size_t length = 11 + (size_t)n;
  if (length > sizeof(line) - 2)
    length = sizeof(line) - 2;
  /* Paths come from the environment. */
  for (size_t i = 0; i < length; i++)
    if ((unsigned char)line[i] < 32 || line[i] == 127)
      line[i] = '?';
  line[length++] = '\n';
  write_line(line, length);
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
