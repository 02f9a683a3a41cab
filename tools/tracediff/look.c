/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last calls first, all where these do not decide; and a live job once more a moment later.
 *
 * What is found in the first look is never printed if there is a second: there is one verdict.
 */
#include "tracediff/look.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "analysis/window_enough.h"
#include "analysis/window_whole.h"
#include "cli/progress_bar.h"
#include "tracediff/gather.h"

#define LEAST                                                                                      \
  256 /* of each rank: in fewer calls innocents were seen to be blamed (digest_limits.c) */
#define LOOK_MS 250
#define YOUNG_MS 1100
#define JITTER_NS INT64_C(10000000) /* each look translates the clock anew */

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static bool any_live(const struct nt_model *model) {
  for (uint32_t i = 0; i < model->rank_count; i++)
    if (model->ranks[i].live && !model->ranks[i].digest_ns)
      return true;
  return false;
}

/* Calls of CUDA are none of NCCL: a rank that loads data or writes a checkpoint makes many. */
static int64_t last_call_ns(const struct nt_model_rank *rank) {
  int64_t last = 0;
  for (uint32_t i = 0; i < rank->call_count; i++)
    if (rank->calls[i].view != NT_NONE && rank->calls[i].enter_ns > last)
      last = rank->calls[i].enter_ns;
  return last;
}

/* Which ranks made a call between the two looks, or saw their device get any further? */
static void mark_moved(const struct nt_model *before, struct nt_model *after) {
  for (uint32_t i = 0; i < after->rank_count; i++) {
    struct nt_model_rank *rank = &after->ranks[i];
    uint32_t index = nt_model_find(before, rank->world);
    if (index == NT_NONE || before->ranks[index].pid != rank->pid)
      continue;
    const struct nt_model_rank *old = &before->ranks[index];
    rank->moved |=
        last_call_ns(rank) - last_call_ns(old) > JITTER_NS || old->gpu_steps != rank->gpu_steps;
  }
}

/* Long enough for those that are behind by a moment, and for the youngest wait to come of age. */
static void pause_between(const struct nt_verdict *verdict) {
  int64_t ms = LOOK_MS;
  if (verdict->moving)
    ms = YOUNG_MS;
  struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  while (nanosleep(&time, &time) != 0)
    continue;
}

static void draw(void *bar, uint32_t step) {
  nt_progress_bar_at(bar, step);
}

static int judge(const struct nt_look *how, const struct nt_model *model,
                 struct nt_verdict *verdict) {
  struct nt_progress_bar bar = {0};
  if (how->complaints) {
    nt_progress_bar_start(&bar, stderr, "judging", NT_VERDICT_STEPS);
    nt_progress_bar_since(&bar, how->began_ns);
  }
  const int status = nt_verdict_make_watched(model, draw, &bar, verdict);
  nt_progress_bar_end(&bar);
  return status;
}

static uint64_t total_calls(const struct nt_model *model) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < model->rank_count; i++)
    total += nt_window_there(&model->ranks[i]);
  return total;
}

/* All will be read in any case, and memory is meant for that: the verdict of what is there would be forgotten. */
static bool is_hopeless(const struct nt_looking *looking, const struct nt_model *model) {
  return !nt_window_may_suffice(model) && total_calls(model) <= looking->most;
}

static int look(const struct nt_looking *looking, const struct nt_look *how, struct nt_model *model,
                struct nt_verdict *verdict) {
  const int loaded = nt_gather(looking->paths, looking->count, how, model);
  model->bounded = how->bounded;
  if (loaded > 0 && is_hopeless(looking, model)) {
    *verdict = (struct nt_verdict){.lacks = "all is needed", .job.model = model};
    return loaded;
  }
  const int status = loaded > 0 ? judge(how, model, verdict) : 0;
  return status ? status : loaded;
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Of a job that is too large those are read as a whole that differ from others. */
static int name_whole(const struct nt_job *job, uint64_t most, struct nt_look *how) {
  const struct nt_model *model = job->model;
  bool *whole = calloc((size_t)model->rank_count + 1, sizeof *whole);
  how->whole = calloc((size_t)model->rank_count + 1, sizeof *how->whole);
  int status = whole && how->whole ? nt_window_whole(job, most, whole) : -NT_ERR_MEMORY;
  for (uint32_t r = 0; r < model->rank_count && !status; r++) {
    if (!whole[r] || !model->ranks[r].source)
      continue;
    how->whole[how->whole_count] = strdup(model->ranks[r].source);
    status = how->whole[how->whole_count] ? 0 : -NT_ERR_MEMORY;
    how->whole_count += !status;
  }
  free(whole);
  if (how->whole_count)
    qsort(how->whole, how->whole_count, sizeof *how->whole, by_name);
  return status;
}

static void free_whole(struct nt_look *how) {
  for (size_t i = 0; i < how->whole_count; i++)
    free(how->whole[i]);
  free(how->whole);
  how->whole = NULL;
  how->whole_count = 0;
}

/* All, or as many as memory is meant for: five eighths of them for the last calls of all ranks. */
static int widen(const struct nt_looking *looking, const struct nt_job *job, struct nt_look *how) {
  const uint64_t most = looking->most, each = most / 8 * 5 / job->model->rank_count;
  if (total_calls(job->model) <= most) {
    how->window = 0;
    return 0;
  }
  how->bounded = true;
  how->window = looking->window > LEAST ? looking->window : LEAST;
  how->window = each > how->window ? (uint32_t)each : how->window;
  how->idle_most = most / 8;
  return name_whole(job, most / 4, how);
}

static uint64_t unread_calls(const struct nt_model *model) {
  uint64_t unread = 0;
  for (uint32_t r = 0; r < model->rank_count; r++)
    unread += model->ranks[r].unread;
  return unread;
}

/* At the last calls, and at all where they do not decide: what is found then is all that is said. `how` becomes what
 * decided. */
static int look_twice(const struct nt_looking *looking, struct nt_look *how, struct nt_model *model,
                      struct nt_verdict *verdict) {
  char *complaints = NULL;
  size_t size = 0;
  int status = 0;
  how->complaints = open_memstream(&complaints, &size);
  int loaded = how->complaints ? look(looking, how, model, verdict) : -NT_ERR_MEMORY;
  if (how->complaints)
    (void)fclose(how->complaints);
  how->complaints = stderr;
  if (loaded > 0 && (verdict->lacks || (looking->full && unread_calls(model)))) {
    status = widen(looking, &verdict->job, how);
    nt_verdict_free(verdict);
    nt_model_free(model);
    loaded = status ? status : look(looking, how, model, verdict);
  } else if (complaints) {
    fputs(complaints, stderr);
  }
  free(complaints);
  return loaded;
}

int nt_look(const struct nt_looking *looking, struct nt_model *model, struct nt_verdict *verdict) {
  struct nt_look how = {.window = looking->window,
                        .small_bytes = looking->small_bytes,
                        .idle_most = looking->most / 3,
                        .began_ns = now_ns()};
  int loaded = look_twice(looking, &how, model, verdict), status = 0;
  if (loaded <= 0 || !any_live(model) || (!verdict->count && !verdict->moving)) {
    free_whole(&how);
    return loaded;
  }
  struct nt_model again = {0};
  pause_between(verdict);
  how.complaints = NULL;
  if (how.window && !how.bounded && unread_calls(model))
    status = widen(looking, &verdict->job, &how);
  loaded = status ? status : nt_gather(looking->paths, looking->count, &how, &again);
  if (loaded > 0) {
    again.bounded = how.bounded;
    mark_moved(model, &again);
    nt_verdict_free(verdict);
    nt_model_free(model);
    *model = again;
    status = nt_verdict_make(model, verdict);
  } else {
    nt_model_free(&again);
    loaded = 1; /* the files are gone meanwhile: the first look stands */
  }
  free_whole(&how);
  return status ? status : loaded;
}
