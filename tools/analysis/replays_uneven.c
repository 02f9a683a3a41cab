/* SPDX-License-Identifier: Apache-2.0 */
/* Launches that paired up with another call: NCCL lets some sizes do so, and then no launch hangs, but what follows it. */
#include <stdlib.h>

#include "analysis/progress.h"
#include "analysis/replays.h"
#include "analysis/sequence.h"

const struct nt_uneven *nt_uneven_at(const struct nt_replays *replays, uint32_t joint,
                                     const struct nt_divergence *divergence) {
  const bool agree = !divergence->position && !divergence->hidden_high && !divergence->mixed;
  return agree && replays->uneven[joint].seq ? &replays->uneven[joint] : NULL;
}

uint32_t nt_replays_before(const struct nt_job *job, const struct nt_replays *replays,
                           uint32_t joint, uint32_t member, uint32_t seq) {
  const struct nt_replay_row *row = &replays->rows[joint][member];
  const int64_t enter_ns = nt_member_call(job, &job->joints[joint].members[member], seq)->enter_ns;
  uint32_t before = 0;
  while (before < row->count && row->list[before].enter_ns < enter_ns)
    before++;
  return before;
}

/* All members called the same there, and none captured it. */
static bool is_common_call(const struct nt_job *job, const struct nt_joint *joint, uint32_t seq) {
  const struct nt_model_call *first = NULL;
  for (uint32_t m = 0; m < joint->member_count; m++) {
    const struct nt_model_call *call = nt_member_call(job, &joint->members[m], seq);
    if (!call || (call->flags & NT_CALL_CAPTURED) ||
        (first && nt_call_signature(call) != nt_call_signature(first)))
      return false;
    first = call;
  }
  return first != NULL;
}

/* The launches in front of a common call that most members made. */
static struct nt_uneven count_votes(const struct nt_joint *joint, const uint32_t *before,
                                    uint32_t seq) {
  struct nt_uneven uneven = {.seq = seq};
  uint32_t best = 0;
  for (uint32_t m = 0; m < joint->member_count; m++) {
    uint32_t votes = 0;
    for (uint32_t k = 0; k < joint->member_count; k++)
      votes += before[k] == before[m];
    if (votes > best || (votes == best && before[m] < uneven.common))
      uneven.common = before[m];
    best = votes > best ? votes : best;
  }
  uneven.decided = 2 * best > joint->member_count + joint->absent;
  return uneven;
}

/* Every launch in front of the collective is finished, and one thread made both: else nothing tells in which order they were. */
static bool is_paired_up(const struct nt_job *job, const struct nt_replays *replays, uint32_t index,
                         const uint32_t *before, uint32_t seq) {
  const struct nt_joint *joint = &job->joints[index];
  for (uint32_t m = 0; m < joint->member_count; m++) {
    const struct nt_model_call *calls = nt_member_rank(job, &joint->members[m])->calls;
    const struct nt_model_call *call = nt_member_call(job, &joint->members[m], seq);
    const struct nt_replay_row *row = &replays->rows[index][m];
    for (uint32_t p = 0; p < row->count; p++)
      if (calls[row->list[p].call].thread != call->thread ||
          (p < before[m] && nt_call_unfinished(job, joint->members[m].rank, row->list[p].call)))
        return false;
  }
  return true;
}

/* What came behind the collective makes up for it. */
static bool is_swapped(const struct nt_joint *joint, const struct nt_replay_row *rows,
                       const uint32_t *before, uint32_t common) {
  uint32_t least = UINT32_MAX, most = 0;
  for (uint32_t m = 0; m < joint->member_count; m++) {
    if (before[m] != common)
      continue;
    least = rows[m].count < least ? rows[m].count : least;
    most = rows[m].count > most ? rows[m].count : most;
  }
  for (uint32_t m = 0; m < joint->member_count; m++)
    if ((before[m] > common && rows[m].count <= most) ||
        (before[m] < common && rows[m].count >= least))
      return true;
  return false;
}

/* Some launch in question moves just what the call moves: either may stand for the other. */
static bool moves_the_same(const struct nt_job *job, const struct nt_joint *joint,
                           const struct nt_replay_row *rows, uint32_t seq) {
  const uint64_t call =
      nt_replay_sig(0, ~nt_call_signature(nt_member_call(job, &joint->members[0], seq)));
  for (uint32_t m = 0; m < joint->member_count; m++)
    for (uint32_t p = 0; p < rows[m].count; p++)
      if (rows[m].list[p].sig == call)
        return true;
  return false;
}

/* Goes on with the launches in front of the collective at `seq`. Returns whether all members made as many. */
static bool count_before(const struct nt_job *job, const struct nt_joint *joint,
                         const struct nt_replay_row *rows, uint32_t seq, uint32_t *before) {
  bool even = true;
  for (uint32_t m = 0; m < joint->member_count; m++) {
    const int64_t enter_ns = nt_member_call(job, &joint->members[m], seq)->enter_ns;
    while (before[m] < rows[m].count && rows[m].list[before[m]].enter_ns < enter_ns)
      before[m]++;
    even &= before[m] == before[0];
  }
  return even;
}

int nt_replays_find_uneven(const struct nt_job *job, struct nt_replays *out, uint32_t index) {
  const struct nt_joint *joint = &job->joints[index];
  const struct nt_replay_row *rows = out->rows[index];
  uint32_t low = UINT32_MAX, launches = 0, seq = 1;
  for (uint32_t m = 0; m < joint->member_count; m++) {
    low = joint->members[m].called < low ? joint->members[m].called : low;
    launches += rows[m].count;
  }
  if (!launches)
    return 0;
  uint32_t *before = calloc((size_t)joint->member_count + 1, sizeof *before);
  if (!before)
    return -NT_ERR_MEMORY;
  while (seq <= low &&
         (!is_common_call(job, joint, seq) || count_before(job, joint, rows, seq, before)))
    seq++;
  if (seq <= low) {
    struct nt_uneven uneven = count_votes(joint, before, seq);
    uneven.swapped = is_swapped(joint, rows, before, uneven.common);
    if (is_paired_up(job, out, index, before, seq) &&
        !(uneven.swapped && moves_the_same(job, joint, rows, seq)))
      out->uneven[index] = uneven;
  }
  free(before);
  return 0;
}
