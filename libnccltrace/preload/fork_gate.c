/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each side says that it comes before it looks for the other, in one order for all (sequentially consistent): of
 * two that come at once at least one sees the other. Who would go in gives way; a fork waits.
 *
 * The thread that forks may be asked for its stack while it waits: the handler runs inside its sleep.
 */
#include "preload/fork_gate.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include "trace/clock.h"

enum { FORK_WAITS_MS = 200, POLL_US = 50 };

static _Atomic int inside; /* threads that are */
static _Atomic int forks;  /* between their first and their last handler */

static uint64_t after(unsigned ms) {
  return nt_clock_ns(CLOCK_MONOTONIC) + (uint64_t)ms * 1000000;
}

/* false: it is later than `end`. */
static bool wait_a_moment(uint64_t end) {
  const struct timespec pause = {0, POLL_US * 1000};
  if (nt_clock_ns(CLOCK_MONOTONIC) >= end)
    return false;
  nanosleep(&pause, NULL);
  return true;
}

static void before_fork(void) {
  atomic_fetch_add(&forks, 1);
  if (!atomic_load(&inside))
    return;
  const int saved_errno = errno;
  const uint64_t end = after(FORK_WAITS_MS);
  while (atomic_load(&inside) && wait_a_moment(end))
    ;
  errno = saved_errno;
}

/* Not below 0: where the handlers were registered in the middle of a fork the first one has not run, and where a child
 * was made inside it begins at 0. */
static void count_down(_Atomic int *counter) {
  int now = atomic_load(counter);
  while (now > 0 && !atomic_compare_exchange_weak(counter, &now, now - 1))
    ;
}

static void after_fork_in_parent(void) {
  count_down(&forks);
}

static void after_fork_in_child(void) {
  atomic_store(&forks, 0);
  atomic_store(&inside, 0);
}

/* Before there are other threads: who registers handlers while a fork is under way waits for it in an old libc. A child
 * has its parent's. */
__attribute__((constructor)) static void register_handlers(void) {
  (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

bool nt_fork_gate_enter(unsigned wait_ms) {
  uint64_t end = 0;
  do {
    atomic_fetch_add(&inside, 1);
    if (!atomic_load(&forks))
      return true;
    count_down(&inside);
    end = end ? end : after(wait_ms);
  } while (wait_a_moment(end));
  return false;
}

void nt_fork_gate_leave(void) {
  count_down(&inside);
}
