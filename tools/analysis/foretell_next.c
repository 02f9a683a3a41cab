/* SPDX-License-Identifier: Apache-2.0 */
/* The turn of a rank across all its communicators, collectives and messages, and what comes next in it. */
#include <stdlib.h>

#include "analysis/foretell.h"
#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

/* What two calls share that stand at the same place of a turn: collectives of one communicator are not told apart. */
static uint64_t place_of(uint32_t joint, uint8_t fn, int32_t peer) {
  enum nt_shape shape = nt_fn_shape(fn);
  uint64_t kind = shape == NT_SHAPE_SEND ? 1 : shape == NT_SHAPE_RECV ? 2 : 0;
  return (uint64_t)joint << 32 ^ kind << 30 ^ (kind ? (uint32_t)peer & 0x3fffffff : 0);
}

struct past {
  uint64_t *place, *call; /* place_of; that and the arguments */
  uint32_t length;
};

static int gather(const struct nt_job *job, uint32_t rank, struct past *out) {
  const struct nt_model_rank *model = &job->model->ranks[rank];
  size_t room = model->call_count ? model->call_count : 1;
  out->place = malloc(2 * room * sizeof *out->place);
  out->length = 0;
  if (!out->place)
    return -NT_ERR_MEMORY;
  out->call = out->place + room;
  for (uint32_t i = 0; i < model->call_count; i++) {
    const struct nt_model_call *call = &model->calls[i];
    enum nt_shape shape = nt_fn_shape(call->fn);
    if (call->view == NT_NONE || call->enter_ns > job->cut_ns || !nt_call_counts(call) ||
        (!nt_fn_is_collective(call->fn) && shape != NT_SHAPE_SEND && shape != NT_SHAPE_RECV))
      continue;
    uint32_t joint = job->places[rank][call->view].joint;
    if (joint == NT_NONE)
      continue;
    out->place[out->length] = place_of(joint, call->fn, call->peer);
    out->call[out->length] = out->place[out->length] ^ nt_call_signature(call) << 16;
    out->length++;
  }
  return 0;
}

static uint32_t find(const uint64_t *places, uint32_t count, uint64_t place) {
  for (uint32_t i = 0; i < count; i++)
    if (places[i] == place)
      return i;
  return NT_NONE;
}

/* One whole turn is the past: the next begins with what was called longest ago. */
static uint32_t longest_ago(const struct past *past, const uint64_t *places, uint32_t count) {
  uint32_t best = NT_NONE, best_last = UINT32_MAX;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t last = past->length;
    while (last && past->place[last - 1] != places[i])
      last--;
    if (!last)
      return NT_NONE;
    if (last < best_last) {
      best_last = last;
      best = i;
    }
  }
  return best;
}

uint32_t nt_foretell_next(const struct nt_job *job, uint32_t rank, const struct nt_next *candidates,
                          uint32_t count) {
  struct past past = {0};
  uint64_t *places = malloc((count ? count : 1) * sizeof *places);
  uint32_t found = NT_NONE, end = 0;
  if (!places || gather(job, rank, &past) < 0) {
    free(places);
    return NT_NONE;
  }
  for (uint32_t i = 0; i < count; i++)
    places[i] = place_of(candidates[i].joint, candidates[i].fn, candidates[i].peer);
  if (past.length > 1)
    end = nt_foretell_repeated(past.call, past.length, 1);
  for (; end && end < past.length && found == NT_NONE; end++)
    found = find(places, count, past.place[end]);
  if (found == NT_NONE)
    found = longest_ago(&past, places, count);
  free(places);
  free(past.place);
  return found;
}
