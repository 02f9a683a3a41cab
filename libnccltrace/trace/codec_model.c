/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The predictions behind the columns. Tables are indexed by a hash without collision handling: a collision
 * costs a few bits, and it is the same on both sides. All arithmetic wraps.
 *
 * A buffer is foretold twice: from what the template had the last two times, which finds layers and buckets that take
 * turns, and from the call before, which finds what is handed on from call to call. The one that was right more often in
 * its place is taken.
 */
#include "trace/codec_model.h"

#include <stddef.h>
#include <stdlib.h>

#include "trace/error.h"

#define SUREST 15

static uint32_t slot_of(uint64_t a, uint64_t b) {
  uint64_t x = (a * UINT64_C(0x9e3779b97f4a7c15)) ^ (b + UINT64_C(0x7f4a7c159e3779b9));
  x *= UINT64_C(0xff51afd7ed558ccd);
  x ^= x >> 32;
  x *= UINT64_C(0xc4ceb9fe1a85ec53);
  return (uint32_t)(x >> (64 - NT_MODEL_BITS));
}

int nt_model_reset(struct nt_model *model, uint32_t templates) {
  memset(model, 0, offsetof(struct nt_model, turn));
  if (++model->turn == 0) {
    memset(model->pairs, 0, offsetof(struct nt_model, kept) - offsetof(struct nt_model, pairs));
    model->turn = 1;
  }
  if (templates > model->room || !model->kept) {
    free(model->kept);
    model->room = 0;
    model->kept = malloc((templates ? templates : 1) * sizeof *model->kept);
    if (!model->kept)
      return -NT_ERR_MEMORY;
    model->room = templates;
  }
  memset(model->kept, 0, templates * sizeof *model->kept);
  return 0;
}

void nt_model_clear(struct nt_model *model) {
  free(model->kept);
  model->kept = NULL;
  model->room = 0;
}

void nt_model_thread(struct nt_model *model, uint64_t base) {
  model->t1 = model->t2 = model->t3 = 0;
  model->end = base;
  model->send = model->recv = 0;
  model->stack = model->group = 0;
  model->at = slot_of(0, 0);
}

uint32_t nt_model_next(const struct nt_model *model) {
  const uint32_t next = model->next[model->at];
  return (next || !model->t1 ? next : model->kept[model->t1 - 1].next) - 1;
}

static uint32_t seq_slot(const struct nt_template *what) {
  uint64_t key = what->seq_class;
  if (what->seq_class == NT_SEQ_PER_FUNCTION)
    key |= (uint64_t)what->fn << 8;
  if (what->seq_class == NT_SEQ_PER_PEER)
    key |= (uint64_t)what->fn << 8 | (uint64_t)(uint32_t)what->peer << 16;
  return slot_of(what->comm, key);
}

/* 16 times the value, within bounds. */
static int64_t sixteenths(uint64_t value) {
  const int64_t bound = INT64_C(1) << 40, x = (int64_t)value;
  return 16 * (x > bound ? bound : x < -bound ? -bound : x);
}

static void pair_learn(const struct nt_model *model, struct nt_pair *pair,
                       const struct nt_call_values *is) {
  const int64_t gap = sixteenths(is->gap), duration = sixteenths(is->duration);
  if (pair->turn != model->turn) {
    *pair = (struct nt_pair){.gap = gap, .duration = duration, .turn = model->turn};
    return;
  }
  pair->gap += (gap - pair->gap) >> 2;
  pair->duration += (duration - pair->duration) >> 2;
}

static void guess_learn(const struct nt_model *model, struct nt_guess *guess, uint64_t value) {
  if (guess->turn != model->turn)
    *guess = (struct nt_guess){value, model->turn, 0};
  else if (guess->value == value)
    guess->sure += guess->sure < SUREST;
  else {
    guess->value = value;
    guess->sure >>= 1;
  }
}

static uint64_t trail_value(const struct nt_model *model, const struct nt_trail *trail,
                            const struct nt_guess *own, const struct nt_guess *after) {
  const bool knows_after = after->turn == model->turn;
  if (own->turn == model->turn && (!knows_after || own->sure >= after->sure))
    return own->value;
  return knows_after ? after->value : trail->recent[0] + (trail->recent[0] - trail->before);
}

static void move_to_front(uint64_t *recent, unsigned count, uint64_t value) {
  uint64_t moved = recent[0];
  for (unsigned i = 1; moved != value && i < count; i++) {
    const uint64_t next = recent[i];
    recent[i] = moved;
    moved = next;
  }
  recent[0] = value;
}

static void trail_learn(struct nt_trail *trail, uint64_t value) {
  trail->before = trail->recent[0];
  move_to_front(trail->recent, NT_MODEL_RECENT, value);
}

struct nt_recent nt_model_recent_send(const struct nt_model *model, uint32_t index) {
  const uint64_t *own = model->kept[index].send.recent;
  return (struct nt_recent){own, NT_MODEL_RECENT, own[0]};
}

struct nt_recent nt_model_recent_recv(const struct nt_model *model, uint32_t index,
                                      const struct nt_template *what) {
  const uint64_t *own = model->kept[index].recv.recent;
  if (!what->comm)
    return (struct nt_recent){model->handles, NT_MODEL_HANDLES, own[0]};
  return (struct nt_recent){own, NT_MODEL_RECENT, own[0]};
}

static uint32_t own_slot(uint32_t index, const struct nt_trail *trail) {
  return slot_of(index + (trail->recent[0] << 20), trail->before);
}

void nt_model_predict(const struct nt_model *model, uint32_t index, const struct nt_template *what,
                      struct nt_expected *out) {
  struct nt_kept *kept = &model->kept[index];
  if (!kept->seq) {
    kept->seq = seq_slot(what) + 1;
    kept->launch = slot_of(what->stream, 0) + 1;
  }
  out->pair = slot_of(index, model->t1);
  out->seq = kept->seq - 1;
  out->launch = kept->launch - 1;
  out->send_own = own_slot(index, &kept->send);
  out->send_after = slot_of(index, model->send);
  out->stack_after = slot_of(index, model->stack);
  const struct nt_pair *pair = &model->pairs[out->pair];
  const bool known = pair->turn == model->turn;
  const struct nt_guess *stack = &model->stack_after[out->stack_after];
  out->call = (struct nt_call_values){
      .gap = known ? (uint64_t)(pair->gap >> 4) : 0,
      .duration = known ? (uint64_t)(pair->duration >> 4) : 0,
      .count = kept->count,
      .seq = model->seq[out->seq] + 1,
      .launch = model->launch[out->launch] + 1,
      .group = what->in_group ? model->group + (known ? pair->step : 0) : 0,
      .send = trail_value(model, &kept->send, &model->send_own[out->send_own],
                          &model->send_after[out->send_after]),
      .stack = stack->turn == model->turn ? (uint32_t)stack->value : kept->stack,
  };
}

void nt_model_predict_recv(const struct nt_model *model, uint32_t index,
                           const struct nt_template *what, uint64_t send, struct nt_expected *out) {
  const struct nt_kept *kept = &model->kept[index];
  out->recv_own = own_slot(index, &kept->recv);
  out->recv_after = slot_of(index, model->recv);
  if (what->flags & NT_CALL_IN_PLACE)
    out->call.recv = kept->recv.recent[0] + (send - kept->send.recent[0]);
  else
    out->call.recv = trail_value(model, &kept->recv, &model->recv_own[out->recv_own],
                                 &model->recv_after[out->recv_after]);
}

void nt_model_learn(struct nt_model *model, uint32_t index, const struct nt_template *what,
                    const struct nt_call_values *is, const struct nt_expected *expected) {
  struct nt_kept *kept = &model->kept[index];
  pair_learn(model, &model->pairs[expected->pair], is);
  model->seq[expected->seq] = is->seq;
  model->launch[expected->launch] = is->launch;
  if (what->in_group) {
    model->pairs[expected->pair].step = is->group - model->group;
    model->group = is->group;
  }
  guess_learn(model, &model->send_own[expected->send_own], is->send);
  guess_learn(model, &model->send_after[expected->send_after], is->send);
  guess_learn(model, &model->recv_own[expected->recv_own], is->recv);
  guess_learn(model, &model->recv_after[expected->recv_after], is->recv);
  guess_learn(model, &model->stack_after[expected->stack_after], is->stack);
  trail_learn(&kept->send, is->send);
  trail_learn(&kept->recv, is->recv);
  if (!what->comm)
    move_to_front(model->handles, NT_MODEL_HANDLES, is->recv);
  kept->count = is->count;
  kept->stack = model->stack = is->stack;
  model->send = is->send;
  model->recv = is->recv;
  model->next[model->at] = index + 1;
  if (model->t1)
    model->kept[model->t1 - 1].next = index + 1;
  model->t3 = model->t2;
  model->t2 = model->t1;
  model->t1 = index + 1;
  model->at = slot_of((uint64_t)model->t1 << 32 | model->t2, model->t3);
  model->end += is->gap + is->duration;
}
