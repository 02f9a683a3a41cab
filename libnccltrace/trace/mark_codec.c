/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A look at the GPU leaves two marks for each stream that went on: the launches that had their turn, and those that are
 * complete. Both begin where the last such mark ended and are as long; all marks of a look have nearly the same moment,
 * and the same look before it. Only what differs from that is kept.
 */
#include "trace/mark_codec.h"

#include <stdlib.h>

#include "trace/columns.h"
#include "trace/error.h"

#define STREAMS 256u /* a stream shares its place with others of the same remainder */
#define KINDS 4u

/* What was last said of a stream. */
struct stream {
  uint32_t last[KINDS]; /* by kind */
  uint32_t span;        /* last - first of what had its turn */
  uint64_t by, not_before, took;
};

struct model {
  struct stream streams[STREAMS];
  uint64_t by; /* of the mark before */
};

/* `last` is what it is beyond `first`. */
static struct nt_gpu_mark expect(const struct model *model, uint32_t stream, uint16_t kind) {
  const struct stream *is = &model->streams[stream % STREAMS];
  struct nt_gpu_mark mark = {.stream = stream, .kind = kind, .first = is->last[kind % KINDS] + 1};
  if (kind == NT_GPU_DURATION)
    mark.not_before = is->took;
  else
    mark.by = model->by;
  mark.last = kind == NT_GPU_FINISHED ? is->span : 0;
  return mark;
}

/* The look before, once this one is known. */
static uint64_t expect_not_before(const struct model *model, const struct nt_gpu_mark *mark) {
  const struct stream *is = &model->streams[mark->stream % STREAMS];
  return !is->by ? mark->by : mark->by == is->by ? is->not_before : is->by;
}

static void learn(struct model *model, const struct nt_gpu_mark *mark) {
  struct stream *is = &model->streams[mark->stream % STREAMS];
  is->last[mark->kind % KINDS] = mark->last;
  if (mark->kind == NT_GPU_DURATION) {
    is->took = mark->not_before;
    return;
  }
  if (mark->kind == NT_GPU_REACHED)
    is->span = mark->last - mark->first;
  is->by = model->by = mark->by;
  is->not_before = mark->not_before;
}

/* In units. */
static struct nt_gpu_mark shifted(const struct nt_gpu_mark *mark, unsigned shift) {
  struct nt_gpu_mark out = *mark;
  if (mark->kind == NT_GPU_DURATION)
    return out;
  out.not_before >>= shift;
  out.by = (mark->by >> shift) + ((mark->by & ((UINT64_C(1) << shift) - 1)) != 0);
  return out;
}

/* ---- writing ------------------------------------------------------------------------------------- */

struct values {
  uint64_t *of[NT_MARK_COLUMN_TOOK + 1];
  uint32_t entries[NT_MARK_COLUMN_TOOK + 1];
};

static void put(struct values *values, enum nt_mark_column column, uint64_t value) {
  values->of[column][values->entries[column]++] = value;
}

static void encode_mark(struct model *model, const struct nt_gpu_mark *mark,
                        struct values *values) {
  const struct nt_gpu_mark would = expect(model, mark->stream, mark->kind);
  put(values, NT_MARK_COLUMN_STREAM, mark->stream);
  put(values, NT_MARK_COLUMN_KIND, mark->kind);
  put(values, NT_MARK_COLUMN_FIRST, (uint32_t)(mark->first - would.first));
  put(values, NT_MARK_COLUMN_SPAN,
      nt_zigzag((uint64_t)(int32_t)(mark->last - mark->first - would.last)));
  if (mark->kind == NT_GPU_DURATION) {
    put(values, NT_MARK_COLUMN_TOOK, nt_zigzag(mark->not_before - would.not_before));
  } else {
    put(values, NT_MARK_COLUMN_BY, nt_zigzag(mark->by - would.by));
    put(values, NT_MARK_COLUMN_NOT_BEFORE,
        nt_zigzag(mark->not_before - expect_not_before(model, mark)));
  }
  learn(model, mark);
}

/* `all` has room for each column. */
static int encode(struct model *model, uint64_t *all, const struct nt_gpu_mark *marks,
                  uint32_t count, unsigned shift, struct nt_buffer *payload) {
  struct values values = {0};
  struct nt_columns_out columns = {0};
  for (unsigned column = 1; column <= NT_MARK_COLUMN_TOOK; column++)
    values.of[column] = all + (size_t)(column - 1) * count;
  for (uint32_t i = 0; i < count && !model->by; i++)
    if (marks[i].kind != NT_GPU_DURATION)
      model->by = shifted(&marks[i], shift).by;
  const uint64_t base = model->by;
  for (uint32_t i = 0; i < count; i++) {
    const struct nt_gpu_mark mark = shifted(&marks[i], shift);
    encode_mark(model, &mark, &values);
  }
  for (unsigned column = 1; column <= NT_MARK_COLUMN_TOOK; column++)
    nt_columns_add(&columns, column, values.of[column], values.entries[column]);
  nt_add_u32(payload, count);
  nt_add_u8(payload, (uint8_t)shift);
  nt_add_u8(payload, columns.count);
  nt_add_u16(payload, 0);
  nt_add_u64(payload, base);
  return nt_columns_finish(&columns, payload);
}

int nt_marks_encode(const struct nt_gpu_mark *marks, uint32_t count, unsigned shift,
                    struct nt_buffer *payload) {
  struct model *model = calloc(1, sizeof *model);
  uint64_t *all = malloc(NT_MARK_COLUMN_TOOK * (count + (size_t)1) * sizeof *all);
  const int rc = model && all ? encode(model, all, marks, count, shift, payload) : -NT_ERR_MEMORY;
  free(model);
  free(all);
  return rc;
}

/* ---- reading ------------------------------------------------------------------------------------- */

static void decode_mark(struct model *model, struct nt_columns *columns, struct nt_gpu_mark *mark) {
  const uint32_t stream = (uint32_t)nt_columns_next(columns, NT_MARK_COLUMN_STREAM);
  const uint16_t kind = (uint16_t)nt_columns_next(columns, NT_MARK_COLUMN_KIND);
  *mark = expect(model, stream, kind);
  mark->first += (uint32_t)nt_columns_next(columns, NT_MARK_COLUMN_FIRST);
  mark->last += mark->first;
  mark->last += (uint32_t)nt_unzigzag(nt_columns_next(columns, NT_MARK_COLUMN_SPAN));
  if (kind == NT_GPU_DURATION) {
    mark->not_before += nt_unzigzag(nt_columns_next(columns, NT_MARK_COLUMN_TOOK));
  } else {
    mark->by += nt_unzigzag(nt_columns_next(columns, NT_MARK_COLUMN_BY));
    mark->not_before = expect_not_before(model, mark) +
                       nt_unzigzag(nt_columns_next(columns, NT_MARK_COLUMN_NOT_BEFORE));
  }
  learn(model, mark);
}

int nt_marks_decode(const unsigned char *payload, size_t length, uint32_t count,
                    struct nt_buffer *marks) {
  struct nt_cursor cursor = {payload, length, false};
  const uint32_t said = nt_take_u32(&cursor);
  const uint8_t shift = nt_take_u8(&cursor);
  const uint8_t column_count = nt_take_u8(&cursor);
  (void)nt_take_u16(&cursor);
  const uint64_t base = nt_take_u64(&cursor);
  struct nt_columns columns;
  if (cursor.failed || said != count || shift > 63 ||
      nt_columns_find(&cursor, column_count, &columns))
    return -NT_ERR_CORRUPT;
  /* No kind is 0: no more marks are believed in than are there. */
  if (columns.entries[NT_MARK_COLUMN_KIND] != count)
    return -NT_ERR_CORRUPT;
  if (!count)
    return 0;
  struct model *model = calloc(1, sizeof *model);
  unsigned char *room = nt_buffer_add(marks, (size_t)count * sizeof(struct nt_gpu_mark));
  struct nt_gpu_mark *to = (struct nt_gpu_mark *)(void *)room;
  const int rc = model && to ? 0 : -NT_ERR_MEMORY;
  if (!rc)
    model->by = base;
  for (uint32_t i = 0; !rc && i < count; i++) {
    decode_mark(model, &columns, &to[i]);
    if (to[i].kind == NT_GPU_DURATION)
      continue;
    to[i].not_before <<= shift;
    to[i].by <<= shift;
  }
  free(model);
  return rc ? rc : columns.failed ? -NT_ERR_CORRUPT : 0;
}
