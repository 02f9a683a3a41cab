/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace file as something to write to: creation, attempts, segments and slots.
 *
 * One thread of one process owns a file and holds its lock. Nothing here knows what a call is.
 */
#ifndef NT_TRACE_FILE_H
#define NT_TRACE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "trace/area.h"
#include "trace/error.h"
#include "trace/format.h"
#include "trace/frame.h"

/* Where things are in a file; from the superblock, checked. */
struct nt_layout {
  uint64_t evidence_offset, state_offset, segment_offset, segment_size;
  uint32_t evidence_size, evidence_count, state_size, state_count, segment_count;
};

/* A superblock, decoded. */
struct nt_super {
  struct nt_layout layout;
  uint16_t major, minor;
  uint32_t clock_kind, pid, uid, restart;
  uint64_t start_time, pid_ns, nonce;
  struct nt_clock_sync clock_first;
  int32_t world_rank, world_size, local_rank;
  char boot_id[40], host[64], run_id[64], writer[32];
  uint64_t digest_ns, left_out, oom_now; /* of a digest: NT_SUPER_DIGEST */
  uint32_t digest_state, digest_flags;
};

struct nt_trace_file {
  int fd;
  uint64_t dev, ino, dir_ino; /* dir_ino: of the directory, on the same device */
  struct nt_layout layout;
  uint64_t epoch; /* of the current segment; 0 before the first */
  uint64_t used;  /* bytes of whole frames in it */
  uint64_t segment_calls[NT_SEGMENT_COUNT];
  uint64_t evidence_version, state_version;
  bool network; /* on a file system that others share: write seldom */
  bool dirty;   /* written since the last sync */
  char path[1024];
};

/* Encodes and decodes a superblock. Decoding tells NT_ERR_FOREIGN, NT_ERR_VERSION, NT_ERR_TRUNCATED
 * (length < NT_SUPER_SIZE) and NT_ERR_CORRUPT, with the reason in *err. */
void nt_super_write(const struct nt_super *super, unsigned char out[NT_SUPER_SIZE]);
int nt_super_parse(const unsigned char *at, uint64_t length, struct nt_super *out,
                   struct nt_error *err);

/*
 * Makes rankN.trace, or rankN.K.trace with K one above the greatest there is, in `directory` (made if
 * absent), takes its lock, writes the superblock and fills header->file_*. Of the earlier attempts the
 * first and the last `keep` stay; those between are removed unless locked. `state_bytes` is the greatest
 * size a state slot can need. On failure nothing is left behind.
 */
int nt_trace_file_create(struct nt_area_header *header, const char *directory, uint64_t size,
                         uint32_t keep, uint64_t state_bytes, struct nt_trace_file *out,
                         struct nt_error *err);

/* Opens the file that `header` names for appending, if it still is that process's file (device, inode
 * and identity), and takes its lock. Continues behind the last whole frame. */
int nt_trace_file_resume(const struct nt_area_header *header, struct nt_trace_file *out,
                         struct nt_error *err);

/* Bytes that the current segment still takes; 0 before the first nt_trace_file_rotate. */
uint64_t nt_trace_file_room(const struct nt_trace_file *file);

/* Starts the next segment with `frame` (a SEGMENT frame of epoch file->epoch + 1); *retired is the
 * number of calls that were in the segment it replaces. */
int nt_trace_file_rotate(struct nt_trace_file *file, const struct nt_buffer *frame,
                         uint64_t *retired);

/* Appends whole frames with `calls` calls in them to the current segment. All or, as far as a reader can
 * tell, nothing. */
int nt_trace_file_append(struct nt_trace_file *file, const unsigned char *frames, uint64_t length,
                         uint64_t calls);

/* Writes an evidence or state frame over the older of the two copies; the frame's epoch must be
 * file->evidence_version + 1 or file->state_version + 1. NT_ERR_SPACE: longer than its slot. */
int nt_trace_file_evidence(struct nt_trace_file *file, const struct nt_buffer *frame);
int nt_trace_file_state(struct nt_trace_file *file, const struct nt_buffer *frame);

/* Takes a high descriptor instead, which nobody gets who asks for any. */
void nt_trace_file_lift(struct nt_trace_file *file);

/* The directory was removed, and the file with it. A file that alone was removed is one that nobody wants. */
bool nt_trace_file_is_gone(const struct nt_trace_file *file);

int nt_trace_file_sync(struct nt_trace_file *file);
void nt_trace_file_close(struct nt_trace_file *file);

#endif
