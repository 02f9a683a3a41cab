/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock for rare paths that survives fork.
 *
 * A mutex that another thread holds while the process forks stays locked in the child for ever. This one
 * names the process of its holder: a child finds its parent's number there and takes the lock. What it guards
 * must be whole at every store, since the holder may be gone in the middle. A thread that holds it is not cancelled, or
 * nobody would give it back.
 */
#ifndef NT_FORK_LOCK_H
#define NT_FORK_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

struct nt_fork_lock {
  _Atomic int holder; /* process id, 0: free */
  int cancel_state;   /* the holder's, as it was before */
};

static inline void nt_fork_lock(struct nt_fork_lock *lock) {
  const struct timespec pause = {0, 50000};
  int self = getpid(), cancel_state;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
  for (;;) {
    int holder = 0;
    if (atomic_compare_exchange_strong_explicit(&lock->holder, &holder, self, memory_order_acquire,
                                                memory_order_relaxed))
      break;
    if (holder != self &&
        atomic_compare_exchange_strong_explicit(&lock->holder, &holder, self, memory_order_acquire,
                                                memory_order_relaxed))
      break;
    nanosleep(&pause, NULL);
  }
  lock->cancel_state = cancel_state;
}

/* The same without waiting: false while another thread of this process holds it. */
static inline bool nt_fork_trylock(struct nt_fork_lock *lock) {
  int self = getpid(), cancel_state, holder = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
  for (int tries = 0; tries < 2 && holder != self; tries++)
    if (atomic_compare_exchange_strong_explicit(&lock->holder, &holder, self, memory_order_acquire,
                                                memory_order_relaxed)) {
      lock->cancel_state = cancel_state;
      return true;
    }
  pthread_setcancelstate(cancel_state, NULL);
  return false;
}

static inline void nt_fork_unlock(struct nt_fork_lock *lock) {
  int cancel_state = lock->cancel_state;
  atomic_store_explicit(&lock->holder, 0, memory_order_release);
  pthread_setcancelstate(cancel_state, NULL);
}

#endif
