/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends and receives of one group, all in progress at once, as NCCL spreads them over channels. Each
 * ordered pair of ranks has a queue of 32 slots of 128 KiB: a message is a sequence of slots without
 * an envelope, so a receive takes whatever comes next, and up to 4 MiB are sent without a receiver.
 * A slot shorter than expected counts as received; a longer one is NCCL's "message truncated": an
 * asynchronous error, and a receive that never finishes. Runs on stream workers.
 */
#include <stdlib.h>
#include <string.h>

#include "sim_nccl.h"

struct p2p {
  const struct sim_task *task;
  size_t bytes, done; /* of the message */
  size_t slots, slots_done;
  bool failed;
};

static size_t piece(const struct p2p *p, size_t slot_size) {
  size_t left = p->bytes - p->done;
  return left < slot_size ? left : slot_size;
}

static bool finished(const struct p2p *p) {
  return p->slots_done == p->slots;
}

/* Moves what can be moved now; true if anything was. */
static bool push(ncclComm_t comm, struct p2p *p) {
  struct sim_fifo *f = sim_shm_p2p(comm->shm, comm->rank, p->task->peer);
  bool moved = false;
  while (!finished(p)) {
    void *slot = sim_fifo_reserve(comm->shm, f, f->slots);
    if (!slot)
      break;
    size_t size = piece(p, f->slot_size);
    if (size)
      memcpy(slot, (const char *)p->task->send + p->done, size);
    sim_fifo_publish(comm->shm, f, (struct sim_slot){.size = size});
    p->done += size;
    p->slots_done++;
    moved = true;
  }
  return moved;
}

static bool pull(ncclComm_t comm, struct p2p *p) {
  struct sim_fifo *f = sim_shm_p2p(comm->shm, p->task->peer, comm->rank);
  bool moved = false;
  while (!finished(p) && !p->failed) {
    void *data;
    struct sim_slot *slot = sim_fifo_peek(comm->shm, f, &data);
    if (!slot)
      break;
    size_t size = piece(p, f->slot_size);
    if (slot->size > size) {
      sim_nccl_warn("message truncated : receiving %zu bytes instead of %zu", (size_t)slot->size,
                    size);
      sim_comm_set_error(comm, ncclInvalidUsage);
      p->failed = true;
      break;
    }
    if (slot->size)
      memcpy((char *)p->task->recv + p->done, data, slot->size);
    sim_fifo_pop(comm->shm, f);
    p->done += size;
    p->slots_done++;
    moved = true;
  }
  return moved;
}

/* The k-th send to oneself meets the k-th receive from oneself. */
static void copy_self(ncclComm_t comm, struct p2p *list, size_t n) {
  size_t r = 0;
  for (size_t s = 0; s < n; s++) {
    if (list[s].task->peer != comm->rank || list[s].task->fn != SIM_SEND)
      continue;
    while (r < n && (list[r].task->peer != comm->rank || list[r].task->fn != SIM_RECV))
      r++;
    if (r == n)
      return;
    size_t size = list[s].bytes < list[r].bytes ? list[s].bytes : list[r].bytes;
    if (size)
      memmove(list[r].task->recv, list[s].task->send, size);
    list[s].slots_done = list[s].slots;
    list[r].slots_done = list[r].slots;
    r++;
  }
}

/* Messages between two ranks stay in order: one waits for the one before it in its direction. */
static bool is_first(const struct p2p *list, size_t i) {
  for (size_t k = 0; k < i; k++) {
    if (!finished(&list[k]) && list[k].task->fn == list[i].task->fn &&
        list[k].task->peer == list[i].task->peer)
      return false;
  }
  return true;
}

/* The peer of one of the unfinished receives, another one each turn: -1 if there is none. */
static int awaited_peer(const struct p2p *list, size_t n, size_t turn) {
  for (size_t k = 0; k < n; k++) {
    const struct p2p *p = &list[(turn + k) % n];
    if (!finished(p) && p->task->fn == SIM_RECV)
      return p->task->peer;
  }
  return -1;
}

static bool run_all(ncclComm_t comm, struct p2p *list, size_t n) {
  for (size_t turn = 0;; turn++) {
    uint32_t seen = sim_shm_bell(comm->shm, comm->rank);
    bool moved = false, all = true;
    for (size_t i = 0; i < n; i++) {
      if (!finished(&list[i]) && is_first(list, i))
        moved |= list[i].task->fn == SIM_SEND ? push(comm, &list[i]) : pull(comm, &list[i]);
      all &= finished(&list[i]);
    }
    if (all)
      return true;
    if (!moved && !sim_comm_wait(comm, seen, awaited_peer(list, n, turn)))
      return false;
  }
}

bool sim_p2p_run(ncclComm_t comm, struct sim_task *tasks) {
  size_t n = 0, i = 0;
  if (atomic_load(&comm->aborted))
    return false;
  for (struct sim_task *t = tasks; t; t = t->next)
    n++;
  struct p2p *list = calloc(n, sizeof(*list));
  if (!list)
    abort();
  for (struct sim_task *t = tasks; t; t = t->next, i++) {
    size_t slot = sim_shm_p2p(comm->shm, 0, 0)->slot_size;
    list[i].task = t;
    list[i].bytes = t->count * sim_dtype_size(t->dtype);
    list[i].slots = list[i].bytes ? (list[i].bytes + slot - 1) / slot : 1;
  }
  copy_self(comm, list, n);
  bool going = run_all(comm, list, n);
  free(list);
  return going;
}
