/* SPDX-License-Identifier: Apache-2.0 */
/* Member by member, so that a rank's calls are walked in their order. */
#include "analysis/rounds.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/sequence.h"
#include "nccl/nccl_api.h"
#include "trace/record.h"

/* Does nobody get out of it before all are in it? */
static bool synchronises(const struct nt_model_call *call) {
  switch (nt_fn_canonical(call->fn)) {
  case NT_FN_AllReduce:
  case NT_FN_AllGather:
  case NT_FN_ReduceScatter:
  case NT_FN_AlltoAll:
    return call->count && !(call->flags & (NT_CALL_CAPTURED | NT_CALL_VOID));
  default:
    return false;
  }
}

/* The rank's entry for a call, NULL if it has none. `at` is where the last one was found. */
static const struct nt_model_seen *seen_of(const struct nt_model_rank *rank, uint32_t call,
                                           uint32_t *at) {
  if (*at < rank->seen_count && rank->seen[*at].call > call)
    *at = 0;
  while (*at < rank->seen_count && rank->seen[*at].call < call)
    ++*at;
  return *at < rank->seen_count && rank->seen[*at].call == call ? &rank->seen[*at] : NULL;
}

/* Positions that a member with a duration for them names: candidates for sampled rounds. */
static uint32_t list_sampled(const struct nt_job *job, const struct nt_joint *joint,
                             uint32_t *out) {
  const struct nt_member *member = &joint->members[0];
  const struct nt_model_rank *rank = nt_member_rank(job, member);
  uint32_t count = 0, last = 0;
  for (uint32_t i = 0; i < rank->seen_count; i++) {
    const struct nt_model_call *call = &rank->calls[rank->seen[i].call];
    if (!rank->seen[i].took_us || call->view != member->view || call->seq <= last ||
        call->seq > member->called || call->group || !synchronises(call))
      continue;
    out[count++] = last = call->seq;
  }
  return count;
}

static uint32_t list_last(const struct nt_job *job, const struct nt_joint *joint, uint32_t *out) {
  uint32_t low = 1, high = UINT32_MAX, count = 0;
  for (uint32_t m = 0; m < joint->member_count; m++) {
    low = joint->members[m].first > low ? joint->members[m].first : low;
    high = joint->members[m].called < high ? joint->members[m].called : high;
  }
  if (high >= NT_SEEN_KEPT && low <= high - NT_SEEN_KEPT)
    low = high - NT_SEEN_KEPT + 1;
  for (uint32_t p = low; p <= high && count < NT_SEEN_KEPT; p++) {
    const struct nt_model_call *call = nt_member_call(job, &joint->members[0], p);
    if (call && synchronises(call))
      out[count++] = p;
  }
  return count;
}

static struct nt_meeting meeting_of(const struct nt_model_call *call,
                                    const struct nt_model_seen *seen) {
  struct nt_meeting at = {call->enter_ns, call->enter_ns, INT64_MAX, 0, INT64_MAX, 0};
  if (!seen)
    return at;
  const uint32_t done =
      seen->waited_us && (!seen->finished_us || seen->waited_us < seen->finished_us)
          ? seen->waited_us
          : seen->finished_us;
  at.from_ns += INT64_C(1000) * seen->unreached_us;
  if (seen->reached_us)
    at.by_ns = call->enter_ns + INT64_C(1000) * (seen->reached_us > 1 ? seen->reached_us : 0);
  if (seen->unfinished_us)
    at.unfinished_ns = call->enter_ns + INT64_C(1000) * seen->unfinished_us;
  if (done)
    at.finished_ns = call->enter_ns + INT64_C(1000) * done;
  at.took_us = seen->took_us;
  return at;
}

/* One member's column; rounds that it does not share are struck out. */
static void fill(const struct nt_job *job, const struct nt_joint *joint, uint32_t m, bool sampled,
                 struct nt_rounds *out) {
  const struct nt_member *member = &joint->members[m], *first = &joint->members[0];
  const struct nt_model_rank *rank = nt_member_rank(job, member);
  uint32_t at = 0;
  for (uint32_t r = 0; r < out->count; r++) {
    const uint32_t p = out->position[r];
    const struct nt_model_call *call = p ? nt_member_call(job, member, p) : NULL;
    if (!call || member->sig[p - member->first] != first->sig[p - first->first]) {
      out->position[r] = 0;
      continue;
    }
    const struct nt_model_seen *seen = seen_of(rank, member->call[p - member->first], &at);
    if (sampled && (!seen || !seen->took_us || call->group))
      out->position[r] = 0;
    else
      out->at[(size_t)r * out->members + m] = meeting_of(call, seen);
  }
}

int nt_rounds_find(const struct nt_job *job, const struct nt_joint *joint, bool sampled,
                   struct nt_rounds *out) {
  memset(out, 0, sizeof *out);
  if (joint->member_count < 2)
    return 0;
  const uint32_t room =
      sampled ? nt_member_rank(job, &joint->members[0])->seen_count : NT_SEEN_KEPT;
  out->members = joint->member_count;
  out->position = malloc((room + 1u) * sizeof *out->position);
  if (!out->position)
    return -NT_ERR_MEMORY;
  out->count =
      sampled ? list_sampled(job, joint, out->position) : list_last(job, joint, out->position);
  out->at = malloc(((size_t)out->count * out->members + 1) * sizeof *out->at);
  if (!out->at)
    return -NT_ERR_MEMORY;
  for (uint32_t m = 0; m < out->members && out->count; m++)
    fill(job, joint, m, sampled, out);
  uint32_t kept = 0;
  bool mixed = false;
  for (uint32_t r = 0; r < out->count; r++) {
    if (!out->position[r])
      continue;
    if (kept != r)
      memcpy(&out->at[(size_t)kept * out->members], nt_round(out, r),
             out->members * sizeof *out->at);
    const struct nt_model_call *call = nt_member_call(job, &joint->members[0], out->position[r]);
    mixed |= kept && out->fn != call->fn;
    out->fn = call->fn;
    out->position[kept++] = out->position[r];
  }
  out->count = kept;
  out->fn = mixed ? NT_FN_NONE : out->fn;
  return 0;
}

void nt_rounds_free(struct nt_rounds *rounds) {
  free(rounds->position);
  free(rounds->at);
  memset(rounds, 0, sizeof *rounds);
}
