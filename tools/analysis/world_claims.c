/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A launcher numbers what it starts: where that starts the ranks by itself (one task a node that spawns a process for each
 * GPU), all of them inherit one number. Two attempts of one rank have one number, too, but no communicator in common.
 */
#include "analysis/world_claims.h"

#include <stdlib.h>
#include <string.h>

static bool is_zero(const uint8_t id[16]) {
  static const uint8_t zero[16];
  return !memcmp(id, zero, sizeof zero);
}

/* The process's first place in a communicator, NULL if it has none that is known. */
static const struct nt_model_view *place_in(const struct nt_model_rank *rank,
                                            const uint8_t id[16]) {
  const struct nt_model_view *first = NULL;
  for (uint32_t i = 0; i < rank->view_count; i++) {
    const struct nt_model_view *view = &rank->views[i];
    if (view->rank >= 0 && !memcmp(view->id, id, 16) && (!first || view->rank < first->rank))
      first = view;
  }
  return first;
}

/* The largest communicator in which both stand, at different places; NULL if there is none. */
static const struct nt_model_view *contradiction(const struct nt_model_rank *a,
                                                 const struct nt_model_rank *b) {
  const struct nt_model_view *found = NULL;
  for (uint32_t i = 0; i < a->view_count; i++) {
    const struct nt_model_view *view = &a->views[i];
    if (is_zero(view->id) || (found && view->nranks <= found->nranks))
      continue;
    const struct nt_model_view *one = place_in(a, view->id), *other = place_in(b, view->id);
    if (one && other && one->rank != other->rank)
      found = view;
  }
  return found;
}

struct claim {
  int32_t world;
  uint32_t index;
};

static int by_world(const void *a, const void *b) {
  const struct claim *x = a, *y = b;
  if (x->world != y->world)
    return x->world < y->world ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

static void renumber(struct nt_model *model, const uint8_t id[16]) {
  for (uint32_t i = 0; i < model->rank_count; i++) {
    struct nt_model_rank *rank = &model->ranks[i];
    const struct nt_model_view *place = place_in(rank, id);
    rank->world = place ? place->rank : -1;
    rank->world_size = place ? place->nranks : -1;
  }
}

int nt_world_claims_settle(struct nt_model *model) {
  const uint32_t count = model->rank_count;
  struct claim *claims = malloc((count + 1u) * sizeof *claims);
  const struct nt_model_view *largest = NULL;
  uint32_t claimed = 0, twice = 0;
  int32_t example = -1;
  if (!claims)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < count; i++)
    if (model->ranks[i].world >= 0 && model->ranks[i].recorder == NT_RECORDER_TRACE)
      claims[claimed++] = (struct claim){model->ranks[i].world, i};
  qsort(claims, claimed, sizeof *claims, by_world);
  for (uint32_t i = 1; i < claimed; i++) {
    if (claims[i].world != claims[i - 1].world)
      continue;
    const struct nt_model_view *found =
        contradiction(&model->ranks[claims[i - 1].index], &model->ranks[claims[i].index]);
    if (!found)
      continue;
    example = twice++ ? example : claims[i].world;
    if (!largest || found->nranks > largest->nranks)
      largest = found;
  }
  free(claims);
  if (!largest)
    return 0;
  const int32_t size = largest->nranks;
  uint8_t id[16];
  memcpy(id, largest->id, sizeof id);
  renumber(model, id);
  nt_model_note(
      model,
      "several processes were given the number of rank %d by the launcher: ranks are those of "
      "the communicator of %d",
      example, size);
  return 0;
}
