/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processor's counter (x86-64: the time-stamp counter, aarch64: CNTVCT_EL0) costs half of clock_gettime, so the
 * call path reads it raw where it is invariant and leaves the conversion to whoever reads the trace: syncs of all
 * clocks are taken at the start and at every tick of the helper.
 */
#include "trace/clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum nt_clock_kind nt_clock_pick(void) {
#if defined(__x86_64__)
  unsigned a, b, c, d;
  /* Leaf 0x80000007, EDX bit 8: constant rate in all states, synchronised between cores
   * (Intel SDM vol. 3, "Invariant TSC"; AMD APM vol. 2). */
  if (__get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8)))
    return NT_CLOCK_TSC;
#elif defined(__aarch64__)
  /* Of constant rate and the same on all processors by its architecture (Arm ARM, "The Generic Timer"); Linux lets
   * programs read it. Firmware that never set a frequency has not set the timer up. */
  uint64_t frequency;
  __asm__("mrs %0, cntfrq_el0" : "=r"(frequency));
  if (frequency)
    return NT_CLOCK_TSC;
#endif
  return NT_CLOCK_MONOTONIC;
}

void nt_clock_sync(enum nt_clock_kind kind, struct nt_clock_sync *out) {
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < 4; i++) {
    uint64_t before = nt_clock_ticks(kind);
    uint64_t mono = nt_clock_ns(CLOCK_MONOTONIC);
    uint64_t real = nt_clock_ns(CLOCK_REALTIME);
    uint64_t after = nt_clock_ticks(kind);
    if (after - before < best) {
      best = after - before;
      *out = (struct nt_clock_sync){before + best / 2, mono, real};
    }
  }
}

double nt_clock_rate(uint32_t kind, const struct nt_clock_sync *first,
                     const struct nt_clock_sync *last) {
  if (kind != NT_CLOCK_TSC)
    return 1.0;
  if (last->ticks <= first->ticks)
    return 0;
  return (double)(last->monotonic_ns - first->monotonic_ns) / (double)(last->ticks - first->ticks);
}
