/* SPDX-License-Identifier: Apache-2.0 */
/* Longest repeated suffix: where the same calls came before the same point, the same calls follow. */
#include "analysis/foretell.h"

#include <stdlib.h>

#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

enum { PAST = 4096, SUFFIX = 128 };

/* End of the earlier stretch that repeats the longest suffix of the sequence; 0 if none of two or more. */
static uint32_t repeated(const uint64_t *sequence, uint32_t count, uint32_t least) {
  uint32_t best = 0, best_length = least - 1;
  uint32_t low = count > PAST ? count - PAST : 0;
  for (uint32_t end = count - 1; end > low && end < count; end--) {
    uint32_t length = 0;
    while (length < SUFFIX && length < end &&
           sequence[end - 1 - length] == sequence[count - 1 - length])
      length++;
    if (length > best_length) {
      best_length = length;
      best = end;
    }
  }
  return best;
}

/* 1000, 1001, 1002: the counts of a sweep. */
static uint32_t progression(const struct nt_job *job, const struct nt_member *member, uint64_t *out,
                            uint32_t room) {
  const struct nt_model_call *c = nt_member_call(job, member, member->called);
  const struct nt_model_call *b = nt_member_call(job, member, member->called - 1);
  const struct nt_model_call *a = nt_member_call(job, member, member->called - 2);
  if (!a || !b || !c || member->called < 3 || a->fn != b->fn || b->fn != c->fn ||
      a->dtype != b->dtype || b->dtype != c->dtype || a->op != c->op || a->peer != c->peer)
    return 0;
  uint64_t step = c->count - b->count;
  if (!step || b->count - a->count != step)
    return 0;
  struct nt_model_call next = *c;
  for (uint32_t i = 0; i < room; i++) {
    next.count += step;
    out[i] = nt_call_signature(&next);
  }
  return room;
}

uint32_t nt_foretell(const struct nt_job *job, const struct nt_member *member, uint64_t *out,
                     uint32_t room) {
  uint32_t count = member->called + 1 - member->first, made = 0;
  uint32_t end = count > 2 ? repeated(member->sig, count, 2) : 0;
  if (!end)
    return count > 2 ? progression(job, member, out, room) : 0;
  for (; made < room && end + made < count; made++)
    out[made] = member->sig[end + made];
  return made;
}

uint32_t nt_foretell_turn(const struct nt_member *member, uint32_t position, uint64_t *out,
                          uint32_t room) {
  if (!member->first || position <= member->first || position > member->called + 1)
    return 0;
  const uint32_t count = position - member->first;
  const uint32_t end = count > 2 ? repeated(member->sig, count, 2) : 0;
  const uint32_t turn = count - end;
  if (!end || end < turn)
    return 0;
  for (uint32_t i = 0; i < turn; i++)
    if (member->sig[end - 1 - i] != member->sig[count - 1 - i])
      return 0;
  for (uint32_t made = 0; made < room; made++)
    out[made] = member->sig[end + made % turn];
  return room;
}

/* One whole turn is the past: the next begins with what was used longest ago. */
static uint32_t longest_ago(const uint64_t *past, uint32_t length, const uint32_t *candidates,
                            uint32_t count) {
  uint32_t best = NT_NONE, best_last = UINT32_MAX;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t last = length;
    while (last && past[last - 1] >> 32 != candidates[i])
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

uint32_t nt_foretell_joint(const struct nt_job *job, uint32_t rank, int64_t before_ns,
                           const uint32_t *candidates, uint32_t count, bool *again) {
  const struct nt_model_rank *model = &job->model->ranks[rank];
  uint64_t *past = malloc((model->call_count ? model->call_count : 1) * sizeof *past);
  uint32_t length = 0, found = NT_NONE;
  if (again)
    *again = false;
  if (!past)
    return NT_NONE;
  for (uint32_t i = 0; i < model->call_count; i++) {
    const struct nt_model_call *call = &model->calls[i];
    if (call->view == NT_NONE || call->enter_ns > job->cut_ns || call->enter_ns >= before_ns ||
        !nt_call_counts(call))
      continue;
    uint32_t joint = job->places[rank][call->view].joint;
    if (joint != NT_NONE && nt_fn_is_collective(call->fn))
      past[length++] = (uint64_t)joint << 32 ^ (uint32_t)nt_call_signature(call);
  }
  uint32_t end = length > 1 ? repeated(past, length, 1) : 0;
  for (; end && end < length && found == NT_NONE; end++)
    for (uint32_t i = 0; i < count; i++)
      if (past[end] >> 32 == candidates[i]) {
        found = i;
        break;
      }
  if (again)
    *again = found != NT_NONE;
  if (found == NT_NONE)
    found = longest_ago(past, length, candidates, count);
  free(past);
  return found;
}

uint32_t nt_foretell_repeated(const uint64_t *sequence, uint32_t count, uint32_t least) {
  return repeated(sequence, count, least);
}
