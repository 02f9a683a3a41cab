/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Little-endian fixed-width numbers in byte buffers, and a cursor that never leaves its buffer.
 *
 * All that is written to a file goes through these, so that the format does not depend on a compiler.
 */
#ifndef NT_BYTES_H
#define NT_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline void nt_put_u16(unsigned char *at, uint16_t value) {
  at[0] = (unsigned char)value;
  at[1] = (unsigned char)(value >> 8);
}

static inline void nt_put_u32(unsigned char *at, uint32_t value) {
  nt_put_u16(at, (uint16_t)value);
  nt_put_u16(at + 2, (uint16_t)(value >> 16));
}

static inline void nt_put_u64(unsigned char *at, uint64_t value) {
  nt_put_u32(at, (uint32_t)value);
  nt_put_u32(at + 4, (uint32_t)(value >> 32));
}

static inline uint16_t nt_get_u16(const unsigned char *at) {
  return (uint16_t)(at[0] | at[1] << 8);
}

static inline uint32_t nt_get_u32(const unsigned char *at) {
  return (uint32_t)nt_get_u16(at) | (uint32_t)nt_get_u16(at + 2) << 16;
}

static inline uint64_t nt_get_u64(const unsigned char *at) {
  return (uint64_t)nt_get_u32(at) | (uint64_t)nt_get_u32(at + 4) << 32;
}

static inline uint64_t nt_round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/* Reads a buffer from front to back; `failed` once something beyond its end was asked for, and then
 * every further read yields zero. */
struct nt_cursor {
  const unsigned char *at;
  size_t left;
  bool failed;
};

/* The next `length` bytes, NULL (and failed) if there are fewer. */
static inline const unsigned char *nt_take(struct nt_cursor *cursor, size_t length) {
  if (cursor->failed || length > cursor->left) {
    cursor->failed = true;
    return NULL;
  }
  const unsigned char *at = cursor->at;
  cursor->at += length;
  cursor->left -= length;
  return at;
}

static inline uint8_t nt_take_u8(struct nt_cursor *cursor) {
  const unsigned char *at = nt_take(cursor, 1);
  return at ? at[0] : 0;
}

static inline uint16_t nt_take_u16(struct nt_cursor *cursor) {
  const unsigned char *at = nt_take(cursor, 2);
  return at ? nt_get_u16(at) : 0;
}

static inline uint32_t nt_take_u32(struct nt_cursor *cursor) {
  const unsigned char *at = nt_take(cursor, 4);
  return at ? nt_get_u32(at) : 0;
}

static inline uint64_t nt_take_u64(struct nt_cursor *cursor) {
  const unsigned char *at = nt_take(cursor, 8);
  return at ? nt_get_u64(at) : 0;
}

/* A growing buffer; `failed` when memory ran out or `limit` would be passed, and then it stays as it
 * was. Zero-initialise (limit 0: none); release with free(data). */
struct nt_buffer {
  unsigned char *data;
  size_t length, capacity, limit;
  bool failed;
};

/* Room for `length` more bytes at the end, zeroed and already counted; NULL on failure. */
unsigned char *nt_buffer_add(struct nt_buffer *buffer, size_t length);

static inline void nt_add_u8(struct nt_buffer *buffer, uint8_t value) {
  unsigned char *at = nt_buffer_add(buffer, 1);
  if (at)
    at[0] = value;
}

static inline void nt_add_u16(struct nt_buffer *buffer, uint16_t value) {
  unsigned char *at = nt_buffer_add(buffer, 2);
  if (at)
    nt_put_u16(at, value);
}

static inline void nt_add_u32(struct nt_buffer *buffer, uint32_t value) {
  unsigned char *at = nt_buffer_add(buffer, 4);
  if (at)
    nt_put_u32(at, value);
}

static inline void nt_add_u64(struct nt_buffer *buffer, uint64_t value) {
  unsigned char *at = nt_buffer_add(buffer, 8);
  if (at)
    nt_put_u64(at, value);
}

static inline void nt_add_bytes(struct nt_buffer *buffer, const void *bytes, size_t length) {
  unsigned char *at = nt_buffer_add(buffer, length);
  if (at && length)
    memcpy(at, bytes, length);
}

#endif
