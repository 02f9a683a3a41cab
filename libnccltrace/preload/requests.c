/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/requests.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "preload/dump_thread.h"
#include "preload/futex.h"
#include "preload/log.h"
#include "preload/process.h"
#include "trace/clock.h"

#define DUMP_NS UINT64_C(1500000000) /* after which a dump is answered, complete or not */

/* Those who asked for a dump before it began: one dump answers them all. */
struct group {
  uint32_t kinds;    /* of all of them; 0: there is nobody */
  uint32_t number;   /* the newest of them */
  uint32_t dump;     /* that was begun for them, 0: none yet */
  uint64_t deadline; /* CLOCK_MONOTONIC, of the oldest of them */
};

/* Helper thread only. */
static struct {
  uint32_t seen;       /* newest request looked at */
  uint32_t flushed;    /* newest request whose flush is done */
  struct group served; /* the dump going on is theirs */
  struct group next;   /* have come since it began */
  bool complete;       /* the served one's dump is, and its sections are with the drain */
  bool leaving;        /* the process is ending, and its exit waits for the flush */
} state;

void nt_request(uint32_t kind, int milliseconds) {
  struct nt_area_header *header = nt_process.area.header;
  uint32_t mine = nt_area_ask(header, kind);
  nt_futex_wake(&header->request);
  if (milliseconds <= 0)
    return;
  uint64_t end = nt_clock_ns(CLOCK_MONOTONIC) + (uint64_t)milliseconds * 1000000;
  for (;;) {
    uint32_t seen = atomic_load_explicit(&header->acknowledged, memory_order_acquire);
    uint64_t now = nt_clock_ns(CLOCK_MONOTONIC);
    if (nt_area_has_reached(seen, mine) || now >= end)
      return;
    nt_futex_wait(&header->acknowledged, seen, (int)((end - now) / 1000000) + 1);
  }
}

void nt_requests_start(void) {
  memset(&state, 0, sizeof(state)); /* what a parent had served, after a fork */
}

static void look(void) {
  struct nt_area_header *header = nt_process.area.header;
  uint32_t word =
      atomic_fetch_and_explicit(&header->request, ~NT_REQUEST_KINDS, memory_order_acq_rel);
  uint32_t kinds = word & NT_REQUEST_KINDS;
  state.seen = word >> NT_REQUEST_BITS;
  state.leaving = kinds & NT_REQUEST_FLUSH &&
                  atomic_load_explicit(&header->run_state, memory_order_acquire) != NT_RUN_RUNNING;
  if (!(kinds & NT_REQUEST_DUMP))
    return;
  if (!state.next.kinds)
    state.next.deadline = nt_clock_ns(CLOCK_MONOTONIC) + DUMP_NS;
  state.next.kinds |= kinds;
  state.next.number = state.seen;
}

/* Only what began after a request answers it: a dump that is going on does not. */
static void begin_dump(void) {
  struct group *next = &state.next;
  if (!next->kinds || state.served.kinds)
    return;
  next->dump = nt_dump_begin(next->kinds & NT_REQUEST_SIGNAL ? NT_DUMP_SIGNAL : NT_DUMP_REQUESTED,
                             (next->kinds & NT_REQUEST_NATIVE) != 0);
  if (!next->dump)
    return;
  nt_log("asked by %s: dump %u is written to %s",
         next->kinds & NT_REQUEST_SIGNAL ? "a signal" : "nccltrace dump", next->dump,
         nt_process.area.header->file_path);
  state.served = *next;
  *next = (struct group){0};
}

enum nt_drain_how nt_requests_take(struct nt_drain *drain) {
  struct nt_buffer *section;
  bool wrote = false;
  look();
  if (drain)
    begin_dump();
  /* Before the sections are taken, so that none comes after the answer. */
  state.complete = state.served.kinds && !nt_dump_running();
  while ((section = nt_dump_take())) {
    if (drain)
      nt_drain_dump(drain, section);
    wrote = true;
    nt_dump_free(section);
  }
  if (state.seen == state.flushed && !wrote)
    return NT_DRAIN_LAZY;
  return state.leaving ? NT_DRAIN_FINAL : NT_DRAIN_FLUSH;
}

/* The answer before the count: who sees the count (acquire) finds it. */
static void answer(struct group *group, uint32_t dump) {
  struct nt_area_header *header = nt_process.area.header;
  uint32_t count = atomic_load_explicit(&header->dump_answers, memory_order_relaxed);
  atomic_store_explicit(&header->dump_answer[count % NT_DUMP_ANSWERS],
                        (uint64_t)dump << 32 | group->number, memory_order_release);
  atomic_store_explicit(&header->dump_answers, count + 1, memory_order_release);
  nt_futex_wake(&header->dump_answers);
  *group = (struct group){0};
}

void nt_requests_answer(struct nt_drain *drain) {
  struct nt_area_header *header = nt_process.area.header;
  uint64_t now = nt_clock_ns(CLOCK_MONOTONIC);
  if (state.served.kinds && (state.complete || now >= state.served.deadline))
    answer(&state.served, state.served.dump);
  if (state.next.kinds && (!drain || !nt_dump_possible()))
    answer(&state.next, NT_DUMP_NO_THREAD);
  else if (state.next.kinds && now >= state.next.deadline)
    answer(&state.next, NT_DUMP_NONE);
  if (drain)
    begin_dump(); /* for those who came while another was going on */
  if (state.seen == state.flushed)
    return;
  state.flushed = state.seen;
  atomic_store_explicit(&header->acknowledged, state.flushed, memory_order_release);
  nt_futex_wake(&header->acknowledged);
}

uint32_t nt_requests_dump(bool native, uint64_t stood_ns) {
  const struct nt_area_header *header = nt_process.area.header;
  const uint64_t seconds = stood_ns / 1000000000;
  uint32_t number = nt_dump_begin(NT_DUMP_WATCHDOG, native);
  if (number)
    nt_log("no progress for %" PRIu64 " s: dump %u is written to %s", seconds, number,
           header->file_path);
  else
    nt_log("no progress for %" PRIu64 " s, and no dump: %s", seconds,
           nt_dump_possible() ? "an earlier one is going on" : "there is no thread for it");
  return number;
}

void nt_requests_wait(int milliseconds) {
  nt_futex_wait(&nt_process.area.header->request, state.seen << NT_REQUEST_BITS, milliseconds);
}
