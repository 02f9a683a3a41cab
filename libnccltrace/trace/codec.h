/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of calls <-> the columns of a CALLS frame. No I/O, no packing (frame.h does that).
 *
 * All fields come back bit for bit; only times are in units of 2^shift ticks, at most a microsecond.
 * With shift 0 they are exact too (durations that nt_duration_encode made).
 */
#ifndef NT_CODEC_H
#define NT_CODEC_H

#include "trace/bytes.h"
#include "trace/clock.h"
#include "trace/record.h"

/* A record whose slots have been translated: record.comm and record.stream are not looked at when
 * encoding and are 0 after decoding. */
struct nt_batch_call {
  struct nt_record record;
  uint32_t comm, stream; /* numbers, 0 if none */
};

/* A piece of one chunk: records first … first + count - 1 of the chunk `serial`. */
struct nt_run {
  uint64_t serial;
  uint32_t first, count, thread;
};

/* Calls of the runs, one run after the other; runs of one thread follow each other in order. */
struct nt_batch {
  struct nt_batch_call *calls;
  struct nt_run *runs;
  uint32_t call_count, run_count;
};

#define NT_CODEC_MAX_CALLS 65535u
#define NT_CODEC_VERSION 2

/* The largest shift with which a unit is at most a microsecond. TSC without a second sync: a rate of at
 * least 1 GHz is assumed. */
unsigned nt_codec_shift(uint32_t kind, const struct nt_clock_sync *first,
                        const struct nt_clock_sync *last);

/* Encoder and decoder share one model; it is some hundred KiB, so it is kept between frames. NULL: no memory. */
struct nt_codec;
struct nt_codec *nt_codec_new(void);
void nt_codec_free(struct nt_codec *codec);

/* Appends the columns of `batch` to `payload` and the index (runs, sequence ranges) to `index`. Returns 0,
 * -NT_ERR_SPACE for a batch with more than NT_CODEC_MAX_CALLS, or -NT_ERR_MEMORY. */
int nt_codec_encode(struct nt_codec *codec, const struct nt_batch *batch, unsigned shift,
                    struct nt_buffer *payload, struct nt_buffer *index);

/* The reverse. `records` is what the frame's header says. out->calls and out->runs are allocated for the
 * caller (nt_batch_free), also when empty. On failure *reason says what was wrong (static text) and
 * *out is empty: NT_ERR_CORRUPT, NT_ERR_MEMORY. */
int nt_codec_decode(struct nt_codec *codec, const unsigned char *payload, size_t length,
                    const unsigned char *index, size_t index_length, uint32_t records,
                    struct nt_batch *out, const char **reason);

/* What some sends or receives of a frame have in common. */
struct nt_call_kind {
  uint64_t count;
  uint32_t comm; /* number, 0 if none */
  int32_t peer;
  uint16_t flags; /* as recorded */
  uint8_t fn, dtype;
  bool varies; /* the counts differ, `count` is none of them */
};
typedef int nt_call_kind_fn(const struct nt_call_kind *kind, void *ctx);

/* Only the kinds of send and receive that a frame has, a small part of the work: calls fn for each until it returns other
 * than 0, and returns that. -NT_ERR_CORRUPT. */
int nt_codec_kinds(const unsigned char *payload, size_t length, uint32_t records,
                   nt_call_kind_fn *fn, void *ctx);

/* How many bytes of a payload nt_codec_kinds reads, told by the first `have` of its `length`: more than `have` until these tell. */
size_t nt_codec_kinds_need(const unsigned char *payload, size_t have, size_t length);

/* Only the runs of an index (malloc, owned by the caller); `records` as above. */
int nt_codec_runs(const unsigned char *index, size_t index_length, uint32_t records,
                  struct nt_run **runs, uint32_t *run_count);

void nt_batch_free(struct nt_batch *batch);

#endif
