/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Differences that a job went past.
 *
 * Other arguments may have come to nothing: all devices were through with the operation, and with many after it. What hangs
 * later does so for another reason, and positions behind it correspond, so the next difference is looked for there.
 */
#include "analysis/align_parts.h"
#include "analysis/progress.h"
#include "analysis/sequence.h"

/* Between the calls at a difference and at what is unfinished: shows that it did not stop the job. */
#define PASSED_NS INT64_C(1000000000)
/* Of more differences than these only the last ones are looked at. */
enum { MOST = 64 };

static bool is_of_arguments(const struct nt_divergence *divergence) {
  return divergence->position && !divergence->captured && !divergence->mixed &&
         !divergence->hidden_high && nt_divergence_only_changed(divergence);
}

/* The first position that is known to be unfinished on a member, or that one has not called. */
static uint32_t first_unfinished(const struct nt_job *job, const struct nt_joint *joint) {
  uint32_t first = UINT32_MAX;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    for (uint32_t p = member->first; p && p <= member->called && p < first; p++) {
      const uint32_t call = member->call[p - member->first];
      if (call != NT_NONE && nt_call_outstanding(job, member->rank, call))
        first = p;
    }
    first = member->called < first ? member->called + 1 : first;
  }
  return first;
}

static bool is_past(const struct nt_job *job, const struct nt_joint *joint,
                    const struct nt_divergence *divergence, uint32_t first) {
  const uint32_t position = divergence->position;
  bool long_ago = true;
  if (!is_of_arguments(divergence) || first <= position + 1)
    return false;
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_member *member = &joint->members[i];
    const struct nt_model_call *at = nt_member_call(job, member, position);
    const struct nt_model_call *next =
        nt_member_call(job, member, first < member->called ? first : member->called);
    if (at && at->progress != NT_PROGRESS_FINISHED)
      return false;
    long_ago &= at && next && next->enter_ns - at->enter_ns > PASSED_NS;
  }
  return long_ago || first > position + NT_PASSED_CALLS;
}

int nt_align_go_past(const struct nt_job *job, struct nt_joint *joint, struct nt_divergence *past,
                     struct nt_divergence *now) {
  const uint32_t first = now->position ? first_unfinished(job, joint) : 0;
  int status = 0;
  for (uint32_t i = 0; !status && is_past(job, joint, now, first); i++) {
    uint32_t from = now->position + 1;
    if (i >= MOST && first > from + NT_PASSED_CALLS)
      from = first - NT_PASSED_CALLS;
    if (i)
      nt_divergence_free(now);
    else
      *past = *now;
    status = nt_align_from(job, joint, from, now);
  }
  past->later = past->position && first > past->position ? first - 1 - past->position : 0;
  return status;
}
