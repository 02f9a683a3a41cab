/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Columns of numbers as byte planes: all least significant bytes, then all next ones, only as many as the column's
 * largest value needs. A column that is all zero is left out.
 */
#ifndef NT_COLUMNS_H
#define NT_COLUMNS_H

#include "trace/bytes.h"

#define NT_COLUMN_HEAD 8 /* u8 column, u8 planes, u16 0, u32 entries */
#define NT_COLUMNS_LIMIT 64

/* Written: heads and data apart, since all heads come first. Zero-initialise. */
struct nt_columns_out {
  struct nt_buffer heads, data;
  uint8_t count;
};

/* Memory that ran out shows in heads.failed or data.failed. */
void nt_columns_add(struct nt_columns_out *out, unsigned column, const uint64_t *values,
                    uint32_t entries);
/* Appends heads and data to `payload`, and releases them. -NT_ERR_MEMORY. */
int nt_columns_finish(struct nt_columns_out *out, struct nt_buffer *payload);

/* Read; points into the payload. */
struct nt_columns {
  const unsigned char *data[NT_COLUMNS_LIMIT];
  uint32_t entries[NT_COLUMNS_LIMIT];
  uint32_t taken[NT_COLUMNS_LIMIT]; /* entries that have been read */
  uint8_t planes[NT_COLUMNS_LIMIT];
  bool failed; /* an entry was asked for that is not there */
};

/* Finds `count` columns at the cursor; columns from NT_COLUMNS_LIMIT on are passed over. Returns NULL, or what is wrong
 * (static text). How many entries a column may have is for the caller to check. */
const char *nt_columns_find(struct nt_cursor *cursor, uint8_t count, struct nt_columns *out);

/* Entry `i`, which must be there if the column is. */
static inline uint64_t nt_columns_at(const struct nt_columns *columns, unsigned column,
                                     uint32_t i) {
  uint64_t value = 0;
  const unsigned char *at = columns->data[column] + i;
  for (unsigned plane = 0; plane < columns->planes[column]; plane++) {
    value |= (uint64_t)*at << (8 * plane);
    at += columns->entries[column];
  }
  return value;
}

/* The column's next entry. */
static inline uint64_t nt_columns_next(struct nt_columns *columns, unsigned column) {
  if (!columns->planes[column])
    return 0;
  const uint32_t i = columns->taken[column]++;
  if (i < columns->entries[column])
    return nt_columns_at(columns, column, i);
  columns->failed = true;
  return 0;
}

/* Small numbers for small differences of either sign. */
static inline uint64_t nt_zigzag(uint64_t difference) {
  return difference << 1 ^ (uint64_t)((int64_t)difference >> 63);
}

static inline uint64_t nt_unzigzag(uint64_t value) {
  return value >> 1 ^ (0 - (value & 1));
}

#endif
