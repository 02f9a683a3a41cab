/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a finding's evidence gains when all is known: who waits behind its waiters, and one line for ranks
 * of which the same is said.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/describe.h"
#include "analysis/inquiry.h"

enum { BEHIND_MAX = 8 };

static bool has_rank(const struct nt_inquiry *inquiry, const struct nt_rank_set *set,
                     uint32_t rank) {
  int32_t world = inquiry->job->model->ranks[rank].world;
  return world >= 0 && nt_rank_set_has(set, (uint32_t)world);
}

static bool waits_for(const struct nt_inquiry *inquiry, const struct nt_stuck *stuck,
                      const struct nt_rank_set *set) {
  for (uint32_t i = 0; i < stuck->laggard_count; i++)
    if (has_rank(inquiry, set, stuck->laggards[i]))
      return true;
  for (uint32_t i = 0; i < stuck->behind_count; i++)
    if (has_rank(inquiry, set, stuck->behind[i]))
      return true;
  return false;
}

/* One operation that waits for somebody in the chain: its waiters join it. */
static int follow(struct nt_inquiry *inquiry, struct nt_finding *finding,
                  const struct nt_stuck *stuck, struct nt_rank_set *chain, bool *grown) {
  struct nt_rank_set fresh = {0};
  char who[NT_DESCRIBE], place[NT_DESCRIBE];
  int status = 0;
  for (uint32_t i = 0; i < stuck->waiter_count && !status; i++)
    if (!has_rank(inquiry, chain, stuck->waiters[i]))
      status = nt_finding_add(inquiry->job, &fresh, stuck->waiters[i]);
  uint32_t count = nt_rank_set_count(&fresh);
  if (count) {
    *grown = true;
    nt_lines_add(&finding->evidence, "%s %s %s", nt_describe_ranks(who, sizeof who, &fresh),
                 finding->only_called ? "called"
                 : count == 1         ? "waits behind it in"
                                      : "wait behind it in",
                 nt_describe_place(place, sizeof place, inquiry->job, stuck->fn,
                                   stuck->kind == NT_STUCK_INIT ? 0 : stuck->seq, stuck->joint));
  }
  for (uint32_t w = nt_rank_set_next(&fresh, 0); w < NT_RANK_MAX && !status;
       w = nt_rank_set_next(&fresh, w + 1))
    status = nt_rank_set_add(chain, w);
  nt_rank_set_free(&fresh);
  return status;
}

int nt_say_chain(struct nt_inquiry *inquiry, struct nt_finding *finding) {
  struct nt_rank_set chain = {0};
  const struct nt_rank_set *parts[] = {&finding->blame, &finding->waiting};
  bool grown = nt_rank_set_count(&finding->blame) != 0;
  int status = 0;
  for (size_t p = 0; p < 2; p++)
    for (uint32_t w = nt_rank_set_next(parts[p], 0); w < NT_RANK_MAX && !status;
         w = nt_rank_set_next(parts[p], w + 1))
      status = nt_rank_set_add(&chain, w);
  for (uint32_t round = 0; grown && round < BEHIND_MAX && !status; round++) {
    grown = false;
    for (uint32_t i = 0; i < inquiry->waits.count && !status; i++) {
      const struct nt_stuck *stuck = &inquiry->waits.list[i];
      if (!stuck->excused && stuck->waiter_count && finding->evidence.count < 40 &&
          waits_for(inquiry, stuck, &chain))
        status = follow(inquiry, finding, stuck, &chain, &grown);
    }
  }
  nt_rank_set_free(&chain);
  return status;
}

/* "rank 12" in front of a line: its number, and what follows. */
static const char *after_rank(const char *line, uint32_t *world) {
  char *end;
  if (strncmp(line, "rank ", 5) != 0 || !isdigit((unsigned char)line[5]))
    return NULL;
  *world = (uint32_t)strtoul(line + 5, &end, 10);
  return *end == ' ' || *end == ':' ? end : NULL;
}

/* Takes the lines after `first` that say the same of other ranks into it, up to one that is of no rank: that
 * one is the heading of what follows. */
static void group_line(struct nt_lines *lines, uint32_t first) {
  uint32_t world, kept = first + 1;
  const char *rest = after_rank(lines->line[first], &world);
  struct nt_rank_set who = {0};
  char text[NT_DESCRIBE], *line;
  if (!rest || nt_rank_set_add(&who, world) < 0)
    return;
  bool section = true;
  for (uint32_t i = first + 1; i < lines->count; i++) {
    const char *other = after_rank(lines->line[i], &world);
    section = section && !strncmp(lines->line[i], "rank", 4);
    if (section && other && !strcmp(other, rest) && nt_rank_set_add(&who, world) == 0)
      free(lines->line[i]);
    else
      lines->line[kept++] = lines->line[i];
  }
  lines->count = kept;
  const bool waits = !strncmp(rest, " waits ", 7);
  if (nt_rank_set_count(&who) > 1 &&
      asprintf(&line, "%s%s%s", nt_describe_ranks(text, sizeof text, &who), waits ? " wait " : "",
               rest + (waits ? 7 : 0)) >= 0) {
    free(lines->line[first]);
    lines->line[first] = line;
  }
  nt_rank_set_free(&who);
}

void nt_group_evidence(struct nt_lines *lines) {
  for (uint32_t i = 0; i < lines->count; i++)
    group_line(lines, i);
}
