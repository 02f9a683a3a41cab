/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only all dumps together tell.
 *
 * A message has no number of its own queue in a dump. Where both sides' dumps are whole they are counted; where the
 * beginning is gone, what is finished on both sides is taken to be the same, unless the times say otherwise. Of a group without entries a dump may say
 * how far it came, or may not; then it is taken to have come as far as the others finished.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/flight_parts.h"
#include "nccl/nccl_api.h"

/* Small messages are buffered: a send may finish that nobody received. */
#define BUFFERED_BYTES (UINT64_C(64) << 10)
#define PAIRS 8 /* whose times are compared */

struct end {
  const struct nt_model_view *view;
  struct nt_model_call *call;
  uint32_t rank;
  int32_t source, destination;
  bool send;
};

static int by_queue(const void *a, const void *b) {
  const struct end *x = a, *y = b;
  int order = memcmp(x->view->id, y->view->id, sizeof x->view->id);
  if (order)
    return order;
  if (x->source != y->source)
    return x->source < y->source ? -1 : 1;
  if (x->destination != y->destination)
    return x->destination < y->destination ? -1 : 1;
  if (x->send != y->send)
    return x->send ? -1 : 1;
  if (x->call->enter_ns != y->call->enter_ns) /* calls are by thread, a queue is not */
    return x->call->enter_ns < y->call->enter_ns ? -1 : 1;
  return x->call < y->call ? -1 : x->call > y->call;
}

static bool same_queue(const struct end *a, const struct end *b) {
  return !memcmp(a->view->id, b->view->id, sizeof a->view->id) && a->source == b->source &&
         a->destination == b->destination;
}

static bool is_message(const struct nt_model_call *call) {
  return call->view != NT_NONE && (call->fn == NT_FN_Send || call->fn == NT_FN_Recv);
}

/* One direction of a queue. */
struct side {
  struct end *ends;
  uint32_t count, done; /* done: finished, or in front of one that is */
  bool whole, small;
};

static struct side side_of(const struct nt_model *model, struct end *ends, uint32_t count) {
  struct side side = {ends, count, 0, true, count != 0};
  for (uint32_t i = 0; i < count; i++) {
    const struct nt_model_call *call = ends[i].call;
    side.whole &= !model->ranks[ends[i].rank].overwritten && !model->ranks[ends[i].rank].lost;
    side.small &= call->count <= BUFFERED_BYTES / 8;
    if (call->progress == NT_PROGRESS_FINISHED)
      side.done = i + 1;
  }
  return side;
}

/* How far apart in time the last pairs are made, if the sides' items up to these are the same messages. */
static int64_t distance(const struct side *a, uint32_t up_to_a, const struct side *b,
                        uint32_t up_to_b) {
  int64_t sum = 0;
  uint32_t pairs = up_to_a < up_to_b ? up_to_a : up_to_b;
  if (!pairs)
    return INT64_MAX;
  pairs = pairs < PAIRS ? pairs : PAIRS;
  for (uint32_t i = 1; i <= pairs; i++) {
    const int64_t apart = a->ends[up_to_a - i].call->enter_ns - b->ends[up_to_b - i].call->enter_ns;
    sum += (apart < 0 ? -apart : apart) / pairs;
  }
  return sum;
}

/* Sends that were buffered are finished before they are received: then the last ones belong together, if these were made
 * at about the same time and those that are finished were not. */
static bool ends_together(const struct side *sends, const struct side *recvs) {
  return sends->small && sends->done == sends->count && recvs->done < recvs->count &&
         distance(sends, sends->count, recvs, recvs->count) <
             distance(sends, sends->done, recvs, recvs->done) / 4;
}

static void number_queue(const struct nt_model *model, struct end *ends, uint32_t count) {
  uint32_t sends = 0;
  while (sends < count && ends[sends].send)
    sends++;
  struct side a = side_of(model, ends, sends), b = side_of(model, ends + sends, count - sends);
  uint32_t from_a = 0, from_b = 0;
  if (a.count && b.count && !(a.whole && b.whole)) {
    const bool last = ends_together(&a, &b);
    const uint32_t x = last ? a.count : a.done, y = last ? b.count : b.done;
    from_a = y > x ? y - x : 0;
    from_b = x > y ? x - y : 0;
  }
  for (uint32_t i = 0; i < a.count; i++)
    a.ends[i].call->seq = from_a + i + 1;
  for (uint32_t i = 0; i < b.count; i++)
    b.ends[i].call->seq = from_b + i + 1;
}

static int number_messages(struct nt_model *model) {
  size_t total = 0, count = 0;
  for (uint32_t r = 0; r < model->rank_count; r++)
    for (uint32_t i = 0; i < model->ranks[r].call_count; i++)
      total += is_message(&model->ranks[r].calls[i]);
  struct end *ends = malloc((total ? total : 1) * sizeof *ends);
  if (!ends)
    return -NT_ERR_MEMORY;
  for (uint32_t r = 0; r < model->rank_count; r++)
    for (uint32_t i = 0; i < model->ranks[r].call_count; i++) {
      struct nt_model_call *call = &model->ranks[r].calls[i];
      if (!is_message(call))
        continue;
      const struct nt_model_view *view = &model->ranks[r].views[call->view];
      bool send = call->fn == NT_FN_Send;
      ends[count++] = (struct end){
          view, call, r, send ? view->rank : call->peer, send ? call->peer : view->rank, send};
    }
  qsort(ends, count, sizeof *ends, by_queue);
  for (size_t i = 0, n; i < count; i += n) {
    for (n = 1; i + n < count && same_queue(&ends[i], &ends[i + n]);)
      n++;
    number_queue(model, ends + i, (uint32_t)n);
  }
  free(ends);
  return 0;
}

/* ---- groups ----------------------------------------------------------------------------------------- */

struct keyed {
  struct nt_model_view *view;
  uint32_t rank, index;
  bool calls, messages;
};

static int by_id(const void *a, const void *b) {
  const struct keyed *x = a, *y = b;
  int order = memcmp(x->view->id, y->view->id, sizeof x->view->id);
  return order ? order : x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Of all members: the newest collective, the newest that one finished, the first that one did not. */
struct reach {
  uint32_t high, finished, unfinished;
  uint8_t fn; /* of the last */
};

static void find_reach(const struct nt_model_rank *rank, uint32_t view, struct reach *reach) {
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (call->view != view || !nt_fn_is_collective(call->fn))
      continue;
    reach->high = call->seq > reach->high ? call->seq : reach->high;
    if (call->progress == NT_PROGRESS_FINISHED && call->seq > reach->finished)
      reach->finished = call->seq;
    if (call->progress != NT_PROGRESS_FINISHED && call->progress != NT_PROGRESS_UNKNOWN &&
        (!reach->unfinished || call->seq < reach->unfinished)) {
      reach->unfinished = call->seq;
      reach->fn = call->fn;
    }
  }
}

/* One member may be done with it while others are not. */
static bool is_one_sided(uint8_t fn) {
  return fn == NT_FN_Broadcast || fn == NT_FN_Reduce || fn == NT_FN_Gather || fn == NT_FN_Scatter;
}

/* How far those came that have no entry: as they say, unless that may be the number of a message; else as far as is
 * sure. */
static void settle_group(const struct nt_model *model, struct keyed *keyed, uint32_t count,
                         int32_t world) {
  struct reach reach = {0};
  bool messages = false;
  for (uint32_t i = 0; i < count; i++) {
    if (keyed[i].view->nranks < 0)
      keyed[i].view->nranks = world;
    messages |= keyed[i].messages;
  }
  for (uint32_t i = 0; i < count; i++) {
    if (keyed[i].calls)
      find_reach(&model->ranks[keyed[i].rank], keyed[i].index, &reach);
    else if (keyed[i].view->collectives > reach.high && !messages)
      reach.high = keyed[i].view->collectives;
  }
  uint32_t sure = !reach.unfinished || is_one_sided(reach.fn) ? reach.high : reach.unfinished - 1;
  sure = reach.finished > sure ? reach.finished : sure;
  for (uint32_t i = 0; i < count; i++) {
    struct nt_model_view *view = keyed[i].view;
    const struct nt_model_rank *rank = &model->ranks[keyed[i].rank];
    if (!keyed[i].calls && rank->overwritten && (messages || !view->collectives))
      view->collectives = sure;
  }
}

static int settle_groups(struct nt_model *model) {
  size_t total = 0, count = 0;
  int32_t world = 0;
  for (uint32_t r = 0; r < model->rank_count; r++)
    total += model->ranks[r].view_count;
  struct keyed *keyed = calloc(total ? total : 1, sizeof *keyed);
  if (!keyed)
    return -NT_ERR_MEMORY;
  for (uint32_t r = 0; r < model->rank_count; r++) {
    struct nt_model_rank *rank = &model->ranks[r];
    size_t first = count;
    world = rank->world >= world ? rank->world + 1 : world;
    for (uint32_t v = 0; v < rank->view_count; v++)
      keyed[count++] = (struct keyed){.view = &rank->views[v], .rank = r, .index = v};
    for (uint32_t i = 0; i < rank->call_count; i++) {
      const struct nt_model_call *call = &rank->calls[i];
      keyed[first + call->view].messages |= is_message(call);
      keyed[first + call->view].calls |= !is_message(call);
    }
  }
  qsort(keyed, count, sizeof *keyed, by_id);
  for (size_t i = 0, n; i < count; i += n) {
    for (n = 1; i + n < count && !memcmp(keyed[i].view->id, keyed[i + n].view->id, 16);)
      n++;
    settle_group(model, &keyed[i], (uint32_t)n, world);
  }
  free(keyed);
  return 0;
}

int nt_flight_settle(struct nt_model *model) {
  int status = nt_flight_keep_newest(model);
  if (!status)
    status = number_messages(model);
  return status ? status : settle_groups(model);
}
