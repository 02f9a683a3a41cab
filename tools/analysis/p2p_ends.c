/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both sides of every message, sorted by queue and position.
 *
 * There are millions of messages and few queues, and each side of a queue comes in order already: the queues are
 * counted and sorted, each end goes to its queue's place at once, and what is left is to merge two runs. The calls of
 * a rank are looked through by whichever processor is free.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/each.h"
#include "analysis/p2p_ends.h"
#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

struct queue {
  uint32_t joint;
  int32_t source, destination;
  uint32_t signal;
  uint32_t count; /* its ends; while they are put in place, of those that are */
  uint32_t first; /* place of its first end */
};

struct queues {
  struct queue *list;
  uint32_t count, room;
  uint32_t *slots;     /* open addressing: index + 1 */
  uint32_t slot_count; /* a power of two */
};

static uint32_t slot_of(const struct queues *queues, const struct queue *key) {
  uint64_t hash =
      ((uint64_t)key->joint << 32 ^ (uint32_t)key->source) * UINT64_C(0x9e3779b97f4a7c15);
  hash = (hash ^ (uint32_t)key->destination ^ (uint64_t)key->signal << 32) *
         UINT64_C(0xff51afd7ed558ccd);
  uint32_t slot = (uint32_t)(hash >> 32) & (queues->slot_count - 1);
  while (queues->slots[slot]) {
    const struct queue *queue = &queues->list[queues->slots[slot] - 1];
    if (queue->joint == key->joint && queue->source == key->source &&
        queue->destination == key->destination && queue->signal == key->signal)
      break;
    slot = (slot + 1) & (queues->slot_count - 1);
  }
  return slot;
}

static int rehash(struct queues *queues, uint32_t slot_count) {
  uint32_t *slots = calloc(slot_count, sizeof *slots);
  if (!slots)
    return -NT_ERR_MEMORY;
  free(queues->slots);
  queues->slots = slots;
  queues->slot_count = slot_count;
  for (uint32_t i = 0; i < queues->count; i++)
    slots[slot_of(queues, &queues->list[i])] = i + 1;
  return 0;
}

static int add_queue(struct queues *queues, const struct queue *key, uint32_t slot) {
  if (queues->count == queues->room) {
    uint32_t room = queues->room ? 2 * queues->room : 256;
    struct queue *list = realloc(queues->list, room * sizeof *list);
    if (!list)
      return -NT_ERR_MEMORY;
    queues->list = list;
    queues->room = room;
  }
  queues->list[queues->count++] = *key; /* whose count is 1 */
  queues->slots[slot] = queues->count;
  return 2 * queues->count > queues->slot_count ? rehash(queues, 2 * queues->slot_count) : 0;
}

/* ---- the passes over the calls ------------------------------------------------------------------- */

static bool is_message(const struct nt_job *job, uint32_t rank, const struct nt_model_call *call) {
  if (!nt_call_is_message(call) || call->view == NT_NONE ||
      (nt_call_signal(call) && !call->seq) || /* not counted: some calls are lost */
      call->enter_ns > job->cut_ns || !nt_call_counts(call) || (call->flags & NT_CALL_CAPTURED))
    return false;
  struct nt_place place = job->places[rank][call->view];
  /* Where communicator ranks are guesses, peers would be too. */
  return place.joint != NT_NONE &&
         (job->joints[place.joint].size_known || job->joints[place.joint].numbered);
}

static struct nt_p2p_end end_of(const struct nt_job *job, uint32_t r, uint32_t index) {
  const struct nt_model_call *call = &job->model->ranks[r].calls[index];
  const struct nt_place place = job->places[r][call->view];
  const int32_t self = job->joints[place.joint].members[place.member].comm_rank;
  const bool is_send = nt_call_sends(call);
  return (struct nt_p2p_end){.joint = place.joint,
                             .source = is_send ? self : call->peer,
                             .destination = is_send ? call->peer : self,
                             .signal = nt_call_signal(call),
                             .seq = call->seq,
                             .rank = r,
                             .call = index,
                             .is_send = is_send};
}

static struct queue key_of(const struct nt_p2p_end *end) {
  return (struct queue){.joint = end->joint,
                        .source = end->source,
                        .destination = end->destination,
                        .signal = end->signal};
}

/* Which calls of one rank are ends: an end is ten times as large. */
struct rank_ends {
  uint32_t *calls;
  uint32_t count;
};

struct gather {
  const struct nt_job *job;
  struct rank_ends *ranks;
};

static int gather_rank(void *ctx, uint32_t r) {
  struct gather *gather = ctx;
  const struct nt_model_rank *rank = &gather->job->model->ranks[r];
  struct rank_ends *out = &gather->ranks[r];
  uint32_t count = 0;
  if (!nt_model_may_have(rank, NT_SHAPE_SEND) && !nt_model_may_have(rank, NT_SHAPE_RECV) &&
      !nt_model_may_have(rank, NT_SHAPE_RMA))
    return 0;
  for (uint32_t i = 0; i < rank->call_count; i++)
    count += is_message(gather->job, r, &rank->calls[i]);
  out->calls = count ? malloc(count * sizeof *out->calls) : NULL;
  if (count && !out->calls)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < rank->call_count && out->count < count; i++)
    if (is_message(gather->job, r, &rank->calls[i]))
      out->calls[out->count++] = i;
  return 0;
}

static int count_ends(const struct gather *gather, struct queues *queues) {
  int status = rehash(queues, 1024);
  for (uint32_t r = 0; r < gather->job->model->rank_count && !status; r++)
    for (uint32_t i = 0; i < gather->ranks[r].count && !status; i++) {
      const struct nt_p2p_end end = end_of(gather->job, r, gather->ranks[r].calls[i]);
      struct queue key = key_of(&end);
      key.count = 1;
      const uint32_t slot = slot_of(queues, &key);
      if (queues->slots[slot])
        queues->list[queues->slots[slot] - 1].count++;
      else
        status = add_queue(queues, &key, slot);
    }
  return status;
}

static void place_ends(const struct gather *gather, struct queues *queues,
                       struct nt_p2p_end *ends) {
  for (uint32_t r = 0; r < gather->job->model->rank_count; r++)
    for (uint32_t i = 0; i < gather->ranks[r].count; i++) {
      const struct nt_p2p_end end = end_of(gather->job, r, gather->ranks[r].calls[i]);
      const struct queue key = key_of(&end);
      struct queue *queue = &queues->list[queues->slots[slot_of(queues, &key)] - 1];
      ends[queue->first + queue->count++] = end;
    }
}

/* ---- order --------------------------------------------------------------------------------------- */

static int by_queue(const void *a, const void *b) {
  const struct queue *x = a, *y = b;
  if (x->joint != y->joint)
    return x->joint < y->joint ? -1 : 1;
  if (x->source != y->source)
    return x->source < y->source ? -1 : 1;
  if (x->destination != y->destination)
    return x->destination < y->destination ? -1 : 1;
  return x->signal < y->signal ? -1 : x->signal > y->signal;
}

static int by_position(const void *a, const void *b) {
  const struct nt_p2p_end *x = a, *y = b;
  if (x->seq != y->seq)
    return x->seq < y->seq ? -1 : 1;
  if (x->is_send != y->is_send)
    return x->is_send ? -1 : 1;
  return x->call < y->call ? -1 : x->call > y->call;
}

/* Length of the run that is in order already. */
static uint32_t run_of(const struct nt_p2p_end *ends, uint32_t count) {
  uint32_t run = 1;
  while (run < count && by_position(&ends[run - 1], &ends[run]) <= 0)
    run++;
  return run;
}

/* `spare` has room for all of them. */
static void sort_queue(struct nt_p2p_end *ends, uint32_t count, struct nt_p2p_end *spare) {
  const uint32_t run = run_of(ends, count);
  if (run == count)
    return;
  if (run + run_of(ends + run, count - run) != count) {
    qsort(ends, count, sizeof *ends, by_position);
    return;
  }
  memcpy(spare, ends, run * sizeof *ends);
  uint32_t a = 0, b = run, to = 0;
  while (a < run)
    ends[to++] = b == count || by_position(&spare[a], &ends[b]) <= 0 ? spare[a++] : ends[b++];
}

static int gather_all(const struct nt_job *job, struct gather *gather) {
  *gather = (struct gather){job, calloc((size_t)job->model->rank_count + 1, sizeof *gather->ranks)};
  return gather->ranks ? nt_each(job->model->rank_count, gather_rank, gather) : -NT_ERR_MEMORY;
}

static void free_gather(struct gather *gather) {
  for (uint32_t r = 0; gather->ranks && r < gather->job->model->rank_count; r++)
    free(gather->ranks[r].calls);
  free(gather->ranks);
}

int nt_p2p_list_ends(const struct nt_job *job, struct nt_p2p_end **ends, uint32_t *count) {
  struct queues queues = {0};
  struct gather gather;
  struct nt_p2p_end *spare = NULL;
  uint32_t total = 0, longest = 0;
  int status = gather_all(job, &gather);
  if (!status)
    status = count_ends(&gather, &queues);
  if (queues.count)
    qsort(queues.list, queues.count, sizeof *queues.list, by_queue);
  if (!status)
    status = rehash(&queues, queues.slot_count);
  for (uint32_t i = 0; i < queues.count; i++) {
    struct queue *queue = &queues.list[i];
    queue->first = total;
    total += queue->count;
    longest = queue->count > longest ? queue->count : longest;
    queue->count = 0;
  }
  *ends = malloc(((size_t)total + 1) * sizeof **ends);
  spare = malloc(((size_t)longest + 1) * sizeof *spare);
  if (!*ends || !spare)
    status = -NT_ERR_MEMORY;
  if (!status) {
    *count = total;
    place_ends(&gather, &queues, *ends);
    for (uint32_t i = 0; i < queues.count; i++)
      sort_queue(*ends + queues.list[i].first, queues.list[i].count, spare);
  }
  free(spare);
  free_gather(&gather);
  free(queues.list);
  free(queues.slots);
  return status;
}
