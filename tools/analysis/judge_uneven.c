/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of graphs that finished though not all members made them (replays.h): too many, too few, or in another order. */
#include "analysis/describe.h"
#include "analysis/inquiry.h"
#include "analysis/progress.h"
#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

/* Who waits in the collective behind the launches, and, of a side that is to blame, whose number is another one than that of
 * most. */
static int fill_uneven(struct nt_inquiry *inquiry, struct nt_finding *finding, bool more,
                       uint32_t *own) {
  const struct nt_joint *joint = &inquiry->job->joints[finding->joint];
  const struct nt_uneven *uneven = &inquiry->waits.replays.uneven[finding->joint];
  int status = 0;
  for (uint32_t m = 0; m < joint->member_count && !status; m++) {
    const struct nt_member *member = &joint->members[m];
    const uint32_t call = member->call[uneven->seq - member->first];
    const int64_t enter_ns = nt_member_rank(inquiry->job, member)->calls[call].enter_ns;
    const uint32_t before =
        nt_replays_before(inquiry->job, &inquiry->waits.replays, finding->joint, m, uneven->seq);
    if (nt_call_unfinished(inquiry->job, member->rank, call) &&
        inquiry->freeze->fates[member->rank].kind == NT_FATE_ALIVE) {
      finding->since_ns =
          !finding->since_ns || enter_ns < finding->since_ns ? enter_ns : finding->since_ns;
      status = nt_finding_add(inquiry->job, &finding->waiting, member->rank);
    }
    if (before == uneven->common || (before > uneven->common) != more || status)
      continue;
    *own = !*own || before < *own ? before : *own;
    if (uneven->decided)
      status = nt_finding_add(inquiry->job, &finding->blame, member->rank);
  }
  return status;
}

/* Launches that some made in front of a collective that all called, and that paired up with something else. */
static int judge_uneven(struct nt_inquiry *inquiry, uint32_t index, bool more) {
  const struct nt_joint *joint = &inquiry->job->joints[index];
  const struct nt_uneven *uneven = &inquiry->waits.replays.uneven[index];
  const uint8_t fn = nt_member_call(inquiry->job, &joint->members[0], uneven->seq)->fn;
  const enum nt_class class = uneven->swapped ? NT_CLASS_ORDER
                              : more          ? NT_CLASS_EXTRA
                                              : NT_CLASS_MISSING;
  struct nt_finding *finding = nt_inquiry_add(inquiry, class, index);
  uint32_t own = 0;
  int status = finding ? fill_uneven(inquiry, finding, more, &own) : -NT_ERR_MEMORY;
  if (status)
    return status;
  char place[NT_DESCRIBE], who[NT_DESCRIBE], waiting[NT_DESCRIBE + 64];
  const uint32_t differ = more ? own - uneven->common : uneven->common - own;
  finding->fn = uneven->swapped ? fn : NT_FN_cudaGraphLaunch;
  finding->seq = uneven->swapped ? uneven->seq : (more ? uneven->common : own) + 1;
  finding->confidence = uneven->decided ? NT_LIKELY : NT_UNDECIDED;
  nt_describe_place(place, sizeof place, inquiry->job, fn, uneven->seq, index);
  nt_inquiry_waiting(waiting, sizeof waiting, finding);
  nt_describe_ranks(who, sizeof who, &finding->blame);
  if (!uneven->decided)
    nt_finding_say(finding,
                   "some ranks made %u launches of graphs before %s, others %u, and nobody is in "
                   "the majority%s",
                   uneven->common, place, own, waiting);
  else if (uneven->swapped)
    nt_finding_say(finding, "%s launched a graph %s %s, the others %s it%s", who,
                   more ? "before" : "behind", place, more ? "behind" : "before", waiting);
  else if (differ == 1)
    nt_finding_say(finding,
                   "%s launched a graph once %s than the others before %s, which all called%s", who,
                   more ? "more" : "less", place, waiting);
  else
    nt_finding_say(finding,
                   "%s launched graphs %u times %s than the others before %s, which all called%s",
                   who, differ, more ? "more" : "less", place, waiting);
  nt_lines_add(&finding->evidence,
               "launches in front of %s: %u on %s, %u on the others, and all of them finished: one "
               "paired up with another call",
               place, own, uneven->decided ? who : "some", uneven->common);
  return 0;
}

int nt_judge_uneven(struct nt_inquiry *inquiry, uint32_t index) {
  const struct nt_replays *replays = &inquiry->waits.replays;
  const struct nt_uneven *uneven = &replays->uneven[index];
  bool fewer = false, more = false;
  for (uint32_t m = 0; m < replays->members[index]; m++) {
    const uint32_t before = nt_replays_before(inquiry->job, replays, index, m, uneven->seq);
    fewer |= before < uneven->common;
    more |= before > uneven->common;
  }
  int status = more ? judge_uneven(inquiry, index, true) : 0;
  return !status && fewer ? judge_uneven(inquiry, index, false) : status;
}
