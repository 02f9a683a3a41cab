/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVML asked by a thread of its own, because the driver of a broken GPU may never answer: that is told, and what the
 * rest of the dump has is not lost. Whoever of the two comes last frees the job. NVML's descriptors belong into the
 * application's table, where others in the process use them, so the thread is not started by the dump thread itself.
 */
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "preload/dump_parts.h"
#include "preload/nvml.h"
#include "trace/clock.h"

enum { ASKING, ANSWERED, LEFT, FACTS_BYTES = 1 << 20 };

struct job {
  _Atomic uint32_t state; /* also the futex */
  struct nt_buffer facts;
  const char *library;
  const struct nt_gpu *gpus;
  unsigned count;
};

static struct job *handed_over; /* by the dump thread to the one that it starts */
static _Atomic int stuck_in;    /* the process whose last thread has not answered yet, else 0 */

static void free_job(struct job *job) {
  free(job->facts.data);
  free(job);
}

static void *nvml_main(void *unused) {
  struct job *job = __atomic_exchange_n(&handed_over, NULL, __ATOMIC_ACQ_REL);
  uint32_t before = ASKING;
  (void)unused;
  prctl(PR_SET_NAME, "nccltrace-nvml", 0, 0, 0);
  nt_nvml_ask(&job->facts, job->library, job->gpus, job->count);
  /* Release: the waiter reads the facts once it sees ANSWERED. */
  if (atomic_compare_exchange_strong_explicit(&job->state, &before, ANSWERED, memory_order_acq_rel,
                                              memory_order_acquire)) {
    syscall(SYS_futex, &job->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    return NULL;
  }
  atomic_store(&stuck_in, 0);
  free_job(job);
  return NULL;
}

static void wait_for(struct job *job, int milliseconds) {
  const uint64_t end = nt_clock_ns(CLOCK_MONOTONIC) + (uint64_t)milliseconds * 1000000;
  while (atomic_load_explicit(&job->state, memory_order_acquire) == ASKING) {
    const uint64_t now = nt_clock_ns(CLOCK_MONOTONIC);
    if (now >= end)
      return;
    struct timespec left = {.tv_sec = (time_t)((end - now) / 1000000000),
                            .tv_nsec = (long)((end - now) % 1000000000)};
    syscall(SYS_futex, &job->state, FUTEX_WAIT_PRIVATE, ASKING, &left, NULL, 0);
  }
}

void nt_dump_nvml(struct nt_buffer *out, const char *library, const struct nt_gpu *gpus,
                  unsigned count, int milliseconds, int (*start)(void *(*body)(void *))) {
  const int self = getpid();
  if (!count) {
    nt_dump_add_fact(out, "missing.NVML", "no GPU of this process is known");
    return;
  }
  if (atomic_load(&stuck_in) == self) {
    nt_dump_add_fact(out, "missing.NVML", "it has not answered since it was asked before");
    return;
  }
  struct job *job = calloc(1, sizeof *job);
  if (!job)
    return;
  *job = (struct job){.library = library, .gpus = gpus, .count = count};
  job->facts.limit = FACTS_BYTES;
  __atomic_store_n(&handed_over, job, __ATOMIC_RELEASE);
  if (start(nvml_main) != 0) {
    __atomic_store_n(&handed_over, NULL, __ATOMIC_RELEASE);
    nt_dump_add_fact(out, "missing.NVML",
                     "there is no thread that could ask it (NCCLTRACE_GPU=off?)");
    free_job(job);
    return;
  }
  wait_for(job, milliseconds);
  uint32_t before = ASKING;
  atomic_store(&stuck_in, self);
  if (atomic_compare_exchange_strong_explicit(&job->state, &before, LEFT, memory_order_acq_rel,
                                              memory_order_acquire)) {
    nt_dump_add_fact(out, "missing.NVML", "it has not answered for %d ms", milliseconds);
    return;
  }
  atomic_store(&stuck_in, 0);
  nt_add_bytes(out, job->facts.data, job->facts.length);
  free_job(job);
}
