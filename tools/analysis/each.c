/* SPDX-License-Identifier: Apache-2.0 */
/* Threads take the next few that nobody has. */
#include "analysis/each.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>

/* A thread takes some 30 us to start: as long as a few communicators of a large job, or some tens of its ranks. */
enum { THREADS_MAX = 16, MANY = 128, AT_ONCE = 8 };

struct work {
  uint32_t count;
  int (*fn)(void *ctx, uint32_t i);
  void *ctx;
  _Atomic uint32_t next;
  _Atomic int status;
};

unsigned nt_each_processors(void) {
  cpu_set_t set;
  const int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return count < 1 ? 1 : count > THREADS_MAX ? THREADS_MAX : (unsigned)count;
}

static void *run(void *arg) {
  struct work *work = arg;
  for (;;) {
    const uint32_t from = atomic_fetch_add_explicit(&work->next, AT_ONCE, memory_order_relaxed);
    if (from >= work->count || atomic_load_explicit(&work->status, memory_order_relaxed))
      return NULL;
    for (uint32_t i = from; i < work->count && i < from + AT_ONCE; i++) {
      const int status = work->fn(work->ctx, i);
      if (status)
        atomic_store_explicit(&work->status, status, memory_order_relaxed);
    }
  }
}

int nt_each(uint32_t count, int (*fn)(void *ctx, uint32_t i), void *ctx) {
  struct work work = {.count = count, .fn = fn, .ctx = ctx};
  pthread_t threads[THREADS_MAX];
  const unsigned wanted = count >= MANY && count <= UINT32_MAX / 2 ? nt_each_processors() : 1;
  unsigned started = 0;
  while (started + 1 < wanted && pthread_create(&threads[started], NULL, run, &work) == 0)
    started++;
  run(&work);
  for (unsigned i = 0; i < started; i++)
    pthread_join(threads[i], NULL);
  return atomic_load_explicit(&work.status, memory_order_relaxed);
}
