/* SPDX-License-Identifier: Apache-2.0 */
/* The call path's clock, and how its ticks become wall time. */
#ifndef NT_CLOCK_H
#define NT_CLOCK_H

#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "trace/area.h"

/* Nanoseconds of CLOCK_REALTIME or CLOCK_MONOTONIC. */
static inline uint64_t nt_clock_ns(clockid_t id) {
  struct timespec now;
  clock_gettime(id, &now);
  return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* NT_CLOCK_TSC, the processor's counter (rdtsc, CNTVCT_EL0), where it is invariant, else
 * NT_CLOCK_MONOTONIC (nanoseconds). Decided once per process. */
enum nt_clock_kind nt_clock_pick(void);

/* Now, in ticks of `kind`. */
static inline uint64_t nt_clock_ticks(enum nt_clock_kind kind) {
#if defined(__x86_64__)
  if (__builtin_expect(kind == NT_CLOCK_TSC, 1))
    return __rdtsc();
#elif defined(__aarch64__)
  if (__builtin_expect(kind == NT_CLOCK_TSC, 1)) {
    /* No barrier, as with rdtsc: a few instructions early or late are below what the counter resolves. */
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
  }
#endif
  (void)kind;
  return nt_clock_ns(CLOCK_MONOTONIC);
}

/* One instant read on all three clocks, best of a few tries. */
void nt_clock_sync(enum nt_clock_kind kind, struct nt_clock_sync *out);

/* Nanoseconds of a tick, told by two syncs; 0 if only one was taken: ticks of TSC have no known rate then. */
double nt_clock_rate(uint32_t kind, const struct nt_clock_sync *first,
                     const struct nt_clock_sync *last);

/* CLOCK_REALTIME nanoseconds of `ticks`, on the line through two syncs, or of the first where there is no rate. A step of the
 * wall clock between the syncs is ignored: time runs on from `last`'s reading. */
static inline int64_t nt_clock_realtime(double rate, const struct nt_clock_sync *first,
                                        const struct nt_clock_sync *last, uint64_t ticks) {
  if (rate <= 0)
    return (int64_t)first->realtime_ns;
  return (int64_t)last->realtime_ns + (int64_t)((double)(int64_t)(ticks - last->ticks) * rate);
}

#endif
