/* SPDX-License-Identifier: Apache-2.0 */
/* Entries <-> facts. Nothing here knows where they come from. */
#include "trace/state_slot.h"

#include <stdlib.h>

enum { MOST = 1 << 20 }; /* of any kind: what one process cannot reach */

void nt_facts_free(struct nt_facts *facts) {
  free(facts->comms);
  free(facts->streams);
  free(facts->threads);
  free(facts->open);
  free(facts->peers);
  memset(facts, 0, sizeof *facts);
}

/* `old` with room for one more element of `size` bytes behind its `count`; NULL, and `old` as it was, with
 * *rc set, when that cannot be. */
static void *grow(void *old, size_t count, size_t *room, size_t size, int *rc) {
  *rc = count < MOST ? 0 : -NT_ERR_SPACE;
  if (*rc)
    return NULL;
  if (count < *room)
    return old;
  const size_t wanted = *room ? *room * 2 : 16;
  void *grown = realloc(old, wanted * size);
  if (grown)
    *room = wanted;
  else
    *rc = -NT_ERR_MEMORY;
  return grown;
}

/* Where the communicator `number` is in the array, which is sorted, or would have to be. */
static size_t place_of(const struct nt_facts *facts, uint32_t number) {
  size_t low = 0, high = facts->comm_count;
  /* Numbers are handed out in order: the place is nearly always at the end. */
  if (high && facts->comms[high - 1].def.number < number)
    return high;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (facts->comms[middle].def.number < number)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

const struct nt_comm_facts *nt_facts_comm(const struct nt_facts *facts, uint32_t number) {
  const size_t at = place_of(facts, number);
  return at < facts->comm_count && facts->comms[at].def.number == number ? &facts->comms[at] : NULL;
}

static bool has_ended(const struct nt_comm_facts *comm) {
  return comm->live.state >= NT_COMM_DESTROYED;
}

int nt_facts_add_comm(struct nt_facts *facts, const struct nt_comm_facts *comm) {
  const size_t at = place_of(facts, comm->def.number);
  if (at == facts->comm_count || facts->comms[at].def.number != comm->def.number) {
    int rc;
    void *grown =
        grow(facts->comms, facts->comm_count, &facts->comm_room, sizeof *facts->comms, &rc);
    if (!grown)
      return rc;
    facts->comms = grown;
    memmove((void *)&facts->comms[at + 1], (void *)&facts->comms[at],
            (facts->comm_count - at) * sizeof *facts->comms);
    facts->comm_count++;
  } else if (has_ended(&facts->comms[at]) && !has_ended(comm)) {
    return 0;
  }
  memcpy((void *)&facts->comms[at], comm, sizeof *comm);
  facts->comms[at].def.name[sizeof facts->comms[at].def.name - 1] = 0;
  return 0;
}

int nt_facts_add_thread(struct nt_facts *facts, const struct nt_thread_facts *thread) {
  for (size_t i = facts->thread_count; i-- > 0;)
    if (facts->threads[i].index == thread->index) {
      facts->threads[i] = *thread;
      return 0;
    }
  int rc;
  void *grown =
      grow(facts->threads, facts->thread_count, &facts->thread_room, sizeof *facts->threads, &rc);
  if (!grown)
    return rc;
  facts->threads = grown;
  facts->threads[facts->thread_count++] = *thread;
  return 0;
}

int nt_facts_add_stream(struct nt_facts *facts, const struct nt_stream_facts *stream) {
  for (size_t i = facts->stream_count; i-- > 0;)
    if (facts->streams[i].number == stream->number) {
      const struct nt_gpu_facts gpu = facts->streams[i].gpu;
      facts->streams[i] = *stream;
      if (!stream->gpu.polled)
        facts->streams[i].gpu = gpu;
      return 0;
    }
  int rc;
  void *grown =
      grow(facts->streams, facts->stream_count, &facts->stream_room, sizeof *facts->streams, &rc);
  if (!grown)
    return rc;
  facts->streams = grown;
  facts->streams[facts->stream_count++] = *stream;
  return 0;
}

int nt_facts_add_open(struct nt_facts *facts, const struct nt_open_call *call) {
  int rc;
  void *grown = grow(facts->open, facts->open_count, &facts->open_room, sizeof *facts->open, &rc);
  if (!grown)
    return rc;
  facts->open = grown;
  facts->open[facts->open_count++] = *call;
  return 0;
}

int nt_facts_add_peer(struct nt_facts *facts, const struct nt_peer_note *peer) {
  int rc;
  void *grown = grow(facts->peers, facts->peer_count, &facts->peer_room, sizeof *facts->peers, &rc);
  if (!grown)
    return rc;
  facts->peers = grown;
  facts->peers[facts->peer_count++] = *peer;
  return 0;
}

/* ---- writing ----------------------------------------------------------------------------------- */

void nt_entry_comm(struct nt_buffer *out, const struct nt_comm_facts *comm) {
  unsigned char *at = nt_entry_add(out, NT_ENTRY_COMM, NT_ENTRY_COMM_SIZE);
  if (at)
    memcpy(at, comm, NT_ENTRY_COMM_SIZE);
}

void nt_entry_stream(struct nt_buffer *out, const struct nt_stream_facts *stream) {
  unsigned char *at = nt_entry_add(out, NT_ENTRY_STREAM, NT_ENTRY_STREAM_SIZE);
  if (!at)
    return;
  nt_put_u32(at, stream->number);
  nt_put_u32(at + 4, (uint32_t)stream->device);
  nt_put_u64(at + 8, stream->handle);
}

void nt_entry_thread(struct nt_buffer *out, const struct nt_thread_facts *thread) {
  unsigned char *at = nt_entry_add(out, NT_ENTRY_THREAD, NT_ENTRY_THREAD_SIZE);
  if (!at)
    return;
  nt_put_u32(at, thread->index);
  nt_put_u32(at + 4, thread->tid);
  nt_put_u64(at + 8, thread->last_enter);
  memcpy(at + 16, thread->name, 16);
}

static void put_sync(unsigned char *at, const struct nt_clock_sync *sync) {
  nt_put_u64(at, sync->ticks);
  nt_put_u64(at + 8, sync->monotonic_ns);
  nt_put_u64(at + 16, sync->realtime_ns);
}

void nt_entry_clock(struct nt_buffer *out, const struct nt_clock_sync *first,
                    const struct nt_clock_sync *last) {
  unsigned char *at = nt_entry_add(out, NT_ENTRY_CLOCK, NT_ENTRY_CLOCK_SIZE);
  if (!at)
    return;
  put_sync(at, first);
  put_sync(at + 24, last);
}

/* ---- reading ----------------------------------------------------------------------------------- */

static int read_comm(struct nt_facts *facts, const unsigned char *at) {
  struct nt_comm_facts comm;
  memcpy((void *)&comm, at, sizeof comm);
  return comm.def.number ? nt_facts_add_comm(facts, &comm) : 0;
}

static int read_stream(struct nt_facts *facts, const unsigned char *at) {
  const struct nt_stream_facts stream = {.number = nt_get_u32(at),
                                         .device = (int32_t)nt_get_u32(at + 4),
                                         .handle = nt_get_u64(at + 8)};
  return nt_facts_add_stream(facts, &stream);
}

static int read_thread(struct nt_facts *facts, const unsigned char *at) {
  struct nt_thread_facts thread = {
      .index = nt_get_u32(at), .tid = nt_get_u32(at + 4), .last_enter = nt_get_u64(at + 8)};
  memcpy(thread.name, at + 16, sizeof thread.name);
  thread.name[sizeof thread.name - 1] = 0;
  return nt_facts_add_thread(facts, &thread);
}

static int read_clock(struct nt_facts *facts, const unsigned char *at) {
  struct nt_clock_sync syncs[2];
  for (int i = 0; i < 2; i++, at += 24)
    syncs[i] = (struct nt_clock_sync){nt_get_u64(at), nt_get_u64(at + 8), nt_get_u64(at + 16)};
  if (!facts->clock_first.ticks)
    facts->clock_first = syncs[0];
  if (syncs[1].ticks >= facts->clock_last.ticks)
    facts->clock_last = syncs[1];
  return 0;
}

static int read_open(struct nt_facts *facts, const unsigned char *at) {
  struct nt_open_call call = {
      .serial = nt_get_u64(at + NT_OPEN_SERIAL),
      .index = nt_get_u32(at + NT_OPEN_INDEX),
      .thread = nt_get_u32(at + NT_OPEN_THREAD),
      .comm = nt_get_u32(at + NT_OPEN_COMM),
      .stream = nt_get_u32(at + NT_OPEN_STREAM),
  };
  memcpy(&call.record, at + NT_OPEN_RECORD, sizeof call.record);
  return nt_facts_add_open(facts, &call);
}

static int read_process(struct nt_facts *facts, const unsigned char *at) {
  facts->has_process = true;
  facts->process = (struct nt_process_facts){
      .heartbeat_ns = nt_get_u64(at + NT_PROCESS_FIELD_HEARTBEAT),
      .heartbeat_mono_ns = nt_get_u64(at + NT_PROCESS_FIELD_HEARTBEAT_MONO),
      .exit_ns = nt_get_u64(at + NT_PROCESS_FIELD_EXIT),
      .run_state = nt_get_u32(at + NT_PROCESS_FIELD_RUN_STATE),
      .exit_code = (int32_t)nt_get_u32(at + NT_PROCESS_FIELD_EXIT_CODE),
      .calls = nt_get_u64(at + NT_PROCESS_FIELD_CALLS),
      .lost = nt_get_u64(at + NT_PROCESS_FIELD_LOST),
      .overwritten = nt_get_u64(at + NT_PROCESS_FIELD_OVERWRITTEN),
      .comms_lost = nt_get_u64(at + NT_PROCESS_FIELD_COMMS_LOST),
      .abandoned = nt_get_u64(at + NT_PROCESS_FIELD_ABANDONED),
      .write_errors = nt_get_u64(at + NT_PROCESS_FIELD_WRITE_ERRORS),
      .last_errno = (int32_t)nt_get_u32(at + NT_PROCESS_FIELD_LAST_ERRNO),
      .writer = nt_get_u32(at + NT_PROCESS_FIELD_WRITER),
      .phase = nt_get_u32(at + NT_PROCESS_FIELD_PHASE),
      .gpu_beat_ns = nt_get_u64(at + NT_PROCESS_FIELD_GPU_BEAT),
      .oom_kills = nt_get_u64(at + NT_PROCESS_FIELD_OOM_KILLS),
  };
  return 0;
}

static int read_peer(struct nt_facts *facts, const unsigned char *at) {
  struct nt_peer_note peer;
  memcpy(&peer, at, sizeof peer);
  return nt_facts_add_peer(facts, &peer);
}

static int read_gpu(struct nt_facts *facts, const unsigned char *at) {
  const uint32_t number = nt_get_u32(at + NT_GPU_FIELD_STREAM);
  for (size_t i = facts->stream_count; i-- > 0;)
    if (facts->streams[i].number == number)
      facts->streams[i].gpu = (struct nt_gpu_facts){
          .issued = nt_get_u32(at + NT_GPU_FIELD_ISSUED),
          .reached = nt_get_u32(at + NT_GPU_FIELD_REACHED),
          .finished = nt_get_u32(at + NT_GPU_FIELD_FINISHED),
          .frozen = nt_get_u32(at + NT_GPU_FIELD_FROZEN),
          .frozen_after = nt_get_u32(at + NT_GPU_FIELD_FROZEN_AFTER),
          .unmarked = nt_get_u32(at + NT_GPU_FIELD_UNMARKED),
          .unmarked_last = nt_get_u32(at + NT_GPU_FIELD_UNMARKED_LAST),
          .followed = nt_get_u32(at + NT_GPU_FIELD_FOLLOWED),
          .error = nt_get_u32(at + NT_GPU_FIELD_ERROR),
          .polled = nt_get_u64(at + NT_GPU_FIELD_POLLED),
      };
  return 0;
}

static int read_position(struct nt_facts *facts, const unsigned char *at) {
  facts->has_position = true;
  facts->position_epoch = nt_get_u64(at);
  facts->position_used = nt_get_u64(at + 8);
  return 0;
}

static const struct {
  uint32_t least; /* bytes */
  int (*read)(struct nt_facts *facts, const unsigned char *at);
} readers[] = {
    [NT_ENTRY_COMM] = {NT_ENTRY_COMM_SIZE, read_comm},
    [NT_ENTRY_STREAM] = {NT_ENTRY_STREAM_SIZE, read_stream},
    [NT_ENTRY_THREAD] = {NT_ENTRY_THREAD_SIZE, read_thread},
    [NT_ENTRY_CLOCK] = {NT_ENTRY_CLOCK_SIZE, read_clock},
    [NT_ENTRY_OPEN] = {NT_ENTRY_OPEN_SIZE, read_open},
    [NT_ENTRY_PROCESS] = {NT_ENTRY_PROCESS_SIZE, read_process},
    [NT_ENTRY_PEER] = {NT_ENTRY_PEER_SIZE, read_peer},
    [NT_ENTRY_POSITION] = {NT_ENTRY_POSITION_SIZE, read_position},
    [NT_ENTRY_GPU] = {NT_ENTRY_GPU_LEAST, read_gpu},
};
_Static_assert(sizeof(struct nt_peer_note) == NT_ENTRY_PEER_SIZE, "peer notes are copied");

int nt_facts_merge(struct nt_facts *facts, const unsigned char *payload, size_t length) {
  struct nt_cursor cursor = {payload, length, false};
  uint16_t kind;
  uint32_t size;
  const unsigned char *at;
  while (nt_entry_next(&cursor, &kind, &at, &size)) {
    if (kind >= sizeof readers / sizeof *readers || !readers[kind].read)
      continue;
    if (size < readers[kind].least)
      return -NT_ERR_CORRUPT;
    unsigned char whole[NT_ENTRY_GPU_SIZE] = {0}; /* what an older writer did not have is zero */
    if (kind == NT_ENTRY_GPU && size < sizeof whole)
      at = memcpy(whole, at, size);
    int rc = readers[kind].read(facts, at);
    if (rc)
      return rc;
  }
  return cursor.failed ? -NT_ERR_CORRUPT : 0;
}
