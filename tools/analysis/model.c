/* SPDX-License-Identifier: Apache-2.0 */
/* Growing, settling and freeing the model. No interpretation beyond which run is the newest (runs.h). */
#include "analysis/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/damage.h"
#include "analysis/each.h"
#include "analysis/replayed.h"
#include "analysis/runs.h"
#include "analysis/world_claims.h"
#include "nccl/nccl_api.h"

#define UNWRITTEN_NS INT64_C(61000000000) /* the oldest that a file is behind its process */

static void *grow(void *array, uint32_t count, uint32_t *room, size_t size) {
  if (count < *room)
    return array;
  uint32_t wanted = *room ? *room * 2 : 8;
  void *bigger = wanted > *room ? realloc(array, wanted * size) : NULL;
  if (bigger)
    *room = wanted;
  return bigger;
}

struct nt_model_rank nt_model_no_rank(void) {
  return (struct nt_model_rank){.world = -1, .world_size = -1, .gpu_index = -1, .cuda_device = -1};
}

struct nt_model_rank *nt_model_add_rank(struct nt_model *model) {
  void *array = grow(model->ranks, model->rank_count, &model->rank_room, sizeof *model->ranks);
  if (!array)
    return NULL;
  model->ranks = array;
  struct nt_model_rank *rank = &model->ranks[model->rank_count++];
  *rank = nt_model_no_rank();
  return rank;
}

struct nt_model_view *nt_model_add_view(struct nt_model_rank *rank) {
  void *array = grow(rank->views, rank->view_count, &rank->view_room, sizeof *rank->views);
  if (!array)
    return NULL;
  rank->views = array;
  struct nt_model_view *view = &rank->views[rank->view_count++];
  memset(view, 0, sizeof *view);
  view->rank = view->nranks = view->device = -1;
  return view;
}

struct nt_model_call *nt_model_add_call(struct nt_model_rank *rank) {
  void *array = grow(rank->calls, rank->call_count, &rank->call_room, sizeof *rank->calls);
  if (!array)
    return NULL;
  rank->calls = array;
  struct nt_model_call *call = &rank->calls[rank->call_count++];
  memset(call, 0, sizeof *call);
  call->view = NT_NONE;
  call->peer = -1;
  return call;
}

int nt_model_reserve_calls(struct nt_model_rank *rank, uint32_t count) {
  if (count <= rank->call_room)
    return 0;
  void *array = realloc(rank->calls, (size_t)count * sizeof *rank->calls);
  if (!array)
    return -NT_ERR_MEMORY;
  rank->calls = array;
  rank->call_room = count;
  return 0;
}

const char *nt_model_site(const struct nt_model_rank *rank, uint32_t at) {
  for (uint32_t i = 0; at && i < rank->site_count; i++)
    if (rank->sites[i].at == at)
      return rank->sites[i].text;
  return NULL;
}

uint32_t nt_model_add_site(struct nt_model_rank *rank, const char *text) {
  uint32_t at = UINT32_C(2166136261); /* FNV-1a */
  for (const char *c = text; *c; c++)
    at = (at ^ (unsigned char)*c) * UINT32_C(16777619);
  at += at == 0;
  if (nt_model_site(rank, at))
    return at;
  void *array = grow(rank->sites, rank->site_count, &rank->site_room, sizeof *rank->sites);
  if (array)
    rank->sites = array;
  char *copy = array ? strdup(text) : NULL;
  if (!copy)
    return 0;
  rank->sites[rank->site_count++] = (struct nt_model_site){at, copy};
  return at;
}

const struct nt_model_stack *nt_model_stack(const struct nt_model_rank *rank, uint32_t call) {
  for (uint32_t i = 0; i < rank->stack_count; i++)
    if (rank->stacks[i].call == call)
      return &rank->stacks[i];
  return NULL;
}

void nt_model_note(struct nt_model *model, const char *format, ...) {
  va_list arguments;
  char *text;
  va_start(arguments, format);
  if (vasprintf(&text, format, arguments) < 0)
    text = NULL;
  va_end(arguments);
  char **notes = text ? realloc(model->notes, (model->note_count + 1) * sizeof *notes) : NULL;
  if (!notes) {
    free(text);
    return;
  }
  model->notes = notes;
  notes[model->note_count++] = text;
}

static void free_dump(struct nt_model_dump *dump) {
  if (!dump)
    return;
  for (uint32_t i = 0; i < dump->thread_count; i++) {
    struct nt_model_dump_thread *thread = &dump->threads[i];
    free(thread->name);
    free(thread->place);
    free(thread->doing);
    free(thread->stack.user);
    free(thread->stack.all);
  }
  for (uint32_t i = 0; i < dump->fact_count; i++)
    free(dump->facts[i].text);
  free(dump->threads);
  free(dump->facts);
  free(dump->missing);
  free(dump);
}

void nt_model_free_rank(struct nt_model_rank *rank) {
  for (uint32_t i = 0; i < rank->view_count; i++)
    free(rank->views[i].sums);
  for (uint32_t i = 0; i < rank->site_count; i++)
    free(rank->sites[i].text);
  free(rank->views);
  free(rank->sites);
  for (uint32_t i = 0; i < rank->stack_count; i++) {
    free(rank->stacks[i].user);
    free(rank->stacks[i].all);
  }
  free(rank->stacks);
  free_dump(rank->dump);
  free(rank->calls);
  free(rank->seen);
  free(rank->queues);
  free(rank->host);
  free(rank->run_id);
  free(rank->gpu);
  free(rank->pci);
  free(rank->source);
  free(rank->nccl);
  free(rank->writer);
  free(rank->nccl_env);
  free(rank->untraced);
  free(rank->warning);
  free(rank->peer_error);
}

void nt_model_drop_last(struct nt_model *model) {
  if (model->rank_count)
    nt_model_free_rank(&model->ranks[--model->rank_count]);
}

void nt_model_unreadable(struct nt_model *model, const char *file, const char *reason) {
  for (uint32_t i = 0; i < model->unreadable_count; i++)
    if (!strcmp(model->unreadable[i].file, file) && !strcmp(model->unreadable[i].reason, reason))
      return;
  struct nt_unreadable *list =
      realloc(model->unreadable, (model->unreadable_count + 1) * sizeof *list);
  if (!list)
    return;
  model->unreadable = list;
  struct nt_unreadable *entry = &list[model->unreadable_count];
  *entry = (struct nt_unreadable){strdup(file), strdup(reason)};
  if (entry->file && entry->reason) {
    model->unreadable_count++;
    return;
  }
  free(entry->file);
  free(entry->reason);
}

void nt_model_free(struct nt_model *model) {
  for (uint32_t i = 0; i < model->rank_count; i++)
    nt_model_free_rank(&model->ranks[i]);
  for (uint32_t i = 0; i < model->note_count; i++)
    free(model->notes[i]);
  free(model->gone);
  for (uint32_t i = 0; i < model->unreadable_count; i++) {
    free(model->unreadable[i].file);
    free(model->unreadable[i].reason);
  }
  free(model->unreadable);
  nt_rank_set_free(&model->held);
  nt_rank_set_free(&model->damaged);
  nt_rank_set_free(&model->idle);
  free(model->ranks);
  free(model->notes);
  memset(model, 0, sizeof *model);
}

bool nt_model_lives(const struct nt_model_rank *rank) {
  return rank->state == NT_PROCESS_RUNNING || rank->state == NT_PROCESS_STOPPED ||
         rank->state == NT_PROCESS_ENDING;
}

bool nt_model_is_gone(const struct nt_model_rank *rank) {
  return rank->state == NT_PROCESS_EXITED || rank->state == NT_PROCESS_VANISHED ||
         rank->state == NT_PROCESS_REPLACED;
}

bool nt_model_was_there(const struct nt_model_rank *rank, int64_t ns) {
  return (rank->state == NT_PROCESS_RUNNING || rank->state == NT_PROCESS_STOPPED) &&
         rank->seen_ns >= ns;
}

bool nt_model_is_silent(const struct nt_model *model, const struct nt_model_rank *rank) {
  if (rank->state != NT_PROCESS_UNKNOWN || rank->recorder != NT_RECORDER_TRACE)
    return false;
  for (uint32_t i = 0; i < model->rank_count; i++)
    if (model->ranks[i].live)
      return false;
  return true;
}

bool nt_model_is_unseen(const struct nt_model *model, const struct nt_model_rank *rank,
                        int64_t ns) {
  return rank->outlived && ns > rank->last_beat_ns &&
         model->now_ns - rank->last_beat_ns < UNWRITTEN_NS;
}

bool nt_model_is_over(const struct nt_model_rank *rank) {
  return rank->leaving || nt_model_is_gone(rank);
}

bool nt_model_left(const struct nt_model_rank *rank) {
  return (nt_model_is_over(rank) && rank->state != NT_PROCESS_VANISHED) && rank->exit_code == 0;
}

static int64_t last_record_ns(const struct nt_model_rank *rank) {
  int64_t last = 0;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    int64_t end = call->exit_ns ? call->exit_ns : call->enter_ns;
    last = end > last ? end : last;
  }
  return last;
}

int64_t nt_model_parted_ns(const struct nt_model_rank *rank) {
  int64_t last = 0;
  for (uint32_t i = 0; i < rank->view_count; i++)
    if (rank->views[i].state != NT_COMM_DESTROYED && rank->views[i].state != NT_COMM_ABORTED &&
        rank->views[i].state != NT_COMM_FAILED)
      return 0;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    enum nt_shape shape = nt_fn_shape(rank->calls[i].fn);
    bool ends = shape == NT_SHAPE_COMM_END || shape == NT_SHAPE_COMM_ABORT;
    if (ends && rank->calls[i].enter_ns > last)
      last = rank->calls[i].enter_ns;
  }
  return last;
}

int64_t nt_model_last_sign(const struct nt_model_rank *rank) {
  return rank->gone_ns > rank->last_beat_ns ? rank->gone_ns : rank->last_beat_ns;
}

int64_t nt_model_end(const struct nt_model_rank *rank) {
  if (rank->exit_ns)
    return rank->exit_ns;
  if (rank->leaving)
    return last_record_ns(rank);
  const int64_t beat = nt_model_last_sign(rank);
  const int64_t record = rank->state == NT_PROCESS_VANISHED ? last_record_ns(rank) : 0;
  return record > beat ? record : beat; /* who makes a call lives */
}

static int by_world(const void *a, const void *b) {
  const struct nt_model_rank *x = a, *y = b;
  if (x->world != y->world)
    return x->world < y->world ? -1 : 1;
  if (x->restart != y->restart)
    return x->restart > y->restart ? -1 : 1;
  if (x->started_ns != y->started_ns)
    return x->started_ns > y->started_ns ? -1 : 1;
  if (x->pid != y->pid)
    return x->pid < y->pid ? -1 : 1;
  return strcmp(x->source ? x->source : "", y->source ? y->source : "");
}

uint32_t nt_model_find(const struct nt_model *model, int32_t world) {
  uint32_t low = 0, high = model->rank_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (model->ranks[middle].world < world)
      low = middle + 1;
    else
      high = middle;
  }
  return low < model->rank_count && model->ranks[low].world == world ? low : NT_NONE;
}

bool nt_model_has(const struct nt_model *model, int32_t world) {
  return nt_model_find(model, world) != NT_NONE ||
         (world >= 0 && nt_rank_set_has(&model->held, (uint32_t)world));
}

int64_t nt_model_absent(const struct nt_model *model) {
  const int64_t absent =
      (int64_t)model->expected - model->rank_count - nt_rank_set_count(&model->held);
  return absent > 0 ? absent : 0;
}

/* Without a launcher a process is called by its rank in the first communicator. It may have others of that. */
static int find_held(struct nt_model *model) {
  int status = 0;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    const struct nt_model_rank *rank = &model->ranks[i];
    const struct nt_model_view *own = NULL;
    for (uint32_t j = 0; j < rank->view_count && !own; j++)
      if (rank->views[j].nranks == rank->world_size && rank->views[j].rank == rank->world)
        own = &rank->views[j];
    for (uint32_t j = 0; j < rank->view_count && own && !status; j++) {
      const struct nt_model_view *view = &rank->views[j];
      if (view->rank >= 0 && view->nranks == own->nranks && view->rank < view->nranks &&
          !memcmp(view->id, own->id, sizeof own->id) && nt_model_find(model, view->rank) == NT_NONE)
        status = nt_rank_set_add(&model->held, (uint32_t)view->rank);
    }
  }
  return status;
}

/* The rank in the largest communicator stands in where the environment did not tell. */
void nt_model_guess_world(struct nt_model_rank *rank) {
  if (rank->world >= 0)
    return;
  int32_t largest = 0;
  for (uint32_t i = 0; i < rank->view_count; i++)
    if (rank->views[i].nranks > largest && rank->views[i].rank >= 0) {
      largest = rank->views[i].nranks;
      rank->world = rank->views[i].rank;
    }
}

static void drop_doubles(struct nt_model *model) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    struct nt_model_rank *rank = &model->ranks[i];
    if (kept && rank->world >= 0 && model->ranks[kept - 1].world == rank->world) {
      if (rank->recorder == NT_RECORDER_TRACE)
        nt_model_note(model, "two traces claim rank %d; the newer is used (pid %u, not pid %u)",
                      rank->world, model->ranks[kept - 1].pid, rank->pid);
      else
        nt_model_note(model, "two files claim rank %d; the newer is used (%s, not %s)", rank->world,
                      model->ranks[kept - 1].source, rank->source);
      nt_model_free_rank(rank);
      continue;
    }
    model->ranks[kept++] = *rank;
  }
  model->rank_count = kept;
}

/* Starts of groups are not in traces, but calls have the number of their group. What a thread called last stands in one that
 * it has not ended if the end is not there, and was not begun by NCCL. */
static void mark_pending(struct nt_model_rank *rank) {
  uint32_t group = 0;
  bool told = false;
  if (rank->recorder != NT_RECORDER_TRACE || rank->lost)
    return;
  for (uint32_t i = rank->call_count; i-- > 0;) {
    struct nt_model_call *call = &rank->calls[i];
    const enum nt_shape shape = nt_fn_shape(call->fn);
    if (i + 1 == rank->call_count || rank->calls[i + 1].thread != call->thread)
      told = false;
    if (!told && (call->view != NT_NONE || shape == NT_SHAPE_GROUP_END ||
                  shape == NT_SHAPE_GROUP_SIMULATE)) {
      told = true;
      group = call->view == NT_NONE ? 0 : call->group;
    }
    call->pending |= told && group && call->group == group && nt_shape_is_deferred(shape);
  }
}

/* A thread that made another call on a communicator is not inside an earlier one: it left that without a
 * return, by siglongjmp or an exception. */
static void mark_abandoned(struct nt_model_rank *rank) {
  bool later = false;
  for (uint32_t i = rank->call_count; i-- > 0;) {
    struct nt_model_call *call = &rank->calls[i];
    if (i + 1 < rank->call_count && rank->calls[i + 1].thread != call->thread)
      later = false;
    if (later && !call->exit_ns && call->view != NT_NONE && !call->group)
      call->flags |= NT_CALL_ABANDONED;
    later |= call->view != NT_NONE && call->exit_ns;
  }
}

/*
 * Alive and past its last call: exit was called, or the interpreter of a Python program ends. Exit handlers may end
 * communicators, and wait for others in that: who made a call since, or is in one, is there like anybody else.
 */
static bool is_leaving(const struct nt_model_rank *rank) {
  bool ending = rank->state == NT_PROCESS_ENDING;
  bool alive = rank->state == NT_PROCESS_RUNNING || rank->state == NT_PROCESS_STOPPED;
  if (!ending && !(alive && rank->python && (rank->phase & NT_PHASE_PYTHON_ENDS)))
    return false;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    bool open = !call->exit_ns && !(call->flags & NT_CALL_ABANDONED);
    if (call->view != NT_NONE && (ending ? call->enter_ns > rank->exit_ns : open))
      return false;
  }
  return true;
}

bool nt_model_waits(const struct nt_model_rank *rank) {
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if ((!call->exit_ns && !(call->flags & NT_CALL_ABANDONED)) ||
        call->progress == NT_PROGRESS_ENQUEUED || call->progress == NT_PROGRESS_REACHED)
      return true;
  }
  return false;
}

static int32_t expected_ranks(const struct nt_model *model) {
  int32_t expected = 0, largest = 0;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    const struct nt_model_rank *rank = &model->ranks[i];
    if (rank->world_size > expected)
      expected = rank->world_size;
    for (uint32_t j = 0; j < rank->view_count; j++)
      if (rank->views[j].nranks > largest)
        largest = rank->views[j].nranks;
  }
  if (!expected)
    expected = largest;
  if (model->rank_count && model->ranks[model->rank_count - 1].world >= expected)
    expected = model->ranks[model->rank_count - 1].world + 1;
  return expected;
}

static int settle_rank(void *model, uint32_t i) {
  struct nt_model_rank *rank = &((struct nt_model *)model)->ranks[i];
  mark_pending(rank);
  mark_abandoned(rank);
  rank->leaving = is_leaving(rank);
  return 0;
}

int nt_model_settle(struct nt_model *model) {
  if (!model->rank_count)
    return 0;
  for (uint32_t i = 0; i < model->rank_count; i++)
    nt_model_guess_world(&model->ranks[i]);
  int status = nt_runs_keep_newest(model);
  if (status)
    return status;
  nt_damage_settle(model);
  status = nt_world_claims_settle(model);
  if (status)
    return status;
  qsort(model->ranks, model->rank_count, sizeof *model->ranks, by_world);
  drop_doubles(model);
  (void)nt_each(model->rank_count, settle_rank, model);
  int32_t expected = expected_ranks(model);
  if (expected > model->expected)
    model->expected = expected;
  if (!model->now_ns)
    for (uint32_t i = 0; i < model->rank_count; i++)
      if (model->ranks[i].last_beat_ns > model->now_ns)
        model->now_ns = model->ranks[i].last_beat_ns;
  status = find_held(model);
  return status ? status : nt_model_replay(model);
}
