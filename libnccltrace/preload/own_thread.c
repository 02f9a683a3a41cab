/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/own_thread.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

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
