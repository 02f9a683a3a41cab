/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes of messages that were not read, by the kinds of call that the frames of a trace have (trace/codec.h).
 *
 * A queue whose messages are all of one size, the same on both sides, has none that is uneven, whichever met. Where
 * sizes vary only the calls themselves tell which met.
 */
#include "analysis/queues.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/load_parts.h"
#include "analysis/sequence.h"
#include "nccl/nccl_api.h"
#include "nccl/nccl_types.h"

static int by_queue(const void *a, const void *b) {
  const struct nt_model_queue *x = a, *y = b;
  if (x->view != y->view)
    return x->view < y->view ? -1 : 1;
  if (x->peer != y->peer)
    return x->peer < y->peer ? -1 : 1;
  return (int)x->sends - (int)y->sends;
}

int nt_queues_add(struct nt_queues *queues, const struct nt_model_queue *message) {
  uint32_t low = 0, high = queues->count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (by_queue(&queues->list[middle], message) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  if (low < queues->count && !by_queue(&queues->list[low], message)) {
    queues->list[low].varies |= message->varies || queues->list[low].bytes != message->bytes;
    return 0;
  }
  if (queues->count == queues->room) {
    const uint32_t room = queues->room ? 2 * queues->room : 16;
    struct nt_model_queue *grown = realloc(queues->list, room * sizeof *grown);
    if (!grown)
      return -NT_ERR_MEMORY;
    queues->list = grown;
    queues->room = room;
  }
  memmove(queues->list + low + 1, queues->list + low,
          (queues->count++ - low) * sizeof *queues->list);
  queues->list[low] = *message;
  return 0;
}

/* ---- loading ------------------------------------------------------------------------------------- */

struct loading {
  const struct nt_model_rank *rank;
  struct nt_queues queues;
};

static bool is_message(uint8_t fn) {
  return nt_fn_shape(fn) == NT_SHAPE_SEND || nt_fn_shape(fn) == NT_SHAPE_RECV;
}

static int add_kind(const struct nt_call_kind *kind, void *ctx) {
  struct loading *loading = ctx;
  const struct nt_model_call call = {.fn = kind->fn, .count = kind->count, .dtype = kind->dtype};
  struct nt_model_queue message = {.peer = kind->peer, .varies = kind->varies};
  if (!is_message(kind->fn) || kind->flags & (NT_CALL_VOID | NT_CALL_CAPTURED))
    return 0;
  /* Views are numbered from 1 on where all are known, else nothing is concluded (window_enough.c). */
  message.view = kind->comm - 1;
  message.sends = nt_call_sends(&call);
  message.bytes = nt_call_bytes(&call);
  return message.view < loading->rank->view_count ? nt_queues_add(&loading->queues, &message)
                                                  : -NT_ERR_CORRUPT;
}

static bool has_older(const struct nt_model_rank *rank) {
  uint64_t made = 0, read = 0;
  for (uint32_t v = 0; v < rank->view_count; v++)
    made += (uint64_t)rank->views[v].sends + rank->views[v].recvs;
  for (uint32_t i = 0; i < rank->call_count; i++)
    read += is_message(rank->calls[i].fn) && nt_call_counts(&rank->calls[i]);
  return made != read;
}

int nt_load_queues(struct nt_model_rank *rank, struct nt_trace *trace) {
  struct loading loading = {.rank = rank};
  if (!has_older(rank))
    return 0;
  const int rc = nt_trace_kinds(trace, add_kind, &loading);
  rank->queues = loading.queues.list;
  rank->queue_count = loading.queues.count;
  rank->queues_lack = rc != 0;
  return rc == -NT_ERR_MEMORY ? rc : 0;
}

/* ---- comparing ----------------------------------------------------------------------------------- */

/* Of a rank of which all messages were read. */
static int list_calls(const struct nt_model_rank *rank, struct nt_queues *out) {
  int status = 0;
  for (uint32_t i = 0; i < rank->call_count && !status; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    const struct nt_model_queue message = {.view = call->view,
                                           .peer = call->peer,
                                           .sends = nt_call_sends(call),
                                           .bytes = nt_call_bytes(call)};
    if (is_message(call->fn) && call->view != NT_NONE && nt_call_counts(call))
      status = nt_queues_add(out, &message);
  }
  return status;
}

static const char *compare_rank(const struct nt_job *job, uint32_t r, const struct nt_queues *all) {
  static const char vary[] = "earlier messages are not all of one size";
  for (uint32_t i = 0; i < all[r].count; i++) {
    const struct nt_model_queue *queue = &all[r].list[i];
    const struct nt_place place = job->places[r][queue->view];
    if (place.joint == NT_NONE)
      continue;
    const struct nt_joint *joint = &job->joints[place.joint];
    const struct nt_member *other = nt_joint_member(joint, queue->peer);
    if (!other)
      continue;
    const struct nt_model_queue wanted = {.view = other->view,
                                          .peer = joint->members[place.member].comm_rank,
                                          .sends = !queue->sends};
    const struct nt_queues *in = &all[other->rank];
    const struct nt_model_queue *found =
        in->count ? bsearch(&wanted, in->list, in->count, sizeof wanted, by_queue) : NULL;
    if (found && (queue->varies || found->varies || queue->bytes != found->bytes))
      return vary;
  }
  return NULL;
}

const char *nt_queues_compare(const struct nt_job *job) {
  const struct nt_model *model = job->model;
  struct nt_queues *all = calloc((size_t)model->rank_count + 1, sizeof *all);
  const char *lacks = all ? NULL : "memory is short";
  bool older = false;
  for (uint32_t r = 0; r < model->rank_count && !lacks; r++) {
    const struct nt_model_rank *rank = &model->ranks[r];
    older |= rank->queue_count != 0;
    if (rank->queues_lack)
      lacks = "the sizes of earlier messages are not known";
    else if (rank->queue_count)
      all[r] = (struct nt_queues){.list = rank->queues, .count = rank->queue_count};
  }
  for (uint32_t r = 0; r < model->rank_count && older && !lacks; r++)
    if (!model->ranks[r].queue_count && list_calls(&model->ranks[r], &all[r]))
      lacks = "memory is short";
  for (uint32_t r = 0; r < model->rank_count && older && !lacks; r++)
    lacks = compare_rank(job, r, all);
  for (uint32_t r = 0; r < model->rank_count && all; r++)
    if (!model->ranks[r].queue_count)
      free(all[r].list);
  free(all);
  return lacks;
}
