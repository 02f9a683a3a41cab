/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The predictions behind the columns. Tables are indexed by a hash without collision handling: a collision
 * costs a few bits, and it is the same on both sides. All arithmetic wraps.
 */
#include "trace/codec_model.h"

#include <stddef.h>
#include <stdlib.h>

#include "trace/error.h"

static uint32_t slot_of(uint64_t a, uint64_t b) {
  uint64_t x = (a * UINT64_C(0x9e3779b97f4a7c15)) ^ (b + UINT64_C(0x7f4a7c159e3779b9));
  x *= UINT64_C(0xff51afd7ed558ccd);
  x ^= x >> 32;
  x *= UINT64_C(0xc4ceb9fe1a85ec53);
  return (uint32_t)(x >> (64 - NT_MODEL_BITS));
}

int nt_model_reset(struct nt_model *model, uint32_t templates) {
  uint64_t *last = model->last;
  if (!last || templates > model->templates) {
    free(last);
    last = malloc((templates ? templates : 1) * 3 * sizeof *last);
  }
  const uint32_t room = templates > model->templates ? templates : model->templates;
  memset(model, 0, offsetof(struct nt_model, turn));
  model->turn++;
  model->last = last;
  model->templates = last ? room : 0;
  if (!last)
    return -NT_ERR_MEMORY;
  memset(last, 0, (size_t)templates * 3 * sizeof *last);
  return 0;
}

void nt_model_clear(struct nt_model *model) {
  free(model->last);
  model->last = NULL;
  model->templates = 0;
}

void nt_model_thread(struct nt_model *model, uint64_t base) {
  model->t1 = model->t2 = model->t3 = 0;
  model->end = base;
  model->send = model->recv = 0;
  model->stack = model->group = 0;
}

static uint32_t next_slot(const struct nt_model *model) {
  return slot_of((uint64_t)model->t1 << 32 | model->t2, model->t3);
}

uint32_t nt_model_next(const struct nt_model *model) {
  return model->next[next_slot(model)] - 1;
}

static uint32_t pair_slot(const struct nt_model *model, uint32_t index) {
  return slot_of(index, model->t1);
}

static uint32_t seq_slot(const struct nt_template *what) {
  uint64_t key = what->seq_class;
  if (what->seq_class == NT_SEQ_PER_FUNCTION)
    key |= (uint64_t)what->fn << 8;
  if (what->seq_class == NT_SEQ_PER_PEER)
    key |= (uint64_t)what->fn << 8 | (uint64_t)(uint32_t)what->peer << 16;
  return slot_of(what->comm, key);
}

static uint64_t mean_value(const struct nt_model *model, const struct nt_mean *mean) {
  return mean->turn == model->turn ? (uint64_t)(mean->sum >> 4) : 0;
}

static void mean_learn(const struct nt_model *model, struct nt_mean *mean, uint64_t value) {
  const int64_t bound = INT64_C(1) << 40;
  int64_t x = (int64_t)value;
  x = x > bound ? bound : x < -bound ? -bound : x;
  x *= 16;
  mean->sum = mean->turn == model->turn ? mean->sum + ((x - mean->sum) >> 2) : x;
  mean->turn = model->turn;
}

static uint64_t known_or(const struct nt_model *model, const struct nt_known *known,
                         uint64_t otherwise) {
  return known->turn == model->turn ? known->value : otherwise;
}

void nt_model_predict(const struct nt_model *model, uint32_t index, const struct nt_template *what,
                      struct nt_call_values *out) {
  const uint32_t pair = pair_slot(model, index);
  const uint64_t *last = model->last + (size_t)index * 3;
  out->gap = mean_value(model, &model->gap[pair]);
  out->duration = mean_value(model, &model->duration[pair]);
  out->seq = model->seq[seq_slot(what)] + 1;
  out->launch = model->launch[slot_of(what->stream, 0)] + 1;
  out->group = what->in_group ? model->group + model->step[pair] : 0;
  out->send = known_or(model, &model->send_after[slot_of(index, model->send)], last[0]);
  out->stack =
      (uint32_t)known_or(model, &model->stack_after[slot_of(index, model->stack)], last[2]);
  out->recv = 0;
}

uint64_t nt_model_predict_recv(const struct nt_model *model, uint32_t index,
                               const struct nt_template *what, uint64_t send) {
  const uint64_t *last = model->last + (size_t)index * 3;
  const struct nt_known *known = &model->recv_after[slot_of(index, model->recv)];
  const bool together = what->flags & NT_CALL_IN_PLACE;
  return known->turn == model->turn && !together ? known->value : last[1] + (send - last[0]);
}

void nt_model_learn(struct nt_model *model, uint32_t index, const struct nt_template *what,
                    const struct nt_call_values *is) {
  const uint32_t pair = pair_slot(model, index);
  uint64_t *last = model->last + (size_t)index * 3;
  mean_learn(model, &model->gap[pair], is->gap);
  mean_learn(model, &model->duration[pair], is->duration);
  model->seq[seq_slot(what)] = is->seq;
  model->launch[slot_of(what->stream, 0)] = is->launch;
  if (what->in_group) {
    model->step[pair] = is->group - model->group;
    model->group = is->group;
  }
  model->send_after[slot_of(index, model->send)] = (struct nt_known){is->send, model->turn};
  model->recv_after[slot_of(index, model->recv)] = (struct nt_known){is->recv, model->turn};
  model->stack_after[slot_of(index, model->stack)] = (struct nt_known){is->stack, model->turn};
  model->next[next_slot(model)] = index + 1;
  last[0] = model->send = is->send;
  last[1] = model->recv = is->recv;
  model->stack = is->stack;
  last[2] = is->stack;
  model->t3 = model->t2;
  model->t2 = model->t1;
  model->t1 = index + 1;
  model->end += is->gap + is->duration;
}
