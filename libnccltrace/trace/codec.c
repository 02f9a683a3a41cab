/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls as columns. Each call is a template (what many calls share) and a handful of values, of which only
 * the difference to the model's prediction is kept. Differences are small or zero; a column is stored as
 * byte planes, least significant first, only as many as its largest value needs, so that zstd sees long
 * runs of zeros and of like-distributed bytes.
 */
#include "trace/codec.h"

#include <stdlib.h>

#include "nccl/nccl_api.h"
#include "trace/codec_parts.h"

#define LOOKUP_SLOTS (1u << 17)

struct nt_codec *nt_codec_new(void) {
  return calloc(1, sizeof(struct nt_codec));
}

void nt_codec_free(struct nt_codec *codec) {
  if (!codec)
    return;
  nt_model_clear(&codec->model);
  free(codec->templates);
  free(codec->lookup);
  free(codec->values);
  free(codec);
}

void nt_batch_free(struct nt_batch *batch) {
  free(batch->calls);
  free(batch->runs);
  memset(batch, 0, sizeof *batch);
}

unsigned nt_codec_shift(uint32_t kind, const struct nt_clock_sync *first,
                        const struct nt_clock_sync *last) {
  if (kind != NT_CLOCK_TSC)
    return 9;
  const uint64_t ticks = last->ticks - first->ticks;
  const uint64_t ns = last->monotonic_ns - first->monotonic_ns;
  if (last->ticks <= first->ticks || last->monotonic_ns <= first->monotonic_ns || ns < 1000000)
    return 9;
  const double per_us = (double)ticks * 1000.0 / (double)ns;
  unsigned shift = 0;
  while (shift < 20 && (double)(UINT64_C(2) << shift) <= per_us)
    shift++;
  return shift;
}

int nt_codec_room(struct nt_codec *codec, uint32_t calls) {
  if (calls <= codec->room && codec->values)
    return 0;
  free(codec->values);
  free(codec->templates);
  codec->values = malloc(((size_t)calls + 1) * NT_COLUMN_RECORD_LIMIT * sizeof *codec->values);
  codec->templates = malloc(((size_t)calls + 1) * sizeof *codec->templates);
  codec->room = codec->values && codec->templates ? calls : 0;
  return codec->values && codec->templates ? 0 : -NT_ERR_MEMORY;
}

static uint64_t zigzag(uint64_t difference) {
  return difference << 1 ^ (uint64_t)((int64_t)difference >> 63);
}

static void make_template(const struct nt_batch_call *call, struct nt_template *out) {
  const struct nt_record *record = &call->record;
  *out = (struct nt_template){
      .count = record->count,
      .comm = call->comm,
      .stream = call->stream,
      .peer = record->peer,
      .flags = record->flags,
      .fn = record->fn,
      .dtype = record->dtype,
      .op = record->op,
      .result = record->result,
      .in_group = record->group != 0,
      .seq_class = NT_SEQ_PER_FUNCTION,
  };
  const enum nt_shape shape = nt_fn_shape(record->fn);
  if (nt_fn_is_collective(record->fn))
    out->seq_class = NT_SEQ_COLLECTIVE;
  else if (shape == NT_SHAPE_SEND || shape == NT_SHAPE_RECV)
    out->seq_class = NT_SEQ_PER_PEER;
}

static uint64_t template_hash(const struct nt_template *what) {
  uint64_t words[4];
  memcpy(words, what, sizeof words);
  uint64_t hash = 0;
  for (int i = 0; i < 4; i++) {
    hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 29;
  }
  return hash;
}

static uint32_t find_template(struct nt_codec *codec, const struct nt_template *what) {
  uint32_t slot = (uint32_t)template_hash(what) & (LOOKUP_SLOTS - 1);
  for (;; slot = (slot + 1) & (LOOKUP_SLOTS - 1)) {
    const uint32_t at = codec->lookup[slot];
    if (!at) {
      codec->templates[codec->template_count] = *what;
      codec->lookup[slot] = ++codec->template_count;
      return codec->template_count - 1;
    }
    if (!memcmp(&codec->templates[at - 1], what, sizeof *what))
      return at - 1;
  }
}

/* The lookup table is large and frames are often small: only what was used is cleared. */
static void forget_templates(struct nt_codec *codec) {
  for (uint32_t i = 0; i < codec->template_count; i++) {
    uint32_t slot = (uint32_t)template_hash(&codec->templates[i]) & (LOOKUP_SLOTS - 1);
    while (codec->lookup[slot]) {
      codec->lookup[slot] = 0;
      slot = (slot + 1) & (LOOKUP_SLOTS - 1);
    }
  }
  codec->template_count = 0;
}

static void add_column(struct nt_buffer *heads, struct nt_buffer *data, uint8_t column,
                       const uint64_t *values, uint32_t entries, uint8_t *columns) {
  uint64_t all = 0;
  for (uint32_t i = 0; i < entries; i++)
    all |= values[i];
  unsigned planes = 0;
  while (planes < 8 && all >> (8 * planes))
    planes++;
  if (!planes)
    return;
  nt_add_u8(heads, column);
  nt_add_u8(heads, (uint8_t)planes);
  nt_add_u16(heads, 0);
  nt_add_u32(heads, entries);
  unsigned char *at = nt_buffer_add(data, (size_t)planes * entries);
  if (!at)
    return;
  for (unsigned plane = 0; plane < planes; plane++)
    for (uint32_t i = 0; i < entries; i++)
      *at++ = (unsigned char)(values[i] >> (8 * plane));
  (*columns)++;
}

static uint64_t template_value(const struct nt_template *what, unsigned column) {
  switch (column) {
  case NT_COLUMN_T_FN:
    return what->fn;
  case NT_COLUMN_T_DTYPE:
    return what->dtype;
  case NT_COLUMN_T_OP:
    return what->op;
  case NT_COLUMN_T_FLAGS:
    return what->flags;
  case NT_COLUMN_T_RESULT:
    return what->result;
  case NT_COLUMN_T_COMM:
    return what->comm;
  case NT_COLUMN_T_STREAM:
    return what->stream;
  case NT_COLUMN_T_PEER:
    return zigzag((uint64_t)(int64_t)what->peer);
  case NT_COLUMN_T_COUNT:
    return what->count;
  case NT_COLUMN_T_IN_GROUP:
    return what->in_group;
  case NT_COLUMN_T_SEQ_CLASS:
    return what->seq_class;
  default:
    return 0;
  }
}

static void encode_call(struct nt_codec *codec, const struct nt_batch_call *call, unsigned shift,
                        uint64_t *out, uint32_t stride) {
  const struct nt_record *record = &call->record;
  struct nt_model *model = &codec->model;
  struct nt_template what;
  make_template(call, &what);
  const uint32_t index = find_template(codec, &what);

  const uint64_t enter = record->enter >> shift;
  const uint64_t end = (record->enter + nt_duration_decode(record->duration)) >> shift;
  struct nt_call_values expected;
  const struct nt_call_values is = {
      .gap = enter - model->end,
      .duration = end - enter,
      .send = record->send,
      .recv = record->recv,
      .seq = record->seq,
      .stack = record->stack,
      .launch = record->launch,
      .group = record->group,
  };
  nt_model_predict(model, index, &what, &expected);
  out[(size_t)stride * NT_COLUMN_TEMPLATE] = nt_model_next(model) == index ? 0 : index + 1;
  out[(size_t)stride * NT_COLUMN_GAP] = zigzag(is.gap - expected.gap);
  out[(size_t)stride * NT_COLUMN_DURATION] = zigzag(is.duration - expected.duration);
  out[(size_t)stride * NT_COLUMN_SEQ] = (uint32_t)(is.seq - expected.seq);
  out[(size_t)stride * NT_COLUMN_SEND] = zigzag(is.send - expected.send);
  out[(size_t)stride * NT_COLUMN_RECV] =
      zigzag(is.recv - nt_model_predict_recv(model, index, &what, is.send));
  out[(size_t)stride * NT_COLUMN_STACK] = (uint32_t)(is.stack - expected.stack);
  out[(size_t)stride * NT_COLUMN_LAUNCH] = (uint32_t)(is.launch - expected.launch);
  out[(size_t)stride * NT_COLUMN_GROUP] = (uint16_t)(is.group - expected.group);
  nt_model_learn(model, index, &what, &is);
}

static int add_index(const struct nt_batch *batch, struct nt_buffer *index) {
  struct {
    uint32_t comm, calls, least, greatest;
  } ranges[64];
  uint32_t range_count = 0;
  for (uint32_t i = 0; i < batch->call_count; i++) {
    const struct nt_batch_call *call = &batch->calls[i];
    if (!call->comm || !nt_fn_is_collective(call->record.fn))
      continue;
    uint32_t k = 0;
    while (k < range_count && ranges[k].comm != call->comm)
      k++;
    if (k == range_count) {
      if (range_count == 64)
        continue; /* an index is a hint: what it does not name must be looked up in the calls */
      ranges[range_count].comm = call->comm;
      ranges[range_count].calls = 0;
      ranges[range_count].least = UINT32_MAX;
      ranges[range_count++].greatest = 0;
    }
    ranges[k].calls++;
    if (call->record.seq < ranges[k].least)
      ranges[k].least = call->record.seq;
    if (call->record.seq > ranges[k].greatest)
      ranges[k].greatest = call->record.seq;
  }
  nt_add_u32(index, batch->run_count);
  nt_add_u32(index, range_count);
  for (uint32_t i = 0; i < batch->run_count; i++) {
    nt_add_u64(index, batch->runs[i].serial);
    nt_add_u32(index, batch->runs[i].first);
    nt_add_u32(index, batch->runs[i].count);
    nt_add_u32(index, batch->runs[i].thread);
    nt_add_u32(index, 0);
  }
  for (uint32_t k = 0; k < range_count; k++) {
    nt_add_u32(index, ranges[k].comm);
    nt_add_u32(index, ranges[k].calls);
    nt_add_u32(index, ranges[k].least);
    nt_add_u32(index, ranges[k].greatest);
  }
  return index->failed ? -NT_ERR_MEMORY : 0;
}

static int write_columns(struct nt_codec *codec, uint32_t calls, unsigned shift, uint64_t base,
                         struct nt_buffer *payload) {
  struct nt_buffer heads = {0}, data = {0};
  uint8_t columns = 0;
  int rc = -NT_ERR_MEMORY;
  uint64_t *scratch = malloc((codec->template_count ? codec->template_count : 1) * sizeof *scratch);
  if (!scratch)
    return rc;
  for (unsigned column = NT_COLUMN_T_FN; column < NT_COLUMN_T_LIMIT; column++) {
    for (uint32_t i = 0; i < codec->template_count; i++)
      scratch[i] = template_value(&codec->templates[i], column);
    add_column(&heads, &data, (uint8_t)column, scratch, codec->template_count, &columns);
  }
  for (unsigned column = 1; column < NT_COLUMN_RECORD_LIMIT; column++)
    add_column(&heads, &data, (uint8_t)column, codec->values + (size_t)calls * column, calls,
               &columns);
  nt_add_u32(payload, calls);
  nt_add_u32(payload, codec->template_count);
  nt_add_u8(payload, (uint8_t)shift);
  nt_add_u8(payload, columns);
  nt_add_u16(payload, 0);
  nt_add_u64(payload, base);
  if (heads.length)
    nt_add_bytes(payload, heads.data, heads.length);
  if (data.length)
    nt_add_bytes(payload, data.data, data.length);
  if (!heads.failed && !data.failed && !payload->failed)
    rc = 0;
  free(heads.data);
  free(data.data);
  free(scratch);
  return rc;
}

int nt_codec_encode(struct nt_codec *codec, const struct nt_batch *batch, unsigned shift,
                    struct nt_buffer *payload, struct nt_buffer *index) {
  const uint32_t calls = batch->call_count;
  if (calls > NT_CODEC_MAX_CALLS || shift > 63)
    return -NT_ERR_SPACE;
  if (!codec->lookup)
    codec->lookup = calloc(LOOKUP_SLOTS, sizeof *codec->lookup);
  if (!codec->lookup || nt_codec_room(codec, calls) || nt_model_reset(&codec->model, calls))
    return -NT_ERR_MEMORY;
  const uint64_t base = calls ? batch->calls[0].record.enter >> shift : 0;
  uint32_t at = 0;
  for (uint32_t r = 0; r < batch->run_count; r++) {
    if (r == 0 || batch->runs[r].thread != batch->runs[r - 1].thread)
      nt_model_thread(&codec->model, base);
    for (uint32_t i = 0; i < batch->runs[r].count && at < calls; i++, at++)
      encode_call(codec, &batch->calls[at], shift, codec->values + at, calls);
  }
  int rc = at == calls ? write_columns(codec, calls, shift, base, payload) : -NT_ERR_CORRUPT;
  forget_templates(codec);
  return rc ? rc : add_index(batch, index);
}
