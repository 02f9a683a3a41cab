/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is written for each shape of call.
 *
 * Numbers are taken at entry, so that a call that hangs inside NCCL already stands in its place, and
 * given back when the call is refused or its group discarded. All counters of a communicator are
 * atomic and relaxed: they are read by other processes at any time, and NCCL itself allows several
 * threads on one communicator only if they agree on an order.
 */
#include "preload/call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "preload/gpu_identity.h"

static inline bool accepted(ncclResult_t result) {
  return result == ncclSuccess || result == ncclInProgress;
}

static inline uint64_t now(void) {
  return nt_clock_ticks(nt_process.clock);
}

void nt_call_abandon(struct nt_thread *thread) {
  thread->frame = 0;
  if (!thread->open || thread->incarnation != nt_process.incarnation || !nt_recording())
    return;
  thread->open->flags |= NT_CALL_ABANDONED;
  thread->open->duration = nt_duration_encode(now() - thread->open->enter);
  thread->open = NULL;
  nt_ring_close(&thread->ring);
  atomic_fetch_add_explicit(&nt_process.area.header->abandoned, 1, memory_order_relaxed);
}

static uint16_t stream_slot(cudaStream_t stream);

/* The next record with everything that all shapes share; not visible until publish(). */
static struct nt_record *start_record(struct nt_call *call) {
  struct nt_thread *thread = call->thread;
  if (NT_UNLIKELY(thread->incarnation != nt_process.incarnation)) {
    int saved_errno = errno;
    nt_thread_register(thread);
    errno = saved_errno;
  }
  struct nt_record *record = nt_ring_next(&nt_process.area, &thread->ring);
  call->record = record;
  if (NT_UNLIKELY(!record))
    return NULL;
  record->enter = now();
  record->duration = 0;
  record->seq = 0;
  record->count = 0;
  record->send = record->recv = 0;
  record->peer = -1;
  record->stack = 0;
  record->launch = 0;
  record->comm = call->comm ? (uint16_t)call->comm->index : 0;
  record->stream = 0;
  record->group = thread->group_depth ? (uint16_t)thread->group : 0;
  record->fn = (uint8_t)call->fn;
  record->dtype = record->op = 255;
  record->result = NT_RESULT_OPEN;
  record->flags = 0;
  return record;
}

static inline void publish(struct nt_call *call) {
  struct nt_area_header *header = nt_process.area.header;
  if (call->comm)
    atomic_store_explicit(&call->comm->slot->live.last_enter, call->record->enter,
                          memory_order_relaxed);
  atomic_fetch_add_explicit(&header->calls, 1, memory_order_relaxed);
  call->thread->open = call->record;
  nt_ring_publish(&call->thread->ring);
}

/* Completes the record and leaves the call. */
static inline void finish(struct nt_call *call, ncclResult_t result) {
  struct nt_thread *thread = call->thread;
  struct nt_record *record = call->record;
  thread->frame = 0;
  /* The record is gone if the thread forked inside the call, or another call abandoned it. */
  if (!record || thread->open != record)
    return;
  record->duration = nt_duration_encode(now() - record->enter);
  record->result = (uint8_t)result;
  if (result == ncclInProgress)
    record->flags |= NT_CALL_IN_PROGRESS;
  else if (result != ncclSuccess)
    record->flags |= NT_CALL_VOID;
  thread->open = NULL;
  nt_ring_close(&thread->ring);
}

/* ---- streams and operators ------------------------------------------------------------------ */

/* Streams are few and live long: an open-addressed table in the area, filled by whoever comes first. */
static uint16_t stream_slot(cudaStream_t stream) {
  uint64_t handle = (uint64_t)(uintptr_t)stream + 1; /* so that the default stream is not 0 */
  struct nt_area_header *header = nt_process.area.header;
  uint32_t count = header->stream_count;
  uint32_t start = (uint32_t)(handle * UINT64_C(0x9e3779b97f4a7c15) >> 40);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t index = (start + i) % count;
    if (index == 0)
      continue;
    struct nt_stream_slot *slot = &nt_process.area.streams[index];
    uint64_t found = atomic_load_explicit(&slot->handle, memory_order_acquire);
    if (found == handle)
      return (uint16_t)index;
    if (found)
      continue;
    if (atomic_compare_exchange_strong(&slot->handle, &found, handle)) {
      slot->device = -1;
      slot->number =
          atomic_fetch_add_explicit(&header->next_stream, 1, memory_order_relaxed) + 1;
      return (uint16_t)index;
    }
    if (found == handle)
      return (uint16_t)index;
  }
  return 0;
}

/* Handles of user operators differ between ranks; their order of creation does not. */
static uint8_t normal_op(const struct nt_comm *comm, int op) {
  if (op < 0)
    return 255;
  if (op < NT_REDOP_FIRST_USER)
    return (uint8_t)op;
  for (uint32_t i = comm ? comm->user_ops : 0; i-- > 0;)
    if (comm->user_op[i % NT_USER_OPS] == op)
      return (uint8_t)(NT_REDOP_FIRST_USER + i % 200);
  return 254;
}

/* ---- numbers: taken at entry, given back on refusal ------------------------------------------- */

/* Position of the present group's first collective on this communicator. */
static uint32_t group_position(struct nt_thread *thread, struct nt_comm *comm, uint32_t seq) {
  if (!thread->group_depth)
    return seq;
  uint64_t tag = (uint64_t)thread->ring.thread << 32 | thread->group;
  if (comm->group_tag != tag) {
    comm->group_tag = tag;
    comm->group_base = seq;
  }
  return comm->group_base;
}

static uint32_t take_collective(struct nt_call *call, const struct nt_args *args, uint8_t op) {
  struct nt_comm *comm = call->comm;
  struct nt_comm_live *live = &comm->slot->live;
  uint32_t seq = atomic_fetch_add_explicit(&live->collectives, 1, memory_order_relaxed) + 1;
  uint64_t signature = nt_signature(call->fn, args->count, args->dtype, op, args->peer);
  call->term = nt_signature_mix(signature, group_position(call->thread, comm, seq));
  uint64_t sum =
      atomic_fetch_add_explicit(&live->sum, call->term, memory_order_relaxed) + call->term;
  int levels = __builtin_ctz(seq | 1u << (NT_SUM_LEVELS - 1));
  for (int j = 0; j <= levels; j++)
    atomic_store_explicit(&live->sums[j][(seq >> j) % NT_SUM_KEPT], sum, memory_order_relaxed);
  return seq;
}

static uint32_t take_p2p(struct nt_comm *comm, enum nt_shape shape, int peer) {
  struct nt_comm_live *live = &comm->slot->live;
  bool sends = shape == NT_SHAPE_SEND;
  atomic_fetch_add_explicit(sends ? &live->sends : &live->recvs, 1, memory_order_relaxed);
  if (peer < 0 || (uint32_t)peer >= comm->peers)
    return 0;
  uint32_t *queue = sends ? &comm->sent[peer] : &comm->received[peer];
  return __atomic_add_fetch(queue, 1, __ATOMIC_RELAXED) +
         atomic_load_explicit(&live->all_peer, memory_order_relaxed);
}

static void give_back(const struct nt_pending *taken) {
  if (taken->created)
    nt_comm_failed(taken->created);
  if (!taken->comm)
    return;
  struct nt_comm_live *live = &taken->comm->slot->live;
  switch ((enum nt_shape)taken->shape) {
  case NT_SHAPE_COLL_P2P:
    atomic_fetch_sub_explicit(&live->all_peer, 1, memory_order_relaxed);
    /* fall through */
  case NT_SHAPE_COLL:
    atomic_fetch_sub_explicit(&live->sum, taken->term, memory_order_relaxed);
    atomic_fetch_sub_explicit(&live->collectives, 1, memory_order_relaxed);
    break;
  case NT_SHAPE_SEND:
    atomic_fetch_sub_explicit(&live->sends, 1, memory_order_relaxed);
    if (taken->peer >= 0 && (uint32_t)taken->peer < taken->comm->peers)
      __atomic_fetch_sub(&taken->comm->sent[taken->peer], 1, __ATOMIC_RELAXED);
    break;
  case NT_SHAPE_RECV:
    atomic_fetch_sub_explicit(&live->recvs, 1, memory_order_relaxed);
    if (taken->peer >= 0 && (uint32_t)taken->peer < taken->comm->peers)
      __atomic_fetch_sub(&taken->comm->received[taken->peer], 1, __ATOMIC_RELAXED);
    break;
  case NT_SHAPE_COMM_SPLIT:
  case NT_SHAPE_COMM_GROW:
    atomic_fetch_sub_explicit(&live->splits, 1, memory_order_relaxed);
    break;
  default:
    break;
  }
}

/* A call that took numbers has returned: keep them, give them back, or let the group decide. */
static void settle(struct nt_call *call, const struct nt_args *args, ncclResult_t result) {
  struct nt_pending taken = {.comm = call->comm,
                             .created = call->created,
                             .term = call->term,
                             .peer = args->peer,
                             .shape = (uint16_t)nt_fn_shape(call->fn),
                             .stream_slot = call->record ? call->record->stream : 0,
                             .stream = args->stream};
  if (!accepted(result)) {
    give_back(&taken);
  } else if (call->thread->group_depth) {
    struct nt_pending *entry = nt_thread_pend(call->thread);
    if (entry)
      *entry = taken;
  }
}

/* ---- collectives and point to point ----------------------------------------------------------- */

static void fill_transfer(struct nt_call *call, const struct nt_args *args) {
  struct nt_record *record = call->record;
  record->count = args->count;
  record->send = (uint64_t)(uintptr_t)args->send;
  record->recv = (uint64_t)(uintptr_t)args->recv;
  record->peer = args->peer;
  record->dtype = (uint8_t)args->dtype;
  record->stream = stream_slot(args->stream);
}

/* NCCL's notion: for gathers and scatters the smaller buffer lies at the rank's place in the larger. */
static bool in_place(const struct nt_call *call, const struct nt_args *args) {
  uint64_t send = (uint64_t)(uintptr_t)args->send, recv = (uint64_t)(uintptr_t)args->recv;
  int rank = call->comm ? call->comm->slot->def.rank : -1;
  uint64_t offset = rank > 0 ? (uint64_t)rank * args->count * nt_dtype_size(args->dtype) : 0;
  switch (call->fn) {
  case NT_FN_AllGather:
    return rank >= 0 ? send == recv + offset : send == recv;
  case NT_FN_ReduceScatter:
    return rank >= 0 ? recv == send + offset : send == recv;
  default:
    return send == recv;
  }
}

/* A launch of its own gets its marks; inside a group only the number that the group's launch will have. A
 * non-blocking communicator launches from another thread at its own time: not known. */
static void mark_launch(struct nt_call *call, const struct nt_args *args) {
  struct nt_record *record = call->record;
  bool captured = false;
  if (call->comm && call->comm->slot->def.blocking == 0)
    return;
  if (call->thread->group_depth)
    record->launch = nt_gpu_next(record->stream);
  else
    record->launch = nt_gpu_begin(&call->gpu, record->stream, args->stream, &captured);
  if (captured)
    record->flags |= NT_CALL_CAPTURED;
}

void nt_enter_collective(struct nt_call *call, const struct nt_args *args) {
  struct nt_record *record = start_record(call);
  uint8_t op = normal_op(call->comm, args->op);
  uint32_t seq = call->comm ? take_collective(call, args, op) : 0;
  if (call->comm && nt_fn_shape(call->fn) == NT_SHAPE_COLL_P2P)
    atomic_fetch_add_explicit(&call->comm->slot->live.all_peer, 1, memory_order_relaxed);
  if (NT_UNLIKELY(!record))
    return;
  fill_transfer(call, args);
  record->op = op;
  record->seq = seq;
  if (in_place(call, args))
    record->flags |= NT_CALL_IN_PLACE;
  mark_launch(call, args);
  publish(call);
}

void nt_enter_p2p(struct nt_call *call, const struct nt_args *args) {
  struct nt_record *record = start_record(call);
  uint32_t seq = call->comm ? take_p2p(call->comm, nt_fn_shape(call->fn), args->peer) : 0;
  if (NT_UNLIKELY(!record))
    return;
  fill_transfer(call, args);
  record->seq = seq;
  mark_launch(call, args);
  publish(call);
}

void nt_exit_counted(struct nt_call *call, const struct nt_args *args, ncclResult_t result) {
  nt_gpu_end(&call->gpu, args->stream);
  finish(call, result);
  if (call->comm)
    settle(call, args, result);
}

/* ---- groups ------------------------------------------------------------------------------------- */

void nt_exit_group_start(struct nt_call *call, const struct nt_args *args, ncclResult_t result) {
  struct nt_thread *thread = call->thread;
  (void)args;
  thread->frame = 0;
  if (!accepted(result))
    return;
  if (thread->group_depth++ == 0) {
    thread->group = thread->group % 65535 + 1;
    thread->pending_count = 0;
  }
}

/* Start marks on every stream that the group launches on. */
static void begin_launches(struct nt_thread *thread) {
  thread->launch_count = 0;
  for (uint32_t i = 0; i < thread->pending_count; i++) {
    const struct nt_pending *entry = &thread->pending[i];
    uint32_t seen = 0;
    bool captured;
    while (seen < thread->launch_count && thread->launches[seen].slot != entry->stream_slot)
      seen++;
    if (!entry->stream_slot || seen < thread->launch_count || seen == NT_GROUP_STREAMS ||
        (entry->comm && entry->comm->slot->def.blocking == 0))
      continue;
    struct nt_group_launch *launch = &thread->launches[thread->launch_count++];
    launch->slot = entry->stream_slot;
    launch->stream = entry->stream;
    nt_gpu_begin(&launch->gpu, launch->slot, launch->stream, &captured);
  }
}

static void end_launches(struct nt_thread *thread) {
  for (uint32_t i = 0; i < thread->launch_count; i++)
    nt_gpu_end(&thread->launches[i].gpu, thread->launches[i].stream);
  thread->launch_count = 0;
}

/* Only the outermost end launches anything, and only it is worth a record. */
void nt_enter_group_end(struct nt_call *call, const struct nt_args *args) {
  struct nt_thread *thread = call->thread;
  (void)args;
  if (thread->group_depth != 1 || !thread->pending_count || !nt_recording())
    return;
  struct nt_record *record = start_record(call);
  if (!record)
    return;
  record->count = thread->pending_count;
  if (nt_fn_shape(call->fn) == NT_SHAPE_GROUP_END)
    begin_launches(thread);
  publish(call);
}

void nt_exit_group_end(struct nt_call *call, const struct nt_args *args, ncclResult_t result) {
  struct nt_thread *thread = call->thread;
  (void)args;
  bool simulated = nt_fn_shape(call->fn) == NT_SHAPE_GROUP_SIMULATE;
  end_launches(thread);
  finish(call, result);
  if (!thread->group_depth || --thread->group_depth)
    return;
  if (simulated || !accepted(result)) {
    for (uint32_t i = thread->pending_count; i-- > 0;)
      give_back(&thread->pending[i]);
  }
  thread->pending_count = 0;
}

/* ---- everything that is only noted ------------------------------------------------------------- */

void nt_enter_nothing(struct nt_call *call, const struct nt_args *args) {
  (void)call;
  (void)args;
}

void nt_enter_plain(struct nt_call *call, const struct nt_args *args) {
  struct nt_record *record = start_record(call);
  if (!record)
    return;
  record->count = args->count;
  record->recv = (uint64_t)(uintptr_t)args->recv;
  publish(call);
}

void nt_exit_plain(struct nt_call *call, const struct nt_args *args, ncclResult_t result) {
  (void)args;
  finish(call, result);
}

void nt_exit_redop(struct nt_call *call, const struct nt_args *args, ncclResult_t result) {
  struct nt_comm *comm = call->comm;
  if (comm && result == ncclSuccess && args->out) {
    comm->user_op[comm->user_ops % NT_USER_OPS] = *(const int *)args->out;
    comm->user_ops++;
    if (call->record)
      call->record->op = (uint8_t)(NT_REDOP_FIRST_USER + (comm->user_ops - 1) % 200);
  }
  finish(call, result);
}

/* Polled all the time: a record only when the answer is an error and has changed. */
void nt_exit_async_error(struct nt_call *call, const struct nt_args *args, ncclResult_t result) {
  struct nt_comm *comm = call->comm;
  call->thread->frame = 0;
  if (!comm || result != ncclSuccess || !args->out)
    return;
  int reported = *(const int *)args->out;
  struct nt_comm_live *live = &comm->slot->live;
  if (NT_LIKELY(reported == ncclInProgress ||
                (uint32_t)reported ==
                    atomic_load_explicit(&live->async_error, memory_order_relaxed)))
    return;
  atomic_store_explicit(&live->async_error, (uint32_t)reported, memory_order_relaxed);
  if (!start_record(call))
    return;
  call->record->count = (uint64_t)(unsigned)reported;
  publish(call);
  finish(call, result);
}

/* ---- life cycle ---------------------------------------------------------------------------------- */

static struct nt_id128 id_of(const uint8_t bytes[16]) {
  struct nt_id128 id;
  memcpy(&id, bytes, sizeof(id));
  return id;
}

static void set_id(uint8_t bytes[16], struct nt_id128 id) {
  memcpy(bytes, &id, sizeof(id));
}

/* ncclConfig_t grows from release to release; its first fields say how far it goes. Offsets from
 * nccl.h 2.14 (blocking) and 2.27 (commName), the same in every release since. */
static void read_config(const void *config, struct nt_comm_def *def) {
  enum { MAGIC_AT = 8, BLOCKING_AT = 16, NAME_AT = 48 };
  const unsigned char *bytes = config;
  size_t size;
  uint32_t magic;
  int32_t blocking;
  const char *name;
  if (!config)
    return;
  memcpy(&size, bytes, sizeof(size));
  memcpy(&magic, bytes + MAGIC_AT, sizeof(magic));
  if (magic != 0xcafebeef || size < BLOCKING_AT + sizeof(blocking))
    return;
  memcpy(&blocking, bytes + BLOCKING_AT, sizeof(blocking));
  def->blocking = blocking == 0 || blocking == 1 ? blocking : -1;
  if (size < NAME_AT + sizeof(name))
    return;
  memcpy(&name, bytes + NAME_AT, sizeof(name));
  if (name)
    strncpy(def->name, name, sizeof(def->name) - 1);
}

static void define_init(struct nt_call *call, const struct nt_args *args, struct nt_comm_def *def) {
  struct nt_id128 uid = {0, 0};
  if (args->ids && args->nids > 0) {
    uid = nt_hash(args->ids->internal, sizeof(args->ids->internal));
    memcpy(def->root, args->ids->internal + 8, sizeof(def->root));
  }
  def->ordinal = nt_comm_init_ordinal(uid, args->nranks, args->peer);
  set_id(def->uid_hash, uid);
  set_id(def->id, nt_comm_id_init(uid, args->nranks, def->ordinal));
  def->rank = args->peer;
  def->nranks = args->nranks;
  read_config(args->config, def);
  nt_comm_define(call->created, def, args->nranks > 0 ? (uint32_t)args->nranks : 0);
}

/* ncclCommInitAll: one process is all ranks. The id needs to be unique on this machine only. */
static void define_init_all(struct nt_call *call, const struct nt_args *args, uint64_t enter) {
  const uint64_t words[3] = {nt_process.area.header->nonce, enter, (uint64_t)args->nranks};
  struct nt_id128 id = nt_hash(words, sizeof(words));
  for (int rank = 0; rank < args->nranks; rank++) {
    struct nt_comm_def def;
    struct nt_comm *comm = nt_comm_new(NT_COMM_INIT_ALL, enter, &def);
    if (!comm)
      return;
    set_id(def.id, id);
    def.rank = rank;
    def.nranks = args->nranks;
    def.ordinal = 1;
    def.device = args->list ? args->list[rank] : rank;
    nt_comm_define(comm, &def, (uint32_t)args->nranks);
    if (rank == 0)
      call->created = comm;
  }
}

void nt_enter_init(struct nt_call *call, const struct nt_args *args) {
  int saved_errno = errno;
  struct nt_comm_def def;
  bool all = nt_fn_shape(call->fn) == NT_SHAPE_COMM_INIT_ALL;
  if (!nt_process_start(all ? -1 : args->peer, args->nranks)) {
    call->thread->frame = 0;
    call->thread = NULL;
    errno = saved_errno;
    return;
  }
  uint64_t enter = now();
  if (all)
    define_init_all(call, args, enter);
  else if ((call->created = nt_comm_new(NT_COMM_INIT, enter, &def)))
    define_init(call, args, &def);
  struct nt_record *record = start_record(call);
  if (record) {
    record->comm = call->created ? (uint16_t)call->created->index : 0;
    record->peer = args->peer;
    record->count = (uint64_t)args->nranks;
    record->seq = call->created ? call->created->slot->def.ordinal : 0;
    publish(call);
  }
  errno = saved_errno;
}

static int compare_ints(const void *a, const void *b) {
  int x = *(const int *)a, y = *(const int *)b;
  return (x > y) - (x < y);
}

static struct nt_id128 hash_list(const int *list, int count) {
  int sorted[256];
  if (!list || count <= 0)
    return nt_hash(NULL, 0);
  if (count > 256)
    return nt_hash(list, (size_t)count * sizeof(*list));
  memcpy(sorted, list, (size_t)count * sizeof(*list));
  qsort(sorted, (size_t)count, sizeof(*sorted), compare_ints);
  return nt_hash(sorted, (size_t)count * sizeof(*sorted));
}

/* Identity of what a split, shrink or grow of call->comm makes; returns the call's ordinal. */
static uint32_t derive(struct nt_call *call, const struct nt_args *args, struct nt_comm_def *def,
                       struct nt_record *record) {
  struct nt_comm *parent = call->comm;
  struct nt_comm_live *live = &parent->slot->live;
  struct nt_id128 parent_id = id_of(parent->slot->def.id);
  switch (nt_fn_shape(call->fn)) {
  case NT_SHAPE_COMM_SPLIT: {
    uint32_t k = atomic_fetch_add_explicit(&live->splits, 1, memory_order_relaxed) + 1;
    set_id(def->id, nt_comm_id_split(parent_id, k, args->peer));
    def->color = args->peer;
    def->key = args->key;
    def->rank = def->nranks = -1; /* the tools derive both from all members' colours and keys */
    return k;
  }
  case NT_SHAPE_COMM_SHRINK: {
    struct nt_id128 excluded = hash_list(args->list, args->nranks);
    uint32_t ordinal = nt_comm_shrink_ordinal(parent_id, excluded);
    set_id(def->id, nt_comm_id_shrink(parent_id, excluded, ordinal));
    def->nranks = parent->slot->def.nranks - args->nranks;
    def->rank = parent->slot->def.rank;
    for (int i = 0; args->list && i < args->nranks; i++)
      def->rank -= args->list[i] < parent->slot->def.rank;
    if (record)
      record->send = excluded.lo;
    return ordinal;
  }
  default: {
    uint32_t k = atomic_fetch_add_explicit(&live->splits, 1, memory_order_relaxed) + 1;
    uint64_t magic = 0;
    if (args->ids)
      memcpy(&magic, args->ids->internal, sizeof(magic));
    set_id(def->id, nt_comm_id_grow(magic, args->nranks));
    def->nranks = args->nranks;
    def->rank = args->peer >= 0 ? args->peer : parent->slot->def.rank;
    return k;
  }
  }
}

static enum nt_comm_origin origin_of(enum nt_shape shape) {
  return shape == NT_SHAPE_COMM_SPLIT    ? NT_COMM_SPLIT
         : shape == NT_SHAPE_COMM_SHRINK ? NT_COMM_SHRINK
                                         : NT_COMM_GROW;
}

void nt_enter_derive(struct nt_call *call, const struct nt_args *args) {
  int saved_errno = errno;
  struct nt_comm_def def, parent;
  enum nt_shape shape = nt_fn_shape(call->fn);
  struct nt_record *record = start_record(call);
  if (!call->comm)
    goto out;
  bool joins = shape != NT_SHAPE_COMM_SPLIT || args->peer != NCCL_SPLIT_NOCOLOR;
  parent = call->comm->slot->def;
  nt_comm_library_hint(call->comm->library);
  memset(&def, 0, sizeof(def));
  call->created =
      joins ? nt_comm_new(origin_of(shape), record ? record->enter : now(), &def) : NULL;
  uint32_t ordinal = derive(call, args, &def, record);
  if (call->created) {
    def.ordinal = ordinal;
    def.parent_number = parent.number;
    def.parent_rank = (uint32_t)parent.rank;
    memcpy(def.parent_id, parent.id, sizeof(def.parent_id));
    read_config(args->config, &def);
    int peers = def.nranks > 0 ? def.nranks : parent.nranks;
    nt_comm_define(call->created, &def, peers > 0 ? (uint32_t)peers : 0);
  }
  if (record) {
    record->seq = ordinal;
    record->peer = shape == NT_SHAPE_COMM_SPLIT ? args->peer : -1;
    record->count = shape == NT_SHAPE_COMM_SPLIT ? (uint64_t)(int64_t)args->key
                                                 : (uint64_t)args->nranks;
    record->recv = call->created ? def.number : 0;
  }
out:
  if (record)
    publish(call);
  errno = saved_errno;
}

void nt_exit_created(struct nt_call *call, const struct nt_args *args, ncclResult_t result) {
  int saved_errno = errno;
  finish(call, result);
  if (call->created && nt_fn_shape(call->fn) == NT_SHAPE_COMM_INIT_ALL)
    nt_comm_all_created(call->created, accepted(result) ? args->newcomm : NULL);
  else if (call->created && accepted(result))
    nt_comm_created(call->created, args->newcomm);
  if (call->created && accepted(result))
    nt_gpu_note(call->created);
  settle(call, args, result);
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
void nt_enter_end(struct nt_call *call, const struct nt_args *args) {
  (void)args;
  if (nt_fn_shape(call->fn) == NT_SHAPE_COMM_ABORT)
    nt_gpu_freeze();
  struct nt_record *record = start_record(call);
  if (record) {
    record->seq = 1;
    publish(call);
  }
  if (call->comm && (call->fn == NT_FN_CommDestroy || call->fn == NT_FN_CommAbort)) {
    if (call->thread->last_comm == call->comm)
      call->thread->last_comm = NULL;
    nt_comm_unbind(call->comm);
  }
}

void nt_exit_end(struct nt_call *call, const struct nt_args *args, ncclResult_t result) {
  (void)args;
  finish(call, result);
  if (call->comm && accepted(result))
    nt_comm_set_state(call->comm, end_state(call->fn));
}
