/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls as columns. Each call is a template (what many calls share) and a handful of values that the model predicts. One
 * byte says which it got wrong, and only these have an entry in their columns; times always have one, the difference. A
 * column is stored as byte planes, least significant first, only as many as its largest value needs, so that zstd sees
 * like-distributed bytes.
 */
#include "trace/codec.h"

#include <stdlib.h>

#include "nccl/nccl_api.h"
#include "trace/codec_parts.h"

struct nt_codec *nt_codec_new(void) {
  return calloc(1, sizeof(struct nt_codec));
}

void nt_codec_free(struct nt_codec *codec) {
  if (!codec)
    return;
  nt_model_clear(&codec->model);
  nt_codec_free_finder(codec->finder);
  free(codec->templates);
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

int nt_codec_room(struct nt_codec *codec, uint32_t templates) {
  if (templates <= codec->template_room && codec->templates)
    return 0;
  free(codec->templates);
  codec->templates = malloc(((size_t)templates + 1) * sizeof *codec->templates);
  codec->template_room = codec->templates ? templates : 0;
  return codec->templates ? 0 : -NT_ERR_MEMORY;
}

static int make_columns(struct nt_codec *codec, uint32_t calls) {
  memset(codec->entries, 0, sizeof codec->entries);
  if (calls <= codec->value_room && codec->values)
    return 0;
  free(codec->values);
  codec->values = malloc(((size_t)calls + 1) * NT_COLUMN_RECORD_LIMIT * sizeof *codec->values);
  codec->value_room = codec->values ? calls : 0;
  return codec->values ? 0 : -NT_ERR_MEMORY;
}

static void put(struct nt_codec *codec, enum nt_column column, uint64_t value) {
  codec->values[(size_t)codec->value_room * column + codec->entries[column]++] = value;
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
    return nt_zigzag((uint64_t)(int64_t)what->peer);
  case NT_COLUMN_T_COUNT:
    return what->count;
  case NT_COLUMN_T_IN_GROUP:
    return what->in_group;
  case NT_COLUMN_T_SEQ_CLASS:
    return what->seq_class;
  case NT_COLUMN_T_VARIES:
    return what->varies;
  default:
    return 0;
  }
}

/* A buffer that was not foretold. */
static void put_buffer(struct nt_codec *codec, struct nt_recent recent, uint64_t value,
                       enum nt_column again, enum nt_column column) {
  for (unsigned i = 0; i < recent.count; i++)
    if (recent.value[i] == value) {
      put(codec, again, i + 1);
      return;
    }
  put(codec, again, 0);
  put(codec, column, nt_zigzag(value - recent.last));
}

static void encode_call(struct nt_codec *codec, const struct nt_batch_call *call, unsigned shift,
                        uint32_t index, uint32_t *seen) {
  const struct nt_record *record = &call->record;
  struct nt_model *model = &codec->model;
  const struct nt_template *what = &codec->templates[index];
  const uint64_t enter = record->enter >> shift;
  const uint64_t end = (record->enter + nt_duration_decode(record->duration)) >> shift;
  const struct nt_call_values is = {
      .gap = enter - model->end,
      .duration = end - enter,
      .count = what->varies ? record->count : 0,
      .send = record->send,
      .recv = record->recv,
      .seq = record->seq,
      .stack = record->stack,
      .launch = record->launch,
      .group = record->group,
  };
  struct nt_expected expected;
  const struct nt_call_values *would = &expected.call;
  nt_model_predict(model, index, what, &expected);
  nt_model_predict_recv(model, index, what, is.send, &expected);
  unsigned missed = 0;
  if (nt_model_next(model) != index) {
    missed |= NT_MISSED_TEMPLATE;
    put(codec, NT_COLUMN_TEMPLATE, index == *seen ? 0 : index + 1);
  }
  *seen += index == *seen;
  put(codec, NT_COLUMN_GAP, nt_zigzag(is.gap - would->gap));
  put(codec, NT_COLUMN_DURATION, nt_zigzag(is.duration - would->duration));
#define PUT_IF_MISSED(NAME, differs, value)                                                        \
  if (differs) {                                                                                   \
    missed |= NT_MISSED_##NAME;                                                                    \
    put(codec, NT_COLUMN_##NAME, value);                                                           \
  }
  PUT_IF_MISSED(SEQ, is.seq != would->seq, (uint32_t)(is.seq - would->seq))
  PUT_IF_MISSED(STACK, is.stack != would->stack, (uint32_t)(is.stack - would->stack))
  PUT_IF_MISSED(LAUNCH, is.launch != would->launch, (uint32_t)(is.launch - would->launch))
  PUT_IF_MISSED(GROUP, is.group != (uint16_t)would->group, (uint16_t)(is.group - would->group))
  PUT_IF_MISSED(COUNT, is.count != would->count, nt_zigzag(is.count - would->count))
#undef PUT_IF_MISSED
  if (is.send != would->send) {
    missed |= NT_MISSED_SEND;
    put_buffer(codec, nt_model_recent_send(model, index), is.send, NT_COLUMN_SEND_AGAIN,
               NT_COLUMN_SEND);
  }
  if (is.recv != would->recv) {
    missed |= NT_MISSED_RECV;
    put_buffer(codec, nt_model_recent_recv(model, index, what), is.recv, NT_COLUMN_RECV_AGAIN,
               NT_COLUMN_RECV);
  }
  put(codec, NT_COLUMN_MISSED, missed);
  nt_model_learn(model, index, what, &is, &expected);
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
  struct nt_columns_out columns = {0};
  uint64_t *scratch = malloc((codec->template_count + (size_t)1) * sizeof *scratch);
  if (!scratch)
    return -NT_ERR_MEMORY;
  for (unsigned column = NT_COLUMN_T_FN; column < NT_COLUMN_T_LIMIT; column++) {
    for (uint32_t i = 0; i < codec->template_count; i++)
      scratch[i] = template_value(&codec->templates[i], column);
    nt_columns_add(&columns, column, scratch, codec->template_count);
  }
  free(scratch);
  for (unsigned column = 1; column < NT_COLUMN_RECORD_LIMIT; column++)
    nt_columns_add(&columns, column, codec->values + (size_t)codec->value_room * column,
                   codec->entries[column]);
  nt_add_u32(payload, calls);
  nt_add_u32(payload, codec->template_count);
  nt_add_u8(payload, (uint8_t)shift);
  nt_add_u8(payload, columns.count);
  nt_add_u16(payload, 0);
  nt_add_u64(payload, base);
  return nt_columns_finish(&columns, payload);
}

int nt_codec_encode(struct nt_codec *codec, const struct nt_batch *batch, unsigned shift,
                    struct nt_buffer *payload, struct nt_buffer *index) {
  const uint32_t calls = batch->call_count;
  const uint32_t *templates;
  if (calls > NT_CODEC_MAX_CALLS || shift > 63)
    return -NT_ERR_SPACE;
  if (make_columns(codec, calls) || nt_codec_find_templates(codec, batch, &templates) ||
      nt_model_reset(&codec->model, codec->template_count))
    return -NT_ERR_MEMORY;
  const uint64_t base = calls ? batch->calls[0].record.enter >> shift : 0;
  uint32_t at = 0, seen = 0;
  for (uint32_t r = 0; r < batch->run_count; r++) {
    if (r == 0 || batch->runs[r].thread != batch->runs[r - 1].thread)
      nt_model_thread(&codec->model, base);
    for (uint32_t i = 0; i < batch->runs[r].count && at < calls; i++, at++)
      encode_call(codec, &batch->calls[at], shift, templates[at], &seen);
  }
  const int rc = at == calls ? write_columns(codec, calls, shift, base, payload) : -NT_ERR_CORRUPT;
  return rc ? rc : add_index(batch, index);
}
