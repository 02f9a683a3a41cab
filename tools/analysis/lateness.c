/* SPDX-License-Identifier: Apache-2.0 */
/* Each round splits where the gap between those in time and those that are late is widest. */
#include "analysis/lateness.h"

#include <stdlib.h>
#include <string.h>

#define WAIT_NS INT64_C(1000000) /* shorter is what schedulers do */

/* When one member came, on a common clock. */
struct arrival {
  int64_t from_ns, by_ns; /* INT64_MAX: not known */
  uint32_t member;
};

struct split {
  int64_t gap_ns, spread_ns;
  uint32_t late; /* index of the first late one among the sorted arrivals; 0: nobody is */
};

struct work {
  const struct nt_joint *joint;
  const struct nt_rounds *rounds;
  int64_t *ahead; /* by member */
  struct arrival *arrivals;
  struct split *splits; /* by round */
  uint8_t *late;        /* by round and member */
  uint32_t *lost_us;    /* likewise */
  int64_t *sorted;      /* room for one number a round */
};

static int by_from(const void *a, const void *b) {
  const struct arrival *x = a, *y = b;
  if (x->from_ns != y->from_ns)
    return x->from_ns < y->from_ns ? -1 : 1;
  return x->member < y->member ? -1 : x->member > y->member;
}

static int by_value(const void *a, const void *b) {
  const int64_t *x = a, *y = b;
  return *x < *y ? -1 : *x > *y;
}

/* The late ones are fewer than half, or one of two. What was waited for before `covered_ns` is counted. */
static struct split split_at(const struct arrival *list, uint32_t count, int64_t covered_ns) {
  struct split best = {0, 0, 0};
  uint32_t least = count == 2 ? 1 : count - (count - 1) / 2, known = 0;
  int64_t by = covered_ns;
  for (uint32_t i = 0; i < count; i++) {
    if (i >= least && 2 * known >= count && list[i].from_ns - by > best.gap_ns) {
      int64_t first = list[0].from_ns > covered_ns ? list[0].from_ns : covered_ns;
      best.gap_ns = list[i].from_ns - by;
      best.spread_ns = list[i - 1].from_ns > first ? list[i - 1].from_ns - first : 0;
      best.late = i;
    }
    if (list[i].by_ns != INT64_MAX) {
      known++;
      by = list[i].by_ns > by ? list[i].by_ns : by;
    }
  }
  return best;
}

/* A member that was in it for long came early. */
static void arrive(struct work *w, uint32_t round, bool sampled) {
  const struct nt_meeting *at = nt_round(w->rounds, round);
  for (uint32_t m = 0; m < w->rounds->members; m++) {
    struct arrival *arrival = &w->arrivals[m];
    arrival->member = m;
    if (sampled)
      arrival->from_ns = arrival->by_ns = -INT64_C(1000) * at[m].took_us;
    else {
      arrival->from_ns = at[m].from_ns - w->ahead[m];
      arrival->by_ns = at[m].by_ns == INT64_MAX ? INT64_MAX : at[m].by_ns - w->ahead[m];
    }
  }
  qsort(w->arrivals, w->rounds->members, sizeof *w->arrivals, by_from);
}

static void look_at_round(struct work *w, struct nt_lateness *out, uint32_t round,
                          int64_t *covered_ns) {
  const uint32_t count = w->rounds->members;
  const int64_t least = out->error_ns > WAIT_NS ? out->error_ns : WAIT_NS;
  arrive(w, round, out->sampled);
  struct split *split = &w->splits[round];
  *split = split_at(w->arrivals, count, *covered_ns);
  const int64_t last = w->arrivals[count - 1].from_ns;
  if (split->gap_ns <= least)
    split->late = 0;
  for (uint32_t i = 0; i < count; i++) {
    const struct arrival *arrival = &w->arrivals[i];
    int64_t from = arrival->from_ns > *covered_ns ? arrival->from_ns : *covered_ns;
    const size_t place = (size_t)round * count + arrival->member;
    int64_t lost = last > from ? (last - from) / 1000 : 0;
    w->late[place] = split->late && i >= split->late;
    w->lost_us[place] = lost < UINT32_MAX ? (uint32_t)lost : UINT32_MAX;
  }
  if (!out->sampled)
    *covered_ns = last > *covered_ns ? last : *covered_ns;
}

/* Was the call of its host in time, and only its device late? */
static bool is_device(const struct work *w, uint32_t round, uint32_t m) {
  const struct nt_meeting *at = &nt_round(w->rounds, round)[m];
  return at->from_ns - at->enter_ns > w->splits[round].gap_ns / 2;
}

static void add_up(struct work *w, struct nt_lateness *out, int64_t cap_ns) {
  const uint32_t count = w->rounds->members;
  for (uint32_t r = 0; r < w->rounds->count; r++) {
    const struct split *split = &w->splits[r];
    const int64_t gap = split->gap_ns < cap_ns ? split->gap_ns : cap_ns;
    if (!split->late)
      continue;
    out->late_ns += gap;
    for (uint32_t m = 0; m < count; m++) {
      struct nt_late_member *member = &out->member[m];
      const int64_t lost = INT64_C(1000) * w->lost_us[(size_t)r * count + m];
      member->lost_ns += lost < cap_ns ? lost : cap_ns;
      if (!w->late[(size_t)r * count + m])
        continue;
      member->late_ns += gap;
      member->rounds++;
      member->first = member->first ? member->first : w->rounds->position[r];
      member->last = w->rounds->position[r];
      member->device = is_device(w, r, m);
    }
  }
}

/* No outlier counts for more than the last of those that it takes at least. */
static void sum_up(struct work *w, struct nt_lateness *out) {
  const uint32_t wanted = w->rounds->members == 2 ? NT_LATE_ROUNDS_OF_TWO : NT_LATE_ROUNDS;
  const uint32_t last = w->rounds->count - 1;
  uint32_t count = 0;
  for (uint32_t r = 0; r <= last; r++)
    if (w->splits[r].late)
      w->sorted[count++] = w->splits[r].gap_ns;
  out->fn = w->rounds->fn;
  out->rounds = w->rounds->count;
  out->waited = count;
  out->positions = w->rounds->position[last] - w->rounds->position[0];
  out->span_ns = nt_round(w->rounds, last)->enter_ns - nt_round(w->rounds, 0)->enter_ns;
  for (uint32_t m = 0; m < w->rounds->members; m++) {
    out->member[m].from_ns = nt_round(w->rounds, 0)[m].enter_ns;
    out->member[m].to_ns = nt_round(w->rounds, last)[m].enter_ns;
  }
  if (count < wanted)
    return;
  qsort(w->sorted, count, sizeof *w->sorted, by_value);
  out->gap_ns = w->sorted[count / 2];
  add_up(w, out, w->sorted[count - wanted]);
  count = 0;
  for (uint32_t r = 0; r <= last; r++)
    if (w->splits[r].late)
      w->sorted[count++] = w->splits[r].spread_ns;
  qsort(w->sorted, count, sizeof *w->sorted, by_value);
  out->spread_ns = w->sorted[count / 2];
}

/* Clocks of the members' hosts. False where they cannot be compared. */
static bool correct(const struct nt_clocks *clocks, struct work *w, struct nt_lateness *out) {
  const uint32_t first = clocks->host[w->joint->members[0].rank];
  int64_t worst = clocks->list[first].error_ns, second = 0;
  uint32_t of = first;
  bool one = true, known = clocks->list[first].known;
  for (uint32_t m = 0; m < w->joint->member_count; m++) {
    const uint32_t host = clocks->host[w->joint->members[m].rank];
    const struct nt_clock *clock = &clocks->list[host];
    one &= host == first;
    known &= clock->known;
    w->ahead[m] = clock->known ? clock->ahead_ns : 0;
    if (clock->error_ns > worst) {
      second = worst;
      worst = clock->error_ns;
      of = host;
    } else if (host != of && clock->error_ns > second) {
      second = clock->error_ns;
    }
  }
  out->error_ns = one ? 0 : worst + second;
  return one || known;
}

int nt_lateness_measure(const struct nt_job *job, const struct nt_clocks *clocks, uint32_t index,
                        bool sampled, struct nt_lateness *out) {
  const struct nt_joint *joint = &job->joints[index];
  memset(out, 0, sizeof *out);
  struct nt_rounds rounds = {0};
  struct work w = {.joint = joint, .rounds = &rounds};
  int status = nt_rounds_find(job, joint, sampled, &rounds);
  const size_t room = (size_t)rounds.count + 1, members = joint->member_count + 1u;
  w.ahead = calloc(members, sizeof *w.ahead);
  w.arrivals = malloc(members * sizeof *w.arrivals);
  w.splits = calloc(room, sizeof *w.splits);
  w.late = malloc(room * members);
  w.lost_us = malloc(room * members * sizeof *w.lost_us);
  w.sorted = malloc(room * sizeof *w.sorted);
  out->member = calloc(members, sizeof *out->member);
  out->sampled = sampled;
  if (!w.ahead || !w.arrivals || !w.splits || !w.late || !w.lost_us || !w.sorted || !out->member)
    status = -NT_ERR_MEMORY;
  if (!status && rounds.count > 1 && (sampled || correct(clocks, &w, out))) {
    int64_t covered_ns = INT64_MIN / 4;
    if (out->error_ns) /* clocks are where they are now; earlier they were a little off that */
      out->error_ns += NT_CLOCK_DRIFT(nt_round(&rounds, rounds.count - 1)->enter_ns -
                                      nt_round(&rounds, 0)->enter_ns);
    for (uint32_t r = 0; r < rounds.count; r++)
      look_at_round(&w, out, r, &covered_ns);
    sum_up(&w, out);
    out->measured = out->waited != 0 && out->span_ns > 0;
  }
  free(w.ahead);
  free(w.arrivals);
  free(w.splits);
  free(w.late);
  free(w.lost_us);
  free(w.sorted);
  nt_rounds_free(&rounds);
  return status;
}

void nt_lateness_free(struct nt_lateness *lateness) {
  free(lateness->member);
  memset(lateness, 0, sizeof *lateness);
}

double nt_lateness_share(const struct nt_lateness *lateness, int64_t ns) {
  if (!lateness->measured)
    return 0;
  double share = (double)ns / (double)lateness->span_ns;
  if (lateness->sampled && lateness->rounds > 1)
    share *= (double)lateness->positions / (lateness->rounds - 1);
  return share < 1 ? share : 1;
}
