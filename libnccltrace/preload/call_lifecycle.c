/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators come and go: identity of what is made, state of what ends. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "preload/call_parts.h"
#include "preload/comm_config.h"
#include "preload/dump_thread.h"
#include "preload/gpu_identity.h"

static struct nt_id128 id_of(const uint8_t bytes[16]) {
  struct nt_id128 id;
  memcpy(&id, bytes, sizeof(id));
  return id;
}

static void set_id(uint8_t bytes[16], struct nt_id128 id) {
  memcpy(bytes, &id, sizeof(id));
}

static void define_init(struct nt_call *call, const struct nt_args *args, struct nt_comm_def *def) {
  struct nt_id128 uid = {0, 0};
  if (args->ids && args->nids > 0) {
    uid = nt_hash(args->ids->internal, sizeof(args->ids->internal));
    memcpy(def->root, args->ids->internal + nt_unique_id_address(args->ids), sizeof(def->root));
  }
  def->ordinal = nt_comm_init_ordinal(call->created, uid, args->nranks, args->peer);
  set_id(def->uid_hash, uid);
  set_id(def->id, nt_comm_id_init(uid, args->nranks, def->ordinal));
  def->rank = args->peer;
  def->nranks = args->nranks;
  nt_comm_config_read(args->config, def);
  nt_comm_define(call->created, def, args->nranks > 0 ? (uint32_t)args->nranks : 0);
}

/* Copy of the application's list, NULL if it cannot be read: NCCL may refuse the call for what it is. Freed by the
 * caller. */
static int *copy_list(const int *list, int count) {
  enum { MANY = 1 << 20 };
  if (!list || count <= 0 || count > MANY)
    return NULL;
  int *copy = malloc((size_t)count * sizeof(*copy));
  if (copy && !nt_dump_read((uint64_t)(uintptr_t)list, copy, (size_t)count * sizeof(*copy))) {
    free(copy);
    return NULL;
  }
  return copy;
}

/* ncclCommInitAll: one process is all ranks. The id needs to be unique on this machine only. */
static void define_init_all(struct nt_call *call, const struct nt_args *args, uint64_t enter) {
  const uint64_t words[3] = {nt_process.area.header->nonce, enter, (uint64_t)args->nranks};
  struct nt_id128 id = nt_hash(words, sizeof(words));
  int *devices = copy_list(args->list, args->nranks);
  for (int rank = 0; rank < args->nranks; rank++) {
    struct nt_comm_def def;
    struct nt_comm *comm = nt_comm_new(NT_COMM_INIT_ALL, enter, &def);
    if (!comm)
      break;
    set_id(def.id, id);
    def.rank = rank;
    def.nranks = args->nranks;
    def.ordinal = 1;
    def.device = devices ? devices[rank] : args->list ? -1 : rank;
    nt_comm_define(comm, &def, (uint32_t)args->nranks);
    if (rank == 0)
      call->created = comm;
  }
  free(devices);
}

void nt_enter_init(struct nt_call *call, const struct nt_args *args) {
  int saved_errno = errno;
  struct nt_comm_def def;
  bool all = nt_fn_shape(call->fn) == NT_SHAPE_COMM_INIT_ALL;
  if (!nt_process_start(all ? 0 : args->peer, all ? 1 : args->nranks)) {
    nt_call_refused(call);
    call->thread = NULL;
    errno = saved_errno;
    return;
  }
  uint64_t enter = nt_now();
  if (all)
    define_init_all(call, args, enter);
  else if ((call->created = nt_comm_new(NT_COMM_INIT, enter, &def)))
    define_init(call, args, &def);
  struct nt_record *record = nt_record_start(call);
  if (record) {
    record->comm = call->created ? (uint16_t)call->created->index : 0;
    record->peer = args->peer;
    record->count = (uint64_t)args->nranks;
    record->seq = call->created ? call->created->slot->def.ordinal : 0;
    nt_record_publish(call);
  }
  errno = saved_errno;
}

static int compare_ints(const void *a, const void *b) {
  int x = *(const int *)a, y = *(const int *)b;
  return (x > y) - (x < y);
}

/* Runs of ranks that follow each other: whole nodes, mostly. `sorted` is ascending. */
static void set_excluded(struct nt_comm_def *def, const int *sorted, int count) {
  uint32_t runs = 0;
  for (int i = 0; i < count; i++) {
    struct nt_excluded *last = runs ? &def->excluded[runs - 1] : NULL;
    if (last && (uint32_t)sorted[i] < last->first + last->count)
      continue; /* twice */
    if (last && (uint32_t)sorted[i] == last->first + last->count) {
      last->count++;
    } else if (runs == NT_EXCLUDED) {
      def->excluded_count = NT_EXCLUDED_MANY;
      return;
    } else {
      def->excluded[runs++] = (struct nt_excluded){(uint32_t)sorted[i], 1};
    }
  }
  def->excluded_count = runs;
}

/* Identity, size and rank of what is left without the listed ranks; returns the call's ordinal. Of a split's child
 * neither rank nor size are known, and so of what is made from it. */
static uint32_t derive_shrink(struct nt_call *call, const struct nt_args *args,
                              struct nt_comm_def *def, struct nt_record *record) {
  const struct nt_comm_def *from = &call->comm->slot->def;
  int *list = copy_list(args->list, args->nranks);
  if (list)
    qsort(list, (size_t)args->nranks, sizeof(*list), compare_ints);
  struct nt_id128 excluded = nt_hash(list, list ? (size_t)args->nranks * sizeof(*list) : 0);
  uint32_t ordinal = nt_comm_shrink_ordinal(call->created, id_of(from->id), excluded, from->number);
  set_id(def->id, nt_comm_id_shrink(id_of(from->id), excluded, ordinal));
  def->nranks = list && from->nranks > 0 ? from->nranks - args->nranks : -1;
  def->rank = from->rank;
  for (int i = 0; list && from->rank >= 0 && i < args->nranks; i++)
    def->rank -= list[i] < from->rank;
  if (list)
    set_excluded(def, list, args->nranks);
  if (record)
    record->send = excluded.lo;
  free(list);
  return ordinal;
}

/* Ranks of the parent know that, new ranks the unique id. The one that both know is the rank that passes both. */
static uint32_t derive_grow(struct nt_call *call, const struct nt_args *args,
                            struct nt_comm_def *def) {
  struct nt_comm *parent = call->comm;
  struct nt_id128 uid = {0, 0};
  uint32_t k = 0;
  if (args->ids) {
    uid = nt_hash(args->ids->internal, sizeof(args->ids->internal));
    set_id(def->uid_hash, uid);
    memcpy(def->root, args->ids->internal + 8, sizeof(def->root));
  }
  def->nranks = args->nranks;
  def->rank = args->peer;
  if (parent) {
    k = atomic_fetch_add_explicit(&parent->slot->live.splits, 1, memory_order_relaxed) + 1;
    set_id(def->id, nt_comm_id_grow(id_of(parent->slot->def.id), k, args->nranks));
    def->rank = parent->slot->def.rank;
  } else {
    set_id(def->id, nt_comm_id_grow_new(uid, args->nranks));
  }
  return k;
}

/* Identity of what a split, shrink or grow of call->comm makes; returns the call's ordinal. */
static uint32_t derive(struct nt_call *call, const struct nt_args *args, struct nt_comm_def *def,
                       struct nt_record *record) {
  struct nt_comm *parent = call->comm;
  switch (nt_fn_shape(call->fn)) {
  case NT_SHAPE_COMM_SPLIT: {
    uint32_t k = atomic_fetch_add_explicit(&parent->slot->live.splits, 1, memory_order_relaxed) + 1;
    set_id(def->id, nt_comm_id_split(id_of(parent->slot->def.id), k, args->peer));
    def->color = args->peer;
    def->key = args->key;
    def->rank = def->nranks = -1; /* the tools derive both from all members' colours and keys */
    return k;
  }
  case NT_SHAPE_COMM_SHRINK:
    return derive_shrink(call, args, def, record);
  default:
    return derive_grow(call, args, def);
  }
}

static enum nt_comm_origin origin_of(enum nt_shape shape) {
  return shape == NT_SHAPE_COMM_SPLIT    ? NT_COMM_SPLIT
         : shape == NT_SHAPE_COMM_SHRINK ? NT_COMM_SHRINK
                                         : NT_COMM_GROW;
}

/* Of the record of a split, shrink or grow. */
static void fill_derived(struct nt_record *record, enum nt_shape shape, const struct nt_args *args,
                         uint32_t ordinal, const struct nt_comm_def *def) {
  record->seq = ordinal;
  record->count =
      shape == NT_SHAPE_COMM_SPLIT ? (uint64_t)(int64_t)args->key : (uint64_t)(int64_t)args->nranks;
  record->peer = shape == NT_SHAPE_COMM_SHRINK ? args->key : args->peer; /* flags: its own */
  record->recv = def->number;
}

static void define_derived(struct nt_call *call, const struct nt_args *args, uint32_t ordinal,
                           struct nt_comm_def *def) {
  uint32_t peers = def->nranks > 0 ? (uint32_t)def->nranks : 0;
  def->ordinal = ordinal;
  if (call->comm) {
    const struct nt_comm_def *parent = &call->comm->slot->def;
    def->parent_number = parent->number;
    def->parent_rank = (uint32_t)parent->rank;
    memcpy(def->parent_id, parent->id, sizeof(def->parent_id));
    def->device = parent->device;
    def->blocking = parent->blocking; /* inherited where the configuration says nothing */
    if (!peers)
      peers = call->comm->peers;
  }
  nt_comm_config_read(args->config, def);
  nt_comm_define(call->created, def, peers);
}

void nt_enter_derive(struct nt_call *call, const struct nt_args *args) {
  int saved_errno = errno;
  struct nt_comm_def def;
  enum nt_shape shape = nt_fn_shape(call->fn);
  if (shape == NT_SHAPE_COMM_SHRINK && args->key > 0 && (args->key & NCCL_SHRINK_ABORT))
    nt_gpu_freeze();
  struct nt_record *record = nt_record_start(call);
  nt_comm_resolve_all();
  memset(&def, 0, sizeof(def));
  if (call->comm || shape == NT_SHAPE_COMM_GROW) {
    bool joins = shape != NT_SHAPE_COMM_SPLIT || args->peer != NCCL_SPLIT_NOCOLOR;
    if (call->comm)
      nt_comm_library_hint(call->comm->library);
    call->created =
        joins ? nt_comm_new(origin_of(shape), record ? record->enter : nt_now(), &def) : NULL;
    uint32_t ordinal = derive(call, args, &def, record);
    if (call->created)
      define_derived(call, args, ordinal, &def);
    if (record)
      fill_derived(record, shape, args, ordinal, &def);
  }
  if (record) {
    if (!call->comm && call->created) /* a new rank: of no other communicator */
      record->comm = (uint16_t)call->created->index;
    nt_record_publish(call);
  }
  errno = saved_errno;
}

/* For a new rank it may be the first communicator of all. */
void nt_enter_grow(struct nt_call *call, const struct nt_args *args) {
  int saved_errno = errno;
  bool started = args->comm ? nt_recording() : nt_process_start(args->peer, args->nranks);
  errno = saved_errno;
  if (started && (call->comm || !args->comm)) {
    nt_enter_derive(call, args);
    return;
  }
  nt_call_refused(call); /* from a communicator that is not traced */
  call->thread = NULL;
}

void nt_exit_created(struct nt_call *call, const struct nt_args *args, ncclResult_t result) {
  int saved_errno = errno;
  nt_record_finish(call, result);
  if (call->created && nt_fn_shape(call->fn) == NT_SHAPE_COMM_INIT_ALL)
    nt_comm_all_created(call->created, nt_accepted(result) ? args->newcomm : NULL);
  else if (call->created && nt_accepted(result))
    nt_comm_created(call->created, args->newcomm,
                    result != ncclInProgress && !call->thread->group_depth);
  if (call->created && nt_accepted(result))
    nt_gpu_note(call->created);
  nt_settle(call, args, result);
  nt_comm_resolve_all();
  errno = saved_errno;
}

static uint32_t end_state(unsigned fn) {
  switch (nt_fn_shape(fn)) {
  case NT_SHAPE_COMM_FINALIZE:
    return NT_COMM_FINALIZED;
  case NT_SHAPE_COMM_ABORT:
    return NT_COMM_ABORTED;
  default:
    return NT_COMM_DESTROYED;
  }
}

/* Finalize leaves the handle valid; after Destroy or Abort it may mean another communicator at once,
 * even before the call has returned here. */
static bool ends_handle(unsigned fn) {
  return fn == NT_FN_CommDestroy || fn == NT_FN_CommAbort;
}

void nt_enter_end(struct nt_call *call, const struct nt_args *args) {
  if (nt_fn_shape(call->fn) == NT_SHAPE_COMM_ABORT)
    nt_gpu_freeze();
  struct nt_record *record = nt_record_start(call);
  if (record) {
    record->seq = 1;
    nt_record_publish(call);
  }
  if (!ends_handle(call->fn))
    return;
  if (call->thread->last_comm == call->comm)
    call->thread->last_comm = NULL;
  if (call->comm)
    nt_comm_unbind(call->comm);
  else
    nt_comm_forget(args->comm);
}

/* A revoked communicator lives on: others are made from it. A refused end, as of one that is still busy, leaves
 * everything as it was. */
void nt_exit_end(struct nt_call *call, const struct nt_args *args, ncclResult_t result) {
  nt_record_finish(call, result);
  if (!call->comm || call->fn == NT_FN_CommRevoke)
    return;
  if (!nt_accepted(result)) {
    if (ends_handle(call->fn))
      nt_comm_rebind(call->comm, args->comm);
    return;
  }
  if (ends_handle(call->fn))
    nt_comm_given_up(call->comm);
  nt_comm_set_state(call->comm, end_state(call->fn));
}

/* Suspend and resume: all ranks take part, and they are counted together. */
void nt_enter_sync(struct nt_call *call, const struct nt_args *args) {
  struct nt_record *record = nt_record_start(call);
  uint32_t seq = 0;
  if (call->comm)
    seq = atomic_fetch_add_explicit(&call->comm->slot->live.syncs, 1, memory_order_relaxed) + 1;
  if (!record)
    return;
  record->seq = seq;
  record->count = (uint64_t)(int64_t)args->key;
  nt_record_publish(call);
}
