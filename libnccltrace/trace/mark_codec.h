/* SPDX-License-Identifier: Apache-2.0 */
/* Marks of GPU progress <-> the columns of a GPU frame. No I/O, no packing (frame.h does that). */
#ifndef NT_MARK_CODEC_H
#define NT_MARK_CODEC_H

#include "trace/bytes.h"
#include "trace/gpu_area.h"

#define NT_MARKS_VERSION 1

/* Columns; append-only. A missing column is all zero, an unknown one is skipped. */
enum nt_mark_column {
  /* An entry for each mark. */
  NT_MARK_COLUMN_STREAM = 1,
  NT_MARK_COLUMN_KIND = 2,
  NT_MARK_COLUMN_FIRST = 3,
  NT_MARK_COLUMN_SPAN = 4,
  /* For each that is no duration. */
  NT_MARK_COLUMN_BY = 5,
  NT_MARK_COLUMN_NOT_BEFORE = 6,
  /* For each duration. */
  NT_MARK_COLUMN_TOOK = 7,
};

/* Marks here have the number of their stream where the area's have its slot. */

/* Appends the payload. Times become units of 2^shift ticks, so that a mark's two bounds still hold. -NT_ERR_MEMORY. */
int nt_marks_encode(const struct nt_gpu_mark *marks, uint32_t count, unsigned shift,
                    struct nt_buffer *payload);

/* The reverse: appends `count` marks, which is what the frame's header says, to `marks`. -NT_ERR_CORRUPT, -NT_ERR_MEMORY. */
int nt_marks_decode(const unsigned char *payload, size_t length, uint32_t count,
                    struct nt_buffer *marks);

#endif
