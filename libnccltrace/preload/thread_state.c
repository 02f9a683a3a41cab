/* SPDX-License-Identifier: Apache-2.0 */
/* Registration of threads and the list of calls that a group has not committed yet. */
#include "preload/thread_state.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

__thread struct nt_thread nt_thread __attribute__((tls_model("initial-exec")));

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

struct nt_pending *nt_thread_pend(struct nt_thread *thread) {
  if (NT_UNLIKELY(thread->pending_count == thread->pending_capacity)) {
    size_t old = thread->pending_capacity * sizeof(struct nt_pending);
    size_t size = old ? old * 2 : 64 * sizeof(struct nt_pending);
    void *grown = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (grown == MAP_FAILED)
      return NULL;
    if (old) {
      memcpy(grown, thread->pending, old);
      munmap(thread->pending, old);
    }
    thread->pending = grown;
    thread->pending_capacity = (uint32_t)(size / sizeof(struct nt_pending));
  }
  return &thread->pending[thread->pending_count++];
}
