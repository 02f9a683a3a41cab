/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory may hold traces of several runs. Processes that share a communicator are of one run, whatever
 * else they say. What is left apart is put together where nothing speaks against it: the same run id and
 * attempt, the same size of the world, no world rank twice, and lives that touch. A run is judged as a whole
 * or not at all: ranks of two runs are never mixed.
 */
#include "analysis/runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/rank_set.h"

/* A process whose last sign of life is older than this before the newest one began is of another job. */
#define STALE_NS INT64_C(10000000000)

enum { NOTES_MAX = 4, FILES_MAX = 16 };

/* Traces that share communicators, and what they are put together to. */
struct run {
  struct nt_rank_set worlds;
  const char *run_id;             /* of a trace, "" if none tells */
  uint32_t restart, count, first; /* `first`: the trace that was loaded first */
  int32_t world_size;
  int64_t first_start, last_start, end; /* end: INT64_MAX while one lives */
  bool live, talked;                    /* talked: a communicator was made or begun */
};

struct sorter {
  struct nt_model *model;
  uint32_t *parent; /* by trace: union by shared communicators */
  uint32_t *run_of; /* by trace: its run */
  struct run *runs; /* by the trace that stands for it */
  uint32_t *order;  /* of the groups: which is placed first */
  uint32_t group_count;
};

static const char *run_id_of(const struct nt_model_rank *rank) {
  return rank->run_id ? rank->run_id : "";
}

static uint32_t root_of(uint32_t *parent, uint32_t i) {
  while (parent[i] != i)
    i = parent[i] = parent[parent[i]];
  return i;
}

struct tie {
  const uint8_t *id;
  uint32_t trace;
};

static int by_id(const void *a, const void *b) {
  const struct tie *x = a, *y = b;
  int order = memcmp(x->id, y->id, 16);
  return order ? order : x->trace < y->trace ? -1 : x->trace > y->trace;
}

static bool is_zero(const uint8_t id[16]) {
  static const uint8_t zero[16];
  return !memcmp(id, zero, sizeof zero);
}

/* Two attempts, or two runs by their ids, share no communicator, whatever its id says. */
static bool may_share(const struct nt_model_rank *a, const struct nt_model_rank *b) {
  bool named = *run_id_of(a) && *run_id_of(b);
  return a->restart == b->restart && (!named || !strcmp(run_id_of(a), run_id_of(b)));
}

static int tie_by_communicators(struct sorter *s) {
  size_t total = 0, count = 0;
  for (uint32_t i = 0; i < s->model->rank_count; i++)
    total += 2 * (size_t)s->model->ranks[i].view_count;
  struct tie *ties = malloc((total + 1) * sizeof *ties);
  if (!ties)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < s->model->rank_count; i++)
    for (uint32_t j = 0; j < s->model->ranks[i].view_count; j++) {
      const struct nt_model_view *view = &s->model->ranks[i].views[j];
      if (!is_zero(view->id))
        ties[count++] = (struct tie){view->id, i};
      if (!is_zero(view->uid_hash))
        ties[count++] = (struct tie){view->uid_hash, i};
    }
  qsort(ties, count, sizeof *ties, by_id);
  for (size_t i = 1; i < count; i++) {
    if (memcmp(ties[i - 1].id, ties[i].id, 16) != 0 ||
        !may_share(&s->model->ranks[ties[i - 1].trace], &s->model->ranks[ties[i].trace]))
      continue;
    uint32_t a = root_of(s->parent, ties[i - 1].trace), b = root_of(s->parent, ties[i].trace);
    s->parent[a > b ? a : b] = a > b ? b : a;
  }
  free(ties);
  return 0;
}

/* Last sign of life; a trace that tells none is as old as any other. */
static int64_t end_of(const struct nt_model_rank *rank) {
  int64_t end = nt_model_end(rank);
  return rank->live || !end ? INT64_MAX : end;
}

static int add_trace(struct run *run, const struct nt_model_rank *rank, uint32_t index) {
  int64_t start = rank->started_ns, end = end_of(rank);
  if (!run->count++) {
    run->run_id = run_id_of(rank);
    run->restart = rank->restart;
    run->first = index;
    run->world_size = rank->world_size;
    run->first_start = run->last_start = start;
    run->end = end;
  }
  if (!*run->run_id)
    run->run_id = run_id_of(rank);
  if (rank->world_size > run->world_size)
    run->world_size = rank->world_size;
  run->first_start = start < run->first_start ? start : run->first_start;
  run->last_start = start > run->last_start ? start : run->last_start;
  run->end = end > run->end ? end : run->end;
  run->live |= rank->live;
  run->talked |= rank->view_count != 0;
  if (rank->world < 0)
    return 0;
  return nt_rank_set_add(&run->worlds, (uint32_t)rank->world);
}

/* Of the groups, the large ones are the scaffold; among equals the earlier, and then what never ties. */
static int compare_groups(const struct sorter *s, uint32_t a, uint32_t b) {
  const struct run *x = &s->runs[a], *y = &s->runs[b];
  if ((x->count > 1) != (y->count > 1))
    return x->count > 1 ? -1 : 1;
  if (x->first_start != y->first_start)
    return x->first_start < y->first_start ? -1 : 1;
  const struct nt_model_rank *p = &s->model->ranks[x->first], *q = &s->model->ranks[y->first];
  if (p->world != q->world)
    return p->world < q->world ? -1 : 1;
  if (p->pid != q->pid)
    return p->pid < q->pid ? -1 : 1;
  return strcmp(p->source ? p->source : "", q->source ? q->source : "");
}

static int by_group(const void *a, const void *b, void *context) {
  return compare_groups(context, *(const uint32_t *)a, *(const uint32_t *)b);
}

static bool share_a_world(const struct run *a, const struct run *b) {
  uint32_t words =
      a->worlds.word_count < b->worlds.word_count ? a->worlds.word_count : b->worlds.word_count;
  for (uint32_t i = 0; i < words; i++)
    if (a->worlds.words[i] & b->worlds.words[i])
      return true;
  return false;
}

static bool is_stale(int64_t end, int64_t start) {
  return end != INT64_MAX && end + STALE_NS < start;
}

static bool fits(const struct run *run, const struct run *group) {
  bool named = *run->run_id && *group->run_id;
  if (named ? strcmp(run->run_id, group->run_id) != 0 : *run->run_id != *group->run_id)
    return false;
  bool sized = run->world_size > 0 && group->world_size > 0;
  return run->restart == group->restart && (!sized || run->world_size == group->world_size) &&
         !is_stale(run->end, group->last_start) && !is_stale(group->end, run->last_start) &&
         !share_a_world(run, group);
}

static int64_t distance(const struct run *run, const struct run *group) {
  if (group->first_start < run->first_start)
    return run->first_start - group->first_start;
  return group->first_start > run->last_start ? group->first_start - run->last_start : 0;
}

static int merge(struct sorter *s, uint32_t into, uint32_t from) {
  struct run *run = &s->runs[into], *other = &s->runs[from];
  uint32_t first = run->first;
  int status = 0;
  for (uint32_t w = nt_rank_set_next(&other->worlds, 0); w < NT_RANK_MAX && !status;
       w = nt_rank_set_next(&other->worlds, w + 1))
    status = nt_rank_set_add(&run->worlds, w);
  run->first = other->first < first ? other->first : first;
  run->count += other->count;
  run->world_size = other->world_size > run->world_size ? other->world_size : run->world_size;
  run->first_start = other->first_start < run->first_start ? other->first_start : run->first_start;
  run->last_start = other->last_start > run->last_start ? other->last_start : run->last_start;
  run->end = other->end > run->end ? other->end : run->end;
  run->live |= other->live;
  run->talked |= other->talked;
  other->count = 0;
  s->run_of[from] = into;
  return status;
}

/* Puts groups together, each to the run that began nearest to it. */
static int join_groups(struct sorter *s) {
  uint32_t placed = 0;
  int status = 0;
  qsort_r(s->order, s->group_count, sizeof *s->order, by_group, s);
  for (uint32_t i = 0; i < s->group_count && !status; i++) {
    uint32_t group = s->order[i], best = NT_NONE;
    for (uint32_t j = 0; j < placed; j++)
      if (fits(&s->runs[s->order[j]], &s->runs[group]) &&
          (best == NT_NONE || distance(&s->runs[s->order[j]], &s->runs[group]) <
                                  distance(&s->runs[best], &s->runs[group])))
        best = s->order[j];
    if (best != NT_NONE)
      status = merge(s, best, group);
    else
      s->order[placed++] = group;
  }
  s->group_count = placed;
  return status;
}

/* Of one run, numbered in the order in which they began. Where the lower number began clearly later they are two runs that
 * were given one name, as two calls of torchrun within a job of Slurm's. */
static bool are_attempts(const struct run *x, const struct run *y) {
  const struct run *high = x->restart > y->restart ? x : y, *low = high == x ? y : x;
  return *x->run_id && !strcmp(x->run_id, y->run_id) && x->restart != y->restart &&
         low->first_start <= high->last_start + STALE_NS;
}

static bool is_newer(const struct sorter *s, uint32_t a, uint32_t b) {
  const struct run *x = &s->runs[a], *y = &s->runs[b];
  if (x->talked != y->talked)
    return x->talked;
  if (are_attempts(x, y))
    return x->restart > y->restart;
  if (x->last_start != y->last_start)
    return x->last_start > y->last_start;
  if (x->restart != y->restart)
    return x->restart > y->restart;
  int order = strcmp(x->run_id, y->run_id);
  return order ? order > 0 : compare_groups(s, a, b) > 0;
}

/* The run that began last; of its attempts the last one. */
static uint32_t pick(const struct sorter *s) {
  uint32_t newest = s->order[0];
  for (uint32_t i = 1; i < s->group_count; i++) {
    const struct run *x = &s->runs[s->order[i]], *y = &s->runs[newest];
    if (x->talked != y->talked           ? x->talked
        : x->last_start != y->last_start ? x->last_start > y->last_start
                                         : is_newer(s, s->order[i], newest))
      newest = s->order[i];
  }
  for (uint32_t i = 0; i < s->group_count; i++)
    if (!strcmp(s->runs[s->order[i]].run_id, s->runs[newest].run_id) && *s->runs[newest].run_id &&
        is_newer(s, s->order[i], newest))
      newest = s->order[i];
  return newest;
}

/* Runs that are not judged. */
struct others {
  uint32_t runs, traces, which[NOTES_MAX]; /* which: the first of them */
};

static void add_others(struct others *o, const struct sorter *s, uint32_t run) {
  if (o->runs < NOTES_MAX)
    o->which[o->runs] = run;
  o->runs++;
  o->traces += s->runs[run].count;
}

/* "FILE FILE …"; of a run with more than FILES_MAX "FILE … and N more". */
static void print_files(FILE *out, const struct sorter *s, uint32_t run) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < s->model->rank_count && count < FILES_MAX; i++) {
    const char *source = s->model->ranks[i].source;
    if (root_of(s->run_of, i) == run && source)
      fprintf(out, "%s%s", count++ ? " " : "", source);
  }
  if (count == FILES_MAX && s->runs[run].count > count)
    fprintf(out, " and %u more", s->runs[run].count - count);
}

/* "N traces of another run that still lives …: tracediff FILE…"; no command where the list is cut */
static void note_live(const struct sorter *s, uint32_t run) {
  char *files = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&files, &size);
  if (stream)
    print_files(stream, s, run);
  const bool named = stream && fclose(stream) == 0 && size;
  const uint32_t count = s->runs[run].count;
  const char *run_id = s->runs[run].run_id;
  nt_model_note(s->model,
                "ANOTHER RUN STILL LIVES and was left out, because this one began later: %u "
                "trace%s%s%s; to judge it%s%s",
                count, count == 1 ? "" : "s", *run_id ? " of run " : "", run_id,
                !named              ? ", name its traces alone"
                : count > FILES_MAX ? ", name all its traces, and no others, to tracediff: "
                                    : ": tracediff ",
                named ? files : "");
  free(files);
}

/* Each run's files apart, since each is judged by itself: " FILE FILE", or " run ID (FILE FILE), attempt N (FILE), …" */
static void print_runs(FILE *out, const struct sorter *s, const struct others *o, bool attempts) {
  const uint32_t count = o->runs < NOTES_MAX ? o->runs : NOTES_MAX;
  for (uint32_t i = 0; i < count; i++) {
    const struct run *run = &s->runs[o->which[i]];
    fputs(i ? ", " : " ", out);
    if (o->runs > 1 && attempts)
      fprintf(out, "attempt %u ", run->restart);
    else if (o->runs > 1)
      fprintf(out, "run %s%s", run->run_id, *run->run_id ? " " : "");
    fputs(o->runs > 1 ? "(" : "", out);
    print_files(out, s, o->which[i]);
    fputs(o->runs > 1 ? ")" : "", out);
  }
  if (o->runs > count)
    fprintf(out, ", and %u more", o->runs - count);
}

/* "N traces of M other WORDs were left out…: FILE…" */
static void note_left_out(const struct sorter *s, const struct others *o, const char *word,
                          const char *why) {
  char *files = NULL;
  size_t size = 0;
  if (!o->runs)
    return;
  FILE *stream = open_memstream(&files, &size);
  if (stream)
    print_runs(stream, s, o, *why);
  const bool named = stream && fclose(stream) == 0 && size > 1;
  nt_model_note(s->model, "%u trace%s of %u other %s%s %s left out%s%s%s", o->traces,
                o->traces == 1 ? "" : "s", o->runs, word, o->runs == 1 ? "" : "s",
                o->traces == 1 ? "was" : "were", why, named ? ":" : "", named ? files : "");
  free(files);
}

static void note_others(const struct sorter *s, uint32_t kept) {
  struct others runs = {0}, attempts = {0};
  uint32_t live = 0;
  const struct run *newest = &s->runs[kept];
  for (uint32_t i = 0; i < s->group_count; i++) {
    const struct run *run = &s->runs[s->order[i]];
    if (s->order[i] == kept)
      continue;
    if (run->restart != newest->restart &&
        (are_attempts(run, newest) || (!*run->run_id && !*newest->run_id)))
      add_others(&attempts, s, s->order[i]);
    else if (run->live && live++ < NOTES_MAX)
      note_live(s, s->order[i]);
    else
      add_others(&runs, s, s->order[i]);
  }
  char why[48];
  snprintf(why, sizeof why, "; attempt %u is the newest", newest->restart);
  note_left_out(s, &runs, "run", "");
  note_left_out(s, &attempts, "attempt", why);
}

static int sort(struct sorter *s) {
  uint32_t count = s->model->rank_count;
  for (uint32_t i = 0; i < count; i++)
    s->parent[i] = i;
  int status = tie_by_communicators(s);
  for (uint32_t i = 0; i < count && !status; i++) {
    uint32_t root = root_of(s->parent, i);
    s->run_of[i] = root;
    if (root == i)
      s->order[s->group_count++] = i;
    status = add_trace(&s->runs[root], &s->model->ranks[i], i);
  }
  return status ? status : join_groups(s);
}

/* The rest keeps its order. */
static void keep(struct sorter *s, uint32_t run) {
  struct nt_model *model = s->model;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    if (root_of(s->run_of, i) != run) {
      nt_model_free_rank(&model->ranks[i]);
      continue;
    }
    model->ranks[kept++] = model->ranks[i];
  }
  model->rank_count = kept;
}

int nt_runs_keep_newest(struct nt_model *model) {
  uint32_t count = model->rank_count;
  struct sorter s = {.model = model};
  s.parent = calloc(count + 1u, sizeof *s.parent);
  s.run_of = calloc(count + 1u, sizeof *s.run_of);
  s.runs = calloc(count + 1u, sizeof *s.runs);
  s.order = calloc(count + 1u, sizeof *s.order);
  int status = s.parent && s.run_of && s.runs && s.order ? 0 : -NT_ERR_MEMORY;
  if (!status)
    status = sort(&s);
  if (!status && count) {
    uint32_t newest = pick(&s);
    note_others(&s, newest);
    keep(&s, newest);
  }
  for (uint32_t i = 0; s.runs && i < count; i++)
    nt_rank_set_free(&s.runs[i].worlds);
  free(s.parent);
  free(s.run_of);
  free(s.runs);
  free(s.order);
  return status;
}
