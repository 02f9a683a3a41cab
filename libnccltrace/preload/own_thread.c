/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/own_thread.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE 2
#endif

enum { STACK_BYTES = 256 * 1024 };

int nt_own_thread_start(void *(*body)(void *)) {
  sigset_t all, before;
  pthread_attr_t attributes;
  pthread_t thread;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  int refused = pthread_create(&thread, &attributes, body, NULL);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return refused ? -1 : 0;
}

static void standard_to_null(void) {
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0)
    return;
  dup2(null, 0);
  dup2(null, 1);
  dup2(null, 2);
  if (null > 2)
    close(null);
}

bool nt_own_descriptors(void) {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_UNSHARE) == 0) {
    standard_to_null();
    return true;
  }
#endif
  if (unshare(CLONE_FILES) != 0)
    return false;
  standard_to_null();
  DIR *dir = opendir("/proc/self/fd");
  if (!dir)
    return true;
  for (struct dirent *entry; (entry = readdir(dir));) {
    int fd = atoi(entry->d_name);
    if (fd > 2 && fd != dirfd(dir))
      close(fd);
  }
  closedir(dir);
  return true;
}
