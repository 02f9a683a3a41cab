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

/* Reads the column heads and adds up each column's planes into values (records) or templates. */
struct columns {
  const unsigned char *data[NT_COLUMN_T_LIMIT];
  uint8_t planes[NT_COLUMN_T_LIMIT];
};

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
    if (head[1] > 8 || entries != (of_records ? calls : templates) || out->data[column])
      return "a column has a wrong size";
    out->data[column] = data;
    out->planes[column] = head[1];
  }
  return NULL;
}

static uint64_t column_value(const struct columns *columns, unsigned column, uint32_t entries,
                             uint32_t i) {
  uint64_t value = 0;
  const unsigned char *at = columns->data[column] + i;
  for (unsigned plane = 0; plane < columns->planes[column]; plane++, at += entries)
    value |= (uint64_t)*at << (8 * plane);
  return value;
}

static void decode_template(const struct columns *columns, uint32_t templates, uint32_t i,
                            struct nt_template *out) {
  uint64_t v[NT_COLUMN_T_LIMIT - NT_COLUMN_T_FN] = {0};
  for (unsigned column = NT_COLUMN_T_FN; column < NT_COLUMN_T_LIMIT; column++)
    if (columns->planes[column])
      v[column - NT_COLUMN_T_FN] = column_value(columns, column, templates, i);
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
  };
#undef V
}

static bool decode_call(struct nt_codec *codec, const uint64_t *in, uint32_t stride, unsigned shift,
                        struct nt_batch_call *out) {
  struct nt_model *model = &codec->model;
#define IN(name) in[(size_t)stride * NT_COLUMN_##name]
  const uint32_t index = IN(TEMPLATE) ? (uint32_t)(IN(TEMPLATE) - 1) : nt_model_next(model);
  if (index >= codec->template_count)
    return false;
  const struct nt_template *what = &codec->templates[index];
  struct nt_call_values is;
  nt_model_predict(model, index, what, &is);
  is.gap += unzigzag(IN(GAP));
  is.duration += unzigzag(IN(DURATION));
  is.seq += (uint32_t)IN(SEQ);
  is.send += unzigzag(IN(SEND));
  is.recv = nt_model_predict_recv(model, index, what, is.send) + unzigzag(IN(RECV));
  is.stack += (uint32_t)IN(STACK);
  is.launch += (uint32_t)IN(LAUNCH);
  is.group = (uint16_t)(is.group + (uint32_t)IN(GROUP));
#undef IN
  *out = (struct nt_batch_call){
      .comm = what->comm,
      .stream = what->stream,
      .record = {.enter = (model->end + is.gap) << shift,
                 .duration = nt_duration_encode(is.duration << shift),
                 .seq = is.seq,
                 .count = what->count,
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
  nt_model_learn(model, index, what, &is);
  return true;
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

static const char *decode_columns(struct nt_codec *codec, struct nt_cursor *cursor, uint32_t calls,
                                  struct nt_batch *out) {
  const uint32_t records = nt_take_u32(cursor);
  const uint32_t templates = nt_take_u32(cursor);
  const uint8_t shift = nt_take_u8(cursor);
  const uint8_t count = nt_take_u8(cursor);
  (void)nt_take_u16(cursor);
  const uint64_t base = nt_take_u64(cursor);
  if (cursor->failed || records != calls || templates > calls || shift > 63)
    return "the columns' head is wrong";
  struct columns columns;
  const char *reason = find_columns(cursor, count, calls, templates, &columns);
  if (reason)
    return reason;
  codec->template_count = templates;
  for (uint32_t i = 0; i < templates; i++)
    decode_template(&columns, templates, i, &codec->templates[i]);
  if (calls)
    memset(codec->values, 0, (size_t)calls * NT_COLUMN_RECORD_LIMIT * sizeof *codec->values);
  for (unsigned column = 1; column < NT_COLUMN_RECORD_LIMIT; column++)
    if (columns.planes[column])
      for (uint32_t i = 0; i < calls; i++)
        codec->values[(size_t)calls * column + i] = column_value(&columns, column, calls, i);
  uint32_t at = 0;
  for (uint32_t r = 0; r < out->run_count; r++) {
    if (r == 0 || out->runs[r].thread != out->runs[r - 1].thread)
      nt_model_thread(&codec->model, base);
    for (uint32_t i = 0; i < out->runs[r].count; i++, at++) {
      if (at >= calls || !decode_call(codec, codec->values + at, calls, shift, &out->calls[at]))
        return "a call names a template that is not there";
    }
  }
  return NULL;
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
  if (!out->calls || nt_codec_room(codec, records) || nt_model_reset(&codec->model, records)) {
    nt_batch_free(out);
    return -NT_ERR_MEMORY;
  }
  struct nt_cursor cursor = {payload, length, false};
  *reason = decode_columns(codec, &cursor, records, out);
  codec->template_count = 0;
  if (*reason) {
    nt_batch_free(out);
    return -NT_ERR_CORRUPT;
  }
  return 0;
}
