/* SPDX-License-Identifier: Apache-2.0 */
/* Byte planes: zstd sees runs of zeros and of like-distributed bytes. What is read is hostile. */
#include "trace/columns.h"

#include <stdlib.h>

#include "trace/error.h"

void nt_columns_add(struct nt_columns_out *out, unsigned column, const uint64_t *values,
                    uint32_t entries) {
  uint64_t all = 0;
  for (uint32_t i = 0; i < entries; i++)
    all |= values[i];
  unsigned planes = 0;
  while (planes < 8 && all >> (8 * planes))
    planes++;
  if (!planes)
    return;
  nt_add_u8(&out->heads, (uint8_t)column);
  nt_add_u8(&out->heads, (uint8_t)planes);
  nt_add_u16(&out->heads, 0);
  nt_add_u32(&out->heads, entries);
  unsigned char *at = nt_buffer_add(&out->data, (size_t)planes * entries);
  if (!at)
    return;
  for (unsigned plane = 0; plane < planes; plane++)
    for (uint32_t i = 0; i < entries; i++)
      *at++ = (unsigned char)(values[i] >> (8 * plane));
  out->count++;
}

int nt_columns_finish(struct nt_columns_out *out, struct nt_buffer *payload) {
  const bool failed = out->heads.failed || out->data.failed;
  if (out->heads.length)
    nt_add_bytes(payload, out->heads.data, out->heads.length);
  if (out->data.length)
    nt_add_bytes(payload, out->data.data, out->data.length);
  free(out->heads.data);
  free(out->data.data);
  memset(out, 0, sizeof *out);
  return failed || payload->failed ? -NT_ERR_MEMORY : 0;
}

const char *nt_columns_find(struct nt_cursor *cursor, uint8_t count, struct nt_columns *out) {
  memset(out, 0, sizeof *out);
  const unsigned char *heads = nt_take(cursor, (size_t)count * NT_COLUMN_HEAD);
  if (!heads)
    return "column heads are cut off";
  for (uint8_t i = 0; i < count; i++) {
    const unsigned char *head = heads + (size_t)i * NT_COLUMN_HEAD;
    const uint32_t entries = nt_get_u32(head + 4);
    const unsigned char *data = nt_take(cursor, (size_t)head[1] * entries);
    if (!data)
      return "a column is cut off";
    const unsigned column = head[0];
    if (column >= NT_COLUMNS_LIMIT)
      continue;
    if (!head[1] || head[1] > 8 || out->data[column])
      return "a column has a wrong size";
    out->data[column] = data;
    out->planes[column] = head[1];
    out->entries[column] = entries;
  }
  return NULL;
}
