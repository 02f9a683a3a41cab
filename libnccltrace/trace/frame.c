/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames: one envelope for evidence, state, definitions and calls, so that there is one place that
 * computes checksums and one that believes nothing of what a file says about its own size.
 */
#include "trace/frame.h"

#include <stdlib.h>
#include <zstd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct nt_packer {
  ZSTD_CCtx *zstd;
  int level;
};

unsigned char *nt_buffer_add(struct nt_buffer *buffer, size_t length) {
  if (buffer->failed)
    return NULL;
  const size_t need = buffer->length + length;
  if (need < length || (buffer->limit && need > buffer->limit)) {
    buffer->failed = true;
    return NULL;
  }
  if (need > buffer->capacity) {
    size_t capacity = buffer->capacity ? buffer->capacity * 2 : 4096;
    while (capacity < need)
      capacity *= 2;
    unsigned char *grown = realloc(buffer->data, capacity);
    if (!grown) {
      buffer->failed = true;
      return NULL;
    }
    buffer->data = grown;
    buffer->capacity = capacity;
  }
  unsigned char *at = buffer->data + buffer->length;
  memset(at, 0, length);
  buffer->length = need;
  return at;
}

struct nt_packer *nt_packer_new(void) {
  struct nt_packer *packer = calloc(1, sizeof *packer);
  if (!packer)
    return NULL;
  packer->level = 1;
  packer->zstd = ZSTD_createCCtx();
  if (!packer->zstd) {
    free(packer);
    return NULL;
  }
  return packer;
}

void nt_packer_level(struct nt_packer *packer, int level) {
  packer->level = level;
}

void nt_packer_free(struct nt_packer *packer) {
  if (!packer)
    return;
  ZSTD_freeCCtx(packer->zstd);
  free(packer);
}

static void put_header(unsigned char *at, const struct nt_frame *frame) {
  nt_put_u32(at, NT_FRAME_MAGIC);
  nt_put_u16(at + NT_FRAME_TYPE, frame->type);
  at[NT_FRAME_VERSION] = frame->version;
  at[NT_FRAME_FLAGS] = frame->flags;
  nt_put_u64(at + NT_FRAME_EPOCH, frame->epoch);
  nt_put_u32(at + NT_FRAME_STORED, frame->stored);
  nt_put_u32(at + NT_FRAME_INDEX, frame->index);
  nt_put_u32(at + NT_FRAME_RAW, frame->raw);
  nt_put_u32(at + NT_FRAME_RECORDS, frame->records);
  nt_put_u64(at + NT_FRAME_FIRST, frame->first);
  nt_put_u64(at + NT_FRAME_LAST, frame->last);
  nt_put_u64(at + NT_FRAME_CHECKSUM, frame->checksum);
  nt_put_u64(at + NT_FRAME_HEADER_CHECKSUM, XXH64(at, NT_FRAME_HEADER_CHECKSUM, 0));
}

/* One zstd frame; the first `front` bytes are blocks of their own. Returns its length, or an error of zstd's. */
static size_t pack(struct nt_packer *packer, unsigned char *room, size_t size,
                   const unsigned char *payload, size_t length, size_t front) {
  if (!front || front >= length)
    return ZSTD_compressCCtx(packer->zstd, room, size, payload, length, packer->level);
  ZSTD_inBuffer in = {payload, front, 0};
  ZSTD_outBuffer out = {room, size, 0};
  ZSTD_CCtx_reset(packer->zstd, ZSTD_reset_session_only);
  ZSTD_CCtx_setParameter(packer->zstd, ZSTD_c_compressionLevel, packer->level);
  ZSTD_CCtx_setPledgedSrcSize(packer->zstd, length);
  size_t left = ZSTD_compressStream2(packer->zstd, &out, &in, ZSTD_e_flush);
  in.size = length;
  if (!left)
    left = ZSTD_compressStream2(packer->zstd, &out, &in, ZSTD_e_end);
  if (ZSTD_isError(left))
    return left;
  return left ? size : out.pos; /* what does not fit is no gain either */
}

int nt_frame_write(struct nt_packer *packer, struct nt_frame *frame, const unsigned char *index,
                   size_t index_length, const unsigned char *payload, size_t length,
                   struct nt_buffer *out) {
  const size_t start = out->length;
  if (length > NT_FRAME_MAX_RAW || index_length > NT_FRAME_MAX_RAW)
    return -NT_ERR_SPACE;

  const size_t bound = ZSTD_compressBound(length);
  unsigned char *room = malloc(bound ? bound : 1);
  if (!room)
    return -NT_ERR_MEMORY;
  int rc = -NT_ERR_SPACE;
  const size_t packed = pack(packer, room, bound, payload, length, frame->front);
  const bool use_packed = !ZSTD_isError(packed) && packed < length;
  frame->flags = use_packed ? NT_FRAME_PACKED : 0;
  frame->index = (uint32_t)index_length;
  frame->raw = (uint32_t)length;
  frame->stored = (uint32_t)(index_length + (use_packed ? packed : length));

  unsigned char *at = nt_buffer_add(out, (size_t)nt_frame_span(frame));
  if (!at)
    goto out;
  if (index_length)
    memcpy(at + NT_FRAME_HEADER, index, index_length);
  if (frame->stored > index_length)
    memcpy(at + NT_FRAME_HEADER + index_length, use_packed ? room : payload,
           frame->stored - index_length);
  frame->checksum = XXH64(at + NT_FRAME_HEADER, frame->stored, 0);
  put_header(at, frame);
  rc = 0;
out:
  if (rc) {
    out->length = start;
    out->failed = false;
  }
  free(room);
  return rc;
}

static bool all_zero(const unsigned char *at, size_t length) {
  for (size_t i = 0; i < length; i++)
    if (at[i])
      return false;
  return true;
}

int nt_frame_parse(const unsigned char *at, size_t left, struct nt_frame *out) {
  memset(out, 0, sizeof *out);
  if (left < NT_FRAME_HEADER)
    return all_zero(at, left) ? -NT_ERR_FOREIGN : -NT_ERR_TRUNCATED;
  if (nt_get_u32(at) != NT_FRAME_MAGIC)
    return all_zero(at, NT_FRAME_HEADER) ? -NT_ERR_FOREIGN : -NT_ERR_CORRUPT;
  if (nt_get_u64(at + NT_FRAME_HEADER_CHECKSUM) != XXH64(at, NT_FRAME_HEADER_CHECKSUM, 0))
    return -NT_ERR_CORRUPT;
  out->type = nt_get_u16(at + NT_FRAME_TYPE);
  out->version = at[NT_FRAME_VERSION];
  out->flags = at[NT_FRAME_FLAGS];
  out->epoch = nt_get_u64(at + NT_FRAME_EPOCH);
  out->stored = nt_get_u32(at + NT_FRAME_STORED);
  out->index = nt_get_u32(at + NT_FRAME_INDEX);
  out->raw = nt_get_u32(at + NT_FRAME_RAW);
  out->records = nt_get_u32(at + NT_FRAME_RECORDS);
  out->first = nt_get_u64(at + NT_FRAME_FIRST);
  out->last = nt_get_u64(at + NT_FRAME_LAST);
  out->checksum = nt_get_u64(at + NT_FRAME_CHECKSUM);
  if (out->stored > NT_FRAME_MAX_STORED || out->raw > NT_FRAME_MAX_RAW || out->index > out->stored)
    return -NT_ERR_CORRUPT;
  if (nt_frame_span(out) > nt_round_up(left, NT_FRAME_ALIGN) ||
      NT_FRAME_HEADER + (uint64_t)out->stored > left)
    return -NT_ERR_TRUNCATED;
  return 0;
}

struct nt_unpacker {
  ZSTD_DCtx *zstd;
  const unsigned char *next; /* of the frame that is unpacked piece by piece */
  size_t left, block;        /* block: of these the bytes that zstd wants next */
  bool packed;
};

struct nt_unpacker *nt_unpacker_new(void) {
  struct nt_unpacker *unpacker = calloc(1, sizeof *unpacker);
  if (!unpacker)
    return NULL;
  unpacker->zstd = ZSTD_createDCtx();
  if (!unpacker->zstd) {
    free(unpacker);
    return NULL;
  }
  return unpacker;
}

void nt_unpacker_free(struct nt_unpacker *unpacker) {
  if (!unpacker)
    return;
  ZSTD_freeDCtx(unpacker->zstd);
  free(unpacker);
}

int nt_frame_unpack(const struct nt_frame *frame, const unsigned char *stored,
                    unsigned char **out) {
  return nt_frame_unpack_with(NULL, frame, stored, out);
}

bool nt_frame_is_whole(const struct nt_frame *frame, const unsigned char *stored) {
  return XXH64(stored, frame->stored, 0) == frame->checksum;
}

int nt_frame_unpack_with(struct nt_unpacker *unpacker, const struct nt_frame *frame,
                         const unsigned char *stored, unsigned char **out) {
  *out = NULL;
  if (!nt_frame_is_whole(frame, stored) || frame->raw > NT_FRAME_MAX_RAW ||
      frame->index > frame->stored)
    return -NT_ERR_CORRUPT;
  const unsigned char *payload = stored + frame->index;
  const size_t length = frame->stored - frame->index;
  unsigned char *room = malloc(frame->raw ? frame->raw : 1);
  if (!room)
    return -NT_ERR_MEMORY;
  bool whole = length == frame->raw;
  if (frame->flags & NT_FRAME_PACKED) {
    const size_t got = unpacker
                           ? ZSTD_decompressDCtx(unpacker->zstd, room, frame->raw, payload, length)
                           : ZSTD_decompress(room, frame->raw, payload, length);
    whole = !ZSTD_isError(got) && got == frame->raw;
  } else if (whole && length) {
    memcpy(room, payload, length);
  }
  if (!whole) {
    free(room);
    return -NT_ERR_CORRUPT;
  }
  *out = room;
  return 0;
}

int nt_frame_unpack_begin(struct nt_unpacker *unpacker, const struct nt_frame *frame,
                          const unsigned char *stored) {
  if (!nt_frame_is_whole(frame, stored) || frame->index > frame->stored)
    return -NT_ERR_CORRUPT;
  unpacker->next = stored + frame->index;
  unpacker->left = frame->stored - frame->index;
  unpacker->packed = frame->flags & NT_FRAME_PACKED;
  unpacker->block = ZSTD_initDStream(unpacker->zstd);
  return ZSTD_isError(unpacker->block) ? -NT_ERR_MEMORY : 0;
}

/* zstd goes on to the next block as long as it has the bytes: it is given those of one. */
static int unpack_blocks(struct nt_unpacker *unpacker, unsigned char *out, size_t length) {
  ZSTD_outBuffer to = {out, length, 0};
  while (to.pos < length) {
    const size_t given = unpacker->block < unpacker->left ? unpacker->block : unpacker->left;
    const size_t before = to.pos;
    ZSTD_inBuffer from = {unpacker->next, given, 0};
    unpacker->block = ZSTD_decompressStream(unpacker->zstd, &to, &from);
    if (ZSTD_isError(unpacker->block) || (!from.pos && to.pos == before))
      return -NT_ERR_CORRUPT;
    unpacker->next += from.pos;
    unpacker->left -= from.pos;
  }
  return 0;
}

int nt_frame_unpack_next(struct nt_unpacker *unpacker, unsigned char *out, size_t length) {
  if (unpacker->packed)
    return unpack_blocks(unpacker, out, length);
  if (length > unpacker->left)
    return -NT_ERR_CORRUPT;
  memcpy(out, unpacker->next, length);
  unpacker->next += length;
  unpacker->left -= length;
  return 0;
}

unsigned char *nt_entry_add(struct nt_buffer *buffer, uint16_t kind, uint32_t length) {
  unsigned char *at = nt_buffer_add(buffer, NT_ENTRY_HEAD + (size_t)nt_round_up(length, 8));
  if (!at)
    return NULL;
  nt_put_u16(at, kind);
  nt_put_u32(at + 4, length);
  return at + NT_ENTRY_HEAD;
}

bool nt_entry_next(struct nt_cursor *cursor, uint16_t *kind, const unsigned char **at,
                   uint32_t *length) {
  if (cursor->failed || cursor->left == 0)
    return false;
  *kind = nt_take_u16(cursor);
  (void)nt_take_u16(cursor);
  *length = nt_take_u32(cursor);
  *at = nt_take(cursor, (size_t)nt_round_up(*length, 8));
  return !cursor->failed;
}
