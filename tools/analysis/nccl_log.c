/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines into processes, communicators and calls.
 *
 * Handles are addresses that are used again: the newest communicator at an address is meant. What identifies
 * a communicator for all ranks is NCCL's hash of the unique id, or the parent's identity with the number and
 * colour of the split; uses of equal ones are counted, since the hash of all shrinks of a parent is equal.
 */
#include "analysis/nccl_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/comm_id.h"
#include "nccl/nccl_api.h"
#include "nccl/nccl_types.h"
#include "trace/area.h"
#include "trace/error.h"

/* Counts by a key of anything. */
struct nt_log_counter {
  struct counter_key {
    uint64_t what, process, a, b, c;
  } key;
  uint32_t value;
  UT_hash_handle hh;
};

enum {
  COUNT_THREAD,
  COUNT_USE,
  COUNT_MEMBER,
  COUNT_SEND,
  COUNT_RECV,
  COUNT_BUFFER,
  COUNT_OP,
  COUNT_HANDLE
};

/* The counter's value, 0 at first; NULL when there is no memory. */
static uint32_t *counter(struct nt_log *log, uint64_t what, const struct nt_log_process *process,
                         uint64_t a, uint64_t b, uint64_t c) {
  const struct counter_key key = {what, process->number, a, b, c};
  struct nt_log_counter *found;
  HASH_FIND(hh, log->counters, &key, sizeof key, found);
  if (found)
    return &found->value;
  found = calloc(1, sizeof *found);
  if (!found)
    return NULL;
  found->key = key;
  HASH_ADD(hh, log->counters, key, sizeof found->key, found);
  return &found->value;
}

static void *grow(void *array, uint32_t count, uint32_t *room, size_t size) {
  if (count < *room)
    return array;
  uint32_t wanted = *room ? *room * 2 : 16;
  void *bigger = wanted > *room ? realloc(array, wanted * size) : NULL;
  if (bigger)
    *room = wanted;
  return bigger;
}

/* The process of this number that a host's name ends with, NULL if there is none. */
static struct nt_log_process *unglued(const struct nt_log *log, const struct nt_log_line *line) {
  for (struct nt_log_process *p = log->processes; p; p = p->hh.next)
    if (p->pid == line->pid && p->host_length < line->host_length &&
        !memcmp(p->name, line->host + line->host_length - p->host_length, p->host_length))
      return p;
  return NULL;
}

static struct nt_log_process *process_of(struct nt_log *log, const struct nt_log_line *line) {
  char name[288];
  struct nt_log_process *process;
  int length =
      snprintf(name, sizeof name, "%.*s:%u", (int)line->host_length, line->host, line->pid);
  HASH_FIND(hh, log->processes, name, (size_t)length, process);
  if (!process && line->glued)
    process = unglued(log, line);
  if (!process) {
    process = calloc(1, sizeof *process);
    char *copy = process ? strdup(name) : NULL;
    if (!copy) {
      free(process);
      return NULL;
    }
    process->name = copy;
    process->host_length = line->host_length;
    process->pid = line->pid;
    process->number = ++log->process_count;
    process->label = line->label;
    process->begin = log->order + 1;
    HASH_ADD_KEYPTR(hh, log->processes, process->name, (size_t)length, process);
  }
  if (line->label >= 0 && process->label != line->label)
    process->label = process->label == -1 ? line->label : -2;
  return process;
}

static int thread_of(struct nt_log *log, struct nt_log_process *process, uint32_t tid,
                     uint32_t *out) {
  uint32_t *number = counter(log, COUNT_THREAD, process, tid, 0, 0);
  if (!number)
    return -NT_ERR_MEMORY;
  if (!*number)
    *number = ++process->threads;
  *out = *number;
  return 0;
}

/* Index + 1 of the newest communicator at this address, 0 if there is none. */
static uint32_t *handle(struct nt_log *log, const struct nt_log_process *process, uint64_t comm) {
  return counter(log, COUNT_HANDLE, process, comm, 0, 0);
}

static struct nt_log_comm *add_comm(struct nt_log *log, struct nt_log_process *process,
                                    uint64_t comm) {
  uint32_t *index = handle(log, process, comm);
  void *array =
      index ? grow(process->comms, process->comm_count, &process->comm_room, sizeof *process->comms)
            : NULL;
  if (!array)
    return NULL;
  process->comms = array;
  struct nt_log_comm *made = &process->comms[process->comm_count];
  memset(made, 0, sizeof *made);
  made->comm = comm;
  made->rank = made->nranks = made->device = -1;
  *index = ++process->comm_count;
  return made;
}

static bool is_zero(const uint8_t id[16]) {
  static const uint8_t zero[16];
  return !memcmp(id, zero, sizeof zero);
}

/* Equal on all ranks: of the line, and of how often this rank has used the same before. */
static int identify(struct nt_log *log, struct nt_log_process *process,
                    const struct nt_log_line *line, struct nt_log_comm *comm) {
  struct {
    uint64_t parent[2], id, has_id;
    int64_t child, color, nranks;
  } base = {.id = line->comm_id, .has_id = line->has_id, .nranks = line->nranks};
  if (line->has_parent) {
    uint32_t *parent = handle(log, process, line->parent);
    if (!parent)
      return -NT_ERR_MEMORY;
    if (*parent)
      memcpy(comm->parent_id, process->comms[*parent - 1].id, sizeof comm->parent_id);
    if (is_zero(comm->parent_id) && !line->has_id)
      return 0; /* like its parent's, its identity is not known */
  }
  if (!line->has_id) {
    memcpy(base.parent, comm->parent_id, sizeof comm->parent_id);
    base.child = line->child;
    base.color = line->color;
  }
  const struct nt_id128 hash = nt_hash(&base, sizeof base);
  uint32_t *use = counter(log, COUNT_USE, process, hash.lo, hash.hi, (uint32_t)line->rank);
  if (!use)
    return -NT_ERR_MEMORY;
  comm->ordinal = ++*use;
  const struct nt_id128 id = nt_comm_id_init(hash, line->nranks, comm->ordinal);
  memcpy(comm->id, &id, sizeof comm->id);
  uint32_t *member = counter(log, COUNT_MEMBER, process, id.lo, id.hi, 0);
  if (!member)
    return -NT_ERR_MEMORY;
  process->several |= *member && *member != (uint32_t)line->rank + 1;
  *member = (uint32_t)line->rank + 1;
  if (line->has_id && !line->has_parent) { /* the size may differ where the creation is wrong */
    const struct nt_id128 unique = nt_hash(&line->comm_id, sizeof line->comm_id);
    memcpy(comm->uid_hash, &unique, sizeof comm->uid_hash);
  }
  return 0;
}

static uint16_t origin_of(const struct nt_log_line *line) {
  switch (line->fn) {
  case NT_FN_CommSplit:
    return NT_COMM_SPLIT;
  case NT_FN_CommShrink:
    return NT_COMM_SHRINK;
  case NT_FN_CommGrow:
    return NT_COMM_GROW;
  case NT_FN_CommInitAll:
    return NT_COMM_INIT_ALL;
  default:
    return line->has_parent ? NT_COMM_SPLIT : NT_COMM_INIT;
  }
}

static int creation(struct nt_log *log, struct nt_log_process *process,
                    const struct nt_log_line *line, uint32_t thread) {
  bool complete = line->kind == NT_LOG_INIT_COMPLETE;
  uint32_t *index = handle(log, process, line->comm);
  if (!index)
    return -NT_ERR_MEMORY;
  struct nt_log_comm *comm = *index ? &process->comms[*index - 1] : NULL;
  if (complete && comm && comm->begin && !comm->end) {
    comm->end = log->order;
    comm->state = NT_COMM_LIVE;
    return 0;
  }
  comm = add_comm(log, process, line->comm);
  if (!comm)
    return -NT_ERR_MEMORY;
  comm->rank = line->rank;
  comm->nranks = line->nranks;
  comm->device = line->device;
  comm->pci = line->pci;
  comm->color = line->color;
  comm->origin = origin_of(line);
  comm->fn = line->fn ? line->fn : NT_FN_CommInitRank;
  comm->thread = thread;
  comm->begin = log->order;
  comm->end = complete ? log->order : 0;
  comm->state = complete ? NT_COMM_LIVE : NT_COMM_CREATING;
  return identify(log, process, line, comm);
}

/* Operators made by the application differ in value between ranks, not in the order of their first use. */
static int operator_of(struct nt_log *log, struct nt_log_process *process, uint32_t comm,
                       const struct nt_log_line *line, uint8_t *out) {
  unsigned fn = nt_fn_canonical(line->fn);
  bool reduces = fn == NT_FN_AllReduce || fn == NT_FN_Reduce || fn == NT_FN_ReduceScatter;
  *out = reduces ? (uint8_t)line->op : 255;
  if (!reduces || (line->op >= 0 && line->op < NT_OP_USER))
    return 0;
  *out = nt_op_newer(line->op);
  if (*out != NT_OTHER)
    return 0;
  uint32_t *number = counter(log, COUNT_OP, process, comm, (uint32_t)line->op, 0);
  uint32_t *known = counter(log, COUNT_OP, process, comm, UINT64_MAX, 0);
  if (!number || !known)
    return -NT_ERR_MEMORY;
  if (!*number)
    *number = ++*known;
  *out = (uint8_t)(NT_OP_USER + (*number - 1) % NT_OP_USERS);
  return 0;
}

/* Position among those that it must pair up with, and for collectives which buffers it uses. */
static int place(struct nt_log *log, struct nt_log_process *process, struct nt_log_comm *comm,
                 const struct nt_log_line *line, struct nt_log_call *call) {
  enum nt_shape shape = nt_fn_shape(call->fn);
  if (shape == NT_SHAPE_SEND || shape == NT_SHAPE_RECV) {
    uint32_t *before = counter(log, shape == NT_SHAPE_SEND ? COUNT_SEND : COUNT_RECV, process,
                               call->comm, (uint32_t)call->peer, 0);
    if (!before)
      return -NT_ERR_MEMORY;
    call->seq = ++*before + comm->transfers;
    return 0;
  }
  if (!nt_fn_is_collective(call->fn))
    return 0;
  comm->transfers += shape == NT_SHAPE_COLL_P2P;
  call->seq = ++comm->collectives;
  uint32_t *pair = counter(log, COUNT_BUFFER, process, call->comm, line->send, line->recv);
  if (!pair)
    return -NT_ERR_MEMORY;
  if (!*pair)
    *pair = ++comm->pairs;
  call->buffer = *pair;
  return 0;
}

static bool has_root(unsigned fn) {
  fn = nt_fn_canonical(fn);
  return fn == NT_FN_Broadcast || fn == NT_FN_Reduce || fn == NT_FN_Gather || fn == NT_FN_Scatter ||
         fn == NT_FN_Send || fn == NT_FN_Recv;
}

/* NCCL counts launches, so calls of one count are one group's; those of no elements launch nothing. */
static void join_group(struct nt_log_process *process, const struct nt_log_comm *comm,
                       uint64_t op_count) {
  struct nt_log_call *made = &process->calls[process->call_count];
  struct nt_log_call *last = comm->last ? &process->calls[comm->last - 1] : NULL;
  if (!last || comm->op_count != op_count || last->thread != made->thread || !last->count)
    return;
  if (!last->group)
    last->group = ++process->groups;
  made->group = last->group;
}

static int call(struct nt_log *log, struct nt_log_process *process, const struct nt_log_line *line,
                uint32_t thread) {
  uint32_t *index = handle(log, process, line->comm);
  if (!index || (!*index && !add_comm(log, process, line->comm)))
    return -NT_ERR_MEMORY;
  void *array =
      grow(process->calls, process->call_count, &process->call_room, sizeof *process->calls);
  if (!array)
    return -NT_ERR_MEMORY;
  process->calls = array;
  struct nt_log_comm *comm = &process->comms[*index - 1];
  struct nt_log_call *made = &process->calls[process->call_count];
  *made = (struct nt_log_call){.count = line->count,
                               .comm = *index - 1,
                               .thread = thread,
                               .order = log->order,
                               .peer = has_root(line->fn) ? line->root : -1,
                               .fn = line->fn,
                               .dtype = line->dtype >= 0 ? nt_byte_of(line->dtype) : 255};
  if (comm->begin && !comm->end) { /* it is used, so it had completed */
    comm->end = log->order;
    comm->state = NT_COMM_LIVE;
  }
  int status = operator_of(log, process, made->comm, line, &made->op);
  if (!status)
    status = place(log, process, comm, line, made);
  if (status)
    return status;
  join_group(process, comm, line->op_count);
  comm->last = ++process->call_count;
  comm->op_count = line->op_count;
  return 0;
}

static int ending(struct nt_log *log, struct nt_log_process *process,
                  const struct nt_log_line *line) {
  uint32_t *index = handle(log, process, line->comm);
  if (!index)
    return -NT_ERR_MEMORY;
  if (!*index)
    return 0;
  struct nt_log_comm *comm = &process->comms[*index - 1];
  if (line->kind == NT_LOG_ABORTED) {
    comm->state = NT_COMM_ABORTED;
  } else if (comm->state != NT_COMM_ABORTED) {
    comm->state = NT_COMM_DESTROYED;
    comm->destroyed = log->order;
  }
  return 0;
}

static void keep_text(char *out, size_t size, const struct nt_log_line *line) {
  int length = (int)(line->text_length < size ? line->text_length : size - 1);
  snprintf(out, size, "%.*s", length, line->text);
}

static int take(struct nt_log *log, const struct nt_log_line *line, uint32_t line_number) {
  struct nt_log_process *process = process_of(log, line);
  uint32_t thread;
  if (!process || thread_of(log, process, line->tid, &thread))
    return -NT_ERR_MEMORY;
  switch (line->kind) {
  case NT_LOG_CALL:
    log->order++;
    return call(log, process, line, thread);
  case NT_LOG_INIT_START:
  case NT_LOG_INIT_COMPLETE:
    log->order++;
    return creation(log, process, line, thread);
  case NT_LOG_DESTROYED:
  case NT_LOG_ABORTED:
    log->order++;
    return ending(log, process, line);
  case NT_LOG_VERSION:
    keep_text(process->version, sizeof process->version, line);
    return 0;
  case NT_LOG_WARNING:
    if (!process->warning_line)
      keep_text(process->warning, sizeof process->warning, line);
    process->warning_line += process->warning_line ? 0 : line_number;
    return 0;
  case NT_LOG_REMOTE_ERROR:
    if (!process->error_line)
      keep_text(process->error, sizeof process->error, line);
    process->error_line += process->error_line ? 0 : line_number;
    process->error_order = ++log->order;
    process->error_thread = thread;
    return 0;
  case NT_LOG_DAMAGED:
    process->damaged++;
    log->first_damaged = log->damaged++ ? log->first_damaged : line_number;
    return 0;
  default:
    return 0;
  }
}

/* A last line without its end, of the only process: the file is cut short there, unless that is a whole call. */
static void judge_rest(struct nt_log *log, const char *rest, size_t length,
                       const struct nt_log_line *part, uint32_t line_number) {
  struct nt_log_process *only = log->process_count == 1 ? log->processes : NULL;
  size_t known = only ? strlen(only->name) : 0;
  bool begun = only && !memcmp(rest, only->name, length < known ? length : known);
  if (part->pid ? part->kind == NT_LOG_CALL || part->kind == NT_LOG_DAMAGED : !begun)
    return;
  log->cut = true;
  if (only) {
    only->damaged++;
    log->first_damaged = log->damaged++ ? log->first_damaged : line_number;
  }
}

int nt_log_read(struct nt_log *log, const char *bytes, size_t size) {
  uint32_t line_number = 0;
  memset(log, 0, sizeof *log);
  for (size_t at = 0; at < size;) {
    const char *line = bytes + at, *end = memchr(line, '\n', size - at);
    size_t length = end ? (size_t)(end - line) : size - at, used = 0;
    struct nt_log_line part, last = {0};
    line_number++;
    while (nt_log_line_next(line, length, &used, &part)) {
      last = part;
      int status = log->order == UINT32_MAX - 1 ? 0 : take(log, &part, line_number);
      if (status)
        return status;
    }
    if (!end)
      judge_rest(log, line, length, &last, line_number);
    at += length + 1;
  }
  return 0;
}

void nt_log_free(struct nt_log *log) {
  struct nt_log_process *process, *next_process;
  struct nt_log_counter *entry, *next_entry;
  HASH_ITER(hh, log->processes, process, next_process) {
    HASH_DEL(log->processes, process);
    free(process->name);
    free(process->comms);
    free(process->calls);
    free(process);
  }
  HASH_ITER(hh, log->counters, entry, next_entry) {
    HASH_DEL(log->counters, entry);
    free(entry);
  }
  memset(log, 0, sizeof *log);
}
