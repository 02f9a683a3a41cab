/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/comms.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "preload/dump_thread.h"
#include "preload/fork_lock.h"
#include "preload/requests.h"

enum { TABLE = 1024 /* power of two */, COMMS = 256, STRANGERS = 256, REPEATS = 512 };

#define TOMBSTONE ((uintptr_t)1)

/* Probing stops at an empty key; a removed key stays as a tombstone until the table is empty. */
static _Atomic uintptr_t keys[TABLE];
static uint16_t values[TABLE];
static struct nt_comm comms[COMMS];
static unsigned bound;              /* keys that are neither empty nor tombstones */
static unsigned strangers;          /* of these, handles without an entry */
static _Atomic unsigned unresolved; /* communicators whose handle NCCL has not stored yet */
static unsigned next_slot;
static struct nt_fork_lock lock;
static __thread const struct nt_library *hint __attribute__((tls_model("initial-exec")));

/* Counts of equal events, kept for the most recent REPEATS distinct ones. */
struct repeat {
  struct nt_id128 key;
  uint32_t count;
};
static struct repeat repeats[REPEATS];
static unsigned next_repeat;

void nt_comms_reset(void) {
  memset(comms, 0, sizeof(comms));
  memset(repeats, 0, sizeof(repeats));
  for (unsigned i = 0; i < TABLE; i++)
    atomic_store_explicit(&keys[i], 0, memory_order_relaxed);
  bound = strangers = next_repeat = 0;
  atomic_store_explicit(&unresolved, 0, memory_order_relaxed);
  next_slot = 1;
}

static unsigned hash(uintptr_t key) {
  return (unsigned)(key * UINT64_C(0x9e3779b97f4a7c15) >> 54) & (TABLE - 1);
}

static struct nt_comm *look_up(ncclComm_t handle) {
  uintptr_t key = (uintptr_t)handle;
  for (unsigned i = hash(key), probes = 0; probes < TABLE; i = (i + 1) & (TABLE - 1), probes++) {
    uintptr_t found = atomic_load_explicit(&keys[i], memory_order_acquire);
    if (found == key)
      return &comms[values[i]];
    if (!found)
      return NULL;
  }
  return NULL;
}

static void unbind_key(uintptr_t key) {
  for (unsigned i = hash(key), probes = 0; probes < TABLE; i = (i + 1) & (TABLE - 1), probes++) {
    uintptr_t found = atomic_load_explicit(&keys[i], memory_order_relaxed);
    if (!found)
      return;
    if (found == key) {
      atomic_store_explicit(&keys[i], TOMBSTONE, memory_order_release);
      bound--;
      strangers -= values[i] == 0;
      break;
    }
  }
  if (bound == 0)
    for (unsigned i = 0; i < TABLE; i++)
      atomic_store_explicit(&keys[i], 0, memory_order_relaxed);
}

/* Under the lock. `index` 0: a handle without an entry; few enough of these that all others fit. */
static void bind_key(uint32_t index, uintptr_t key) {
  if (!index && strangers >= STRANGERS)
    return;
  strangers += !index;
  unsigned i = hash(key);
  for (uintptr_t found; (found = atomic_load_explicit(&keys[i], memory_order_relaxed)) > TOMBSTONE;)
    i = (i + 1) & (TABLE - 1);
  values[i] = (uint16_t)index;
  atomic_store_explicit(&keys[i], key, memory_order_release);
  bound++;
}

/* Under the lock. A handle that is still bound belongs to a communicator that ended unseen. */
static void bind(struct nt_comm *comm, ncclComm_t handle) {
  uintptr_t key = (uintptr_t)handle;
  struct nt_comm *stale = look_up(handle);
  if (stale == comm)
    return;
  if (stale) {
    unbind_key(key);
    atomic_store_explicit(&stale->handle, NULL, memory_order_relaxed);
  }
  comm->slot->def.handle = key;
  atomic_store_explicit(&comm->handle, handle, memory_order_release);
  bind_key(comm->index, key);
}

/* Reads the application's variable without trusting that it still exists. */
static ncclComm_t peek(ncclComm_t *where) {
  ncclComm_t value = NULL;
  int saved_errno = errno;
  if (!nt_dump_read((uint64_t)(uintptr_t)where, &value, sizeof(value)))
    value = NULL;
  errno = saved_errno;
  return value;
}

/* Under the lock: NCCL has stored the handle, which it does when the communicator is made. NULL: it never will. */
static void is_resolved(struct nt_comm *comm, ncclComm_t handle) {
  comm->unresolved = NULL;
  atomic_fetch_sub_explicit(&unresolved, 1, memory_order_relaxed);
  if (!handle)
    return;
  bind(comm, handle);
  nt_comm_is_ready(comm);
}

static struct nt_comm *resolve_pending(ncclComm_t handle) {
  for (unsigned i = 1; i < COMMS; i++) {
    struct nt_comm *comm = &comms[i];
    if (!comm->unresolved || peek(comm->unresolved) != handle)
      continue;
    is_resolved(comm, handle);
    return comm;
  }
  return NULL;
}

void nt_comm_resolve_all(void) {
  if (NT_LIKELY(!atomic_load_explicit(&unresolved, memory_order_relaxed)))
    return;
  nt_fork_lock(&lock);
  for (unsigned i = 1; i < COMMS; i++) {
    struct nt_comm *comm = &comms[i];
    ncclComm_t handle = comm->unresolved ? peek(comm->unresolved) : NULL;
    if (!handle)
      continue;
    struct nt_comm *other = look_up(handle);
    if (other && other != comm && other->slot)
      continue; /* the variable holds something else by now */
    is_resolved(comm, handle);
  }
  nt_fork_unlock(&lock);
}

struct nt_comm *nt_comm_find_slowly(ncclComm_t handle, bool asks) {
  if (NT_UNLIKELY((uintptr_t)handle <= TOMBSTONE))
    return NULL; /* no pointer, and no key */
  struct nt_comm *comm = look_up(handle);
  if (NT_LIKELY(comm != NULL))
    return comm->slot ? comm : NULL;
  nt_fork_lock(&lock);
  if (atomic_load_explicit(&unresolved, memory_order_relaxed))
    comm = resolve_pending(handle);
  nt_fork_unlock(&lock);
  if (comm || asks)
    return comm;
  struct nt_comm_def def;
  comm = nt_comm_new(NT_COMM_UNKNOWN, nt_clock_ticks(nt_process.clock), &def);
  if (!comm) {
    /* Bound to the entry that no communicator has, so that its next call is done with one look. */
    nt_fork_lock(&lock);
    bind_key(0, (uintptr_t)handle);
    nt_fork_unlock(&lock);
    return NULL;
  }
  comm->library = NULL; /* not the one that this thread has created with: its callers tell */
  def.rank = def.nranks = -1;
  nt_comm_define(comm, &def, 0);
  nt_comm_created(comm, &handle, true);
  return comm;
}

void nt_comm_library_hint(const struct nt_library *library) {
  hint = library;
}

/* Slots are reused oldest first, so that records still in the ring keep their meaning longest. */
static struct nt_comm *take_slot(void) {
  uint32_t count = nt_process.area.header->comm_count;
  if (count > COMMS)
    count = COMMS;
  for (uint32_t tried = 1; tried < count; tried++) {
    uint32_t index = next_slot;
    next_slot = next_slot + 1 < count ? next_slot + 1 : 1;
    struct nt_comm_slot *slot = &nt_process.area.comms[index];
    if (atomic_load_explicit(&slot->live.state, memory_order_acquire) != NT_COMM_FREE)
      continue;
    struct nt_comm *comm = &comms[index];
    free(comm->sent);
    memset(comm, 0, sizeof(*comm));
    comm->slot = slot;
    comm->index = index;
    nt_area_raise(&nt_process.area.header->comms_used, index + 1);
    return comm;
  }
  return NULL;
}

static bool some_have_ended(void) {
  uint32_t count = nt_area_comms_used(nt_process.area.header);
  for (uint32_t i = 1; i < count && i < COMMS; i++)
    if (atomic_load_explicit(&nt_process.area.comms[i].live.state, memory_order_relaxed) >=
        NT_COMM_DESTROYED)
      return true;
  return false;
}

struct nt_comm *nt_comm_new(enum nt_comm_origin origin, uint64_t enter, struct nt_comm_def *def) {
  struct nt_area_header *header = nt_process.area.header;
  nt_fork_lock(&lock);
  struct nt_comm *comm = take_slot();
  /* Ended ones are freed once their records are drained: two ticks of the helper. Creating a communicator takes
   * longer than that. */
  for (int tries = 0; !comm && tries < 3 && origin != NT_COMM_UNKNOWN && some_have_ended();
       tries++) {
    nt_fork_unlock(&lock);
    nt_request(NT_REQUEST_FLUSH, 100);
    nt_fork_lock(&lock);
    comm = take_slot();
  }
  if (!comm) {
    nt_fork_unlock(&lock);
    /* Calls on one that was lost come here again, as calls on an unknown one. */
    if (origin != NT_COMM_UNKNOWN)
      atomic_fetch_add_explicit(&header->comms_lost, 1, memory_order_relaxed);
    return NULL;
  }
  comm->library = hint;
  memset((void *)&comm->slot->live, 0, sizeof(comm->slot->live));
  memset(def, 0, sizeof(*def));
  def->number = atomic_fetch_add_explicit(&header->next_comm, 1, memory_order_relaxed) + 1;
  atomic_fetch_or_explicit(&comm->slot->guard, 1, memory_order_acq_rel);
  nt_comm_set_state(comm, NT_COMM_CREATING);
  nt_fork_unlock(&lock);
  def->origin = (uint16_t)origin;
  def->enter = enter;
  def->world_rank = header->world_rank;
  def->device = -1;
  def->blocking = -1;
  return comm;
}

void nt_comm_define(struct nt_comm *comm, const struct nt_comm_def *def, uint32_t peers) {
  struct nt_comm_slot *slot = comm->slot;
  /* One block for both directions; a size from a wrong argument is not worth more than this. */
  if (peers && peers <= (1u << 20) && !comm->sent) {
    comm->sent = calloc(2 * (size_t)peers, sizeof(uint32_t));
    comm->received = comm->sent ? comm->sent + peers : NULL;
    comm->peers = comm->sent ? peers : 0;
  }
  atomic_fetch_or_explicit(&slot->guard, 1, memory_order_acq_rel);
  slot->def = *def;
  comm->device = def->device;
  comm->rank = def->rank;
  comm->launches_later = def->blocking == 0;
  slot->def.library = comm->library ? comm->library->index : 0;
  atomic_fetch_add_explicit(&slot->guard, 1, memory_order_release);
}

void nt_comm_created(struct nt_comm *comm, ncclComm_t *where, bool ready) {
  ncclComm_t handle = where ? *where : NULL;
  nt_fork_lock(&lock);
  if (handle) {
    bind(comm, handle);
  } else if (where && !comm->unresolved) {
    comm->unresolved = where;
    atomic_fetch_add_explicit(&unresolved, 1, memory_order_relaxed);
  }
  nt_fork_unlock(&lock);
  if (ready)
    nt_comm_set_state(comm, NT_COMM_LIVE);
}

/* The attempt is not counted: the application repeats it, perhaps on this rank alone. */
static void uncount(struct nt_comm *comm) {
  nt_fork_lock(&lock);
  for (unsigned i = 0; i < REPEATS; i++)
    if (repeats[i].count && repeats[i].count == comm->slot->def.ordinal &&
        repeats[i].key.lo == comm->repeat.lo && repeats[i].key.hi == comm->repeat.hi)
      repeats[i].count--;
  comm->repeat = (struct nt_id128){0, 0};
  nt_fork_unlock(&lock);
}

void nt_comm_failed(struct nt_comm *comm) {
  nt_comm_unbind(comm);
  uncount(comm);
  nt_comm_set_state(comm, NT_COMM_FAILED);
}

void nt_comm_given_up(struct nt_comm *comm) {
  const struct nt_comm_live *live = &comm->slot->live;
  if (atomic_load_explicit(&live->state, memory_order_relaxed) == NT_COMM_CREATING &&
      !atomic_load_explicit(&live->collectives, memory_order_relaxed) &&
      !atomic_load_explicit(&live->sends, memory_order_relaxed) &&
      !atomic_load_explicit(&live->recvs, memory_order_relaxed))
    uncount(comm);
}

void nt_comm_all_created(struct nt_comm *first, ncclComm_t *handles) {
  uint8_t id[16];
  memcpy(id, first->slot->def.id, sizeof(id));
  for (unsigned i = 1; i < COMMS; i++) {
    struct nt_comm *comm = &comms[i];
    if (!comm->slot || memcmp(comm->slot->def.id, id, sizeof(id)) != 0)
      continue;
    if (handles)
      nt_comm_created(comm, &handles[comm->slot->def.rank], true);
    else
      nt_comm_failed(comm);
  }
}

void nt_comm_unbind(struct nt_comm *comm) {
  nt_fork_lock(&lock);
  if (comm->unresolved)
    is_resolved(comm, NULL);
  ncclComm_t handle = atomic_exchange_explicit(&comm->handle, NULL, memory_order_relaxed);
  if (handle && look_up(handle) == comm)
    unbind_key((uintptr_t)handle);
  nt_fork_unlock(&lock);
}

void nt_comm_rebind(struct nt_comm *comm, ncclComm_t handle) {
  nt_fork_lock(&lock);
  if (!look_up(handle))
    bind(comm, handle);
  nt_fork_unlock(&lock);
}

void nt_comm_forget(ncclComm_t handle) {
  nt_fork_lock(&lock);
  struct nt_comm *comm = look_up(handle);
  if (comm && !comm->slot)
    unbind_key((uintptr_t)handle);
  nt_fork_unlock(&lock);
}

static uint32_t count_repeat(struct nt_comm *comm, struct nt_id128 key) {
  nt_fork_lock(&lock);
  struct repeat *found = NULL;
  for (unsigned i = 0; i < REPEATS && !found; i++)
    if (repeats[i].count && repeats[i].key.lo == key.lo && repeats[i].key.hi == key.hi)
      found = &repeats[i];
  if (!found) {
    found = &repeats[next_repeat++ % REPEATS];
    *found = (struct repeat){key, 0};
  }
  uint32_t count = ++found->count;
  if (comm)
    comm->repeat = key;
  nt_fork_unlock(&lock);
  return count;
}

uint32_t nt_comm_init_ordinal(struct nt_comm *comm, struct nt_id128 uid_hash, int nranks,
                              int rank) {
  const uint64_t words[4] = {uid_hash.lo, uid_hash.hi, (uint32_t)nranks, (uint32_t)rank};
  return count_repeat(comm, nt_hash(words, sizeof(words)));
}

uint32_t nt_comm_shrink_ordinal(struct nt_comm *comm, struct nt_id128 parent,
                                struct nt_id128 excluded, uint32_t number) {
  const uint64_t words[5] = {parent.lo, parent.hi, excluded.lo, excluded.hi, number};
  return count_repeat(comm, nt_hash(words, sizeof(words)));
}
