/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/requests.h"

#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "preload/dump_thread.h"
#include "preload/process.h"
#include "trace/clock.h"

#define DUMP_NS UINT64_C(1500000000) /* after which a dump is answered, complete or not */

/* Helper thread only. */
static struct {
  uint32_t seen;     /* newest request looked at */
  uint32_t kinds;    /* taken and not yet served */
  bool begun;        /* the dump that is to be answered is the one going on */
  bool due;          /* what was asked for is to be answered in this tick */
  bool leaving;      /* the process is ending, and its exit waits for the answer */
  uint64_t deadline; /* CLOCK_MONOTONIC */
} state;

static void futex_wait(_Atomic uint32_t *word, uint32_t seen, int milliseconds) {
  struct timespec timeout = {milliseconds / 1000, (milliseconds % 1000) * 1000000L};
  syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word) {
  syscall(SYS_futex, word, FUTEX_WAKE, 64, NULL, NULL, 0);
}

void nt_request(uint32_t kind, int milliseconds) {
  struct nt_area_header *header = nt_process.area.header;
  atomic_fetch_or_explicit(&header->request_kind, kind, memory_order_relaxed);
  /* Release: pairs with the helper's load of the number, after which it takes the kinds. */
  uint32_t mine = atomic_fetch_add_explicit(&header->request, 1, memory_order_acq_rel) + 1;
  futex_wake(&header->request);
  if (milliseconds <= 0)
    return;
  uint64_t end = nt_clock_ns(CLOCK_MONOTONIC) + (uint64_t)milliseconds * 1000000;
  for (;;) {
    uint32_t seen = atomic_load_explicit(&header->acknowledged, memory_order_acquire);
    uint64_t now = nt_clock_ns(CLOCK_MONOTONIC);
    if ((int32_t)(seen - mine) >= 0 || now >= end)
      return;
    futex_wait(&header->acknowledged, seen, (int)((end - now) / 1000000) + 1);
  }
}

void nt_requests_start(void) {
  memset(&state, 0, sizeof(state)); /* what a parent had served, after a fork */
}

static void begin_dump(enum nt_dump_reason reason) {
  if (!state.begun)
    state.begun = nt_dump_begin(reason, (state.kinds & NT_REQUEST_NATIVE) != 0);
}

static void look(bool can_dump) {
  struct nt_area_header *header = nt_process.area.header;
  uint32_t request = atomic_load_explicit(&header->request, memory_order_acquire);
  if (request != state.seen) {
    uint32_t kinds = atomic_exchange_explicit(&header->request_kind, 0, memory_order_acq_rel);
    if (kinds & NT_REQUEST_DUMP && !(state.kinds & NT_REQUEST_DUMP))
      state.deadline = nt_clock_ns(CLOCK_MONOTONIC) + DUMP_NS;
    state.kinds |= kinds;
    state.seen = request;
    state.leaving =
        kinds & NT_REQUEST_FLUSH &&
        atomic_load_explicit(&header->run_state, memory_order_acquire) != NT_RUN_RUNNING;
  }
  if (!can_dump)
    state.kinds &= ~(uint32_t)NT_REQUEST_DUMP;
  /* While an older one is stuck in a section there can be no other. */
  if (state.kinds & NT_REQUEST_DUMP)
    begin_dump(state.kinds & NT_REQUEST_SIGNAL ? NT_DUMP_SIGNAL : NT_DUMP_REQUESTED);
}

/* Everything that was asked for is done, but for draining. */
static bool is_due(void) {
  if (state.seen ==
      atomic_load_explicit(&nt_process.area.header->acknowledged, memory_order_relaxed))
    return false;
  if (!(state.kinds & NT_REQUEST_DUMP) || state.leaving)
    return true;
  return (state.begun && !nt_dump_running()) || nt_clock_ns(CLOCK_MONOTONIC) >= state.deadline;
}

enum nt_drain_how nt_requests_take(struct nt_drain *drain) {
  struct nt_buffer *section;
  bool wrote = false;
  look(drain != NULL);
  state.due = is_due(); /* before the sections are taken, so that none comes after the answer */
  while ((section = nt_dump_take())) {
    if (drain)
      nt_drain_dump(drain, section);
    wrote = true;
    nt_dump_free(section);
  }
  if (state.due && state.leaving)
    return NT_DRAIN_FINAL;
  return state.due || wrote ? NT_DRAIN_FLUSH : NT_DRAIN_LAZY;
}

void nt_requests_answer(void) {
  struct nt_area_header *header = nt_process.area.header;
  if (!state.due)
    return;
  state.kinds = 0;
  state.begun = false;
  atomic_store_explicit(&header->acknowledged, state.seen, memory_order_release);
  futex_wake(&header->acknowledged);
}

void nt_requests_dump(void) {
  nt_dump_begin(NT_DUMP_WATCHDOG, false);
}

void nt_requests_wait(int milliseconds) {
  futex_wait(&nt_process.area.header->request, state.seen, milliseconds);
}
