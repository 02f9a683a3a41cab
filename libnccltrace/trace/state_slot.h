/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is true of a process besides its calls, as entries of STATE and DEFS frames.
 *
 * The writer gathers it from the area; the reader collects it from every source in the order in which it was
 * written, the newest last.
 */
#ifndef NT_STATE_SLOT_H
#define NT_STATE_SLOT_H

#include <stdbool.h>

#include "trace/area.h"
#include "trace/frame.h"
#include "trace/ring.h"

/* A communicator at one moment; both parts are plain copies. */
struct nt_comm_facts {
  struct nt_comm_def def;
  struct nt_comm_live live;
};
_Static_assert(sizeof(struct nt_comm_facts) == NT_ENTRY_COMM_SIZE,
               "the entry is both, as they are");

/* Where a stream has come to; all zero if nobody looked. */
struct nt_gpu_facts {
  uint32_t issued, reached, finished, frozen, frozen_after, unmarked, unmarked_last, followed,
      error;
  uint64_t polled;
};

struct nt_stream_facts {
  uint64_t handle;
  uint32_t number;
  int32_t device;
  struct nt_gpu_facts gpu; /* of the newest state alone */
};

struct nt_thread_facts {
  uint64_t last_enter;
  uint32_t index, tid;
  char name[16];
};

/* A call that had not returned. */
struct nt_open_call {
  uint64_t serial;
  uint32_t index, thread, comm, stream;
  struct nt_record record;
};

struct nt_process_facts {
  uint64_t heartbeat_ns, heartbeat_mono_ns, exit_ns;
  uint64_t calls, lost, overwritten, comms_lost, abandoned, write_errors;
  uint32_t run_state;
  int32_t exit_code, last_errno;
  uint32_t writer; /* enum nt_state_writer */
  uint32_t phase;  /* NT_PHASE_* */
  uint64_t gpu_beat_ns, oom_kills;
};

/* Everything known. Zero-initialise; release with nt_facts_free. Peers and open calls are those of the newest
 * state alone, the rest accumulates. */
struct nt_facts {
  struct nt_comm_facts *comms;
  struct nt_stream_facts *streams;
  struct nt_thread_facts *threads;
  struct nt_open_call *open;
  struct nt_peer_note *peers;
  size_t comm_count, stream_count, thread_count, open_count, peer_count;
  size_t comm_room, stream_room, thread_room, open_room, peer_room;
  struct nt_process_facts process;
  struct nt_clock_sync clock_first, clock_last;
  uint64_t position_epoch, position_used;
  bool has_process, has_position;
};

void nt_facts_free(struct nt_facts *facts);

/* Adds one; a communicator, stream or thread replaces what was known of the same number, but never a
 * communicator's end by an earlier state. -NT_ERR_MEMORY, -NT_ERR_SPACE (implausibly many). */
int nt_facts_add_comm(struct nt_facts *facts, const struct nt_comm_facts *comm);
int nt_facts_add_thread(struct nt_facts *facts, const struct nt_thread_facts *thread);
int nt_facts_add_stream(struct nt_facts *facts, const struct nt_stream_facts *stream);
int nt_facts_add_open(struct nt_facts *facts, const struct nt_open_call *call);
int nt_facts_add_peer(struct nt_facts *facts, const struct nt_peer_note *peer);
const struct nt_comm_facts *nt_facts_comm(const struct nt_facts *facts, uint32_t number);

/* Merges the entries of a payload. -NT_ERR_CORRUPT when an entry is cut off (what came before it counts). */
int nt_facts_merge(struct nt_facts *facts, const unsigned char *payload, size_t length);

/* Entries. Each appends one; buffer->failed tells of a lack of room. */
void nt_entry_comm(struct nt_buffer *out, const struct nt_comm_facts *comm);
void nt_entry_stream(struct nt_buffer *out, const struct nt_stream_facts *stream);
void nt_entry_thread(struct nt_buffer *out, const struct nt_thread_facts *thread);
void nt_entry_process(struct nt_buffer *out, const struct nt_process_facts *process);
/* Not for a stream that nobody looked at. */
void nt_entry_gpu(struct nt_buffer *out, const struct nt_stream_facts *stream);
void nt_entry_clock(struct nt_buffer *out, const struct nt_clock_sync *first,
                    const struct nt_clock_sync *last);

/* ---- from an area (state_area.c) ---------------------------------------------------------------- */

/* A copy of slot `index`. False: no communicator there. While the definition is being changed the copy
 * waits shortly; if its writer died in the middle, def may be incomplete. Any process. */
bool nt_area_comm(const struct nt_area *area, uint32_t index, struct nt_comm_facts *out);
bool nt_area_stream(const struct nt_area *area, uint32_t index, struct nt_stream_facts *out);
bool nt_area_thread(const struct nt_area *area, uint32_t index, struct nt_thread_facts *out);
/* The numbers that a record's slots stand for; 0 for none. */
uint32_t nt_area_comm_number(const struct nt_area *area, uint32_t slot);
uint32_t nt_area_stream_number(const struct nt_area *area, uint32_t slot);
void nt_area_clock(const struct nt_area *area, struct nt_clock_sync *last);
/* Appends the marks from number *from on as a GPU frame has them, advances *from; returns how many were lost
 * (drain_gpu.c). */
uint64_t nt_area_marks(const struct nt_area *area, uint64_t *from, struct nt_buffer *out);
/* Heartbeat, exit, counters, peers, clock; then communicators, streams, threads. Not the open calls. */
int nt_area_facts(const struct nt_area *area, struct nt_facts *out);
/* The open call of a chunk, if it has one; `copy` is room for the snapshot. */
bool nt_area_open_call(const struct nt_area *area, uint32_t chunk, struct nt_chunk_copy *copy,
                       struct nt_open_call *out);

/* Everything but evidence, as STATE entries. */
int nt_state_write(const struct nt_area *area, uint32_t writer, uint64_t epoch, uint64_t used,
                   struct nt_buffer *out, uint32_t *entries);
/* The most bytes that a state frame of such an area can take. */
uint64_t nt_state_bound(const struct nt_area_header *header);

#endif
