/* SPDX-License-Identifier: Apache-2.0 */
/* Longest repeated suffix: where the same calls came before the same point, the same calls follow. */
#include "analysis/foretell.h"

#include <stdlib.h>

#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

enum { PAST = 4096, SUFFIX = 128 };

/* End of the earlier stretch that repeats the longest suffix of the sequence, but for that which ends at `other`; 0 if
 * none of `least` or more. */
static uint32_t repeated_but(const uint64_t *sequence, uint32_t count, uint32_t least,
                             uint32_t other) {
  uint32_t best = 0, best_length = least - 1;
  uint32_t low = count > PAST ? count - PAST : 0;
  for (uint32_t end = count - 1; end > low && end < count; end--) {
    uint32_t length = 0;
    while (length < SUFFIX && length < end &&
           sequence[end - 1 - length] == sequence[count - 1 - length])
      length++;
    if (length > best_length && end != other) {
      best_length = length;
      best = end;
    }
  }
  return best;
}

static uint32_t repeated(const uint64_t *sequence, uint32_t count, uint32_t least) {
  return repeated_but(sequence, count, least, 0);
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

uint32_t nt_foretell_repeated(const uint64_t *sequence, uint32_t count, uint32_t least,
                              uint32_t other) {
  return repeated_but(sequence, count, least, other);
}
