/* SPDX-License-Identifier: Apache-2.0 */
/* What the graphs of a rank hold, then what it launched. */
#include "analysis/replays.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/graphs.h"
#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

/* What a graph holds on one communicator. */
struct content {
  uint32_t graph, view;
  uint64_t sig;
};

struct contents {
  struct content *list;
  uint32_t count, room;
};

static int by_time(const void *a, const void *b) {
  const struct nt_replay *x = a, *y = b;
  if (x->enter_ns != y->enter_ns)
    return x->enter_ns < y->enter_ns ? -1 : 1;
  return (x->call > y->call) - (x->call < y->call);
}

static void *room_for_one(void *list, uint32_t count, uint32_t *room, size_t size) {
  if (count < *room)
    return list;
  uint32_t wanted = *room ? 2 * *room : 16;
  void *more = realloc(list, wanted * size);
  if (more)
    *room = wanted;
  return more;
}

/* Where the content of one graph is put. */
struct filler {
  const struct nt_job *job;
  struct nt_replays *out;
  struct contents *contents;
  uint32_t rank, graph, first; /* its first entry */
};

uint64_t nt_replay_sig(uint64_t sig, uint64_t operation) {
  return (sig ^ operation) * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

static int add_captured(void *arg, uint32_t index) {
  const struct filler *filler = arg;
  struct contents *contents = filler->contents;
  const struct nt_model_call *call = &filler->job->model->ranks[filler->rank].calls[index];
  struct nt_place place = filler->job->places[filler->rank][call->view];
  if (!nt_fn_is_collective(call->fn) || place.joint == NT_NONE)
    return 0;
  filler->out->rows[place.joint][place.member].captures = true;
  uint32_t i = filler->first;
  while (i < contents->count && contents->list[i].view != call->view)
    i++;
  if (i == contents->count) {
    struct content *list =
        room_for_one(contents->list, contents->count, &contents->room, sizeof *list);
    if (!list)
      return -NT_ERR_MEMORY;
    contents->list = list;
    list[contents->count++] = (struct content){.graph = filler->graph, .view = call->view};
  }
  struct content *content = &contents->list[i];
  content->sig = nt_replay_sig(content->sig, nt_call_signature(call));
  return 0;
}

/* By graph, since the captured calls are. */
static int list_contents(const struct nt_job *job, uint32_t r, struct nt_replays *out,
                         struct contents *contents) {
  const struct nt_model_rank *rank = &job->model->ranks[r];
  struct nt_graphs graphs;
  int status = nt_graphs_build(rank, &graphs);
  for (uint32_t i = 0; i < graphs.count && !status; i++) {
    const uint32_t graph = rank->calls[graphs.calls[i]].graph;
    if (i && rank->calls[graphs.calls[i - 1]].graph == graph)
      continue;
    struct filler filler = {job, out, contents, r, graph, contents->count};
    status = nt_graphs_walk(&graphs, graph, add_captured, &filler);
  }
  nt_graphs_free(&graphs);
  return status;
}

static const struct content *first_of(const struct contents *contents, uint32_t graph) {
  uint32_t low = 0, high = contents->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (contents->list[middle].graph < graph)
      low = middle + 1;
    else
      high = middle;
  }
  return &contents->list[low];
}

static int list_replays(const struct nt_job *job, uint32_t r, const struct contents *contents,
                        struct nt_replays *out) {
  const struct nt_model_rank *rank = &job->model->ranks[r];
  const struct content *end = contents->list + contents->count;
  for (uint32_t i = 0; i < rank->call_count && contents->count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (!nt_is_replay(call) || call->enter_ns > job->cut_ns)
      continue;
    for (const struct content *c = first_of(contents, call->graph);
         c < end && c->graph == call->graph; c++) {
      struct nt_place place = job->places[r][c->view];
      struct nt_replay_row *row = &out->rows[place.joint][place.member];
      struct nt_replay *list = room_for_one(row->list, row->count, &row->room, sizeof *list);
      if (!list)
        return -NT_ERR_MEMORY;
      row->list = list;
      list[row->count++] = (struct nt_replay){.enter_ns = call->enter_ns, .sig = c->sig, .call = i};
    }
  }
  return 0;
}

static void free_rows(struct nt_replay_row *rows, uint32_t count) {
  for (uint32_t i = 0; rows && i < count; i++)
    free(rows[i].list);
  free(rows);
}

/* Counting from the first call on means something only if all calls are there. */
static bool is_known(const struct nt_job *job, const struct nt_joint *joint,
                     const struct nt_replay_row *rows) {
  for (uint32_t i = 0; i < joint->member_count; i++) {
    const struct nt_model_rank *rank = nt_member_rank(job, &joint->members[i]);
    if (!rows[i].captures || rank->lost || rank->overwritten || rank->cut)
      return false;
  }
  return true;
}

static uint32_t first_difference(const struct nt_joint *joint, const struct nt_replay_row *rows) {
  uint32_t longest = 0;
  for (uint32_t i = 0; i < joint->member_count; i++)
    longest = rows[i].count > longest ? rows[i].count : longest;
  for (uint32_t p = 0; p < longest; p++) {
    const struct nt_replay *first = NULL;
    for (uint32_t i = 0; i < joint->member_count; i++) {
      if (p >= rows[i].count)
        continue;
      if (first && rows[i].list[p].sig != first->sig)
        return p + 1;
      first = &rows[i].list[p];
    }
  }
  return 0;
}

int nt_replays_find(const struct nt_job *job, struct nt_replays *out) {
  int status = 0;
  memset(out, 0, sizeof *out);
  out->rows = calloc((size_t)job->joint_count + 1, sizeof *out->rows);
  out->members = calloc((size_t)job->joint_count + 1, sizeof *out->members);
  out->diverged = calloc((size_t)job->joint_count + 1, sizeof *out->diverged);
  out->uneven = calloc((size_t)job->joint_count + 1, sizeof *out->uneven);
  out->joint_count = job->joint_count;
  if (!out->rows || !out->members || !out->diverged || !out->uneven)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < job->joint_count && !status; i++) {
    out->rows[i] = calloc((size_t)job->joints[i].member_count + 1, sizeof *out->rows[i]);
    out->members[i] = job->joints[i].member_count;
    status = out->rows[i] ? 0 : -NT_ERR_MEMORY;
  }
  for (uint32_t r = 0; r < job->model->rank_count && !status; r++) {
    struct contents contents = {0};
    status = list_contents(job, r, out, &contents);
    if (!status)
      status = list_replays(job, r, &contents, out);
    free(contents.list);
  }
  for (uint32_t i = 0; i < job->joint_count && !status; i++) {
    const struct nt_joint *joint = &job->joints[i];
    if (!is_known(job, joint, out->rows[i])) {
      free_rows(out->rows[i], joint->member_count);
      out->rows[i] = NULL;
      continue;
    }
    for (uint32_t m = 0; m < joint->member_count; m++)
      if (out->rows[i][m].count)
        qsort(out->rows[i][m].list, out->rows[i][m].count, sizeof *out->rows[i][m].list, by_time);
    out->diverged[i] = first_difference(joint, out->rows[i]);
    if (!out->diverged[i])
      status = nt_replays_find_uneven(job, out, i);
  }
  return status;
}

void nt_replays_free(struct nt_replays *replays) {
  for (uint32_t i = 0; replays->rows && i < replays->joint_count; i++)
    free_rows(replays->rows[i], replays->members[i]);
  free(replays->rows);
  free(replays->members);
  free(replays->diverged);
  free(replays->uneven);
  memset(replays, 0, sizeof *replays);
}

const struct nt_replay *nt_replay_at(const struct nt_replays *replays, uint32_t joint,
                                     uint32_t member, uint32_t position) {
  const struct nt_replay_row *rows = replays->rows[joint];
  if (!rows || !position || position > rows[member].count)
    return NULL;
  return &rows[member].list[position - 1];
}

struct picker {
  const struct nt_job *job;
  uint32_t rank, joint, count, room, *list;
};

static int pick(void *arg, uint32_t index) {
  struct picker *picker = arg;
  const struct nt_model_call *call = &picker->job->model->ranks[picker->rank].calls[index];
  if (picker->joint != NT_NONE &&
      (picker->job->places[picker->rank][call->view].joint != picker->joint ||
       !nt_fn_is_collective(call->fn)))
    return 0;
  uint32_t *list = room_for_one(picker->list, picker->count, &picker->room, sizeof *list);
  if (!list)
    return -NT_ERR_MEMORY;
  picker->list = list;
  list[picker->count++] = index;
  return 0;
}

uint32_t *nt_graph_operations(const struct nt_job *job, uint32_t rank, uint32_t graph,
                              uint32_t joint, uint32_t *count) {
  struct picker picker = {.job = job, .rank = rank, .joint = joint};
  struct nt_graphs graphs;
  if (!nt_graphs_build(&job->model->ranks[rank], &graphs))
    (void)nt_graphs_walk(&graphs, graph, pick, &picker);
  nt_graphs_free(&graphs);
  *count = picker.count;
  return picker.list;
}
