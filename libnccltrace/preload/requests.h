/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What others ask of a traced process: to write its trace out now, or to dump all that can be known of it.
 *
 * A request is one word in the area: bits of what is wanted, and above them a number that goes up; the helper sleeps on
 * it. So neither a signal nor a right beyond that of the area's owner is needed. Every request has the trace flushed at
 * once, which `acknowledged` tells. A request for a dump has another answer: it names the dump that began after the
 * request, when that is complete or when the time is up; sections that are still being taken then follow when they are
 * there. All who asked before a dump began share it, those who come while it goes on get the next one.
 */
#ifndef NT_REQUESTS_H
#define NT_REQUESTS_H

#include "trace/drain.h"

/* Asks this process's helper for `kind` (NT_REQUEST_* bits) and waits for the flush, at most `milliseconds`. Any
 * thread but the helper; 0 milliseconds: async-signal-safe. */
void nt_request(uint32_t kind, int milliseconds);

/* ---- helper thread only ------------------------------------------------------------------------- */

/* Before the first tick. */
void nt_requests_start(void);

/* Once a tick. Starts what is asked for and hands finished sections of a dump to `drain` (NULL: there is no
 * file, and no dump is made); returns how to drain in this tick. */
enum nt_drain_how nt_requests_take(struct nt_drain *drain);

/* After the drain: answers what is done. */
void nt_requests_answer(struct nt_drain *drain);

/* A dump that nobody asked for: the watchdog's, who saw no progress for `stood_ns`. Returns its number, 0 if another is
 * going on. */
uint32_t nt_requests_dump(bool native, uint64_t stood_ns);

/* Sleeps until there is a request, a section of a dump, or `milliseconds` have passed. */
void nt_requests_wait(int milliseconds);

#endif
