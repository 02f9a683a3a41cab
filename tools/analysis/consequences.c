/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits is a victim. A finding whose culprits all wait in another one says only what that wait led to,
 * whichever began first: it becomes a line of the other's evidence.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/inquiry.h"

/* Both sides of a message of two sizes may be held by it, also the one to blame. */
static bool holds(const struct nt_finding *cause, uint32_t world) {
  bool uneven = nt_rank_set_count(&cause->waiting) && cause->class == NT_CLASS_P2P &&
                cause->field && !strcmp(cause->field, "count");
  return nt_rank_set_has(&cause->waiting, world) ||
         (uneven && nt_rank_set_has(&cause->blame, world));
}

static bool is_consequence(const struct nt_finding *finding, const struct nt_finding *cause) {
  switch (finding->class) {
  case NT_CLASS_MISSING:
  case NT_CLASS_INIT:
  case NT_CLASS_P2P:
    break;
  default:
    return false; /* an end, an error or another call is a fault of its own */
  }
  uint32_t world = nt_rank_set_next(&finding->blame, 0);
  if (world >= NT_RANK_MAX || !nt_rank_set_count(&cause->blame))
    return false;
  if (finding->field) /* other arguments, or another peer */
    return false;
  for (; world < NT_RANK_MAX; world = nt_rank_set_next(&finding->blame, world + 1))
    if (!holds(cause, world))
      return false;
  return true;
}

/* The finding that explains this one. Of two that explain each other the earlier stays. */
static struct nt_finding *cause_of(struct nt_verdict *verdict, uint32_t index) {
  const struct nt_finding *finding = &verdict->findings[index];
  for (uint32_t i = 0; i < verdict->count; i++) {
    struct nt_finding *other = &verdict->findings[i];
    if (i != index && other->summary && is_consequence(finding, other) &&
        (i < index || !is_consequence(other, finding)))
      return other;
  }
  return NULL;
}

void nt_fold_consequences(struct nt_verdict *verdict) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < verdict->count; i++) {
    struct nt_finding *finding = &verdict->findings[i], *cause = cause_of(verdict, i);
    if (!cause || !finding->summary)
      continue;
    if (cause->evidence.count < 32)
      nt_lines_add(&cause->evidence, "in consequence: %s", finding->summary);
    free(finding->summary);
    finding->summary = NULL; /* what is folded explains nothing any more */
    finding->class = NT_CLASS_LIMIT;
  }
  for (uint32_t i = 0; i < verdict->count; i++) {
    if (verdict->findings[i].class == NT_CLASS_LIMIT)
      nt_finding_free(&verdict->findings[i]);
    else
      verdict->findings[kept++] = verdict->findings[i];
  }
  verdict->count = kept;
}
