/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock for rare paths that survives fork.
 *
 * A mutex that another thread holds while the process forks stays locked in the child for ever. This one
 * names the process of its holder: a child finds its parent's number there and takes the lock. What it guards
 * must be whole at every store, since the holder may be gone in the middle.
 */
#ifndef NT_FORK_LOCK_H
#define NT_FORK_LOCK_H

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

struct nt_fork_lock {
  _Atomic int holder; /* process id, 0: free */
};

static inline void nt_fork_lock(struct nt_fork_lock *lock) {
  const struct timespec pause = {0, 50000};
  int self = getpid();
  for (;;) {
    int holder = 0;
    if (atomic_compare_exchange_strong_explicit(&lock->holder, &holder, self, memory_order_acquire,
                                                memory_order_relaxed))
      return;
    if (holder != self &&
        atomic_compare_exchange_strong_explicit(&lock->holder, &holder, self, memory_order_acquire,
                                                memory_order_relaxed))
      return;
    nanosleep(&pause, NULL);
  }
}

static inline void nt_fork_unlock(struct nt_fork_lock *lock) {
  atomic_store_explicit(&lock->holder, 0, memory_order_release);
}

#endif
