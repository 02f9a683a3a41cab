/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gen_job DIR TP PP DP EP OPS [WORD…]: traces of a whole job, for measuring the tools.
 *
 *   stop=RANK, skip=RANK  the rank leaves out a call, with all after it or alone; prints `#SEQ`, the position of that
 *                         all-reduce on its tensor-parallel communicator
 *   cross=RANK            the rank makes the last all-reduce of all ranks before that of its tensor-parallel communicator, the
 *                         others after it; prints the position of the latter
 *   stall=RANK            all make that all-reduce, and it does not end; prints its position
 *   other=RANK            half-way the rank passes another count to an all-reduce of its tensor-parallel communicator, and
 *                         nothing comes of it; prints its position as well
 *   abort                 in the end all others abort their communicators and exit with 1
 *   leave                 in the end all destroy their communicators and exit with 0
 *   size=BYTES            of each file: less than the calls need, and the oldest are gone
 *
 * Each rank gets an area of its own, filled as the library fills it, and the library's drain makes the file: a
 * test of tools on traces that no writer made would prove little. Times are the plan's; the processes are those of
 * other nodes that were seen last a minute after the hang. Two ranks are written at a time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "job_plan.h"
#include "nccl/comm_id.h"
#include "nccl/signature.h"
#include "nccl/nccl_api.h"
#include "nccl/nccl_types.h"
#include "trace/drain.h"
#include "trace/python_lines.h"
#include "trace/ring.h"

#define TICKS UINT64_C(100) /* nanoseconds of the plan's unit */
#define SECOND UINT64_C(1000000000)
#define BEGAN (UINT64_C(1764384000) * SECOND) /* 2025-11-29 */
#define BOOTED (BEGAN - 86400 * SECOND)       /* the monotonic clock counts from here */
#define HUNG (60 * SECOND)                    /* from the last call to the last sign of life */
#define SETUP (10 * SECOND)                   /* from the start to the first operation */

enum ending { STAYS, ABORTS, LEAVES };
enum { PER_NODE = 8, TICK_CALLS = 512, AREA = 1 << 20, FILE_SIZE = 2 << 20, FRAMES = 12 };
enum { PROCESSES = 2 };

static const char *const names[JOB_COMMS] = {"world", "tp", "pp", "dp", "ep"};

struct order {
  const char *directory;
  enum ending ending;
  uint64_t size;
  uint32_t other, other_index; /* rank and operation with another count; UINT32_MAX: none */
};

struct writer {
  const struct job_plan *plan;
  const struct order *order;
  const char *areas;
  uint32_t rank, stage;
  struct nt_area area;
  struct nt_ring_writer ring;
  struct nt_drain *drain;
  uint32_t stacks[JOB_COMMS][2];                       /* by communicator and direction */
  uint32_t launches, finished, reached;                /* of the one stream that all work is on */
  uint32_t sent[JOB_COMMS][2], received[JOB_COMMS][2]; /* by direction */
  uint32_t exchanged;
  uint16_t group;
  uint32_t since_tick;
};

static uint64_t ticks_of(uint64_t at) {
  return BEGAN - BOOTED + SETUP + at * TICKS;
}

/* ---- what is there before the first call --------------------------------------------------------- */

static void identify(struct writer *w) {
  struct nt_area_header *h = w->area.header;
  const uint32_t node = w->rank / PER_NODE;
  h->pid = 40000 + w->rank % PER_NODE;
  h->start_time = 100000 + w->rank;
  h->nonce = nt_hash(&w->rank, sizeof w->rank).lo;
  h->pid_ns = 4026531836;
  snprintf(h->boot_id, sizeof h->boot_id, "00000000-0000-4000-8000-%012u", node);
  snprintf(h->host, sizeof h->host, "node%04u", node);
  snprintf(h->run_id, sizeof h->run_id, "bench");
  h->world_rank = (int32_t)w->rank;
  h->world_size = (int32_t)w->plan->ranks;
  h->local_rank = (int32_t)(w->rank % PER_NODE);
  h->clock_kind = NT_CLOCK_MONOTONIC;
  h->clock_first = (struct nt_clock_sync){BEGAN - BOOTED, BEGAN - BOOTED, BEGAN};
  h->clock_last = h->clock_first;
}

static void add_evidence(struct writer *w) {
  const unsigned local = w->rank % PER_NODE;
  const int length = snprintf(
      w->area.evidence, w->area.header->evidence_size,
      "host=node%04u\nexe=/usr/bin/python3.11\nscript=train.py\nmachine=x86_64\n"
      "gpu.%u.uuid=GPU-%08x-0000-4000-8000-000000000000\ngpu.%u.pci=0000:%02x:00.0\n"
      "nccl.0.version=2.28.9\nnccl.0.path=/opt/venv/lib/python3.11/nvidia/nccl/lib/libnccl.so.2\n"
      "env.NCCL_DEBUG=WARN\nenv.NCCL_IB_HCA=mlx5\nenv.NCCL_SOCKET_IFNAME=eth0\n"
      "env.CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7\nenv.RANK=%u\nenv.WORLD_SIZE=%u\n",
      w->rank / PER_NODE, local, w->rank, local, 0x10 + local, w->rank, w->plan->ranks);
  atomic_store(&w->area.header->evidence_length, (uint32_t)length);
}

static uint32_t add_code(struct writer *w, const char *file, const char *name) {
  struct nt_code_region *region = w->area.codes;
  const uint32_t used = atomic_load(&region->used), table = 64;
  unsigned char *at = (unsigned char *)region + used;
  const struct nt_code_entry entry = {.first_line = 10,
                                      .lines = NT_PYTHON_LINES_3_10,
                                      .file_length = (uint32_t)strlen(file),
                                      .name_length = (uint32_t)strlen(name),
                                      .table_length = table};
  memcpy(at, &entry, sizeof entry);
  at += sizeof entry;
  memcpy(at, file, entry.file_length);
  memcpy(at + entry.file_length, name, entry.name_length);
  at += entry.file_length + entry.name_length;
  for (unsigned i = 0; i < table; i++)
    at[i] = i % 2 ? i > 1 : 2; /* two bytes an instruction, one instruction a line */
  const uint32_t size = (uint32_t)sizeof entry + entry.file_length + entry.name_length + table;
  atomic_store(&region->used, used + ((size + 7) & ~7u));
  return used / NT_CODE_UNIT;
}

static uint32_t add_node(struct writer *w, uint32_t parent, uint32_t code, int instruction) {
  const uint32_t id = atomic_fetch_add(&w->area.stacks->used, 1);
  struct nt_stack_node *nodes = (struct nt_stack_node *)(void *)(w->area.stacks + 1);
  nodes[id] = (struct nt_stack_node){.parent = parent,
                                     .code = code,
                                     .offset = 2 * instruction,
                                     .depth = parent ? nodes[parent].depth + 1 : 1};
  return id;
}

/* train.py calls, through frames of a framework, a place for each kind of operation. */
static void add_stacks(struct writer *w) {
  const uint32_t program = add_code(w, "/job/train.py", "main");
  const uint32_t framework = add_code(w, "/opt/torch/nn/modules/module.py", "_call_impl");
  const uint32_t library = add_code(w, "/opt/torch/distributed/distributed_c10d.py", "wrapper");
  uint32_t root = add_node(w, 0, program, 3);
  for (int i = 0; i < FRAMES; i++)
    root = add_node(w, root, framework, i);
  for (int comm = 0; comm < JOB_COMMS; comm++) {
    const uint32_t model = add_code(w, "/job/model.py", names[comm]);
    for (int backward = 0; backward < 2; backward++)
      w->stacks[comm][backward] =
          add_node(w, add_node(w, root, model, 5 + backward), library, comm);
  }
}

static struct nt_comm_slot *slot_of(struct writer *w, enum job_comm comm) {
  return &w->area.comms[1 + comm];
}

static void put_id(uint8_t out[16], struct nt_id128 id) {
  memcpy(out, &id, 16);
}

static void define(struct writer *w, enum job_comm comm) {
  static const struct nt_id128 uid = {0x626a6f62, 0x64616564};
  struct nt_comm_def *def = &slot_of(w, comm)->def;
  const struct nt_id128 world = nt_comm_id_init(uid, (int)w->plan->ranks, 1);
  def->number = 1 + comm;
  def->world_rank = (int32_t)w->rank;
  def->device = (int32_t)(w->rank % PER_NODE);
  def->enter = BEGAN - BOOTED + comm * SECOND;
  def->blocking = -1;
  snprintf(def->name, sizeof def->name, "%s", names[comm]);
  atomic_store(&slot_of(w, comm)->live.state, NT_COMM_LIVE);
  if (comm == JOB_WORLD) {
    put_id(def->id, world);
    put_id(def->uid_hash, uid);
    def->rank = (int32_t)w->rank;
    def->nranks = (int32_t)w->plan->ranks;
    def->ordinal = 1;
    def->origin = NT_COMM_INIT;
    return;
  }
  def->color = (int32_t)job_comm_color(w->plan, comm, w->rank);
  def->key = (int32_t)w->rank;
  put_id(def->id, nt_comm_id_split(world, comm, def->color));
  put_id(def->parent_id, world);
  def->parent_number = 1;
  def->rank = def->nranks = -1;
  def->ordinal = comm;
  def->origin = NT_COMM_SPLIT;
  def->parent_rank = w->rank;
}

/* ---- calls --------------------------------------------------------------------------------------- */

static void tick(struct writer *w) {
  nt_drain_tick(w->drain, NT_DRAIN_FINAL);
  w->since_tick = 0;
}

/* `until`: when it returned, 0 if it did not. */
static void put(struct writer *w, struct nt_record *record, uint64_t until) {
  struct nt_record *to = nt_ring_next(&w->area, &w->ring);
  if (!to)
    return;
  record->duration = until ? nt_duration_encode(until - record->enter) : 0;
  record->result = until ? 0 : NT_RESULT_OPEN;
  *to = *record;
  nt_ring_publish(&w->ring);
  if (until)
    nt_ring_close(&w->ring);
  if (record->comm)
    atomic_store(&w->area.comms[record->comm].live.last_enter, record->enter);
  if (++w->since_tick == TICK_CALLS)
    tick(w);
}

static void create(struct writer *w) {
  for (int comm = 0; comm < JOB_COMMS; comm++) {
    if (job_comm_size(w->plan, comm) < 2)
      continue;
    define(w, comm);
    const struct nt_comm_def *def = &slot_of(w, comm)->def;
    struct nt_record record = {.enter = def->enter, .seq = 1, .comm = 1, .dtype = 255, .op = 255};
    if (comm == JOB_WORLD) {
      record.fn = NT_FN_CommInitRankConfig;
      record.peer = def->rank;
      record.count = (uint64_t)def->nranks;
    } else {
      record.fn = NT_FN_CommSplit;
      record.seq = (uint32_t)comm;
      record.peer = def->color;
      record.count = (uint64_t)def->key;
      record.recv = def->number;
      atomic_fetch_add(&slot_of(w, JOB_WORLD)->live.splits, 1);
    }
    put(w, &record, def->enter + SECOND / 2);
  }
}

/* As the library does (preload/call_numbers.c), for a call outside groups. */
static uint32_t take_number(struct nt_comm_live *live, const struct job_op *op) {
  const uint32_t seq = atomic_fetch_add(&live->collectives, 1) + 1;
  const uint64_t term = nt_signature_mix(
      nt_signature(op->fn, op->count, op->dtype, op->op == 255 ? -1 : op->op, -1), seq);
  const uint64_t sum = atomic_fetch_add(&live->sum, term) + term;
  const int levels = __builtin_ctz(seq | 1u << (NT_SUM_LEVELS - 1));
  for (int j = 0; j <= levels; j++)
    atomic_store(&live->sums[j][(seq >> j) % NT_SUM_KEPT], sum);
  return seq;
}

static struct nt_record record_of(struct writer *w, const struct job_op *op, uint32_t index) {
  const uint64_t base = UINT64_C(0x7f0000000000) + ((uint64_t)w->rank << 32);
  struct nt_record record = {.enter = ticks_of(job_enter(w->plan, w->rank, index)),
                             .count = op->count,
                             .peer = -1,
                             .stack = w->stacks[op->comm][op->backward],
                             .launch = w->launches,
                             .comm = (uint16_t)(1 + op->comm),
                             .stream = 1,
                             .fn = op->fn,
                             .dtype = op->dtype,
                             .op = op->op};
  record.send = base + ((uint64_t)op->comm << 28) + (uint64_t)(op->turn % 6) * 0x1000000;
  record.recv = record.send + 0x8000000;
  if (op->fn == NT_FN_AllReduce) {
    record.recv = record.send;
    record.flags = NT_CALL_IN_PLACE;
  }
  return record;
}

/* Between GroupStart and GroupEnd, as PyTorch makes them. */
static void put_messages(struct writer *w, const struct job_op *op, uint32_t index) {
  struct nt_comm_live *live = &slot_of(w, (enum job_comm)op->comm)->live;
  struct nt_record record = record_of(w, op, index);
  struct nt_record edge = {.enter = record.enter,
                           .peer = -1,
                           .stack = record.stack,
                           .fn = NT_FN_GroupStart,
                           .dtype = 255,
                           .op = 255,
                           .group = ++w->group};
  const bool exchange = op->kind == JOB_EXCHANGE, up = (op->kind == JOB_SEND) != op->backward;
  const uint32_t peers = exchange ? job_comm_size(w->plan, JOB_EP) : 1;
  w->exchanged += exchange;
  put(w, &edge, edge.enter + 300);
  record.group = w->group;
  for (uint32_t i = 0; i < peers; i++)
    for (int k = 0; k < 1 + exchange; k++) {
      const bool sends = exchange ? k == 0 : op->kind == JOB_SEND;
      record.fn = sends ? NT_FN_Send : NT_FN_Recv;
      record.peer = (int32_t)(exchange ? i : up ? w->stage + 1 : w->stage - 1);
      record.seq = exchange ? w->exchanged
                            : ++*(sends ? &w->sent[op->comm][up] : &w->received[op->comm][up]);
      record.enter += 400;
      atomic_fetch_add(sends ? &live->sends : &live->recvs, 1);
      put(w, &record, record.enter + 300);
    }
  edge.fn = NT_FN_GroupEnd;
  edge.enter = record.enter + 400;
  edge.count = peers * (1u + exchange);
  put(w, &edge, edge.enter + 3000);
}

static void put_op(struct writer *w, const struct job_op *op, uint32_t index) {
  const bool done = index < w->plan->at[w->rank];
  if (op->kind == JOB_SYNC) {
    struct nt_record record = {.enter = ticks_of(job_enter(w->plan, w->rank, index)),
                               .peer = -1,
                               .stack = w->stacks[JOB_WORLD][1],
                               .stream = 1,
                               .fn = op->fn,
                               .dtype = 255,
                               .op = 255};
    put(w, &record, done ? ticks_of(job_end(w->plan, w->rank, index)) + TICKS : 0);
    return;
  }
  w->launches++;
  w->finished += done;
  w->reached += index <= w->plan->at[w->rank];
  if (op->kind == JOB_COLLECTIVE) {
    struct nt_record record = record_of(w, op, index);
    record.seq = take_number(&slot_of(w, (enum job_comm)op->comm)->live, op);
    put(w, &record, record.enter + 7500);
  } else {
    put_messages(w, op, index);
  }
}

/* One mark of each kind in sixteen launches: the GPU is looked at less often than it works. */
static void put_marks(struct writer *w, const struct job_op *op, uint32_t index) {
  struct nt_area_header *h = w->area.header;
  if (op->kind == JOB_SYNC || index >= w->plan->at[w->rank] || w->launches % 16)
    return;
  for (uint16_t kind = NT_GPU_REACHED; kind <= NT_GPU_FINISHED; kind++) {
    const uint64_t end = ticks_of(job_end(w->plan, w->rank, index));
    w->area.gpu_mark_ring[atomic_load(&h->gpu_marks) % h->gpu_mark_count] =
        (struct nt_gpu_mark){.stream = 1,
                             .kind = kind,
                             .first = w->launches - 15,
                             .last = w->launches,
                             .not_before = end - SECOND / 100,
                             .by = end + SECOND / 100};
    atomic_fetch_add(&h->gpu_marks, 1);
  }
}

static void set_state(struct writer *w, uint64_t now) {
  struct nt_area_header *h = w->area.header;
  h->clock_last = (struct nt_clock_sync){now, now, now + BOOTED};
  atomic_store(&h->heartbeat_ns, now + BOOTED);
  atomic_store(&h->heartbeat_mono_ns, now);
  atomic_store(&h->gpu_heartbeat_ns, now + BOOTED);
  struct nt_gpu_stream *stream = &w->area.gpu_streams[1];
  atomic_store(&stream->issued, w->launches);
  atomic_store(&stream->reached, w->reached);
  atomic_store(&stream->finished, w->finished);
  atomic_store(&stream->polled, now);
}

/* ---- files --------------------------------------------------------------------------------------- */

static int begin(struct writer *w) {
  struct nt_drain_config config = {.size = w->order->size, .keep_attempts = 2};
  struct nt_error err;
  snprintf(config.directory, sizeof config.directory, "%s", w->order->directory);
  if (nt_area_create(w->areas, AREA, &w->area) || !w->area.path[0])
    return -1;
  identify(w);
  add_evidence(w);
  add_stacks(w);
  w->area.streams[1].number = 1;
  atomic_store(&w->area.streams[1].handle, 0x1000);
  w->area.threads[0].index = w->ring.thread = 1;
  snprintf(w->area.threads[0].name, sizeof w->area.threads[0].name, "python");
  atomic_store(&w->area.threads[0].tid, w->area.header->pid);
  atomic_store_explicit(&w->area.header->ready, 1, memory_order_release);
  if (nt_drain_open(&w->area, &config, &w->drain, &err)) {
    fprintf(stderr, "gen_job: %s\n", err.reason);
    return -1;
  }
  return 0;
}

/* Ends all communicators and exits, some milliseconds before or after the others. */
static void leave(struct writer *w, uint64_t now) {
  const bool aborts = w->order->ending == ABORTS;
  struct nt_area_header *h = w->area.header;
  if (w->order->ending == STAYS || (aborts && w->rank == w->plan->shape.faulty))
    return;
  now += w->rank * 7919 % 20000 * 1000;
  for (int comm = JOB_COMMS; comm-- > 0;) {
    if (job_comm_size(w->plan, (enum job_comm)comm) < 2)
      continue;
    struct nt_record record = {.enter = now,
                               .seq = 1,
                               .peer = -1,
                               .comm = (uint16_t)(1 + comm),
                               .fn = aborts ? NT_FN_CommAbort : NT_FN_CommDestroy,
                               .dtype = 255,
                               .op = 255};
    now += SECOND / 1000;
    put(w, &record, now);
    atomic_store(&slot_of(w, (enum job_comm)comm)->live.state,
                 aborts ? NT_COMM_ABORTED : NT_COMM_DESTROYED);
  }
  h->clock_last = (struct nt_clock_sync){now, now, now + BOOTED};
  if (aborts) {
    atomic_store(&w->area.gpu_streams[1].frozen_after, w->finished);
    atomic_store(&w->area.gpu_streams[1].frozen, w->launches);
  }
  atomic_store(&h->heartbeat_ns, now + BOOTED);
  atomic_store(&h->exit_ns, now + BOOTED);
  atomic_store(&h->exit_code, aborts);
  atomic_store(&h->run_state, NT_RUN_EXITING);
}

static int write_rank(struct writer *w, uint64_t end) {
  int status = begin(w);
  if (!status) {
    create(w);
    for (uint32_t i = 0; i < w->plan->issued[w->rank]; i++) {
      if (job_skips(w->plan, w->rank, i))
        continue;
      struct job_op op = *job_op_at(w->plan, w->rank, i);
      op.count += w->rank == w->order->other && i == w->order->other_index;
      put_op(w, &op, i);
      put_marks(w, &op, i);
    }
    set_state(w, end);
    leave(w, end);
    tick(w);
    status =
        atomic_load(&w->area.header->lost) || atomic_load(&w->area.header->write_errors) ? -1 : 0;
  }
  nt_drain_close(w->drain, false);
  if (w->area.header) {
    unlink(w->area.path);
    nt_area_close(&w->area);
  }
  return status;
}

static uint64_t last_end(const struct job_plan *plan) {
  uint64_t last = 0;
  for (uint32_t r = 0; r < plan->ranks; r++) {
    const uint64_t at = plan->issued[r] ? job_enter(plan, r, plan->issued[r] - 1) : 0;
    last = at > last ? at : last;
  }
  return ticks_of(last) + HUNG;
}

static int write_all(const struct job_plan *plan, const struct order *order) {
  char areas[] = "/dev/shm/gen_job-XXXXXX";
  const uint64_t end = last_end(plan);
  int status = 0;
  if (!mkdtemp(areas))
    return -1;
  for (uint32_t k = 0; k < PROCESSES; k++) {
    const pid_t child = fork();
    if (child)
      continue;
    for (uint32_t rank = k; rank < plan->ranks && !status; rank += PROCESSES) {
      struct writer w = {.plan = plan,
                         .order = order,
                         .areas = areas,
                         .rank = rank,
                         .stage = job_stage(plan, rank)};
      status = write_rank(&w, end);
    }
    _exit(status ? 1 : 0);
  }
  for (int result, k = 0; k < PROCESSES; k++)
    if (wait(&result) < 0 || !WIFEXITED(result) || WEXITSTATUS(result))
      status = -1;
  rmdir(areas);
  return status;
}

/* Position of the rank's operation on its tensor-parallel communicator. */
static uint32_t position_of(const struct job_plan *plan, uint32_t rank, uint32_t index) {
  const struct job_op *program = plan->programs[job_stage(plan, rank)];
  uint32_t position = 0;
  for (uint32_t i = 0; i <= index; i++)
    position += program[i].comm == JOB_TP;
  return position;
}

static void pick_other(const struct job_plan *plan, struct order *order) {
  if (order->other >= plan->ranks)
    return;
  const uint32_t stage = job_stage(plan, order->other), length = plan->lengths[stage];
  order->other_index = length / 2;
  while (order->other_index < length && plan->programs[stage][order->other_index].comm != JOB_TP)
    order->other_index++;
}

/* What stands behind "name=" in a word, NULL if it is another. */
static const char *behind(const char *word, const char *name) {
  const size_t length = strlen(name);
  return !strncmp(word, name, length) && word[length] == '=' ? word + length + 1 : NULL;
}

static bool parse_fault(const char *word, struct job_shape *shape) {
  static const char *const words[] = {
      [JOB_SKIPS] = "skip", [JOB_STOPS] = "stop", [JOB_CROSSES] = "cross", [JOB_STALLS] = "stall"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    const char *rank = behind(word, words[i]);
    if (!rank)
      continue;
    shape->faulty = (uint32_t)atoi(rank);
    shape->fault = (enum job_fault)i;
    return true;
  }
  return false;
}

static int parse(int argc, char **argv, struct job_shape *shape, struct order *order) {
  uint32_t *const numbers[] = {&shape->tp, &shape->pp, &shape->dp, &shape->ep, &shape->ops};
  if (argc < 7)
    return -1;
  *shape = (struct job_shape){.faulty = UINT32_MAX};
  *order = (struct order){.directory = argv[1], .size = FILE_SIZE, .other = UINT32_MAX};
  for (int i = 0; i < 5; i++)
    *numbers[i] = (uint32_t)atoi(argv[2 + i]);
  for (int i = 7; i < argc; i++) {
    const char *size = behind(argv[i], "size"), *other = behind(argv[i], "other");
    if (parse_fault(argv[i], shape)) {
      continue;
    } else if (size) {
      order->size = (uint64_t)atoll(size);
    } else if (other) {
      order->other = (uint32_t)atoi(other);
    } else if (!strcmp(argv[i], "abort") || !strcmp(argv[i], "leave")) {
      order->ending = argv[i][0] == 'a' ? ABORTS : LEAVES;
    } else {
      return -1;
    }
  }
  return 0;
}

int main(int argc, char **argv) {
  struct job_shape shape;
  struct order order;
  struct job_plan plan;
  if (parse(argc, argv, &shape, &order)) {
    fprintf(stderr,
            "usage: gen_job DIR TP PP DP EP OPS [stop=RANK|skip=RANK|cross=RANK|stall=RANK] "
            "[other=RANK] [abort|leave] [size=BYTES]\n");
    return 2;
  }
  int status = job_plan_make(&shape, &plan);
  if (!status) {
    pick_other(&plan, &order);
    status = write_all(&plan, &order);
  }
  if (status)
    fprintf(stderr, "gen_job: the traces could not be made\n");
  if (!status && plan.hit != UINT32_MAX)
    printf("#%u\n", position_of(&plan, shape.faulty, plan.hit));
  if (!status && order.other < plan.ranks)
    printf("#%u\n", position_of(&plan, order.other, order.other_index));
  job_plan_free(&plan);
  return status ? 1 : 0;
}
