/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this library knows of the process it lives in.
 *
 * Nothing exists until the first communicator is created: no area, no thread, no file. From then on
 * `nt_recording()` is true in this process and false in every forked child, because the word it reads lies on a
 * page that the kernel wipes at fork; a child is silent until it creates a communicator of its own.
 */
#ifndef NT_PROCESS_H
#define NT_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "trace/area.h"
#include "trace/clock.h"
#include "trace/ring.h"

#define NT_LIKELY(x) __builtin_expect(!!(x), 1)
#define NT_UNLIKELY(x) __builtin_expect(!!(x), 0)

struct nt_process {
  enum nt_clock_kind clock;
  uint32_t incarnation; /* counts starts, so that a forked child's threads know theirs are stale */
  struct nt_area area;
};

extern struct nt_process nt_process;

/* On a page of its own, zero in a forked child. */
struct nt_guard {
  uint32_t recording;
  uint32_t settled; /* the settings have been read, under the lock */
  uint32_t tried;   /* a start was, under the lock, or is not to be */
};
extern struct nt_guard *nt_guard;

static inline bool nt_recording(void) {
  return __atomic_load_n(&nt_guard->recording, __ATOMIC_ACQUIRE) != 0;
}

/* Called at the entry of every communicator-creating function, with the rank and size it was given (-1 if it
 * has none). Starts recording once; any thread; afterwards cheap. True if this process records. */
bool nt_process_start(int rank, int nranks);

/* Once, before recording starts (process_end.c). */
void nt_process_find_exit(void);

/* exit(code) was called: notes it, and no more. Handlers may still use NCCL, and may never return. False if this
 * process does not record. Any thread. */
bool nt_process_ending(int code);

/* The process is ending with `code`: notes it, asks the helper for a last drain and waits for it at
 * most 200 ms. Harmless when not recording, and when called twice. */
void nt_process_leaving(int code);

#endif
