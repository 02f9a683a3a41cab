/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which template a call has. Encoder only: the decoder is told.
 *
 * Calls that differ in nothing but a count share a template if hardly one of their counts comes again, as with tokens for
 * experts: each would be a template of its own, which no call before it could foretell. Counts that do come again, layer
 * after layer, are told apart: then the one that follows is known from its predecessors.
 */
#include <stdlib.h>

#include "nccl/nccl_api.h"
#include "trace/codec_parts.h"

#define LOOKUP_SLOTS (1u << 17)
#define FEW_COUNTS 4u /* are told apart in any case */
#define NONE UINT32_MAX

/* Found: with its count, or, `varies` set, all that have but the count in common. */
struct found {
  struct nt_template what;
  uint32_t calls;
  uint32_t counts; /* that vary: how many different ones */
  uint32_t base;   /* with a count: where the one that varies is; NONE if there is but one */
  uint32_t number; /* in the frame; NONE until the first call that has it */
};

struct nt_finder {
  uint32_t *lookup; /* open addressing, index of `found` + 1 */
  struct found *found;
  uint32_t found_count;
  uint32_t *index; /* per call: first into `found`, then the number in the frame */
  uint32_t room;   /* calls */
};

void nt_codec_free_finder(struct nt_finder *finder) {
  if (!finder)
    return;
  free(finder->lookup);
  free(finder->found);
  free(finder->index);
  free(finder);
}

static int make_room(struct nt_codec *codec, uint32_t calls) {
  struct nt_finder *finder = codec->finder;
  if (!finder)
    finder = codec->finder = calloc(1, sizeof *finder);
  if (!finder)
    return -NT_ERR_MEMORY;
  if (!finder->lookup)
    finder->lookup = calloc(LOOKUP_SLOTS, sizeof *finder->lookup);
  if (calls > finder->room || !finder->found) {
    free(finder->found);
    free(finder->index);
    finder->found = malloc(((size_t)calls + 1) * 2 * sizeof *finder->found);
    finder->index = malloc(((size_t)calls + 1) * sizeof *finder->index);
    finder->room = finder->found && finder->index ? calls : 0;
  }
  return finder->lookup && finder->found && finder->index ? 0 : -NT_ERR_MEMORY;
}

static uint64_t hash_of(const struct nt_template *what) {
  uint64_t words[4];
  memcpy(words, what, sizeof words);
  uint64_t hash = 0;
  for (int i = 0; i < 4; i++) {
    hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 29;
  }
  return hash;
}

static uint32_t find(struct nt_finder *finder, const struct nt_template *what) {
  uint32_t slot = (uint32_t)hash_of(what) & (LOOKUP_SLOTS - 1);
  for (; finder->lookup[slot]; slot = (slot + 1) & (LOOKUP_SLOTS - 1))
    if (!memcmp(&finder->found[finder->lookup[slot] - 1].what, what, sizeof *what))
      return finder->lookup[slot] - 1;
  const uint32_t at = finder->found_count++;
  finder->lookup[slot] = at + 1;
  finder->found[at] = (struct found){.what = *what, .base = NONE, .number = NONE};
  return at;
}

/* The lookup table is large and frames are often small: only what was used is cleared. */
static void forget(struct nt_finder *finder) {
  for (uint32_t i = 0; i < finder->found_count; i++) {
    uint32_t slot = (uint32_t)hash_of(&finder->found[i].what) & (LOOKUP_SLOTS - 1);
    while (finder->lookup[slot]) {
      finder->lookup[slot] = 0;
      slot = (slot + 1) & (LOOKUP_SLOTS - 1);
    }
  }
  finder->found_count = 0;
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

static uint32_t number_of(struct nt_codec *codec, struct found *found) {
  if (found->number == NONE) {
    found->number = codec->template_count;
    codec->templates[codec->template_count++] = found->what;
  }
  return found->number;
}

int nt_codec_find_templates(struct nt_codec *codec, const struct nt_batch *batch,
                            const uint32_t **index) {
  const uint32_t calls = batch->call_count;
  if (make_room(codec, calls) || nt_codec_room(codec, calls))
    return -NT_ERR_MEMORY;
  struct nt_finder *finder = codec->finder;
  codec->template_count = 0;
  for (uint32_t i = 0; i < calls; i++) {
    struct nt_template what;
    make_template(&batch->calls[i], &what);
    finder->index[i] = find(finder, &what);
    finder->found[finder->index[i]].calls++;
  }
  const uint32_t counted = finder->found_count;
  for (uint32_t i = 0; i < counted; i++) {
    struct nt_template what = finder->found[i].what;
    what.count = 0;
    what.varies = 1;
    const uint32_t base = finder->found[i].base = find(finder, &what);
    finder->found[base].calls += finder->found[i].calls;
    finder->found[base].counts++;
  }
  for (uint32_t i = 0; i < calls; i++) {
    struct found *found = &finder->found[finder->index[i]], *base = &finder->found[found->base];
    const bool varies = base->counts > FEW_COUNTS && base->counts * 2 > base->calls;
    finder->index[i] = number_of(codec, varies ? base : found);
  }
  forget(finder);
  *index = finder->index;
  return 0;
}
