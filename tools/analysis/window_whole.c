/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of all members behind the same position, the most frequent one, and who has another. */
#include "analysis/window_whole.h"

#include <stdlib.h>

#include "analysis/window_parts.h"

enum { AGREEING_MIN = 8 };

uint64_t nt_window_there(const struct nt_model_rank *rank) {
  return rank->call_count + rank->unread;
}

struct pick {
  const struct nt_job *job;
  uint32_t *positions; /* by joint */
  uint64_t **sums;     /* by joint and member */
  uint64_t left;       /* calls that may still be read */
  bool *whole;
};

static void take(struct pick *pick, const struct nt_member *member) {
  const uint64_t calls = nt_window_there(nt_member_rank(pick->job, member));
  if (pick->whole[member->rank] || calls > pick->left)
    return;
  pick->whole[member->rank] = true;
  pick->left -= calls;
}

static int by_value(const void *a, const void *b) {
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

/* The most frequent of the sums, and how many have it. */
static int find_common(const uint64_t *sums, uint32_t count, uint64_t *common, uint32_t *agreeing) {
  uint64_t *sorted = malloc((count + 1) * sizeof *sorted);
  if (!sorted)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < count; i++)
    sorted[i] = sums[i];
  qsort(sorted, count, sizeof *sorted, by_value);
  *agreeing = 0;
  for (uint32_t i = 0, n; i < count; i += n) {
    for (n = 1; i + n < count && sorted[i + n] == sorted[i];)
      n++;
    if (n > *agreeing) {
      *agreeing = n;
      *common = sorted[i];
    }
  }
  free(sorted);
  return 0;
}

/* Those that got furthest first: one of them is what others are compared with. */
static void take_agreeing(struct pick *pick, const struct nt_joint *joint, const uint64_t *sums,
                          uint64_t common, uint32_t wanted) {
  uint32_t furthest = 0;
  for (uint32_t i = 0; i < joint->member_count; i++)
    if (joint->members[i].called > furthest)
      furthest = joint->members[i].called;
  for (int behind = 0; behind < 2; behind++)
    for (uint32_t i = 0; i < joint->member_count && wanted; i++) {
      const struct nt_member *member = &joint->members[i];
      if (sums[i] != common || (member->called < furthest) != (behind == 1))
        continue;
      take(pick, member);
      wanted--;
    }
}

static int pick_members(struct pick *pick, uint32_t index) {
  const struct nt_joint *joint = &pick->job->joints[index];
  const uint64_t *sums = pick->sums[index];
  uint64_t common = 0;
  uint32_t agreeing;
  const int status = find_common(sums, joint->member_count, &common, &agreeing);
  const uint32_t others = joint->member_count - (status ? joint->member_count : agreeing);
  if (status || !others)
    return status;
  take_agreeing(pick, joint, sums, common, 1);
  for (uint32_t i = 0; i < joint->member_count; i++)
    if (sums[i] != common)
      take(pick, &joint->members[i]);
  take_agreeing(pick, joint, sums, common,
                2 * others + 1 > AGREEING_MIN ? 2 * others + 1 : AGREEING_MIN);
  return 0;
}

static int find_sums(struct pick *pick, uint32_t r) {
  const uint32_t count = pick->job->model->ranks[r].view_count;
  struct nt_window_tail *tails = malloc(((size_t)count + 1) * sizeof *tails);
  if (!tails)
    return -NT_ERR_MEMORY;
  nt_window_sums(pick->job, r, pick->positions, tails);
  for (uint32_t v = 0; v < count; v++) {
    const struct nt_place place = pick->job->places[r][v];
    if (place.joint != NT_NONE)
      pick->sums[place.joint][place.member] = tails[v].sum;
  }
  free(tails);
  return 0;
}

int nt_window_whole(const struct nt_job *job, uint64_t most, bool *whole) {
  const size_t room = (size_t)job->joint_count + 1;
  struct pick pick = {.job = job,
                      .positions = calloc(room, sizeof *pick.positions),
                      .sums = calloc(room, sizeof *pick.sums),
                      .left = most,
                      .whole = whole};
  int status = pick.positions && pick.sums ? 0 : -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < job->joint_count && !status; i++) {
    (void)nt_window_before(&job->joints[i],
                           &pick.positions[i]); /* who has not come there differs */
    pick.sums[i] = calloc((size_t)job->joints[i].member_count + 1, sizeof **pick.sums);
    status = pick.sums[i] ? 0 : -NT_ERR_MEMORY;
  }
  for (uint32_t r = 0; r < job->model->rank_count && !status; r++)
    status = find_sums(&pick, r);
  for (uint32_t i = 0; i < job->joint_count && !status; i++)
    status = pick_members(&pick, i);
  for (uint32_t i = 0; i < job->joint_count && pick.sums; i++)
    free(pick.sums[i]);
  free(pick.sums);
  free(pick.positions);
  return status;
}
