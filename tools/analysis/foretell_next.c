/* SPDX-License-Identifier: Apache-2.0 */
/* The turn of a rank across all its communicators, collectives and messages, and what comes next in it. */
#include <stdlib.h>

#include "analysis/foretell.h"
#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

/* How many of the rank's calls may lie between the one that it left out and the one it waits in. */
#define LEFT_OUT_WITHIN 64
/* How far back a place is looked for that it went past, and called the same later. */
#define PASSED_WITHIN 512

uint64_t nt_kind_collective(uint32_t joint) {
  return joint;
}

uint64_t nt_kind_message(uint32_t joint, bool is_send, int32_t peer) {
  return joint | (uint64_t)(is_send ? 1 : 2) << 32 | (uint64_t)(uint32_t)peer << 34;
}

uint64_t nt_kind_of_call(const struct nt_job *job, uint32_t rank,
                         const struct nt_model_call *call) {
  if (call->view == NT_NONE || call->enter_ns > job->cut_ns || !nt_call_counts(call))
    return NT_KIND_NONE;
  const uint32_t joint = job->places[rank][call->view].joint;
  const enum nt_shape shape = nt_fn_shape(call->fn);
  if (joint == NT_NONE)
    return NT_KIND_NONE;
  if (shape == NT_SHAPE_SEND || shape == NT_SHAPE_RECV)
    return nt_kind_message(joint, shape == NT_SHAPE_SEND, call->peer);
  return nt_fn_is_collective(call->fn) ? nt_kind_collective(joint) : NT_KIND_NONE;
}

/* A rank's calls in program order. */
struct past {
  uint64_t *kind, *call; /* the kind; that and the arguments, those of messages left aside */
  uint64_t *index;       /* among the rank's calls */
  uint32_t length;
};

static int recall(const struct nt_job *job, uint32_t rank, int64_t until_ns, struct past *out) {
  const struct nt_model_rank *model = &job->model->ranks[rank];
  const size_t room = model->call_count ? model->call_count : 1;
  out->length = 0;
  out->kind = malloc(3 * room * sizeof *out->kind);
  if (!out->kind)
    return -NT_ERR_MEMORY;
  out->call = out->kind + room;
  out->index = out->call + room;
  for (uint32_t i = 0; i < model->call_count; i++) {
    const struct nt_model_call *call = &model->calls[i];
    const uint64_t kind = nt_kind_of_call(job, rank, call);
    if (kind == NT_KIND_NONE || call->enter_ns > until_ns)
      continue;
    out->kind[out->length] = kind;
    out->index[out->length] = i;
    out->call[out->length++] =
        nt_fn_is_collective(call->fn) ? kind << 32 ^ (uint32_t)nt_call_signature(call) : ~kind;
  }
  return 0;
}

/* One whole turn is the past: the next begins with what was called longest ago. */
static uint32_t longest_ago(const struct past *past, const uint64_t *candidates, uint32_t count) {
  uint32_t best = NT_NONE, best_last = UINT32_MAX;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t last = past->length;
    if (candidates[i] == NT_KIND_NONE)
      continue;
    while (last && past->kind[last - 1] != candidates[i])
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

/* The candidate that comes first from `end` on. */
static uint32_t first_of(const struct past *past, uint32_t end, const uint64_t *candidates,
                         uint32_t count) {
  for (; end && end < past->length; end++)
    for (uint32_t i = 0; i < count; i++)
      if (past->kind[end] == candidates[i])
        return i;
  return NT_NONE;
}

uint32_t nt_foretell_kind(const struct nt_job *job, uint32_t rank, int64_t before_ns,
                          const uint64_t *candidates, uint32_t count) {
  struct past past;
  if (recall(job, rank, before_ns - 1, &past) < 0)
    return NT_NONE;
  uint32_t end = past.length > 1 ? nt_foretell_repeated(past.call, past.length, 1, 0) : 0;
  uint32_t found = first_of(&past, end, candidates, count);
  if (found == NT_NONE)
    found = longest_ago(&past, candidates, count);
  free(past.kind);
  return found;
}

/* In front of its last call, would the rank have called `kind`, as twice before in such a place? */
static bool departs(const struct past *past, uint64_t kind) {
  struct past before = {past->kind, past->call, past->index, past->length - 1};
  const uint64_t candidates[2] = {kind, past->kind[before.length]};
  if (before.length < 2)
    return false;
  uint32_t end = nt_foretell_repeated(before.call, before.length, 2, 0);
  uint32_t other = nt_foretell_repeated(before.call, before.length, 2, end);
  return end && other && first_of(&before, end, candidates, 2) == 0 &&
         first_of(&before, other, candidates, 2) == 0;
}

uint32_t nt_foretell_left_out(const struct nt_job *job, uint32_t rank, uint64_t kind,
                              int64_t at_ns) {
  struct past past;
  uint32_t found = 0;
  if (recall(job, rank, at_ns, &past) < 0)
    return 0;
  for (uint32_t n = 0; n < LEFT_OUT_WITHIN && past.length && !found; n++, past.length--) {
    if (past.kind[past.length - 1] == kind)
      break;
    found = departs(&past, kind) ? (uint32_t)past.index[past.length - 1] + 1 : 0;
  }
  free(past.kind);
  return found;
}

/* What it called at `at` followed the same calls later again: a branch, or the end of a loop, and nothing left out. */
static bool recurs(const struct past *past, uint32_t length, uint32_t at) {
  enum { CONTEXT = 4 };
  for (uint32_t i = at + 1; i < length && at >= CONTEXT; i++) {
    uint32_t alike = 0;
    while (alike <= CONTEXT && past->call[i - alike] == past->call[at - alike])
      alike++;
    if (alike > CONTEXT)
      return true;
  }
  return false;
}

uint32_t nt_foretell_passed(const struct nt_job *job, uint32_t rank, uint64_t kind) {
  struct past past;
  uint32_t found = 0, called = 0, at = 0;
  if (job->model->ranks[rank].lost || job->model->ranks[rank].overwritten ||
      recall(job, rank, INT64_MAX, &past) < 0)
    return 0;
  const uint32_t length = past.length;
  for (; at + PASSED_WITHIN < length; at++)
    called += past.kind[at] == kind;
  for (; at < length; at++) {
    past.length = at + 1;
    if (past.kind[at] == kind)
      called++;
    else if (departs(&past, kind) && !recurs(&past, length, at))
      found = called + 1;
  }
  free(past.kind);
  return found;
}
