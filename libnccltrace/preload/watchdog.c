/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/watchdog.h"

#include <string.h>

#include "trace/ring.h"

#define SECOND UINT64_C(1000000000)
#define FLOOR_BUSY (30 * SECOND)     /* something is unfinished */
#define FLOOR_OUTSIDE (120 * SECOND) /* nothing is: the program does something else */

enum { TIMES = 4, CHUNKS = 1024, STREAMS = 256 };

/* One thing that stands still, or does not. */
struct watch {
  uint64_t what;  /* changes whenever it moves */
  uint64_t since; /* when it last did */
  bool pending;   /* it stands in the middle of something */
  bool told;
};

static struct {
  int64_t limit_ns;
  uint64_t longest_busy, longest_outside; /* that ended by themselves */
  uint64_t stood;                         /* what made the last dump due */
  struct watch whole, streams[STREAMS], chunks[CHUNKS];
} dog;

void nt_watchdog_start(int64_t limit_ns) {
  memset(&dog, 0, sizeof dog);
  dog.limit_ns = limit_ns;
}

static uint64_t limit(uint64_t longest, uint64_t floor) {
  if (dog.limit_ns > 0)
    return (uint64_t)dog.limit_ns;
  return TIMES * longest > floor ? TIMES * longest : floor;
}

/* True if it has stood still in the middle of something for too long, and this is the first look to see it. */
static bool stands(struct watch *watch, uint64_t what, bool pending, uint64_t now,
                   uint64_t *longest, uint64_t floor) {
  if (watch->what != what || watch->pending != pending || !watch->since) {
    if (watch->pending && watch->since && now - watch->since > *longest)
      *longest = now - watch->since;
    *watch = (struct watch){.what = what, .since = now, .pending = pending};
    return false;
  }
  if (!pending || watch->told || now - watch->since < limit(*longest, floor))
    return false;
  watch->told = true;
  dog.stood = now - watch->since;
  return true;
}

static bool look_at_streams(const struct nt_area *area, uint64_t now, uint64_t *moved) {
  bool due = false;
  for (uint32_t i = 0; i < area->header->gpu_stream_count && i < STREAMS; i++) {
    const struct nt_gpu_stream *stream = &area->gpu_streams[i];
    uint32_t issued = atomic_load_explicit(&stream->issued, memory_order_relaxed);
    uint32_t finished = atomic_load_explicit(&stream->finished, memory_order_relaxed);
    uint32_t frozen = atomic_load_explicit(&stream->frozen, memory_order_relaxed);
    if (!issued)
      continue;
    *moved += finished;
    due |= stands(&dog.streams[i], finished, (int32_t)(issued - finished) > 0 && issued > frozen,
                  now, &dog.longest_busy, FLOOR_BUSY);
  }
  return due;
}

static bool look_at_chunks(const struct nt_area *area, uint64_t now) {
  bool due = false;
  for (uint32_t i = 0; i < nt_area_chunks_used(area->header) && i < CHUNKS; i++) {
    const struct nt_chunk *chunk = &area->chunks[i];
    bool owned = atomic_load_explicit(&chunk->state, memory_order_relaxed) == NT_CHUNK_OWNED;
    uint32_t closed = atomic_load_explicit(&chunk->closed, memory_order_relaxed);
    uint32_t published = atomic_load_explicit(&chunk->published, memory_order_relaxed);
    due |= stands(&dog.chunks[i], chunk->serial << 8 | closed, owned && closed < published, now,
                  &dog.longest_busy, FLOOR_BUSY);
  }
  return due;
}

/* Calls that move a job on; that somebody asks for errors every second does not. */
static uint64_t count_calls(const struct nt_area *area) {
  uint64_t count = 0;
  for (uint32_t i = 1; i < nt_area_comms_used(area->header); i++) {
    const struct nt_comm_live *live = &area->comms[i].live;
    count += atomic_load_explicit(&live->state, memory_order_relaxed);
    count += atomic_load_explicit(&live->collectives, memory_order_relaxed);
    count += atomic_load_explicit(&live->sends, memory_order_relaxed);
    count += atomic_load_explicit(&live->recvs, memory_order_relaxed);
  }
  return count;
}

uint64_t nt_watchdog_stood(void) {
  return dog.stood;
}

bool nt_watchdog_look(const struct nt_area *area, uint64_t now_ns) {
  if (dog.limit_ns < 0)
    return false;
  uint64_t moved = count_calls(area);
  bool due = look_at_streams(area, now_ns, &moved);
  due |= look_at_chunks(area, now_ns);
  due |= stands(&dog.whole, moved, true, now_ns, &dog.longest_outside, FLOOR_OUTSIDE);
  if (!due)
    return false;
  /* One stall is one dump, whatever stands still with it. */
  dog.whole.told = true;
  for (unsigned i = 0; i < STREAMS; i++)
    dog.streams[i].told |= dog.streams[i].pending;
  for (unsigned i = 0; i < CHUNKS; i++)
    dog.chunks[i].told |= dog.chunks[i].pending;
  return true;
}
