/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Columns back into calls. The input is hostile: counts are compared with what the frame's header says and
 * with the bytes that are there before anything is allocated or read.
 */
#include <stdlib.h>

#include "trace/codec_parts.h"

static uint64_t unzigzag(uint64_t value) {
  return value >> 1 ^ (0 - (value & 1));
}

struct columns {
  const unsigned char *data[NT_COLUMN_T_LIMIT];
  uint8_t planes[NT_COLUMN_T_LIMIT];
  uint32_t entries[NT_COLUMN_T_LIMIT];
  uint32_t taken[NT_COLUMN_T_LIMIT]; /* entries that have been read */
  bool failed;                       /* an entry was asked for that is not there */
};

/* Columns with an entry for each call; the others have one where it is needed. */
static bool is_of_all(unsigned column) {
  return column == NT_COLUMN_GAP || column == NT_COLUMN_DURATION || column == NT_COLUMN_MISSED;
}

static const char *find_columns(struct nt_cursor *cursor, uint8_t count, uint32_t calls,
                                uint32_t templates, struct columns *out) {
  memset(out, 0, sizeof *out);
  const unsigned char *heads = nt_take(cursor, (size_t)count * COLUMN_HEAD);
  if (!heads)
    return "column heads are cut off";
  for (uint8_t i = 0; i < count; i++) {
    const unsigned char *head = heads + (size_t)i * COLUMN_HEAD;
    const uint32_t entries = nt_get_u32(head + 4);
    const unsigned char *data = nt_take(cursor, (size_t)head[1] * entries);
    if (!data)
      return "a column is cut off";
    const unsigned column = head[0];
    const bool of_records = column < NT_COLUMN_RECORD_LIMIT && column > 0;
    const bool of_templates = column >= NT_COLUMN_T_FN && column < NT_COLUMN_T_LIMIT;
    if (!of_records && !of_templates)
      continue;
    const bool fits = of_templates        ? entries == templates
                      : is_of_all(column) ? entries == calls
                                          : entries <= calls;
    if (head[1] > 8 || !fits || out->data[column])
      return "a column has a wrong size";
    out->data[column] = data;
    out->planes[column] = head[1];
    out->entries[column] = entries;
  }
  return NULL;
}

static uint64_t column_value(const struct columns *columns, unsigned column, uint32_t i) {
  uint64_t value = 0;
  const unsigned char *at = columns->data[column] + i;
  for (unsigned plane = 0; plane < columns->planes[column]; plane++) {
    value |= (uint64_t)*at << (8 * plane);
    at += columns->entries[column];
  }
  return value;
}

/* The column's next entry. */
static uint64_t next_value(struct columns *columns, unsigned column) {
  if (!columns->planes[column])
    return 0;
  const uint32_t i = columns->taken[column]++;
  if (i < columns->entries[column])
    return column_value(columns, column, i);
  columns->failed = true;
  return 0;
}

static void decode_template(const struct columns *columns, uint32_t i, struct nt_template *out) {
  uint64_t v[NT_COLUMN_T_LIMIT - NT_COLUMN_T_FN] = {0};
  for (unsigned column = NT_COLUMN_T_FN; column < NT_COLUMN_T_LIMIT; column++)
    if (columns->planes[column])
      v[column - NT_COLUMN_T_FN] = column_value(columns, column, i);
#define V(name) v[NT_COLUMN_T_##name - NT_COLUMN_T_FN]
  *out = (struct nt_template){
      .count = V(COUNT),
      .comm = (uint32_t)V(COMM),
      .stream = (uint32_t)V(STREAM),
      .peer = (int32_t)(int64_t)unzigzag(V(PEER)),
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

static uint64_t next_buffer(struct columns *columns, struct nt_recent recent, enum nt_column again,
                            enum nt_column column) {
  const uint64_t which = next_value(columns, again);
  if (!which)
    return recent.last + unzigzag(next_value(columns, column));
  if (which <= recent.count)
    return recent.value[which - 1];
  columns->failed = true;
  return 0;
}

/* Which template the next call has; `seen` counts those that had a call. UINT32_MAX: one that is not there. */
static uint32_t next_template(const struct nt_codec *codec, struct columns *columns,
                              unsigned missed, uint32_t *seen) {
  uint32_t index = nt_model_next(&codec->model);
  if (missed & NT_MISSED_TEMPLATE) {
    const uint64_t value = next_value(columns, NT_COLUMN_TEMPLATE);
    index = value && value <= UINT32_MAX ? (uint32_t)value - 1 : *seen;
  }
  *seen += index == *seen;
  return index < codec->template_count ? index : UINT32_MAX;
}

static bool decode_call(struct nt_codec *codec, struct columns *columns, unsigned shift,
                        uint32_t *seen, struct nt_batch_call *out) {
  struct nt_model *model = &codec->model;
  const unsigned missed = (unsigned)next_value(columns, NT_COLUMN_MISSED);
  const uint32_t index = next_template(codec, columns, missed, seen);
  if (index == UINT32_MAX)
    return false;
  const struct nt_template *what = &codec->templates[index];
  struct nt_expected expected;
  nt_model_predict(model, index, what, &expected);
  struct nt_call_values is = expected.call;
  is.gap += unzigzag(next_value(columns, NT_COLUMN_GAP));
  is.duration += unzigzag(next_value(columns, NT_COLUMN_DURATION));
#define ADD_IF_MISSED(name, NAME)                                                                  \
  if (missed & NT_MISSED_##NAME)                                                                   \
    is.name += (uint32_t)next_value(columns, NT_COLUMN_##NAME);
  ADD_IF_MISSED(seq, SEQ)
  ADD_IF_MISSED(stack, STACK)
  ADD_IF_MISSED(launch, LAUNCH)
  ADD_IF_MISSED(group, GROUP)
#undef ADD_IF_MISSED
  is.group = (uint16_t)is.group;
  if (missed & NT_MISSED_COUNT)
    is.count += unzigzag(next_value(columns, NT_COLUMN_COUNT));
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
                             struct columns *columns) {
  const uint32_t records = nt_take_u32(cursor);
  head->templates = nt_take_u32(cursor);
  head->shift = nt_take_u8(cursor);
  const uint8_t count = nt_take_u8(cursor);
  (void)nt_take_u16(cursor);
  head->base = nt_take_u64(cursor);
  if (cursor->failed || records != calls || head->templates > calls || head->shift > 63)
    return "the columns' head is wrong";
  return find_columns(cursor, count, calls, head->templates, columns);
}

int nt_codec_kinds(const unsigned char *payload, size_t length, uint32_t records,
                   nt_call_kind_fn *fn, void *ctx) {
  struct nt_cursor cursor = {payload, length, false};
  struct head head;
  struct columns columns;
  int rc = take_head(&cursor, records, &head, &columns) ? -NT_ERR_CORRUPT : 0;
  for (uint32_t i = 0; !rc && i < head.templates; i++) {
    struct nt_template what;
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
  struct columns columns;
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
  out->calls = calloc(records ? records : 1, sizeof *out->calls);
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
