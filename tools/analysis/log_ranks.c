/* SPDX-License-Identifier: Apache-2.0 */
/* A log has no world ranks: what stands in for them must at least be one number for one process. */
#include <stdlib.h>
#include <string.h>

#include "analysis/load_nccl_log.h"
#include "cli/rank_set.h"
#include "nccl/nccl_api.h"

enum { NOTES_MAX = 16, RANKS_TEXT = 160 };

struct tie {
  const uint8_t *id;
  uint32_t rank;
};

struct numbered {
  const struct nt_model_rank *rank;
  uint32_t index, root;
};

static int by_id(const void *a, const void *b) {
  const struct tie *x = a, *y = b;
  int order = memcmp(x->id, y->id, 16);
  return order ? order : x->rank < y->rank ? -1 : x->rank > y->rank;
}

static uint32_t root_of(uint32_t *parent, uint32_t i) {
  while (parent[i] != i)
    i = parent[i] = parent[parent[i]];
  return i;
}

/* Joins the processes that share a communicator, however indirectly. */
static int tie_up(const struct nt_model *model, uint32_t *parent) {
  static const uint8_t zero[16];
  size_t room = 1, count = 0;
  for (uint32_t i = 0; i < model->rank_count; i++)
    room += model->ranks[i].view_count;
  struct tie *ties = malloc(room * sizeof *ties);
  if (!ties)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < model->rank_count; i++) {
    parent[i] = i;
    for (uint32_t j = 0; j < model->ranks[i].view_count; j++)
      if (memcmp(model->ranks[i].views[j].id, zero, 16) != 0)
        ties[count++] = (struct tie){model->ranks[i].views[j].id, i};
  }
  qsort(ties, count, sizeof *ties, by_id);
  for (size_t i = 1; i < count; i++)
    if (!memcmp(ties[i - 1].id, ties[i].id, 16)) {
      uint32_t a = root_of(parent, ties[i - 1].rank), b = root_of(parent, ties[i].rank);
      parent[a > b ? a : b] = a > b ? b : a;
    }
  free(ties);
  return 0;
}

static int by_process(const void *a, const void *b) {
  const struct numbered *x = a, *y = b;
  if (x->root != y->root)
    return x->root < y->root ? -1 : 1;
  int order = strverscmp(x->rank->host, y->rank->host);
  if (order)
    return order;
  if (x->rank->pid != y->rank->pid)
    return x->rank->pid < y->rank->pid ? -1 : 1;
  return x->rank->cuda_device < y->rank->cuda_device ? -1
                                                     : x->rank->cuda_device > y->rank->cuda_device;
}

/* The largest communicator of any of them. */
static int32_t largest_of(const struct numbered *list, uint32_t count) {
  int32_t largest = 0;
  for (uint32_t i = 0; i < count; i++)
    for (uint32_t j = 0; j < list[i].rank->view_count; j++)
      if (list[i].rank->views[j].nranks > largest)
        largest = list[i].rank->views[j].nranks;
  return largest;
}

/* Each of them is in a communicator of that size, so their ranks there can stand for those of the world. */
static bool are_spanned(const struct numbered *list, uint32_t count) {
  int32_t largest = largest_of(list, count);
  if ((int64_t)count > largest)
    return false;
  const uint8_t *id = NULL;
  for (uint32_t i = 0; i < count; i++) {
    const struct nt_model_view *own = NULL;
    for (uint32_t j = 0; j < list[i].rank->view_count && !own; j++)
      if (list[i].rank->views[j].nranks == largest)
        own = &list[i].rank->views[j];
    if (!own || (id && memcmp(id, own->id, 16) != 0))
      return false;
    id = own->id;
  }
  return true;
}

/* Of a process with several ranks, by the first of them. */
static void note_warnings(struct nt_model *model) {
  uint32_t told = 0, more = 0;
  for (uint32_t r = 0; r < model->rank_count; r++) {
    struct nt_model_rank *rank = &model->ranks[r];
    const struct nt_model_rank *before = r ? rank - 1 : NULL;
    if (before && before->pid == rank->pid && !strcmp(before->host, rank->host) &&
        !strcmp(before->source, rank->source))
      continue;
    nt_model_guess_world(rank);
    if (rank->warning && told++ < NOTES_MAX)
      nt_model_note(model, "%s: line %u: rank %d (%s:%u) warns: %s", rank->source,
                    rank->warning_line, rank->world, rank->host, rank->pid, rank->warning);
    if (rank->peer_error && told++ < NOTES_MAX)
      nt_model_note(model, "%s: line %u: rank %d (%s:%u) lost a connection: %s", rank->source,
                    rank->error_line, rank->world, rank->host, rank->pid, rank->peer_error);
  }
  more = told > NOTES_MAX ? told - NOTES_MAX : 0;
  if (more)
    nt_model_note(model, "%u more warnings and lost connections are in the logs", more);
}

static bool has_call(const struct nt_model_rank *rank) {
  for (uint32_t i = 0; i < rank->call_count; i++)
    if (nt_fn_is_collective(rank->calls[i].fn) || rank->calls[i].fn == NT_FN_Send ||
        rank->calls[i].fn == NT_FN_Recv)
      return true;
  return false;
}

/* Where some logs have calls, those that have none may have been written with other settings. */
static void note_silence(struct nt_model *model) {
  struct nt_rank_set silent = {0};
  char text[RANKS_TEXT];
  uint32_t count = 0;
  for (uint32_t r = 0; r < model->rank_count; r++) {
    if (has_call(&model->ranks[r]))
      continue;
    count++;
    nt_model_guess_world(&model->ranks[r]);
    if (model->ranks[r].world >= 0)
      (void)nt_rank_set_add(&silent, (uint32_t)model->ranks[r].world);
  }
  if (count && count < model->rank_count)
    nt_model_note(model,
                  "no calls are in the logs of %u of %u ranks (%s): they made none, or ran without "
                  "NCCL_DEBUG_SUBSYS=INIT,COLL",
                  count, model->rank_count, nt_rank_set_text(text, sizeof text, &silent));
  nt_rank_set_free(&silent);
}

int nt_number_log_ranks(struct nt_model *model) {
  const uint32_t count = model->rank_count;
  if (!count || model->ranks[0].recorder != NT_RECORDER_LOG)
    return 0;
  uint32_t *parent = malloc(count * sizeof *parent);
  struct numbered *list = malloc(count * sizeof *list);
  int status = parent && list ? tie_up(model, parent) : -NT_ERR_MEMORY;
  bool told = false;
  for (uint32_t i = 0; i < count && !status; i++)
    list[i] = (struct numbered){&model->ranks[i], i, root_of(parent, i)};
  if (!status)
    qsort(list, count, sizeof *list, by_process);
  for (uint32_t i = 0, n; i < count && !status; i += n) {
    bool labelled = list[i].rank->world >= 0;
    for (n = 1; i + n < count && list[i + n].root == list[i].root; n++)
      labelled &= list[i + n].rank->world >= 0;
    if (labelled || are_spanned(&list[i], n))
      continue;
    for (uint32_t j = 0; j < n; j++)
      model->ranks[list[i + j].index].world = (int32_t)j;
    if (!told)
      nt_model_note(model, "no communicator spans all processes: they are numbered by host and "
                           "process, and these numbers need not be their ranks");
    told = true;
  }
  free(parent);
  free(list);
  if (!status) {
    note_warnings(model);
    note_silence(model);
  }
  return status;
}
