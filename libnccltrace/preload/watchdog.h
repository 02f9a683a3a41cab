/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices a stall by itself, so that the evidence is on disk before a scheduler ends the job.
 *
 * Three kinds of things are watched: calls that have not returned, launches that the GPU has not finished, and the
 * process as a whole, which may be outside NCCL for too long. Too long is learnt: several times the longest that has ended
 * by itself in this process, and never less than a floor. Each stall is told once. Helper thread only.
 */
#ifndef NT_WATCHDOG_H
#define NT_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

#include "trace/area.h"

/* `limit_ns` is the setting: 0 learned, -1 never. */
void nt_watchdog_start(int64_t limit_ns);

/* A look, at most a few a second; now_ns is CLOCK_MONOTONIC. True when a dump is due. */
bool nt_watchdog_look(const struct nt_area *area, uint64_t now_ns);

/* How long what made the last dump due had stood still, in nanoseconds. */
uint64_t nt_watchdog_stood(void);

#endif
