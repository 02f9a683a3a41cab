/* SPDX-License-Identifier: Apache-2.0 */
/* Two passes over a rank: by time, in which queues are counted, and by thread, in which the calls are put in. */
#include "analysis/replayed.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/graphs.h"
#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

/* Messages of all replays of a job; of more nothing is put in. */
#define MOST_REPLAYED (UINT64_C(1) << 21)

/* Messages in one direction with one peer. */
struct queue {
  uint32_t view, signal, last, replayed;
  int32_t peer;
  bool sends;
};

struct event {
  int64_t enter_ns;
  uint32_t call;
};

struct replayer {
  struct nt_model_rank *rank;
  struct nt_graphs graphs;
  struct queue *queues;
  uint32_t queue_count, queue_room;
  struct nt_model_call *made; /* those of one launch together */
  uint32_t made_count, made_room;
  uint32_t *first; /* by call: of a launch its first one in `made`, + 1 */
  uint32_t launch; /* the one at hand */
};

static bool is_message(const struct nt_model_call *call) {
  return nt_call_is_message(call) && call->view != NT_NONE;
}

/* How far it goes in its queue: a wait may be for several signals. */
static uint32_t length_of(const struct nt_model_call *call) {
  bool waits = call->fn == NT_FN_WaitSignal && call->count < MOST_REPLAYED;
  return waits ? (uint32_t)call->count : 1;
}

struct counter {
  const struct nt_model_rank *rank;
  uint64_t count;
};

static int count_message(void *arg, uint32_t index) {
  struct counter *counter = arg;
  counter->count += is_message(&counter->rank->calls[index]);
  return 0;
}

/* How many messages the launches of a rank carry out, and its signals. */
static int count_replayed(const struct nt_model_rank *rank, uint64_t *count, bool *signals) {
  struct counter counter = {rank, *count};
  struct nt_graphs graphs;
  if (!nt_model_may_have(rank, NT_SHAPE_GRAPH_LAUNCH) && !nt_model_may_have(rank, NT_SHAPE_RMA))
    return 0;
  int status = nt_graphs_build(rank, &graphs);
  for (uint32_t i = 0; i < rank->call_count; i++)
    *signals |= nt_call_signal(&rank->calls[i]) != 0;
  for (uint32_t i = 0; i < rank->call_count && graphs.count && !status; i++)
    if (nt_is_replay(&rank->calls[i]) && counter.count <= MOST_REPLAYED)
      (void)nt_graphs_walk(&graphs, rank->calls[i].graph, count_message, &counter);
  nt_graphs_free(&graphs);
  *count = counter.count;
  return status;
}

static struct queue *queue_of(struct replayer *at, const struct nt_model_call *call) {
  const bool sends = nt_call_sends(call);
  const uint32_t signal = nt_call_signal(call);
  for (uint32_t i = 0; i < at->queue_count; i++)
    if (at->queues[i].peer == call->peer && at->queues[i].view == call->view &&
        at->queues[i].signal == signal && at->queues[i].sends == sends)
      return &at->queues[i];
  if (at->queue_count == at->queue_room) {
    uint32_t room = at->queue_room ? 2 * at->queue_room : 16;
    struct queue *queues = realloc(at->queues, room * sizeof *queues);
    if (!queues)
      return NULL;
    at->queues = queues;
    at->queue_room = room;
  }
  at->queues[at->queue_count] =
      (struct queue){.view = call->view, .signal = signal, .peer = call->peer, .sends = sends};
  return &at->queues[at->queue_count++];
}

static int make(void *arg, uint32_t index) {
  struct replayer *at = arg;
  const struct nt_model_call *captured = &at->rank->calls[index];
  const struct nt_model_call *launch = &at->rank->calls[at->launch];
  struct queue *queue = is_message(captured) ? queue_of(at, captured) : NULL;
  if (!queue)
    return is_message(captured) ? -NT_ERR_MEMORY : 0;
  if (at->made_count == at->made_room) {
    uint32_t room = at->made_room ? 2 * at->made_room : 64;
    struct nt_model_call *made = realloc(at->made, room * sizeof *made);
    if (!made)
      return -NT_ERR_MEMORY;
    at->made = made;
    at->made_room = room;
  }
  if (!at->first[at->launch])
    at->first[at->launch] = at->made_count + 1;
  struct nt_model_call *call = &at->made[at->made_count++];
  *call = *launch;
  call->fn = captured->fn;
  call->view = captured->view;
  call->count = captured->count;
  call->dtype = captured->dtype;
  call->op = captured->op;
  call->peer = captured->peer;
  call->at = captured->at;
  call->group = UINT32_MAX - at->launch;
  call->buffer = captured->buffer;
  call->seq = queue->last += length_of(captured);
  queue->replayed++;
  return 0;
}

static int by_time(const void *a, const void *b) {
  const struct event *x = a, *y = b;
  if (x->enter_ns != y->enter_ns)
    return x->enter_ns < y->enter_ns ? -1 : 1;
  return (x->call > y->call) - (x->call < y->call);
}

/* First pass. */
static int count_queues(struct replayer *at) {
  struct nt_model_rank *rank = at->rank;
  struct event *events = malloc(((size_t)rank->call_count + 1) * sizeof *events);
  uint32_t count = 0;
  int status = events ? 0 : -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < rank->call_count && !status; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    bool counts = is_message(call) && !(call->flags & NT_CALL_CAPTURED) && nt_call_counts(call) &&
                  (call->seq || nt_call_signal(call));
    if (counts || nt_is_replay(call))
      events[count++] = (struct event){call->enter_ns, i};
  }
  if (count)
    qsort(events, count, sizeof *events, by_time);
  for (uint32_t i = 0; i < count && !status; i++) {
    struct nt_model_call *call = &rank->calls[events[i].call];
    at->launch = events[i].call;
    if (nt_is_replay(call)) {
      status = nt_graphs_walk(&at->graphs, call->graph, make, at);
      continue;
    }
    struct queue *queue = queue_of(at, call);
    if (!queue)
      status = -NT_ERR_MEMORY;
    else if (queue->signal) /* the trace does not count them */
      call->seq = queue->last += length_of(call);
    else
      queue->last = call->seq += queue->replayed;
  }
  free(events);
  return status;
}

/* Second pass: messages in front of their launch. `place` gets the new index of each call. */
static struct nt_model_call *put_in(const struct replayer *at, uint32_t *place) {
  const struct nt_model_rank *rank = at->rank;
  struct nt_model_call *calls = malloc(((size_t)rank->call_count + at->made_count) * sizeof *calls);
  uint32_t count = 0;
  for (uint32_t i = 0; calls && i < rank->call_count; i++) {
    for (uint32_t m = at->first[i];
         m && m <= at->made_count && at->made[m - 1].group == UINT32_MAX - i; m++)
      calls[count++] = at->made[m - 1];
    place[i] = count;
    calls[count++] = rank->calls[i];
  }
  return calls;
}

static int replay(struct nt_model_rank *rank) {
  struct replayer at = {.rank = rank};
  at.first = calloc((size_t)rank->call_count + 1, sizeof *at.first);
  uint32_t *place = malloc(((size_t)rank->call_count + 1) * sizeof *place);
  struct nt_model_call *calls = NULL;
  int status = at.first && place ? nt_graphs_build(rank, &at.graphs) : -NT_ERR_MEMORY;
  if (!status)
    status = count_queues(&at);
  if (!status && at.made_count) {
    calls = put_in(&at, place);
    status = calls ? 0 : -NT_ERR_MEMORY;
  }
  if (calls) {
    free(rank->calls);
    rank->calls = calls;
    rank->shapes = 0;
    rank->call_count = rank->call_room = rank->call_count + at.made_count;
    for (uint32_t i = 0; i < rank->stack_count; i++)
      rank->stacks[i].call = place[rank->stacks[i].call];
    for (uint32_t i = 0; i < rank->seen_count; i++)
      rank->seen[i].call = place[rank->seen[i].call];
  }
  nt_graphs_free(&at.graphs);
  free(at.queues);
  free(at.made);
  free(at.first);
  free(place);
  return status;
}

int nt_model_replay(struct nt_model *model) {
  uint64_t count = 0;
  bool whole = true, signals = false;
  int status = 0;
  for (uint32_t r = 0; r < model->rank_count && !status; r++) {
    const struct nt_model_rank *rank = &model->ranks[r];
    whole &= !rank->lost && !rank->overwritten && !rank->cut;
    status = count_replayed(&model->ranks[r], &count, &signals);
  }
  for (uint32_t r = 0; r < model->rank_count && !status && whole && (count || signals); r++)
    if (count <= MOST_REPLAYED)
      status = replay(&model->ranks[r]);
  return status;
}
