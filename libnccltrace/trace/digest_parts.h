/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the digest share. Included by digest*.c only. */
#ifndef NT_DIGEST_PARTS_H
#define NT_DIGEST_PARTS_H

#include "trace/digest.h"
#include "trace/read_parts.h"

/* How much of each kind is kept. */
struct nt_digest_level {
  uint32_t lacks; /* NT_DIGEST_NO_* */
  uint32_t sums;  /* communicators with all their running sums, those used last */
  uint32_t ended; /* ended communicators, those used last */
};

/* Calls from[thread] … to[thread] - 1 of the array are kept; threads in the order of the array. */
struct nt_digest_span {
  size_t from, to;
};

struct nt_digest {
  struct nt_trace *trace;
  struct nt_packer *packer;
  struct nt_codec *codec;
  const struct nt_call *calls;
  size_t call_count, most;        /* of them a digest may have */
  struct nt_digest_span *threads; /* all calls of each */
  struct nt_digest_span *kept;    /* of the window that is being tried */
  size_t thread_count, kept_count;
  int64_t *enters; /* all, sorted */
};

/* Times in a digest are CLOCK_REALTIME nanoseconds, its clock's ticks as well. 0 stays 0. */
static inline uint64_t nt_digest_time(const struct nt_digest *digest, uint64_t ticks) {
  return ticks ? (uint64_t)nt_read_time(digest->trace, ticks) : 0;
}

/* One frame of epoch 1. */
int nt_digest_frame(const struct nt_digest *digest, uint16_t type, uint32_t records,
                    const struct nt_buffer *payload, struct nt_buffer *out);

/* ---- digest_state.c */
/* `segment`: bytes in the segment. */
int nt_digest_state(const struct nt_digest *digest, const struct nt_digest_level *level,
                    uint64_t segment, uint64_t left_out, struct nt_buffer *out);
int nt_digest_evidence(const struct nt_digest *digest, uint32_t lacks, struct nt_buffer *out);

/* ---- digest_window.c */
/* Loads and sorts what the others need. */
int nt_digest_open(struct nt_digest *digest, struct nt_error *err);
void nt_digest_close(struct nt_digest *digest);
/* Picks the last `wanted` calls, of each thread without a break, at least `each` of those that were there last.
 * Returns how many these are. */
size_t nt_digest_pick(struct nt_digest *digest, size_t wanted, size_t each);
/* Frames of the calls that were picked, with stacks and marks. */
int nt_digest_window(const struct nt_digest *digest, uint32_t lacks, struct nt_buffer *out);

/* ---- digest_stacks.c */
struct nt_digest_stacks;
struct nt_digest_stacks *nt_digest_stacks_new(struct nt_trace *trace);
void nt_digest_stacks_free(struct nt_digest_stacks *stacks);
/* The number of a stack in the digest; 0 for none, or no memory. */
uint32_t nt_digest_stack(struct nt_digest_stacks *stacks, uint32_t id);
int nt_digest_stack_frames(const struct nt_digest *digest, const struct nt_digest_stacks *stacks,
                           struct nt_buffer *out);

/* ---- digest_dumps.c */
int nt_digest_dumps(const struct nt_digest *digest, uint32_t lacks, struct nt_buffer *out);

#endif
