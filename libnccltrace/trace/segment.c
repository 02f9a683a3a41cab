/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walking a segment. A header has a checksum of its own, so a length is believed only when it is
 * whole; where it is not, the walk looks for the next header of the same epoch at the next 8-byte
 * boundaries. Sixty-four zero bytes are the regular end; so is a header of an older epoch.
 */
#include "trace/segment.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static int find_epoch(struct nt_segment *segment) {
  for (uint64_t at = 0; at + NT_FRAME_HEADER <= segment->length; at += NT_FRAME_ALIGN) {
    struct nt_frame frame;
    if (at && nt_get_u32(segment->bytes + at) != NT_FRAME_MAGIC)
      continue;
    const int rc = nt_frame_parse(segment->bytes + at, segment->length - at, &frame);
    if ((rc == 0 || rc == -NT_ERR_TRUNCATED) && frame.epoch) {
      segment->epoch = frame.epoch;
      return 0;
    }
    if (at == 0 && rc == -NT_ERR_FOREIGN)
      return 0; /* never written */
  }
  return 0;
}

int nt_segment_load(int fd, const struct nt_layout *layout, uint32_t i, struct nt_segment *out) {
  memset(out, 0, sizeof *out);
  struct stat file;
  if (fstat(fd, &file))
    return -NT_ERR_IO;
  const uint64_t size = file.st_size > 0 ? (uint64_t)file.st_size : 0;
  out->offset = layout->segment_offset + i * layout->segment_size;
  if (out->offset >= size)
    return 0;
  const uint64_t want =
      size - out->offset < layout->segment_size ? size - out->offset : layout->segment_size;
  out->bytes = malloc(want);
  if (!out->bytes)
    return -NT_ERR_MEMORY;
  while (out->length < want) {
    const ssize_t got =
        pread(fd, out->bytes + out->length, want - out->length, (off_t)(out->offset + out->length));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0) {
      nt_segment_free(out);
      return -NT_ERR_IO;
    }
    if (got == 0)
      break;
    out->length += (uint64_t)got;
  }
  return find_epoch(out);
}

void nt_segment_free(struct nt_segment *segment) {
  free(segment->bytes);
  segment->bytes = NULL;
  segment->length = 0;
}

static void tell(const struct nt_damage *damage, const struct nt_segment *segment, uint64_t at,
                 const char *what, uint64_t skipped) {
  if (!damage)
    return;
  char reason[128];
  snprintf(reason, sizeof reason, "%s, %" PRIu64 " bytes skipped", what, skipped);
  damage->tell(damage->ctx, segment->offset + at, reason);
}

/* The next place from `at` on where a whole header of this epoch lies, or the segment's length. */
static uint64_t resynchronise(const struct nt_segment *segment, uint64_t at) {
  for (; at + NT_FRAME_HEADER <= segment->length; at += NT_FRAME_ALIGN) {
    struct nt_frame frame;
    if (nt_get_u32(segment->bytes + at) != NT_FRAME_MAGIC)
      continue;
    const int rc = nt_frame_parse(segment->bytes + at, segment->length - at, &frame);
    if ((rc == 0 || rc == -NT_ERR_TRUNCATED) && frame.epoch == segment->epoch)
      return at;
  }
  return segment->length;
}

int nt_segment_walk(const struct nt_segment *segment, nt_frame_fn *fn, void *ctx,
                    const struct nt_damage *damage) {
  if (!segment->epoch)
    return 0;
  for (uint64_t at = segment->begin; at < segment->length;) {
    struct nt_frame frame;
    const unsigned char *head = segment->bytes + at;
    const int rc = nt_frame_parse(head, segment->length - at, &frame);
    if (rc == -NT_ERR_FOREIGN || (rc == 0 && frame.epoch != segment->epoch)) {
      /* The end, unless zeros have been written over what was there. */
      const uint64_t next = resynchronise(segment, at + NT_FRAME_ALIGN);
      if (next == segment->length)
        return 0;
      tell(damage, segment, at, "frames overwritten", next - at);
      at = next;
      continue;
    }
    if (rc == -NT_ERR_TRUNCATED) {
      tell(damage, segment, at, "the file ends inside a frame", segment->length - at);
      return 0;
    }
    if (rc) {
      const uint64_t next = resynchronise(segment, at + NT_FRAME_ALIGN);
      tell(damage, segment, at, "frame header damaged", next - at);
      at = next;
      continue;
    }
    if (!segment->checked && XXH64(head + NT_FRAME_HEADER, frame.stored, 0) != frame.checksum) {
      tell(damage, segment, at, "frame checksum wrong", nt_frame_span(&frame));
    } else {
      const int stop = fn(&frame, head + NT_FRAME_HEADER, at, ctx);
      if (stop)
        return stop;
    }
    at += nt_frame_span(&frame);
  }
  return 0;
}
