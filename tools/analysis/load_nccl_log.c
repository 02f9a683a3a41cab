/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A log tells what was called, and nothing of what became of it: whether an operation finished, where the
 * host is, whether the process lives. Those stay unknown in the model. The order of lines stands for time.
 */
#include "analysis/load_nccl_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/nccl_log.h"
#include "cli/rank_set.h"
#include "nccl/nccl_api.h"
#include "nccl/nccl_types.h"

enum { NOTES_MAX = 8 };

/* One rank of a process that is being copied: all its communicators, or those of one device. */
struct part {
  const struct nt_log_process *process;
  int32_t device; /* -1: all */
  uint32_t *view; /* by communicator: index, NT_NONE if it is another part's */
  struct nt_model_rank *rank;
};

static int refuse(struct nt_error *err, int code, const char *reason) {
  err->code = code;
  err->offset = 0;
  snprintf(err->reason, sizeof err->reason, "%s", reason);
  return code;
}

bool nt_is_nccl_log(const uint8_t *bytes, size_t size) {
  const char *text = (const char *)bytes;
  for (size_t at = 0; at < size;) {
    const char *end = memchr(text + at, '\n', size - at);
    size_t length = end ? (size_t)(end - text) - at : size - at, used = 0;
    struct nt_log_line line;
    if (nt_log_line_next(text + at, length, &used, &line))
      return true;
    at += length + 1;
  }
  return false;
}

static int add_views(struct part *part) {
  for (uint32_t i = 0; i < part->process->comm_count; i++) {
    const struct nt_log_comm *comm = &part->process->comms[i];
    part->view[i] = NT_NONE;
    if (part->device >= 0 && comm->device != part->device)
      continue;
    part->view[i] = part->rank->view_count;
    struct nt_model_view *view = nt_model_add_view(part->rank);
    if (!view)
      return -NT_ERR_MEMORY;
    memcpy(view->id, comm->id, sizeof view->id);
    memcpy(view->parent_id, comm->parent_id, sizeof view->parent_id);
    memcpy(view->uid_hash, comm->uid_hash, sizeof view->uid_hash);
    view->number = i + 1;
    view->rank = comm->rank;
    view->nranks = comm->nranks;
    view->color = comm->color;
    view->device = comm->device;
    view->ordinal = comm->ordinal;
    view->origin = comm->origin;
    view->state = comm->state;
    view->collectives = comm->collectives;
    view->created_ns = comm->begin;
  }
  return 0;
}

static int add_call(struct part *part, uint32_t comm, const struct nt_model_call *call) {
  struct nt_model_call *made = part->view[comm] == NT_NONE ? NULL : nt_model_add_call(part->rank);
  if (!made)
    return part->view[comm] == NT_NONE ? 0 : -NT_ERR_MEMORY;
  *made = *call;
  made->view = part->view[comm];
  return 0;
}

/* The call that made a communicator, and the one that ended it. A split is logged only when all its ranks have
 * called it, so it is none. */
static int add_bounds(struct part *part, uint32_t index) {
  const struct nt_log_comm *comm = &part->process->comms[index];
  int status = 0;
  if (comm->begin && comm->origin == NT_COMM_INIT)
    status = add_call(part, index,
                      &(struct nt_model_call){.enter_ns = comm->begin,
                                              .exit_ns = comm->end,
                                              .count = (uint64_t)(uint32_t)comm->nranks,
                                              .thread = comm->thread,
                                              .peer = comm->rank,
                                              .fn = comm->fn});
  if (comm->destroyed && !status)
    status = add_call(part, index,
                      &(struct nt_model_call){.enter_ns = comm->destroyed,
                                              .exit_ns = comm->destroyed,
                                              .thread = comm->thread,
                                              .peer = -1,
                                              .fn = NT_FN_CommDestroy});
  return status;
}

/* A peer is gone: told by a thread of NCCL's own, and so of no communicator. */
static int add_error(struct part *part) {
  const struct nt_log_process *process = part->process;
  if (!process->error_order || part->device >= 0)
    return 0;
  struct nt_model_call *call = nt_model_add_call(part->rank);
  if (!call)
    return -NT_ERR_MEMORY;
  call->fn = NT_FN_CommGetAsyncError;
  call->enter_ns = call->exit_ns = process->error_order;
  call->thread = process->error_thread;
  call->count = ncclRemoteError;
  return 0;
}

static int by_thread(const void *a, const void *b) {
  const struct nt_model_call *x = a, *y = b;
  if (x->thread != y->thread)
    return x->thread < y->thread ? -1 : 1;
  return x->enter_ns < y->enter_ns ? -1 : x->enter_ns > y->enter_ns;
}

static int add_calls(struct part *part) {
  const struct nt_log_process *process = part->process;
  int status = add_error(part);
  for (uint32_t i = 0; i < process->comm_count && !status; i++)
    status = add_bounds(part, i);
  for (uint32_t i = 0; i < process->call_count && !status; i++) {
    const struct nt_log_call *from = &process->calls[i];
    status = add_call(part, from->comm,
                      &(struct nt_model_call){.enter_ns = from->order,
                                              .exit_ns = from->order,
                                              .count = from->count,
                                              .seq = from->seq,
                                              .thread = from->thread,
                                              .group = from->group,
                                              .buffer = from->buffer,
                                              .peer = from->peer,
                                              .fn = from->fn,
                                              .dtype = from->dtype,
                                              .op = from->op});
  }
  if (!status && part->rank->call_count)
    qsort(part->rank->calls, part->rank->call_count, sizeof *part->rank->calls, by_thread);
  return status;
}

static int fill_rank(struct part *part, const char *source, bool labels) {
  const struct nt_log_process *process = part->process;
  struct nt_model_rank *rank = part->rank;
  rank->recorder = NT_RECORDER_LOG;
  rank->pid = process->pid;
  rank->host = strndup(process->name, process->host_length);
  rank->source = strdup(source);
  rank->nccl = *process->version ? strdup(process->version) : NULL;
  rank->warning = process->warning_line ? strdup(process->warning) : NULL;
  rank->peer_error = process->error_line ? strdup(process->error) : NULL;
  rank->warning_line = process->warning_line;
  rank->error_line = process->error_line;
  rank->started_ns = process->begin;
  if (labels && part->device < 0)
    rank->world = process->label;
  if (!rank->host || !rank->source)
    return -NT_ERR_MEMORY;
  int status = add_views(part);
  if (!status)
    status = add_calls(part);
  if (status)
    return status;
  rank->total_calls = rank->call_count + process->damaged;
  rank->cut = process->damaged;
  const struct nt_model_view *view = rank->view_count ? &rank->views[0] : NULL;
  if (!view || view->device < 0)
    return 0;
  uint64_t pci = 0;
  for (uint32_t i = process->comm_count; i-- > 0;)
    pci = part->view[i] != NT_NONE && process->comms[i].pci ? process->comms[i].pci : pci;
  rank->cuda_device = view->device;
  if (pci &&
      asprintf(&rank->pci, "%08" PRIx64 ":%02x:%02x.%x", pci >> 20, (unsigned)(pci >> 12 & 0xff),
               (unsigned)(pci >> 4 & 0xff), (unsigned)(pci & 0xf)) < 0)
    rank->pci = NULL;
  return 0;
}

static int add_part(struct nt_trace_loader *loader, const struct nt_log_process *process,
                    int32_t device, const char *source, bool labels) {
  struct part part = {.process = process, .device = device};
  part.view = malloc(((size_t)process->comm_count + 1) * sizeof *part.view);
  part.rank = part.view ? nt_model_add_rank(&loader->model) : NULL;
  int status = part.rank ? fill_rank(&part, source, labels) : -NT_ERR_MEMORY;
  free(part.view);
  return status;
}

/* A process that uses several devices as several ranks of one communicator is a rank for each of them. */
static int add_process(struct nt_trace_loader *loader, const struct nt_log_process *process,
                       const char *source, bool labels) {
  if (!process->several)
    return process->comm_count ? add_part(loader, process, -1, source, labels) : 0;
  int status = 0;
  int32_t device = -1;
  for (;;) {
    int32_t next = INT32_MAX;
    for (uint32_t i = 0; i < process->comm_count; i++)
      if (process->comms[i].device > device && process->comms[i].device < next)
        next = process->comms[i].device;
    if (next == INT32_MAX || status)
      return status;
    device = next;
    status = add_part(loader, process, device, source, labels);
  }
}

/* Numbers that a launcher put in front are ranks if no two processes have the same. */
static bool are_ranks(const struct nt_log *log) {
  struct nt_rank_set seen = {0};
  bool ranks = true;
  for (const struct nt_log_process *p = log->processes; p && ranks; p = p->hh.next) {
    if (!p->comm_count)
      continue;
    ranks = p->label >= 0 && !nt_rank_set_has(&seen, (uint32_t)p->label) &&
            nt_rank_set_add(&seen, (uint32_t)p->label) == 0;
  }
  nt_rank_set_free(&seen);
  return ranks;
}

static void note(struct nt_model *model, const struct nt_log *log, const char *source) {
  uint32_t told = 0;
  if (log->damaged)
    nt_model_note(model, "%s: line %u: a call or a creation is cut off there%s", source,
                  log->first_damaged, log->damaged > 1 ? ", and others further on" : "");
  for (const struct nt_log_process *p = log->processes; p; p = p->hh.next) {
    if (p->comm_count)
      continue; /* told of its rank */
    if (p->warning_line && told++ < NOTES_MAX)
      nt_model_note(model, "%s: line %u: %s warns: %s", source, p->warning_line, p->name,
                    p->warning);
    if (p->error_line && told++ < NOTES_MAX)
      nt_model_note(model, "%s: line %u: %s lost a connection: %s", source, p->error_line, p->name,
                    p->error);
  }
}

static bool is_known(const struct nt_log *log) {
  bool known = false;
  for (const struct nt_log_process *p = log->processes; p; p = p->hh.next)
    for (uint32_t i = 0; i < p->comm_count; i++)
      known |= p->comms[i].begin != 0;
  return known;
}

int nt_load_nccl_log(struct nt_trace_loader *loader, const char *source, const uint8_t *bytes,
                     size_t size, struct nt_error *err) {
  struct nt_log log;
  const uint32_t before = loader->model.rank_count;
  int status = nt_log_read(&log, (const char *)bytes, size);
  if (!status && !is_known(&log)) {
    status = refuse(err, -NT_ERR_FOREIGN,
                    "no line tells of a communicator: such logs are written with NCCL_DEBUG=INFO "
                    "NCCL_DEBUG_SUBSYS=INIT,COLL");
  } else if (!status) {
    const bool labels = are_ranks(&log);
    for (const struct nt_log_process *p = log.processes; p && !status; p = p->hh.next)
      status = add_process(loader, p, source, labels);
    if (!status)
      note(&loader->model, &log, source);
  }
  nt_log_free(&log);
  while (status && loader->model.rank_count > before)
    nt_model_drop_last(&loader->model);
  return status == -NT_ERR_MEMORY ? refuse(err, status, "out of memory") : status;
}
