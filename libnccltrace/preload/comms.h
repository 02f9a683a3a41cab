/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The communicators of this process: handle -> identity, counters, library.
 *
 * What the world may see (definition, counters, sums) lies in the area's slots; here is what only the
 * process needs. Look-up takes no lock: an open-addressed table of handles that only creators and enders
 * change, under a mutex. A handle is bound when NCCL has stored it, which for splits inside a group or of a
 * non-blocking communicator happens after the call has returned.
 */
#ifndef NT_COMMS_H
#define NT_COMMS_H

#include "nccl/comm_id.h"
#include "nccl/nccl_types.h"
#include "preload/resolve.h"
#include "preload/thread_state.h"

enum { NT_USER_OPS = 32 };

struct nt_comm {
  /* Two cache lines hold what a call looks at. */
  _Atomic(ncclComm_t) handle; /* NULL while not known and after the end */
  struct nt_comm_slot *slot;
  const struct nt_library *library;
  uint32_t index;      /* of the slot; what records carry */
  int32_t device;      /* as in the definition */
  int32_t rank;        /* as there */
  bool launches_later; /* non-blocking: from another thread, at its own time */
  uint32_t peers;      /* entries in the two arrays below */
  uint32_t user_ops;   /* operators created so far */
  uint32_t *sent;      /* sends per destination */
  uint32_t *received;  /* receives per source */
  uint64_t group_tag;  /* thread and group for which group_base is valid */
  uint32_t group_base; /* position of that group's first collective here */
  int user_op[NT_USER_OPS];
  ncclComm_t *unresolved; /* where NCCL will store the handle */
  struct nt_id128 repeat; /* what the ordinal of its identity counts, 0 if it has none */
} __attribute__((aligned(64)));

/* Must be called before the first use, once per process (again in a forked child). */
void nt_comms_reset(void);

struct nt_comm *nt_comm_find_slowly(ncclComm_t handle, bool asks);

/* The communicator of a handle. One that was never seen being created gets an entry of unknown
 * identity, so that its calls are at least counted; NULL when there is no room, or for a call that only
 * `asks`: another thread may have destroyed it meanwhile. */
static inline struct nt_comm *nt_comm_find(struct nt_thread *thread, ncclComm_t handle, bool asks) {
  struct nt_comm *comm = thread->last_comm;
  if (comm && atomic_load_explicit(&comm->handle, memory_order_relaxed) == handle)
    return comm;
  comm = nt_comm_find_slowly(handle, asks);
  thread->last_comm = comm;
  if (comm) {
    thread->last_live = &comm->slot->live;
    thread->last_library = comm->library;
  }
  return comm;
}

/* The library that a communicator created next by this thread belongs to. */
void nt_comm_library_hint(const struct nt_library *library);

/* A new communicator in state CREATING, its definition zero but for number, world rank, entry time
 * and origin; complete it and call nt_comm_define. NULL (counted) if there is no slot. */
struct nt_comm *nt_comm_new(enum nt_comm_origin origin, uint64_t enter, struct nt_comm_def *def);

/* Publishes the definition and sizes the per-peer counters for `peers` ranks. */
void nt_comm_define(struct nt_comm *comm, const struct nt_comm_def *def, uint32_t peers);

/* The creating call (or its group) has succeeded, or not. `where` is what the application passed for
 * the handle; it is read now, and later if NCCL has not stored it yet. Not `ready`: NCCL answered ncclInProgress. */
void nt_comm_created(struct nt_comm *comm, ncclComm_t *where, bool ready);
void nt_comm_failed(struct nt_comm *comm);
/* It is ended before NCCL was seen to have made it: does not count as a use of its unique id. */
void nt_comm_given_up(struct nt_comm *comm);
/* Reads the handles that NCCL has stored since, before the application uses the variables for others. */
void nt_comm_resolve_all(void);
/* The same for all communicators that one ncclCommInitAll makes, `first` being rank 0's; handles[rank],
 * or NULL if it failed. */
void nt_comm_all_created(struct nt_comm *first, ncclComm_t *handles);

/* The handle means nothing from now on: the application hands it to Destroy or Abort. */
void nt_comm_unbind(struct nt_comm *comm);
/* NCCL refused that: it means the same as before. */
void nt_comm_rebind(struct nt_comm *comm, ncclComm_t handle);
/* The same of a handle that has no entry. */
void nt_comm_forget(ncclComm_t handle);

/* How often this rank of (uid, nranks) was initialised before, counting this time: from 1. Attempts that failed do
 * not count. `comm` is what is being made, or NULL. */
uint32_t nt_comm_init_ordinal(struct nt_comm *comm, struct nt_id128 uid_hash, int nranks, int rank);
/* How often this list was excluded from this parent, counting this time: from 1. `number` is the parent's in this
 * process, which may hold several ranks of it. */
uint32_t nt_comm_shrink_ordinal(struct nt_comm *comm, struct nt_id128 parent,
                                struct nt_id128 excluded, uint32_t number);

static inline void nt_comm_set_state(struct nt_comm *comm, uint32_t state) {
  atomic_store_explicit(&comm->slot->live.state, state, memory_order_release);
}

/* NCCL has said that it is made. */
static inline void nt_comm_is_ready(struct nt_comm *comm) {
  if (atomic_load_explicit(&comm->slot->live.state, memory_order_relaxed) == NT_COMM_CREATING)
    nt_comm_set_state(comm, NT_COMM_LIVE);
}

#endif
