/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that one rank of a training job makes, for the benchmarks of what becomes of them. */
#ifndef NT_CALL_PATTERN_H
#define NT_CALL_PATTERN_H

#include <stdint.h>

#include "trace/codec.h"

enum { CALL_PATTERN_TICKS_PER_US = 2100, CALL_PATTERN_COMMS = 6, CALL_PATTERN_STREAMS = 5 };

/* Zero but for the first four, set by the user. Communicators are 1 to 5, streams 1 to 4; a stack is a number of the
 * function and the communicator. */
struct call_pattern {
  struct nt_batch_call *calls;
  uint32_t room; /* for so many */
  uint64_t now;  /* ticks */
  double slower; /* this many times as long between calls; 0 is 1 */
  uint32_t used;
  uint32_t seq[8], sends, recvs, expert_calls, launch[8];
  uint16_t group;
};

/* From `used` on; goes on where it stood, but for the calls of a step that found no room. */
void call_pattern_fill(struct call_pattern *pattern);

#endif
