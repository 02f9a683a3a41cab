/* SPDX-License-Identifier: Apache-2.0 */
/* Two passes over the calls of a rank: what its graphs hold, then what was launched. */
#include "analysis/replays.h"

#include <stdlib.h>
#include <string.h>

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

static bool is_captured(const struct nt_model_call *call) {
  return (call->flags & NT_CALL_CAPTURED) && call->graph && call->view != NT_NONE &&
         nt_fn_is_collective(call->fn) && nt_call_counts(call);
}

static bool is_replay(const struct nt_model_call *call) {
  return nt_fn_shape(call->fn) == NT_SHAPE_GRAPH_LAUNCH && call->graph &&
         !(call->flags & (NT_CALL_CAPTURED | NT_CALL_VOID));
}

static int by_graph(const void *a, const void *b) {
  const struct content *x = a, *y = b;
  return x->graph != y->graph ? (x->graph < y->graph ? -1 : 1)
                              : (x->view > y->view) - (x->view < y->view);
}

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

/* Entries of a graph lie together: a graph is captured by one thread. */
static int add_captured(struct contents *contents, const struct nt_model_call *call) {
  uint32_t i = contents->count;
  while (i && contents->list[i - 1].graph == call->graph &&
         contents->list[i - 1].view != call->view)
    i--;
  struct content *content = i ? &contents->list[i - 1] : NULL;
  if (!content || content->graph != call->graph) {
    struct content *list =
        room_for_one(contents->list, contents->count, &contents->room, sizeof *list);
    if (!list)
      return -NT_ERR_MEMORY;
    contents->list = list;
    content = &list[contents->count++];
    *content = (struct content){.graph = call->graph, .view = call->view};
  }
  content->sig = (content->sig ^ nt_call_signature(call)) * UINT64_C(0x9e3779b97f4a7c15) + 1;
  return 0;
}

static int list_contents(const struct nt_job *job, uint32_t r, struct nt_replays *out,
                         struct contents *contents) {
  const struct nt_model_rank *rank = &job->model->ranks[r];
  int status = 0;
  for (uint32_t i = 0; i < rank->call_count && !status; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (!is_captured(call) || job->places[r][call->view].joint == NT_NONE)
      continue;
    struct nt_place place = job->places[r][call->view];
    out->rows[place.joint][place.member].captures = true;
    status = add_captured(contents, call);
  }
  if (contents->count)
    qsort(contents->list, contents->count, sizeof *contents->list, by_graph);
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
    if (!is_replay(call) || call->enter_ns > job->cut_ns)
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
  out->joint_count = job->joint_count;
  if (!out->rows || !out->members || !out->diverged)
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
  }
  return status;
}

void nt_replays_free(struct nt_replays *replays) {
  for (uint32_t i = 0; replays->rows && i < replays->joint_count; i++)
    free_rows(replays->rows[i], replays->members[i]);
  free(replays->rows);
  free(replays->members);
  free(replays->diverged);
  memset(replays, 0, sizeof *replays);
}

const struct nt_replay *nt_replay_at(const struct nt_replays *replays, uint32_t joint,
                                     uint32_t member, uint32_t position) {
  const struct nt_replay_row *rows = replays->rows[joint];
  if (!rows || !position || position > rows[member].count)
    return NULL;
  return &rows[member].list[position - 1];
}

uint32_t nt_graph_next(const struct nt_job *job, uint32_t r, uint32_t graph, uint32_t joint,
                       uint32_t from) {
  const struct nt_model_rank *rank = &job->model->ranks[r];
  for (uint32_t i = from; i < rank->call_count; i++)
    if (is_captured(&rank->calls[i]) && rank->calls[i].graph == graph &&
        job->places[r][rank->calls[i].view].joint == joint)
      return i;
  return NT_NONE;
}
