/* SPDX-License-Identifier: Apache-2.0 */
/* Registration of threads and the list of calls that a group has not committed yet. */
#include "preload/thread_state.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

__thread struct nt_thread nt_thread __attribute__((tls_model("initial-exec")));

static pthread_key_t ending;
static bool has_ending;

/* The thread is left inside a call: its record stays open for ever. */
static void leave_open(struct nt_thread *thread) {
  if (!thread->open)
    return;
  thread->open->flags |= NT_CALL_ABANDONED;
  nt_ring_close(&thread->ring);
  atomic_fetch_add_explicit(&nt_process.area.header->abandoned, 1, memory_order_relaxed);
}

/* In the thread that ends. Destructors that come later may call NCCL: the thread registers again then. In a forked child
 * the chunk is the parent's. */
static void end(void *value) {
  struct nt_thread *thread = value;
  int saved_errno = errno;
  if (thread->pending)
    munmap(thread->pending, thread->pending_capacity * sizeof(struct nt_pending));
  thread->pending = NULL;
  thread->pending_count = thread->pending_capacity = 0;
  if (thread->incarnation == nt_process.incarnation && nt_recording()) {
    leave_open(thread);
    nt_ring_retire(&nt_process.area, &thread->ring);
  }
  memset(&thread->ring, 0, sizeof(thread->ring));
  thread->open = NULL;
  thread->entered = NULL;
  thread->frame = 0;
  thread->incarnation = 0; /* no process's */
  errno = saved_errno;
}

void nt_threads_start(void) {
  has_ending = has_ending || pthread_key_create(&ending, end) == 0;
}

void nt_thread_register(struct nt_thread *thread) {
  struct nt_area_header *header = nt_process.area.header;
  int saved_errno = errno;
  uint32_t tid = (uint32_t)syscall(SYS_gettid);
  memset(&thread->ring, 0, sizeof(thread->ring));
  thread->open = NULL;
  thread->last_comm = NULL;
  thread->last_stream = 0;
  thread->pending_count = 0; /* what a forked child finds there is its parent's */
  thread->incarnation = nt_process.incarnation;
  if (has_ending)
    pthread_setspecific(ending, thread);
  thread->ring.thread =
      atomic_fetch_add_explicit(&header->next_thread, 1, memory_order_relaxed) + 1;
  thread->ring.tid = tid;
  /* The table gives threads a name; one that finds it full is recorded like any other. */
  for (uint32_t i = 0; i < header->thread_count; i++) {
    struct nt_thread_slot *slot = &nt_process.area.threads[i];
    uint32_t expected = 0;
    if (atomic_load_explicit(&slot->tid, memory_order_relaxed) != 0 ||
        !atomic_compare_exchange_strong(&slot->tid, &expected, tid))
      continue;
    slot->index = thread->ring.thread;
    prctl(PR_GET_NAME, slot->name, 0, 0, 0);
    break;
  }
  errno = saved_errno;
}

bool nt_thread_pend_more(struct nt_thread *thread) {
  size_t old = thread->pending_capacity * sizeof(struct nt_pending);
  size_t size = old ? old * 2 : 64 * sizeof(struct nt_pending);
  void *grown = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (grown == MAP_FAILED)
    return false;
  if (old) {
    memcpy(grown, thread->pending, old);
    munmap(thread->pending, old);
  }
  thread->pending = grown;
  thread->pending_capacity = (uint32_t)(size / sizeof(struct nt_pending));
  return true;
}
