/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives, as NCCL runs them: ring algorithms in chunks over a few slots between neighbours, and
 * a tree for tiny all-reduces. Runs on stream workers, one operation of a communicator at a time.
 *
 * What mismatched calls do follows from two protocols. Up to LL_BYTES a receiver waits for every
 * line that it expects: a shorter message never completes, a longer one is cut off ("LL"). Beyond,
 * a message is one step whatever its length ("SIMPLE"), and differing counts give wrong data.
 *
 * Two things do not follow from slots alone, because NCCL's flags and step counters are not modelled:
 *  - a slot names the operation it belongs to, by the sender's count of collectives and its kind. A
 *    receiver discards what is older and is stuck for good on anything else than it waits for.
 *  - with different roots a broadcast or reduce finishes, with wrong data. So whoever sends nothing to
 *    its neighbour in such an operation says so with a token, which a receiver takes for data.
 */
#include <stdlib.h>
#include <string.h>

#include "sim_nccl.h"

#define LL_BYTES (512u << 10)
#define LL_LINE 16u
#define SIMPLE_OUTSTANDING 2u

struct ring {
  const struct sim_task *task;
  struct sim_shm *shm;
  ncclComm_t comm;
  struct sim_fifo *in, *out;
  int n, rank, next, prev;
  size_t size; /* of an element */
  uint32_t kind;
  uint32_t limit; /* slots that may be outstanding */
  bool ll;
  bool released; /* the neighbour sends nothing: go on without */
};

/* Collective steps return false once the communicator was aborted. */

static bool send_ready(struct ring *g, struct sim_fifo *f, uint32_t limit, void **slot) {
  for (;;) {
    uint32_t seen = sim_shm_bell(g->shm, g->rank);
    *slot = sim_fifo_reserve(g->shm, f, limit);
    if (*slot)
      return true;
    if (!sim_comm_wait(g->comm, seen, -1))
      return false;
  }
}

static void publish(struct ring *g, struct sim_fifo *f, size_t count, bool token) {
  sim_fifo_publish(g->shm, f,
                   (struct sim_slot){.ordinal = g->task->ordinal,
                                     .kind = g->kind,
                                     .is_token = token,
                                     .size = count * g->size});
}

/* What real GPUs do with data that is not what they poll for: nothing, for ever. */
static bool stuck(struct ring *g, int peer) {
  while (sim_comm_wait(g->comm, sim_shm_bell(g->shm, g->rank), peer))
    ;
  return false;
}

/* The next message of this operation with room for `count` elements; *have is how many it holds. */
static bool recv_ready(struct ring *g, struct sim_fifo *f, size_t count, void **data,
                       size_t *have) {
  *have = 0;
  *data = NULL;
  while (!g->released) {
    uint32_t seen = sim_shm_bell(g->shm, g->rank);
    struct sim_slot *slot = sim_fifo_peek(g->shm, f, data);
    if (slot && slot->ordinal < g->task->ordinal) {
      sim_fifo_pop(g->shm, f);
    } else if (slot) {
      if (slot->ordinal != g->task->ordinal || slot->kind != g->kind)
        return stuck(g, (int)f->src);
      if (slot->is_token) {
        sim_fifo_pop(g->shm, f);
        g->released = true;
        break;
      }
      if (g->ll && slot->size < count * g->size)
        return stuck(g, (int)f->src);
      *have = slot->size / g->size < count ? slot->size / g->size : count;
      return true;
    } else if (!sim_comm_wait(g->comm, seen, (int)f->src)) {
      return false;
    }
  }
  return true;
}

static void recv_done(struct ring *g, struct sim_fifo *f) {
  if (!g->released)
    sim_fifo_pop(g->shm, f);
}

/* An own contribution, as it enters a reduction. */
static void load_own(struct ring *g, void *to, size_t at, size_t count) {
  memmove(to, (const char *)g->task->send + at * g->size, count * g->size);
  if (g->task->op >= NT_REDOP_FIRST_USER) {
    const struct sim_redop *op = &g->task->redop;
    double scalar = op->device_ptr ? sim_reduce_read_scalar(op->device_ptr, op->dtype) : op->scalar;
    sim_reduce_scale(to, count, g->task->dtype, scalar);
  }
}

static int basic_op(const struct ring *g) {
  return g->task->op > ncclMin ? ncclSum : g->task->op;
}

static void finish_reduction(struct ring *g, void *data, size_t count) {
  if (g->task->op == ncclAvg)
    sim_reduce_divide(data, count, g->task->dtype, g->n);
}

static char *recv_at(const struct ring *g, size_t at) {
  return (char *)g->task->recv + at * g->size;
}

static bool step_send_own(struct ring *g, size_t at, size_t count) {
  void *slot;
  if (!send_ready(g, g->out, g->limit, &slot))
    return false;
  load_own(g, slot, at, count);
  publish(g, g->out, count, false);
  return true;
}

static bool step_send(struct ring *g, const void *from, size_t count) {
  void *slot;
  if (!send_ready(g, g->out, g->limit, &slot))
    return false;
  memcpy(slot, from, count * g->size);
  publish(g, g->out, count, false);
  return true;
}

static bool step_recv_reduce_send(struct ring *g, size_t at, size_t count) {
  void *in, *slot;
  size_t have;
  if (!recv_ready(g, g->in, count, &in, &have) || !send_ready(g, g->out, g->limit, &slot))
    return false;
  load_own(g, slot, at, count);
  if (have)
    sim_reduce_apply(slot, in, have, g->task->dtype, basic_op(g));
  recv_done(g, g->in);
  publish(g, g->out, count, false);
  return true;
}

/* The last step of a reduction: into recv at recv_pos, and on to the next rank if `pass`. */
static bool step_recv_reduce_copy(struct ring *g, size_t at, size_t recv_pos, size_t count,
                                  bool pass) {
  void *in;
  size_t have;
  char *to = recv_at(g, recv_pos);
  if (!recv_ready(g, g->in, count, &in, &have))
    return false;
  load_own(g, to, at, count);
  if (have)
    sim_reduce_apply(to, in, have, g->task->dtype, basic_op(g));
  finish_reduction(g, to, count);
  recv_done(g, g->in);
  return !pass || step_send(g, to, count);
}

static bool step_recv_copy(struct ring *g, size_t at, size_t count, bool pass) {
  void *in;
  size_t have;
  if (!recv_ready(g, g->in, count, &in, &have))
    return false;
  if (have)
    memcpy(recv_at(g, at), in, have * g->size);
  recv_done(g, g->in);
  return !pass || step_send(g, recv_at(g, at), count);
}

static size_t least(size_t a, size_t b) {
  return a < b ? a : b;
}

static size_t slot_room(const struct ring *g) {
  return g->out->slot_size / g->size;
}

/* How much of chunk c, `chunk` elements long, lies below `count`. */
static size_t part(size_t count, size_t chunk, int c) {
  size_t at = (size_t)c * chunk;
  return at >= count ? 0 : least(chunk, count - at);
}

static bool ring_allreduce(struct ring *g) {
  size_t line = LL_LINE / g->size;
  for (size_t base = 0; base < g->task->count;) {
    size_t left = g->task->count - base;
    size_t chunk = (left + (size_t)g->n - 1) / (size_t)g->n;
    chunk = least((chunk + line - 1) / line * line, slot_room(g));
    int c = g->prev;
    bool ok = step_send_own(g, base + (size_t)c * chunk, part(left, chunk, c));
    for (int j = 2; ok && j < g->n; j++) {
      c = (g->rank + g->n - j) % g->n;
      ok = step_recv_reduce_send(g, base + (size_t)c * chunk, part(left, chunk, c));
    }
    c = g->rank;
    size_t at = base + (size_t)c * chunk;
    ok = ok && step_recv_reduce_copy(g, at, at, part(left, chunk, c), true);
    for (int j = 1; ok && j < g->n; j++) {
      c = (g->rank + g->n - j) % g->n;
      ok = step_recv_copy(g, base + (size_t)c * chunk, part(left, chunk, c), j < g->n - 1);
    }
    if (!ok)
      return false;
    base += least(left, chunk * (size_t)g->n);
  }
  return true;
}

static bool ring_reducescatter(struct ring *g) {
  size_t count = g->task->count;
  for (size_t base = 0; base < count; base += slot_room(g)) {
    size_t len = least(count - base, slot_room(g));
    bool ok = step_send_own(g, (size_t)g->prev * count + base, len);
    for (int j = 2; ok && j < g->n; j++)
      ok = step_recv_reduce_send(g, (size_t)((g->rank + g->n - j) % g->n) * count + base, len);
    if (!ok || !step_recv_reduce_copy(g, (size_t)g->rank * count + base, base, len, false))
      return false;
  }
  return true;
}

static bool ring_allgather(struct ring *g) {
  size_t count = g->task->count;
  memmove(recv_at(g, (size_t)g->rank * count), g->task->send, count * g->size);
  for (size_t base = 0; base < count; base += slot_room(g)) {
    size_t len = least(count - base, slot_room(g));
    bool ok = step_send(g, recv_at(g, (size_t)g->rank * count + base), len);
    for (int j = 1; ok && j < g->n; j++)
      ok = step_recv_copy(g, (size_t)((g->rank + g->n - j) % g->n) * count + base, len,
                          j < g->n - 1);
    if (!ok)
      return false;
  }
  return true;
}

static bool send_token(struct ring *g) {
  void *slot;
  if (!send_ready(g, g->out, g->out->slots, &slot))
    return false;
  publish(g, g->out, 0, true);
  return true;
}

static bool ring_broadcast(struct ring *g) {
  int root = g->task->peer;
  if (g->rank == root)
    memmove(g->task->recv, g->task->send, g->task->count * g->size);
  else if (g->next == root && !send_token(g))
    return false;
  for (size_t base = 0; base < g->task->count; base += slot_room(g)) {
    size_t len = least(g->task->count - base, slot_room(g));
    bool ok = g->rank == root ? step_send(g, recv_at(g, base), len)
                              : step_recv_copy(g, base, len, g->next != root);
    if (!ok)
      return false;
  }
  return true;
}

static bool ring_reduce(struct ring *g) {
  int root = g->task->peer;
  if (g->rank == root && !send_token(g))
    return false;
  for (size_t base = 0; base < g->task->count; base += slot_room(g)) {
    size_t len = least(g->task->count - base, slot_room(g));
    bool ok = g->rank == root   ? step_recv_reduce_copy(g, base, base, len, false)
              : g->prev == root ? step_send_own(g, base, len)
                                : step_recv_reduce_send(g, base, len);
    if (!ok)
      return false;
  }
  return true;
}

static bool send_small(struct ring *g, struct sim_fifo *f, const void *from) {
  void *slot;
  if (!send_ready(g, f, f->slots, &slot))
    return false;
  memcpy(slot, from, g->task->count * g->size);
  publish(g, f, g->task->count, false);
  return true;
}

/* Up the tree with partial results, down again with the result. */
static bool tree_allreduce(struct ring *g) {
  size_t count = g->task->count, have;
  char acc[512];
  void *in;
  load_own(g, acc, 0, count);
  for (int r = 0; r < g->n; r++) {
    struct sim_fifo *up = sim_shm_up(g->shm, r);
    if (r == g->rank || (int)up->dst != g->rank)
      continue;
    if (!recv_ready(g, up, count, &in, &have))
      return false;
    sim_reduce_apply(acc, in, have, g->task->dtype, basic_op(g));
    recv_done(g, up);
  }
  if (g->rank == 0) {
    finish_reduction(g, acc, count);
  } else {
    struct sim_fifo *down = sim_shm_down(g->shm, g->rank);
    if (!send_small(g, sim_shm_up(g->shm, g->rank), acc) || !recv_ready(g, down, count, &in, &have))
      return false;
    memcpy(acc, in, have * g->size);
    recv_done(g, down);
  }
  memcpy(g->task->recv, acc, count * g->size);
  for (int r = 0; r < g->n; r++) {
    if (r != g->rank && (int)sim_shm_up(g->shm, r)->dst == g->rank &&
        !send_small(g, sim_shm_down(g->shm, r), acc))
      return false;
  }
  return true;
}

static void run_alone(struct ring *g) {
  load_own(g, g->task->recv, 0, g->task->count);
}

/* Leftovers of earlier operations must not fill the queue. */
static void drop_stale(struct ring *g) {
  void *data;
  struct sim_slot *slot;
  while ((slot = sim_fifo_peek(g->shm, g->in, &data)) && slot->ordinal < g->task->ordinal)
    sim_fifo_pop(g->shm, g->in);
}

bool sim_ring_run(const struct sim_task *task) {
  ncclComm_t comm = task->comm;
  struct ring g = {.task = task,
                   .comm = comm,
                   .shm = comm->shm,
                   .n = comm->nranks,
                   .rank = comm->rank,
                   .size = sim_dtype_size(task->dtype)};
  if (atomic_load(&comm->aborted))
    return false;
  if (g.n == 1) {
    run_alone(&g);
    return true;
  }
  g.next = (g.rank + 1) % g.n;
  g.prev = (g.rank + g.n - 1) % g.n;
  g.out = sim_shm_ring(g.shm, g.rank);
  g.in = sim_shm_ring(g.shm, g.prev);
  bool by_all = task->fn == SIM_ALLGATHER || task->fn == SIM_REDUCESCATTER;
  g.ll = task->count * g.size * (by_all ? (size_t)g.n : 1) <= LL_BYTES;
  g.limit = g.ll ? g.out->slots : SIMPLE_OUTSTANDING;
  g.kind = task->fn << 8 | (g.ll ? 1 : 2);
  drop_stale(&g);
  switch (task->fn) {
  case SIM_ALLREDUCE:
    return sim_connect_class(task) == SIM_CONN_TREE ? tree_allreduce(&g) : ring_allreduce(&g);
  case SIM_BROADCAST:
    return ring_broadcast(&g);
  case SIM_REDUCE:
    return ring_reduce(&g);
  case SIM_ALLGATHER:
    return ring_allgather(&g);
  default:
    return ring_reducescatter(&g);
  }
}
