/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the drain share. Included by drain*.c only. */
#ifndef NT_DRAIN_PARTS_H
#define NT_DRAIN_PARTS_H

#include "trace/codec.h"
#include "trace/drain.h"
#include "trace/drain_stacks.h"
#include "trace/ring.h"
#include "trace/state_slot.h"
#include "trace/trace_file.h"

#define NT_BATCH_CALLS 4096u

/* A communicator, stream or thread that has been defined in segment `epoch`. */
struct nt_defined {
  uint64_t epoch, hash;
  uint32_t number;
};

/* A communicator slot on its way to be free. */
struct nt_ending {
  uint32_t number; /* 0: not ending */
  uint32_t ticks;  /* full drains since its end was seen */
};

/* Records of one chunk that wait to be drained. */
struct nt_waiting {
  uint64_t serial;
  uint32_t chunk, thread, from, to, generation;
};

struct nt_drain {
  struct nt_area *area;
  struct nt_trace_file file;
  bool foreign; /* the area's process is dead, and was not this one */
  struct nt_packer *packer;
  struct nt_codec *codec;
  struct nt_chunk_copy copy;
  struct nt_batch batch;    /* room for NT_BATCH_CALLS calls and chunk_count runs */
  struct nt_waiting *taken; /* one per run of the batch */
  struct nt_waiting *waiting;
  uint32_t waiting_count;
  uint64_t waiting_calls;
  uint32_t waiting_retired; /* chunks that nobody can use until what waits in them is in a frame */
  uint32_t *comm_numbers;   /* by slot; 0: not looked up in this batch */
  uint32_t *stream_numbers;
  struct nt_defined *comms, *streams, *threads; /* by slot */
  struct nt_ending *endings;                    /* by communicator slot */
  struct nt_stack_definer *stacks;
  uint64_t spool_calls;
  /* CLOCK_MONOTONIC, ns */
  uint64_t now, waiting_since, active, stated, retry, synced, marked;
  bool stalled; /* the end of the latest activity has been written and synced */
};

/* drain_batch.c: gathers what waits, and moves up to a batch of it into the spool. */
void nt_drain_look(struct nt_drain *drain);
/* Returns the records moved (0: none wait) or a negative enum nt_err, then nothing has changed. */
int64_t nt_drain_batch(struct nt_drain *drain);
/* Frees retired chunks that are drained. */
void nt_drain_free_chunks(struct nt_drain *drain);

/* drain_gpu.c: puts waiting marks into a frame, if it is time. */
int nt_drain_marks(struct nt_drain *drain, enum nt_drain_how how);

/* drain_defs.c: appends a DEFS frame with what the batch refers to and the segment lacks. When the frame
 * does not make it into the spool, nt_drain_undefine must be called. */
int nt_drain_define(struct nt_drain *drain, struct nt_buffer *frames);
/* The same for stacks of calls that have not returned: the state refers to them. Puts its frames into the
 * spool itself. */
int nt_drain_define_open(struct nt_drain *drain);
/* Nothing counts as defined any more: definitions are repeated when next needed. */
void nt_drain_undefine(struct nt_drain *drain);
/* Slots of ended communicators; `full`: everything closed before this tick is drained. */
void nt_drain_endings(struct nt_drain *drain, bool full);
bool nt_drain_has_endings(const struct nt_drain *drain);

/* drain.c: makes room for `length` bytes in the spool, writing it out and starting a segment as need be.
 * 1: a new segment has begun, so frames must be made anew. -NT_ERR_SPACE: longer than spool or
 * segment can ever take. */
int nt_drain_make_room(struct nt_drain *drain, uint64_t length);
/* Makes one frame of `payload`, in whatever segment has room for it, and puts it into the spool. Of `frame` type, version
 * and records are looked at. */
int nt_drain_frame(struct nt_drain *drain, struct nt_frame frame, const struct nt_buffer *payload);
/* Appends frames, for which there is room. */
void nt_drain_spool(struct nt_drain *drain, const struct nt_buffer *frames, uint64_t calls);

#endif
