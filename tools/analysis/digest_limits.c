/* SPDX-License-Identifier: Apache-2.0 */
/* What digests leave open: how far back they reach, where that is why a finding is undecided. */
#include "analysis/describe.h"
#include "analysis/inquiry.h"

/* The last line to the front: nothing else that can be done tells more. */
static void put_first(struct nt_lines *lines) {
  for (uint32_t i = lines->count; i-- > 1;) {
    char *line = lines->line[i];
    lines->line[i] = lines->line[i - 1];
    lines->line[i - 1] = line;
  }
}

static void say_members(const struct nt_inquiry *inquiry, struct nt_finding *finding) {
  const struct nt_job *job = inquiry->job;
  const struct nt_joint *joint = &job->joints[finding->joint];
  struct nt_rank_set ranks = {0};
  uint32_t low = UINT32_MAX, high = 0;
  char who[NT_DESCRIBE], label[NT_DESCRIBE];
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    if (!nt_member_rank(job, member)->left_out || member->first <= 1)
      continue;
    low = member->first < low ? member->first : low;
    high = member->first > high ? member->first : high;
    (void)nt_finding_add(job, &ranks, member->rank);
  }
  const uint64_t count = nt_rank_set_count(&ranks);
  if (count) {
    nt_describe_ranks(who, sizeof who, &ranks);
    nt_describe_joint(label, sizeof label, job, finding->joint);
    if (low == high)
      nt_lines_add(&finding->evidence, "the %s of %s %s back to #%u on %s",
                   count == 1 ? "digest" : "digests", who, count == 1 ? "reaches" : "reach", low,
                   label);
    else
      nt_lines_add(&finding->evidence, "the digests of %s reach back to #%u … #%u on %s", who, low,
                   high, label);
    nt_lines_add(&finding->next, "collect the %s of %s: what is needed may be older than %s",
                 count == 1 ? "trace itself" : "traces themselves", who,
                 count == 1 ? "its digest" : "their digests");
    put_first(&finding->next);
  }
  nt_rank_set_free(&ranks);
}

void nt_say_digests(struct nt_inquiry *inquiry) {
  for (uint32_t i = 0; i < inquiry->verdict->count; i++) {
    struct nt_finding *finding = &inquiry->verdict->findings[i];
    if (finding->confidence == NT_UNDECIDED && finding->joint != NT_NONE)
      say_members(inquiry, finding);
  }
}
