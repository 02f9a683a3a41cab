/* SPDX-License-Identifier: Apache-2.0 */
/* Segments read back: loading one, and walking its frames past damage. Writer (to continue a file) and
 * reader use the same walk, so they agree on where a segment ends. */
#ifndef NT_SEGMENT_H
#define NT_SEGMENT_H

#include "trace/frame.h"
#include "trace/trace_file.h"

struct nt_segment {
  unsigned char *bytes; /* what the file has of it */
  uint64_t length;
  uint64_t offset; /* in the file */
  uint64_t epoch;  /* 0: never written, or its first frame is damaged beyond finding another */
  uint64_t begin;  /* where a walk begins, 0 unless the caller knows a frame's place */
  bool checked;    /* the sums of all its frames are right: they are not computed again */
};

/* Loads segment `i`. A file that ends early gives a shorter, perhaps empty, segment. NT_ERR_IO,
 * NT_ERR_MEMORY. Release with nt_segment_free. */
int nt_segment_load(int fd, const struct nt_layout *layout, uint32_t i, struct nt_segment *out);
void nt_segment_free(struct nt_segment *segment);

/* Told of damage: `offset` in the file. */
struct nt_damage {
  void (*tell)(void *ctx, uint64_t offset, const char *reason);
  void *ctx;
};

typedef int nt_frame_fn(const struct nt_frame *frame, const unsigned char *stored, uint64_t offset,
                        void *ctx);

/* Calls fn for each frame of the segment's epoch whose header and checksum are right; `offset` is in the
 * segment. A damaged frame is told of and skipped. Stops early when fn returns other than 0, and
 * returns that. `damage` may be NULL. */
int nt_segment_walk(const struct nt_segment *segment, nt_frame_fn *fn, void *ctx,
                    const struct nt_damage *damage);

#endif
