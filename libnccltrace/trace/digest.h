/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Digests: a trace cut to what a verdict needs, in the same file format, for jobs of many nodes.
 *
 * A digest has one copy of evidence and state and one segment with the last calls. It stands for its process as it was
 * seen on its own node when the digest was made, and is never joined with an area.
 */
#ifndef NT_DIGEST_H
#define NT_DIGEST_H

#include "trace/bytes.h"
#include "trace/reader.h"

#define NT_DIGEST_SIZE (UINT64_C(32) << 10)
#define NT_DIGEST_MIN (UINT64_C(8) << 10)

/* What was left out besides the oldest calls, in the order in which it goes. */
#define NT_DIGEST_NO_DUMP_REST                                                                     \
  0x01 /* threads that never called NCCL, facts that tell of no fault, older dumps */
#define NT_DIGEST_NO_EVIDENCE_REST 0x02 /* environment but NCCL's and CUDA's, long values */
#define NT_DIGEST_NO_OLD_SUMS 0x04  /* running sums of communicators that were not used lately */
#define NT_DIGEST_NO_OLD_COMMS 0x08 /* ended communicators of which no call is there */
#define NT_DIGEST_NO_DUMP 0x10
#define NT_DIGEST_NO_SUMS 0x20
#define NT_DIGEST_NO_STACKS 0x40 /* but those of each thread's last calls */

struct nt_digest_tally {
  uint64_t calls;    /* that are in it */
  uint64_t left_out; /* that are in the trace alone */
  uint32_t lacks;    /* NT_DIGEST_NO_* */
};

struct nt_digest_order {
  uint64_t size;  /* bytes at most */
  uint64_t calls; /* at most, 0: as many as fit; open calls are there in any case */
  bool moved;     /* the process went on shortly before */
};

/*
 * Appends the digest of `trace` to `out`. A tool's thread; takes tens of milliseconds. NT_ERR_SPACE: what no digest can
 * do without does not fit; NT_ERR_MEMORY, and what nt_trace_calls tells.
 */
int nt_digest_make(struct nt_trace *trace, const struct nt_digest_order *order,
                   struct nt_buffer *out, struct nt_digest_tally *tally, struct nt_error *err);

#endif
