/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Columns back into calls. The input is hostile: counts are compared with what the frame's header says and
 * with the bytes that are there before anything is allocated or read.
 */
#include <stdlib.h>

#include "nccl/nccl_api.h"
#include "trace/codec_parts.h"

/* Columns with an entry for each call; the others have one where it is needed. */
static bool is_of_all(unsigned column) {
  return column == NT_COLUMN_GAP || column == NT_COLUMN_DURATION || column == NT_COLUMN_MISSED;
}

static bool entries_are_right(const struct nt_columns *columns, uint32_t calls,
                              uint32_t templates) {
  for (unsigned column = 1; column < NT_COLUMNS_LIMIT; column++) {
    const uint32_t entries = columns->entries[column];
    if (!columns->data[column])
      continue;
    if (column < NT_COLUMN_RECORD_LIMIT && (is_of_all(column) ? entries != calls : entries > calls))
      return false;
    if (column >= NT_COLUMN_T_FN && column < NT_COLUMN_T_LIMIT && entries != templates)
      return false;
  }
  return true;
}

static void decode_template(const struct nt_columns *columns, uint32_t i, struct nt_template *out) {
  uint64_t v[NT_COLUMN_T_LIMIT - NT_COLUMN_T_FN] = {0};
  for (unsigned column = NT_COLUMN_T_FN; column < NT_COLUMN_T_LIMIT; column++)
    if (columns->planes[column])
      v[column - NT_COLUMN_T_FN] = nt_columns_at(columns, column, i);
#define V(name) v[NT_COLUMN_T_##name - NT_COLUMN_T_FN]
  *out = (struct nt_template){
      .count = V(COUNT),
      .comm = (uint32_t)V(COMM),
      .stream = (uint32_t)V(STREAM),
      .peer = (int32_t)(int64_t)nt_unzigzag(V(PEER)),
      .flags = (uint16_t)V(FLAGS),
      .fn = (uint8_t)V(FN),
      .dtype = (uint8_t)V(DTYPE),
      .op = (uint8_t)V(OP),
      .result = (uint8_t)V(RESULT),
      .in_group = V(IN_GROUP) != 0,
      .seq_class = (uint8_t)V(SEQ_CLASS),
      .varies = V(VARIES) != 0,
  };
#undef V
}

static uint64_t next_buffer(struct nt_columns *columns, struct nt_recent recent,
                            enum nt_column again, enum nt_column column) {
  const uint64_t which = nt_columns_next(columns, again);
  if (!which)
    return recent.last + nt_unzigzag(nt_columns_next(columns, column));
  if (which <= recent.count)
    return recent.value[which - 1];
  columns->failed = true;
  return 0;
}

/* Which template the next call has; `seen` counts those that had a call. UINT32_MAX: one that is not there. */
static uint32_t next_template(const struct nt_codec *codec, struct nt_columns *columns,
                              unsigned missed, uint32_t *seen) {
  uint32_t index = nt_model_next(&codec->model);
  if (missed & NT_MISSED_TEMPLATE) {
    const uint64_t value = nt_columns_next(columns, NT_COLUMN_TEMPLATE);
    index = value && value <= UINT32_MAX ? (uint32_t)value - 1 : *seen;
  }
  *seen += index == *seen;
  return index < codec->template_count ? index : UINT32_MAX;
}

static bool decode_call(struct nt_codec *codec, struct nt_columns *columns, unsigned shift,
                        uint32_t *seen, struct nt_batch_call *out) {
  struct nt_model *model = &codec->model;
  const unsigned missed = (unsigned)nt_columns_next(columns, NT_COLUMN_MISSED);
  const uint32_t index = next_template(codec, columns, missed, seen);
  if (index == UINT32_MAX)
    return false;
  const struct nt_template *what = &codec->templates[index];
  struct nt_expected expected;
  nt_model_predict(model, index, what, &expected);
  struct nt_call_values is = expected.call;
  is.gap += nt_unzigzag(nt_columns_next(columns, NT_COLUMN_GAP));
  is.duration += nt_unzigzag(nt_columns_next(columns, NT_COLUMN_DURATION));
#define ADD_IF_MISSED(name, NAME)                                                                  \
  if (missed & NT_MISSED_##NAME)                                                                   \
    is.name += (uint32_t)nt_columns_next(columns, NT_COLUMN_##NAME);
  ADD_IF_MISSED(seq, SEQ)
  ADD_IF_MISSED(stack, STACK)
  ADD_IF_MISSED(launch, LAUNCH)
  ADD_IF_MISSED(group, GROUP)
#undef ADD_IF_MISSED
  is.group = (uint16_t)is.group;
  if (missed & NT_MISSED_COUNT)
    is.count += nt_unzigzag(nt_columns_next(columns, NT_COLUMN_COUNT));
  if (missed & NT_MISSED_SEND)
    is.send = next_buffer(columns, nt_model_recent_send(model, index), NT_COLUMN_SEND_AGAIN,
                          NT_COLUMN_SEND);
  nt_model_predict_recv(model, index, what, is.send, &expected);
  is.recv = missed & NT_MISSED_RECV ? next_buffer(columns, nt_model_recent_recv(model, index, what),
                                                  NT_COLUMN_RECV_AGAIN, NT_COLUMN_RECV)
                                    : expected.call.recv;
  *out = (struct nt_batch_call){
      .comm = what->comm,
      .stream = what->stream,
      .record = {.enter = (model->end + is.gap) << shift,
                 .duration = nt_duration_encode(is.duration << shift),
                 .seq = is.seq,
                 .count = what->varies ? is.count : what->count,
                 .send = is.send,
                 .recv = is.recv,
                 .peer = what->peer,
                 .stack = is.stack,
                 .launch = is.launch,
                 .group = (uint16_t)is.group,
                 .fn = what->fn,
                 .dtype = what->dtype,
                 .op = what->op,
                 .result = what->result,
                 .flags = what->flags},
  };
  nt_model_learn(model, index, what, &is, &expected);
  return !columns->failed;
}

int nt_codec_runs(const unsigned char *index, size_t index_length, uint32_t records,
                  struct nt_run **runs, uint32_t *run_count) {
  struct nt_cursor cursor = {index, index_length, false};
  *runs = NULL;
  *run_count = 0;
  const uint32_t count = nt_take_u32(&cursor);
  (void)nt_take_u32(&cursor);
  if (cursor.failed || count > cursor.left / NT_RUN_SIZE || count > records)
    return -NT_ERR_CORRUPT;
  struct nt_run *out = malloc((count ? count : 1) * sizeof *out);
  if (!out)
    return -NT_ERR_MEMORY;
  uint64_t total = 0;
  for (uint32_t i = 0; i < count; i++) {
    out[i].serial = nt_take_u64(&cursor);
    out[i].first = nt_take_u32(&cursor);
    out[i].count = nt_take_u32(&cursor);
    out[i].thread = nt_take_u32(&cursor);
    (void)nt_take_u32(&cursor);
    total += out[i].count;
    if (out[i].first > NT_CODEC_MAX_CALLS || out[i].count > NT_CODEC_MAX_CALLS)
      total = UINT64_MAX / 2;
  }
  if (total != records) {
    free(out);
    return -NT_ERR_CORRUPT;
  }
  *runs = out;
  *run_count = count;
  return 0;
}

struct head {
  uint32_t templates;
  uint8_t shift;
  uint64_t base;
};

static const char *take_head(struct nt_cursor *cursor, uint32_t calls, struct head *head,
                             struct nt_columns *columns) {
  const uint32_t records = nt_take_u32(cursor);
  head->templates = nt_take_u32(cursor);
  head->shift = nt_take_u8(cursor);
  const uint8_t count = nt_take_u8(cursor);
  (void)nt_take_u16(cursor);
  head->base = nt_take_u64(cursor);
  if (cursor->failed || records != calls || head->templates > calls || head->shift > 63)
    return "the columns' head is wrong";
  const char *reason = nt_columns_find(cursor, count, columns);
  return reason || entries_are_right(columns, calls, head->templates) ? reason
                                                                      : "a column has a wrong size";
}

size_t nt_codec_kinds_need(const unsigned char *payload, size_t have, size_t length) {
  enum { HEAD = 20, COUNT = 9 };
  size_t need = HEAD < length ? HEAD : length;
  if (have < HEAD)
    return need;
  const size_t heads = HEAD + (size_t)payload[COUNT] * NT_COLUMN_HEAD;
  size_t end = need = heads < length ? heads : length;
  for (size_t at = HEAD; have >= heads && at < heads; at += NT_COLUMN_HEAD) {
    const unsigned char *head = payload + at;
    end += (size_t)head[1] * nt_get_u32(head + 4);
    if (head[0] >= NT_COLUMN_T_FN && head[0] < NT_COLUMN_T_LIMIT)
      need = end < length ? end : length;
  }
  return need;
}

static bool is_message(uint8_t fn) {
  return nt_fn_shape(fn) == NT_SHAPE_SEND || nt_fn_shape(fn) == NT_SHAPE_RECV;
}

int nt_codec_kinds(const unsigned char *payload, size_t length, uint32_t records,
                   nt_call_kind_fn *fn, void *ctx) {
  struct nt_cursor cursor = {payload, length, false};
  struct head head;
  struct nt_columns columns;
  int rc = take_head(&cursor, records, &head, &columns) ? -NT_ERR_CORRUPT : 0;
  for (uint32_t i = 0; !rc && i < head.templates; i++) {
    struct nt_template what;
    const uint64_t id =
        columns.planes[NT_COLUMN_T_FN] ? nt_columns_at(&columns, NT_COLUMN_T_FN, i) : 0;
    if (!is_message((uint8_t)id))
      continue;
    decode_template(&columns, i, &what);
    const struct nt_call_kind kind = {.count = what.count,
                                      .comm = what.comm,
                                      .peer = what.peer,
                                      .flags = what.flags,
                                      .fn = what.fn,
                                      .dtype = what.dtype,
                                      .varies = what.varies};
    rc = fn(&kind, ctx);
  }
  return rc;
}

static int decode_columns(struct nt_codec *codec, struct nt_cursor *cursor, uint32_t calls,
                          struct nt_batch *out, const char **reason) {
  struct head head;
  struct nt_columns columns;
  *reason = take_head(cursor, calls, &head, &columns);
  if (*reason)
    return -NT_ERR_CORRUPT;
  const uint32_t templates = head.templates;
  *reason = "out of memory";
  if (nt_codec_room(codec, templates) || nt_model_reset(&codec->model, templates))
    return -NT_ERR_MEMORY;
  *reason = "a call refers to what is not there";
  codec->template_count = templates;
  for (uint32_t i = 0; i < templates; i++)
    decode_template(&columns, i, &codec->templates[i]);
  uint32_t at = 0, seen = 0;
  for (uint32_t r = 0; r < out->run_count; r++) {
    if (r == 0 || out->runs[r].thread != out->runs[r - 1].thread)
      nt_model_thread(&codec->model, head.base);
    for (uint32_t i = 0; i < out->runs[r].count; i++, at++) {
      if (at >= calls || !decode_call(codec, &columns, head.shift, &seen, &out->calls[at]))
        return -NT_ERR_CORRUPT;
    }
  }
  return 0;
}

int nt_codec_decode(struct nt_codec *codec, const unsigned char *payload, size_t length,
                    const unsigned char *index, size_t index_length, uint32_t records,
                    struct nt_batch *out, const char **reason) {
  memset(out, 0, sizeof *out);
  *reason = "more calls than a frame can have";
  if (records > NT_CODEC_MAX_CALLS)
    return -NT_ERR_CORRUPT;
  *reason = "the runs do not add up";
  int rc = nt_codec_runs(index, index_length, records, &out->runs, &out->run_count);
  if (rc)
    return rc;
  *reason = "out of memory";
  out->call_count = records;
  out->calls = malloc((records ? records : 1) * sizeof *out->calls);
  if (!out->calls) {
    nt_batch_free(out);
    return -NT_ERR_MEMORY;
  }
  struct nt_cursor cursor = {payload, length, false};
  rc = decode_columns(codec, &cursor, records, out, reason);
  codec->template_count = 0;
  if (rc)
    nt_batch_free(out);
  else
    *reason = NULL;
  return rc;
}
