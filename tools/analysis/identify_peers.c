/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places in a split whose parent lacks members: no rank tells its own, but whom it sends to and receives from must be there.
 *
 * Members without a trace may stand anywhere between those that have one. Every way to place them is held against the
 * messages, and believed if it is the only one that fits: nobody receives what was never sent, a queue that was used on one
 * side was used on the other, and nobody keeps turning to itself on one side only. Who is missing from one half cannot be
 * missing from the other.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/identify_parts.h"
#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

#define MOST_ABSENT 8u
#define MOST_MEMBERS 1024u
#define MOST_STEPS 20000u /* of the search; a communicator in which more fits is left alone */

/* One side of one rank's messages with one peer: positions in the queue. */
struct side {
  int32_t peer;
  uint32_t sent, received, finished; /* the last; `finished`: of those received */
};

struct talk {
  struct side *sides;
  uint32_t count, room;
};

struct search {
  struct talk *talks; /* by member */
  uint32_t members, absent;
  int32_t highest;          /* peer */
  uint32_t *place, *unique; /* by member: communicator rank tried, and of the way that fits */
  uint32_t fitting, steps;
  uint32_t holes; /* fewest members without a trace of any way that fits */
};

static struct side *side_with(struct talk *talk, int32_t peer) {
  for (uint32_t i = 0; i < talk->count; i++)
    if (talk->sides[i].peer == peer)
      return &talk->sides[i];
  if (talk->count == talk->room) {
    const uint32_t room = talk->room ? 2 * talk->room : 4;
    struct side *sides = realloc(talk->sides, room * sizeof *sides);
    if (!sides)
      return NULL;
    talk->sides = sides;
    talk->room = room;
  }
  talk->sides[talk->count] = (struct side){.peer = peer};
  return &talk->sides[talk->count++];
}

static struct side side_of(const struct talk *talk, uint32_t peer) {
  for (uint32_t i = 0; i < talk->count; i++)
    if (talk->sides[i].peer == (int32_t)peer)
      return talk->sides[i];
  return (struct side){.peer = (int32_t)peer};
}

/* Could that many have been sent, and that many received, between the same two? */
static bool is_likely(uint32_t sent, uint32_t received, uint32_t finished) {
  return finished <= sent && (sent > 1 ? received > 0 : received < 2 || sent > 0);
}

static bool fits(const struct search *s, uint32_t member) {
  const struct talk *own = &s->talks[member];
  const uint32_t place = s->place[member];
  const struct side self = side_of(own, place);
  if (!is_likely(self.sent, self.received, self.finished) || self.sent != self.received)
    return false;
  for (uint32_t i = 0; i < member; i++) {
    const struct side there = side_of(own, s->place[i]), back = side_of(&s->talks[i], place);
    if (!is_likely(there.sent, back.received, back.finished) ||
        !is_likely(back.sent, there.received, there.finished))
      return false;
  }
  return true;
}

/* A way that fits: those without a trace stand where the places leave room, and where others talk to behind all of these. */
static void note_way(struct search *s) {
  const uint32_t last = s->place[s->members - 1] + 1;
  const uint32_t size = s->highest >= (int32_t)last ? (uint32_t)s->highest + 1 : last;
  if (size > s->members + s->absent)
    return;
  if (!s->fitting++)
    memcpy(s->unique, s->place, s->members * sizeof *s->unique);
  if (s->fitting == 1 || size - s->members < s->holes)
    s->holes = size - s->members;
}

/* Tries all places of the members from `member` on. */
static void place_from(struct search *s, uint32_t member, uint32_t gaps) {
  if (member == s->members) {
    note_way(s);
    return;
  }
  for (uint32_t g = gaps; g <= s->absent && s->steps < MOST_STEPS; g++) {
    s->steps++;
    s->place[member] = member + g;
    if (fits(s, member))
      place_from(s, member + 1, g);
  }
}

static int list_talks(const struct nt_job *job, const struct nt_joint *joint, struct search *s) {
  for (uint32_t m = 0; m < joint->member_count; m++) {
    const struct nt_model_rank *rank = nt_member_rank(job, &joint->members[m]);
    for (uint32_t i = 0; i < rank->call_count; i++) {
      const struct nt_model_call *call = &rank->calls[i];
      const enum nt_shape shape = nt_fn_shape(call->fn);
      if (call->view != joint->members[m].view || call->peer < 0 || !nt_call_counts(call) ||
          (shape != NT_SHAPE_SEND && shape != NT_SHAPE_RECV))
        continue;
      struct side *side = side_with(&s->talks[m], call->peer);
      if (!side)
        return -NT_ERR_MEMORY;
      uint32_t *last = shape == NT_SHAPE_SEND ? &side->sent : &side->received;
      *last = call->seq > *last ? call->seq : *last;
      if (shape == NT_SHAPE_RECV && call->progress == NT_PROGRESS_FINISHED &&
          call->seq > side->finished)
        side->finished = call->seq;
      s->highest = call->peer > s->highest ? call->peer : s->highest;
    }
  }
  return 0;
}

static int place_members(struct nt_job *job, uint32_t index, uint32_t *least) {
  struct nt_joint *joint = &job->joints[index];
  struct search s = {.members = joint->member_count, .absent = joint->absent, .highest = -1};
  s.talks = calloc(s.members, sizeof *s.talks);
  s.place = calloc(2 * (size_t)s.members, sizeof *s.place);
  int status = s.talks && s.place ? list_talks(job, joint, &s) : -NT_ERR_MEMORY;
  if (!status && s.highest >= 0) {
    s.unique = s.place + s.members;
    place_from(&s, 0, 0);
    const bool all = s.steps < MOST_STEPS;
    joint->numbered = s.fitting == 1 && all;
    for (uint32_t i = 0; i < s.members && joint->numbered; i++)
      joint->members[i].comm_rank = (int32_t)s.unique[i];
    *least = all ? s.holes : 0;
  }
  for (uint32_t i = 0; s.talks && i < s.members; i++)
    free(s.talks[i].sides);
  free(s.talks);
  free(s.place);
  return status;
}

struct part {
  uint32_t joint, parent, ordinal, least;
};

static int by_split(const void *a, const void *b) {
  const struct part *x = a, *y = b;
  if (x->parent != y->parent)
    return x->parent < y->parent ? -1 : 1;
  if (x->ordinal != y->ordinal)
    return x->ordinal < y->ordinal ? -1 : 1;
  return x->joint < y->joint ? -1 : x->joint > y->joint;
}

static bool is_open(const struct nt_job *job, const struct nt_joint *joint) {
  if (joint->size_known || joint->origin != NT_COMM_SPLIT || joint->parent == NT_NONE ||
      !job->joints[joint->parent].size_known)
    return false;
  for (uint32_t i = 0; i < joint->member_count; i++)
    if (nt_member_view(job, &joint->members[i])->rank >= 0)
      return false;
  return joint->absent > 0;
}

/* Once all that the parent lacks have a place in parts of the same split, no part lacks another. */
static void close_parts(struct nt_job *job, const struct part *parts, uint32_t count) {
  uint32_t sum = 0;
  for (uint32_t i = 0; i < count; i++)
    sum += parts[i].least;
  if (sum != job->joints[parts->joint].absent)
    return;
  for (uint32_t i = 0; i < count; i++) {
    struct nt_joint *joint = &job->joints[parts[i].joint];
    if (parts[i].least && !joint->numbered)
      continue; /* it lacks them, but where is not known */
    joint->absent = parts[i].least;
    joint->size = (int32_t)(joint->member_count + joint->absent);
    joint->size_known = true;
  }
}

int nt_identify_peers(struct nt_job *job) {
  struct part *parts = calloc((size_t)job->joint_count + 1, sizeof *parts);
  uint32_t count = 0;
  int status = parts ? 0 : -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < job->joint_count && !status; i++) {
    const struct nt_joint *joint = &job->joints[i];
    if (!is_open(job, joint))
      continue;
    parts[count] =
        (struct part){i, joint->parent, nt_member_view(job, &joint->members[0])->ordinal, 0};
    if (joint->absent <= MOST_ABSENT && joint->member_count <= MOST_MEMBERS)
      status = place_members(job, i, &parts[count].least);
    count++;
  }
  if (!status)
    qsort(parts, count, sizeof *parts, by_split);
  for (uint32_t i = 0, n; i < count && !status; i += n) {
    for (n = 1; i + n < count && parts[i + n].parent == parts[i].parent &&
                parts[i + n].ordinal == parts[i].ordinal;)
      n++;
    close_parts(job, &parts[i], n);
  }
  free(parts);
  return status;
}
