/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which views count, and under which id.
 *
 * What a rank tried in vain and then repeated has the id of the repetition, and only that is a view. Of a grown
 * communicator new ranks know but the unique id, ranks of the parent but the parent; one of these passed the
 * unique id as well, and tells how the two belong together.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/identify_parts.h"

static bool is_zero(const uint8_t id[16]) {
  static const uint8_t zero[16];
  return !memcmp(id, zero, sizeof zero);
}

static bool is_repeated(const struct nt_model_rank *rank, uint32_t index) {
  const struct nt_model_view *view = &rank->views[index];
  const bool outside = view->rank < 0 || view->rank >= view->nranks;
  if (view->state != NT_COMM_FAILED && view->state != NT_COMM_ABORTED)
    return false;
  for (uint32_t i = index + 1; i < rank->view_count; i++)
    if (!memcmp(rank->views[i].id, view->id, sizeof view->id) &&
        (rank->views[i].rank == view->rank || (outside && view->origin == NT_COMM_INIT)))
      return true;
  return false;
}

/* What a new rank's view of a grown communicator is called by those that were there. */
struct grown {
  const uint8_t *uid_hash, *id;
};

static int by_uid(const void *a, const void *b) {
  const struct grown *x = a, *y = b;
  int order = memcmp(x->uid_hash, y->uid_hash, 16);
  return order ? order : memcmp(x->id, y->id, 16);
}

static struct grown *list_grown(const struct nt_model *model, uint32_t *count) {
  uint32_t room = 1;
  for (int pass = 0; pass < 2; pass++) {
    struct grown *list = pass ? malloc(room * sizeof *list) : NULL;
    *count = 0;
    if (pass && !list)
      return NULL;
    for (uint32_t r = 0; r < model->rank_count; r++)
      for (uint32_t i = 0; i < model->ranks[r].view_count; i++) {
        const struct nt_model_view *view = &model->ranks[r].views[i];
        if (view->origin != NT_COMM_GROW || is_zero(view->parent_id) || is_zero(view->uid_hash))
          continue;
        if (list)
          list[(*count)++] = (struct grown){view->uid_hash, view->id};
        else
          room++;
      }
    if (list) {
      qsort(list, *count, sizeof *list, by_uid);
      return list;
    }
  }
  return NULL;
}

static const uint8_t *id_of(const struct nt_model_view *view, const struct grown *grown,
                            uint32_t count) {
  if (view->origin != NT_COMM_GROW || !is_zero(view->parent_id))
    return view->id;
  for (uint32_t low = 0, high = count; low < high;) {
    uint32_t middle = low + (high - low) / 2;
    int order = memcmp(grown[middle].uid_hash, view->uid_hash, 16);
    if (!order)
      return grown[middle].id;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return view->id;
}

int nt_identify_keys(struct nt_job *job, struct nt_keyed **out, uint32_t *count) {
  const struct nt_model *model = job->model;
  uint32_t total = 1, grown_count;
  for (uint32_t i = 0; i < model->rank_count; i++)
    total += model->ranks[i].view_count;
  struct nt_keyed *keyed = calloc(total, sizeof *keyed);
  struct grown *grown = list_grown(model, &grown_count);
  *count = 0;
  if (!keyed || !grown) {
    free(keyed);
    free(grown);
    return -NT_ERR_MEMORY;
  }
  for (uint32_t i = 0; i < model->rank_count; i++)
    for (uint32_t j = 0; j < model->ranks[i].view_count; j++) {
      const struct nt_model_view *view = &model->ranks[i].views[j];
      if (is_zero(view->id))
        job->unknown_views++;
      else if (!is_repeated(&model->ranks[i], j))
        keyed[(*count)++] = (struct nt_keyed){id_of(view, grown, grown_count), view, i, j};
    }
  free(grown);
  *out = keyed;
  return 0;
}

/* The view with this number in its process; NT_NONE. They are sorted by it. */
static uint32_t view_by_number(const struct nt_model_rank *rank, uint32_t number) {
  uint32_t low = 0, high = rank->view_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (rank->views[middle].number < number)
      low = middle + 1;
    else
      high = middle;
  }
  return number && low < rank->view_count && rank->views[low].number == number ? low : NT_NONE;
}

const struct nt_member *nt_member_parent(const struct nt_job *job, const struct nt_member *member) {
  const struct nt_model_rank *rank = nt_member_rank(job, member);
  const uint32_t view = view_by_number(rank, rank->views[member->view].parent_number);
  if (view == NT_NONE || job->places[member->rank][view].joint == NT_NONE)
    return NULL;
  const struct nt_place place = job->places[member->rank][view];
  return &job->joints[place.joint].members[place.member];
}

bool nt_is_excluded(const struct nt_model_view *view, int32_t rank) {
  if (view->excluded_count == NT_EXCLUDED_MANY)
    return false;
  for (uint32_t i = 0; i < view->excluded_count; i++)
    if (rank >= 0 && (uint32_t)rank - view->excluded[i].first < view->excluded[i].count)
      return true;
  return false;
}

int32_t nt_excluded_below(const struct nt_model_view *view, int32_t rank) {
  int32_t below = 0;
  if (view->excluded_count == NT_EXCLUDED_MANY)
    return -1;
  for (uint32_t i = 0; i < view->excluded_count; i++) {
    const uint32_t first = view->excluded[i].first, count = view->excluded[i].count;
    if (rank > (int32_t)first)
      below += (uint32_t)rank - first < count ? rank - (int32_t)first : (int32_t)count;
  }
  return below;
}
