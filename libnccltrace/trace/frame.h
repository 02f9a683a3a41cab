/* SPDX-License-Identifier: Apache-2.0 */
/* The envelope of everything in a trace file: header, index, payload. No I/O, no global state. */
#ifndef NT_FRAME_H
#define NT_FRAME_H

#include "trace/bytes.h"
#include "trace/error.h"
#include "trace/format.h"

/* A frame's header, decoded. */
struct nt_frame {
  uint16_t type;
  uint8_t version, flags;
  uint64_t epoch;       /* of the segment, or of the slot's contents */
  uint32_t stored;      /* bytes of index and payload as they lie in the file */
  uint32_t index;       /* bytes of the index, first in `stored` */
  uint32_t raw;         /* bytes of the payload once unpacked */
  uint32_t records;     /* calls or entries */
  uint64_t first, last; /* ticks of the first and the last call */
  uint64_t checksum;
  uint32_t
      front; /* nt_frame_write: so many bytes of the payload can be unpacked alone; not in the header */
};

/* Bytes from one frame's start to the next one's. */
static inline uint64_t nt_frame_span(const struct nt_frame *frame) {
  return nt_round_up(NT_FRAME_HEADER + (uint64_t)frame->stored, NT_FRAME_ALIGN);
}

/* What nt_frame_write needs: a zstd context, kept between calls. */
struct nt_packer;
struct nt_packer *nt_packer_new(void);
void nt_packer_free(struct nt_packer *packer);
/* Of zstd: 1 at first, which is what a traced process can afford; tools may take longer. */
void nt_packer_level(struct nt_packer *packer, int level);

/*
 * Packs `payload` and appends one whole frame, padding included, to `out`. `frame` gives type,
 * version, epoch, records, first and last; the rest is filled in. On failure `out` is as before.
 * NT_ERR_SPACE: out's limit; NT_ERR_MEMORY.
 */
int nt_frame_write(struct nt_packer *packer, struct nt_frame *frame, const unsigned char *index,
                   size_t index_length, const unsigned char *payload, size_t length,
                   struct nt_buffer *out);

/* Decodes and checks the header at `at` (`left` bytes follow). NT_ERR_TRUNCATED: fewer than a header, or
 * than the header announces (then *out is filled in); NT_ERR_FOREIGN: all zero, the end of what was
 * written; NT_ERR_CORRUPT: anything else. */
int nt_frame_parse(const unsigned char *at, size_t left, struct nt_frame *out);

/* Are these the bytes that the header is of? */
bool nt_frame_is_whole(const struct nt_frame *frame, const unsigned char *stored);

/* Checks the sum of the `frame->stored` bytes at `stored` and unpacks the payload into *out (malloc, owned
 * by the caller; at most NT_FRAME_MAX_RAW), of `frame->raw` bytes. NT_ERR_CORRUPT, NT_ERR_MEMORY. */
int nt_frame_unpack(const struct nt_frame *frame, const unsigned char *stored, unsigned char **out);
/* The same with a zstd context that is kept between calls. */
struct nt_unpacker;
struct nt_unpacker *nt_unpacker_new(void);
void nt_unpacker_free(struct nt_unpacker *unpacker);
int nt_frame_unpack_with(struct nt_unpacker *unpacker, const struct nt_frame *frame,
                         const unsigned char *stored, unsigned char **out);
/* The payload's bytes from the first on: whole blocks of zstd are unpacked, and no more of them than were asked for. One frame at
 * a time; `stored` must stay. nt_frame_unpack_next gives the next `length` bytes. NT_ERR_CORRUPT. */
int nt_frame_unpack_begin(struct nt_unpacker *unpacker, const struct nt_frame *frame,
                          const unsigned char *stored);
int nt_frame_unpack_next(struct nt_unpacker *unpacker, unsigned char *out, size_t length);

/* Appends an entry; the returned `length` zeroed bytes are the caller's to fill. NULL: buffer failed. */
unsigned char *nt_entry_add(struct nt_buffer *buffer, uint16_t kind, uint32_t length);

/* The next entry; false at the end or when cursor->failed. */
bool nt_entry_next(struct nt_cursor *cursor, uint16_t *kind, const unsigned char **at,
                   uint32_t *length);

#endif
