/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far the GPU has come with each launch, without asking the application or NCCL.
 *
 * Around every launch two events without timing are recorded on its stream: one in front (passed means:
 * earlier work of the stream is done) and one behind (passed means: finished). For the first 64 launches of a stream the one
 * in front may stand on the stream that it waits for. A thread of its own
 * asks for them and publishes how far each stream has come (trace/gpu_area.h). Queries answer even while
 * every other call of the process is stuck in the driver; should the driver ever hold one, only this
 * thread waits, and its own heartbeat tells.
 *
 * Nothing is added to a stream under capture, and no more than 256 launches of a stream are marked at a time: what
 * can be said of the others is in trace/gpu_area.h.
 */
#ifndef NT_GPU_PROGRESS_H
#define NT_GPU_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "nccl/nccl_types.h"
#include "preload/cuda_driver.h"

struct nt_gpu_track;

/* One launch between its two marks. */
struct nt_gpu_launch {
  struct nt_gpu_track *track; /* NULL: not marked */
  uint32_t at;                /* place among the stream's marks */
  uint32_t number;            /* among the stream's launches, 0 if these are not counted */
};

/* Recording starts (again, in a forked child): forgets everything. `enabled` is NCCLTRACE_GPU. */
void nt_gpu_reset(bool enabled);

extern bool nt_gpu_enabled;

/* Whether launches get numbers and marks. */
static inline bool nt_gpu_on(void) {
  const struct nt_cuda_driver *driver = nt_cuda_driver_known();
  return driver && nt_gpu_enabled && driver->has_events;
}

/* The number that the next launch on this stream slot will get; 0 when progress is off. */
uint32_t nt_gpu_next(uint16_t slot);

/* Takes the next number of the stream and, if it may, puts the start mark. nt_gpu_end must
 * follow in the same thread. Not for a stream that is being captured. */
struct nt_gpu_launch nt_gpu_begin(uint16_t slot, cudaStream_t stream, bool mark);
void nt_gpu_end_mark(struct nt_gpu_launch launch, cudaStream_t stream);

static inline void nt_gpu_end(struct nt_gpu_launch launch, cudaStream_t stream) {
  if (launch.track)
    nt_gpu_end_mark(launch, stream);
}

/* A communicator is about to be aborted: what is unfinished now will read as finished, and must not count. */
void nt_gpu_freeze(void);

/* The process leaves: the polling thread stops before the driver does. Waits at most 20 ms. */
void nt_gpu_stop(void);

/* Has the gpu thread start a thread of ours, at its next look: one that uses the driver must share the application's
 * descriptors, which the callers' own tables lack. -1: there is no gpu thread. Dump thread. */
int nt_gpu_start_thread(void *(*body)(void *));

#endif
