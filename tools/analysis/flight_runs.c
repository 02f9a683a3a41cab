/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which dumps are of one run and one moment.
 *
 * Nothing in a dump names its run, and groups have the same names in every run; what tells is when its calls were made.
 * Dumps whose calls lie close together are a set, and the newest set is judged. An older one belongs to it if the
 * numbers of its calls may be those in front of it: a rank that is stuck early has an older last call, and where the
 * ring has wrapped, or completed operations are left out, the others hold none that is as old. Clocks of hosts differ by
 * seconds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/flight_parts.h"
#include "cli/rank_set.h"
#include "cli/text.h"
#include "nccl/nccl_api.h"

#define SECOND INT64_C(1000000000)
#define NEAR_NS (5 * SECOND) /* closer than that: one set, whatever else */
#define APART_NS                                                                                   \
  (60 * SECOND) /* further: another run, unless the numbers go on from one to the other */
#define LATER_NS                                                                                   \
  (1800 * SECOND) /* further: another run, whatever else; watchdogs end jobs before that */
#define FILE_NS (3600 * SECOND) /* files that were written further apart are of different moments */

enum { NOTES_MAX = 4, RANKS_TEXT = 160 };

struct dump {
  uint32_t index; /* of the rank in the model */
  int32_t world;
  int64_t first, last; /* 0: it has no call */
  uint32_t set;        /* NT_NONE: none */
};

struct set {
  int64_t first, last;
  int32_t world_size; /* -1 if not known */
  bool kept, doubted;
  int64_t gap; /* to what is judged */
};

/* A group in one dump: the numbers of its collectives, 0 if it has none. */
struct span {
  const uint8_t *id;
  uint32_t set, low, high;
};

struct sorter {
  struct nt_model *model;
  struct dump *dumps; /* those that have calls in front, by time */
  uint32_t count, timed;
  struct set *sets; /* by time; the last is the newest */
  uint32_t set_count;
  struct span *spans; /* by id */
  size_t span_count;
};

static int by_time(const void *a, const void *b) {
  const struct dump *x = a, *y = b;
  if (!x->first != !y->first)
    return x->first ? -1 : 1;
  if (x->first != y->first)
    return x->first < y->first ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

static void find_windows(struct sorter *s) {
  for (uint32_t r = 0; r < s->count; r++) {
    const struct nt_model_rank *rank = &s->model->ranks[r];
    struct dump *dump = &s->dumps[r];
    *dump = (struct dump){.index = r, .world = rank->world, .set = NT_NONE};
    for (uint32_t i = 0; i < rank->call_count; i++) {
      const int64_t ns = rank->calls[i].enter_ns;
      if (ns <= 0)
        continue;
      dump->first = !dump->first || ns < dump->first ? ns : dump->first;
      dump->last = ns > dump->last ? ns : dump->last;
    }
    s->timed += dump->first != 0;
  }
  qsort(s->dumps, s->count, sizeof *s->dumps, by_time);
}

/* Has a rank of the set a dump that ends before this one begins? */
static bool is_again(const struct sorter *s, uint32_t set, const struct dump *dump) {
  for (const struct dump *d = s->dumps; d < dump; d++)
    if (d->set == set && d->world == dump->world && d->last < dump->first)
      return true;
  return false;
}

static void measure(struct sorter *s) {
  for (uint32_t i = 0; i < s->set_count; i++)
    s->sets[i] = (struct set){.first = INT64_MAX, .world_size = -1};
  for (uint32_t i = 0; i < s->timed; i++) {
    const struct dump *dump = &s->dumps[i];
    struct set *set = &s->sets[dump->set];
    const int32_t size = s->model->ranks[dump->index].world_size;
    set->first = dump->first < set->first ? dump->first : set->first;
    set->last = dump->last > set->last ? dump->last : set->last;
    set->world_size = size > set->world_size ? size : set->world_size;
  }
}

static void find_sets(struct sorter *s) {
  int64_t end = 0;
  for (uint32_t i = 0; i < s->timed; i++) {
    struct dump *dump = &s->dumps[i];
    if (!s->set_count || dump->first > end + NEAR_NS || is_again(s, s->set_count - 1, dump))
      s->set_count++;
    dump->set = s->set_count - 1;
    end = dump->last > end ? dump->last : end;
  }
  measure(s);
  /* Of a run that began anew at once, some were faster than the first that came again. */
  for (uint32_t i = 0; i < s->timed; i++) {
    struct dump *dump = &s->dumps[i];
    while (dump->set + 1 < s->set_count && dump->last >= s->sets[dump->set + 1].first)
      dump->set++;
  }
  measure(s);
}

static int by_id(const void *a, const void *b) {
  const struct span *x = a, *y = b;
  return memcmp(x->id, y->id, 16);
}

static int find_spans(struct sorter *s) {
  size_t total = 1;
  for (uint32_t i = 0; i < s->timed; i++)
    total += s->model->ranks[s->dumps[i].index].view_count;
  s->spans = calloc(total, sizeof *s->spans);
  if (!s->spans)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < s->timed; i++) {
    const struct nt_model_rank *rank = &s->model->ranks[s->dumps[i].index];
    struct span *own = &s->spans[s->span_count];
    for (uint32_t v = 0; v < rank->view_count; v++)
      own[v] = (struct span){.id = rank->views[v].id, .set = s->dumps[i].set};
    s->span_count += rank->view_count;
    for (uint32_t c = 0; c < rank->call_count; c++) {
      const struct nt_model_call *call = &rank->calls[c];
      if (call->view == NT_NONE || !nt_fn_is_collective(call->fn))
        continue;
      struct span *span = &own[call->view];
      span->low = !span->high || call->seq < span->low ? call->seq : span->low;
      span->high = call->seq > span->high ? call->seq : span->high;
    }
  }
  qsort(s->spans, s->span_count, sizeof *s->spans, by_id);
  return 0;
}

static void widen(struct span *span, const struct span *by) {
  if (!by->high)
    return;
  span->low = !span->high || by->low < span->low ? by->low : span->low;
  span->high = by->high > span->high ? by->high : span->high;
}

/* Do they have groups in common, and calls that were made twice? One such call may be one that came late. */
static void compare(const struct sorter *s, uint32_t set, bool *shared, bool *twice) {
  *shared = *twice = false;
  for (size_t i = 0, n; i < s->span_count; i += n) {
    struct span old = {0}, kept = {0};
    bool in_old = false, in_kept = false;
    for (n = 0; i + n < s->span_count && !memcmp(s->spans[i].id, s->spans[i + n].id, 16); n++) {
      const struct span *span = &s->spans[i + n];
      in_old |= span->set == set;
      in_kept |= s->sets[span->set].kept;
      if (span->set == set)
        widen(&old, span);
      else if (s->sets[span->set].kept)
        widen(&kept, span);
    }
    *shared |= in_old && in_kept;
    *twice |= old.high && kept.high && old.high > kept.low;
  }
}

static bool has_double(const struct sorter *s, uint32_t set) {
  for (uint32_t i = 0; i < s->timed; i++)
    for (uint32_t j = 0; j < s->timed && s->dumps[i].set == set; j++)
      if (s->sets[s->dumps[j].set].kept && s->dumps[j].world == s->dumps[i].world)
        return true;
  return false;
}

static void judge_sets(struct sorter *s) {
  struct set *newest = &s->sets[s->set_count - 1];
  int64_t first = newest->first;
  newest->kept = true;
  for (uint32_t i = s->set_count - 1; i-- > 0;) {
    struct set *set = &s->sets[i];
    bool shared, twice;
    const bool sized = set->world_size > 0 && newest->world_size > 0;
    set->gap = first - set->last;
    if (set->gap > LATER_NS || (sized && set->world_size != newest->world_size) || has_double(s, i))
      continue;
    compare(s, i, &shared, &twice);
    if (set->gap > APART_NS && (twice || !shared))
      continue;
    set->kept = true;
    set->doubted = twice || set->gap > APART_NS;
    first = set->first;
  }
}

/* How many of the dump's groups are those of a set. */
static uint32_t common_groups(const struct sorter *s, const struct nt_model_rank *rank,
                              uint32_t set) {
  uint32_t common = 0;
  for (uint32_t v = 0; v < rank->view_count; v++) {
    const struct span key = {.id = rank->views[v].id};
    const struct span *found = bsearch(&key, s->spans, s->span_count, sizeof key, by_id);
    bool is_common = false;
    for (const struct span *p = found; p && p >= s->spans && !by_id(p, &key); p--)
      is_common |= p->set == set;
    for (const struct span *p = found; p && p < s->spans + s->span_count && !by_id(p, &key); p++)
      is_common |= p->set == set;
    common += is_common;
  }
  return common;
}

static bool same_directory(const char *a, const char *b) {
  const char *x = a ? strrchr(a, '/') : NULL, *y = b ? strrchr(b, '/') : NULL;
  if (!x || !y)
    return !x && !y;
  return x - a == y - b && !memcmp(a, b, (size_t)(x - a));
}

/* What the set has of it: 0 if it has the rank already, or its file is much older. */
static uint64_t affinity(const struct sorter *s, const struct dump *dump, uint32_t set) {
  const struct nt_model_rank *rank = &s->model->ranks[dump->index];
  uint64_t near = 0;
  int64_t written = INT64_MAX;
  for (uint32_t i = 0; i < s->timed; i++) {
    const struct nt_model_rank *other = &s->model->ranks[s->dumps[i].index];
    if (s->dumps[i].set != set)
      continue;
    if (other->world == rank->world)
      return 0;
    near |= same_directory(other->source, rank->source);
    written = other->last_beat_ns < written ? other->last_beat_ns : written;
  }
  if (rank->last_beat_ns && rank->last_beat_ns + FILE_NS < written)
    return 0;
  return 1 + near + 2 * (uint64_t)common_groups(s, rank, set);
}

/* One without calls has no time: it is of the set that it fits best. */
static void place_empty(struct sorter *s) {
  for (uint32_t i = s->timed; i < s->count; i++) {
    uint64_t best = 0;
    for (uint32_t set = s->set_count; set-- > 0;) {
      const uint64_t found = affinity(s, &s->dumps[i], set);
      if (found > best) {
        best = found;
        s->dumps[i].set = set;
      }
    }
  }
}

/* "rank 2 (/d/_dump_2)" or "8 dumps (ranks 0-7, /d/_dump_0 ...)" of a set. Returns how many. */
static uint32_t name_set(const struct sorter *s, uint32_t set, char **out) {
  struct nt_rank_set ranks = {0};
  char text[RANKS_TEXT];
  const char *source = NULL;
  uint32_t count = 0;
  for (uint32_t i = 0; i < s->count; i++) {
    if (s->dumps[i].set != set)
      continue;
    count++;
    source = source ? source : s->model->ranks[s->dumps[i].index].source;
    if (s->dumps[i].world >= 0)
      (void)nt_rank_set_add(&ranks, (uint32_t)s->dumps[i].world);
  }
  nt_rank_set_text(text, sizeof text, &ranks);
  nt_rank_set_free(&ranks);
  int length =
      count == 1 ? asprintf(out, "the dump of rank %s (%s)", text, source ? source : "")
                 : asprintf(out, "%u dumps (ranks %s, %s ...)", count, text, source ? source : "");
  if (length < 0)
    *out = NULL;
  return count;
}

static void note_set(struct sorter *s, uint32_t set) {
  char *name, gap[NT_DURATION_TEXT];
  const uint32_t count = name_set(s, set, &name);
  const char *were = count == 1 ? "was" : "were";
  if (!name || !count) {
    free(name);
    return;
  }
  if (set == NT_NONE) {
    nt_model_note(s->model, "%s %s left out: without calls, and of another run or moment", name,
                  were);
  } else if (s->sets[set].doubted) {
    s->model->doubtful = true;
    nt_model_note(
        s->model,
        "the calls of %s end %s before those of the others: another run, an older dump, or "
        "a clock that is off; so nothing said here is certain",
        name, nt_duration_text(gap, s->sets[set].gap));
  } else if (!s->sets[set].kept) {
    nt_model_note(s->model,
                  "%s %s left out as of another run or moment: %s calls end %s before those that "
                  "are judged begin",
                  name, were, count == 1 ? "its" : "their",
                  nt_duration_text(gap, s->sets[set].gap > 0 ? s->sets[set].gap : 0));
  }
  free(name);
}

static int keep(struct sorter *s) {
  uint32_t told = 0, kept = 0;
  bool *stays = calloc((size_t)s->count + 1, sizeof *stays);
  if (!stays)
    return -NT_ERR_MEMORY;
  for (uint32_t set = s->set_count; set-- > 0;)
    if ((!s->sets[set].kept || s->sets[set].doubted) && told++ < NOTES_MAX)
      note_set(s, set);
  note_set(s, NT_NONE);
  for (uint32_t i = 0; i < s->count; i++)
    stays[s->dumps[i].index] = s->dumps[i].set != NT_NONE && s->sets[s->dumps[i].set].kept;
  for (uint32_t r = 0; r < s->count; r++) {
    if (stays[r])
      s->model->ranks[kept++] = s->model->ranks[r];
    else
      nt_model_free_rank(&s->model->ranks[r]);
  }
  s->model->rank_count = kept;
  free(stays);
  return 0;
}

int nt_flight_keep_newest(struct nt_model *model) {
  struct sorter s = {.model = model, .count = model->rank_count};
  s.dumps = calloc((size_t)s.count + 1, sizeof *s.dumps);
  s.sets = calloc((size_t)s.count + 1, sizeof *s.sets);
  int status = s.dumps && s.sets ? 0 : -NT_ERR_MEMORY;
  if (!status) {
    find_windows(&s);
    find_sets(&s);
    if (s.set_count > 1) {
      status = find_spans(&s);
      if (!status) {
        judge_sets(&s);
        place_empty(&s);
        status = keep(&s);
      }
    }
  }
  free(s.dumps);
  free(s.sets);
  free(s.spans);
  return status;
}
