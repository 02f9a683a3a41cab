/* SPDX-License-Identifier: Apache-2.0 */
/* Copies what the reader delivers; lengths and text are the reader's promise, meanings are checked later. */
#include "analysis/load_trace.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

#include "analysis/load_parts.h"
#include "cli/call_text.h"
#include "cli/rank_name.h"
#include "cli/stack_text.h"
#include "nccl/nccl_api.h"

static char *copy(const char *text) {
  return text && *text ? strdup(text) : NULL;
}

/* "10.0.0.7:41235" or "[fe80::7]:41235" of the socket address that stands in a unique id. */
static void root_text(char *out, size_t size, const uint8_t root[32]) {
  struct sockaddr_in four;
  struct sockaddr_in6 six;
  char text[INET6_ADDRSTRLEN];
  memcpy(&four, root, sizeof four);
  memcpy(&six, root, sizeof six);
  out[0] = '\0';
  if (four.sin_family == AF_INET && inet_ntop(AF_INET, &four.sin_addr, text, sizeof text))
    snprintf(out, size, "%s:%u", text, (unsigned)ntohs(four.sin_port));
  else if (six.sin6_family == AF_INET6 && inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof text))
    snprintf(out, size, "[%s]:%u", text, (unsigned)ntohs(six.sin6_port));
}

static int add_view(struct nt_model_rank *rank, const struct nt_trace_comm *comm) {
  const struct nt_comm_def *def = &comm->def;
  struct nt_model_view *view = nt_model_add_view(rank);
  if (!view)
    return -NT_ERR_MEMORY;
  memcpy(view->id, def->id, sizeof view->id);
  memcpy(view->parent_id, def->parent_id, sizeof view->parent_id);
  memcpy(view->uid_hash, def->uid_hash, sizeof view->uid_hash);
  view->number = def->number;
  view->parent_number = def->parent_number;
  view->excluded_count =
      def->excluded_count <= NT_EXCLUDED ? def->excluded_count : NT_EXCLUDED_MANY;
  memcpy(view->excluded, def->excluded, sizeof view->excluded);
  view->rank = def->rank;
  view->nranks = def->nranks;
  view->color = def->color;
  view->key = def->key;
  view->device = def->device;
  view->parent_rank = def->parent_rank;
  view->ordinal = def->ordinal;
  view->origin = def->origin;
  view->state = (uint16_t)comm->state;
  view->collectives = comm->collectives;
  view->async_error = comm->async_error;
  view->sends = comm->sends;
  view->recvs = comm->recvs;
  view->all_peer = comm->all_peer;
  view->created_ns = comm->created_ns;
  view->sum = comm->sum;
  memcpy(view->name, def->name, sizeof view->name);
  view->name[sizeof view->name - 1] = '\0';
  root_text(view->root, sizeof view->root, def->root);
  view->sums = malloc(sizeof comm->sums);
  if (!view->sums)
    return -NT_ERR_MEMORY;
  memcpy(view->sums, comm->sums, sizeof comm->sums);
  return 0;
}

static uint32_t view_of(const struct nt_model_rank *rank, uint32_t number, uint32_t hint) {
  if (!number)
    return NT_NONE;
  if (hint < rank->view_count && rank->views[hint].number == number)
    return hint;
  /* The reader delivers communicators by number. */
  uint32_t low = 0, high = rank->view_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (rank->views[middle].number < number)
      low = middle + 1;
    else
      high = middle;
  }
  return low < rank->view_count && rank->views[low].number == number ? low : NT_NONE;
}

struct buffers {
  struct {
    uint64_t view, send, recv;
  } key;
  uint32_t number;
  UT_hash_handle hh;
};

struct numbering {
  struct buffers *table;
  uint32_t *next; /* by view */
};

static void free_numbering(struct numbering *numbering) {
  struct buffers *entry, *following;
  HASH_ITER(hh, numbering->table, entry, following) {
    HASH_DEL(numbering->table, entry);
    free(entry);
  }
  free(numbering->next);
}

/* Addresses differ between ranks; the order in which they first come does not. */
static uint32_t number_buffers(struct numbering *numbering, uint32_t view, uint64_t send,
                               uint64_t recv) {
  struct buffers *entry = NULL;
  const struct buffers wanted = {.key = {.view = view, .send = send, .recv = recv}};
  HASH_FIND(hh, numbering->table, &wanted.key, sizeof wanted.key, entry);
  if (entry)
    return entry->number;
  entry = malloc(sizeof *entry);
  if (!entry)
    return 0;
  *entry = wanted;
  entry->number = ++numbering->next[view];
  HASH_ADD(hh, numbering->table, key, sizeof entry->key, entry);
  return entry->number;
}

/* Stacks are few and come again and again: the sites of the last ones, by their ids. */
enum { SITE_CACHE = 256 };
struct site_cache {
  struct {
    uint32_t stack, at;
  } known[SITE_CACHE];
};

static uint32_t site_of(struct nt_model_rank *rank, struct nt_trace *trace, uint32_t stack,
                        struct site_cache *cache) {
  const struct nt_stack_frame *frames;
  char text[NT_SITE_TEXT];
  if (!stack)
    return 0;
  if (cache->known[stack % SITE_CACHE].stack == stack)
    return cache->known[stack % SITE_CACHE].at;
  int count = nt_trace_stack(trace, stack, &frames);
  uint32_t at = 0;
  if (count > 0)
    at = nt_model_add_site(rank, nt_stack_site_text(text, sizeof text, frames, (size_t)count));
  cache->known[stack % SITE_CACHE].stack = stack;
  cache->known[stack % SITE_CACHE].at = at;
  return at;
}

static int add_calls(struct nt_model_rank *rank, struct nt_trace *trace, struct nt_error *err) {
  const struct nt_call *calls;
  int64_t count = nt_trace_calls(trace, &calls, err);
  struct site_cache sites = {0};
  uint32_t hint = NT_NONE;
  int status = 0;
  if (count < 0)
    return (int)count;
  if (count >= NT_NONE || nt_model_reserve_calls(rank, (uint32_t)count) < 0)
    return -NT_ERR_MEMORY;
  struct numbering numbering = {.next = calloc(rank->view_count + 1u, sizeof *numbering.next)};
  if (!numbering.next)
    return -NT_ERR_MEMORY;
  for (int64_t i = 0; i < count; i++) {
    const struct nt_call *from = &calls[i];
    struct nt_model_call *call = nt_model_add_call(rank);
    if (!call) {
      status = -NT_ERR_MEMORY;
      break;
    }
    call->fn = from->fn;
    rank->shapes |= UINT64_C(1) << nt_fn_shape(call->fn);
    call->view = hint = view_of(rank, from->comm, hint);
    call->enter_ns = from->enter_ns;
    call->exit_ns = from->exit_ns;
    if (nt_fn_is_cuda(call->fn) && !nt_call_graph(from))
      call->event = from->recv;
    else
      call->count = from->count;
    call->seq = from->seq;
    call->thread = from->thread;
    call->group = from->group;
    call->stream = from->stream;
    call->launch = nt_call_launch(from);
    call->graph = nt_call_capture(from);
    call->at = site_of(rank, trace, from->stack, &sites);
    call->peer = from->peer;
    call->dtype = from->dtype;
    call->op = from->op;
    call->result = from->result;
    call->flags = from->flags;
    if (nt_fn_shape(call->fn) == NT_SHAPE_RMA) /* context and number */
      call->buffer = (uint32_t)(from->recv >> 32 << 16 | (from->recv & 0xffff)) + 1;
    if (call->view != NT_NONE && nt_fn_is_collective(call->fn) && !nt_trace_is_cut(trace))
      call->buffer = number_buffers(&numbering, call->view, from->send, from->recv);
  }
  free_numbering(&numbering);
  if (status)
    return status;
  nt_load_progress(rank, trace, calls);
  status = nt_load_seen(rank, trace, calls);
  if (status || (nt_trace_is_cut(trace) && nt_model_waits(rank)))
    return status; /* who waits is not asked where it is, and all of it is read if it is accused */
  return nt_load_stacks(rank, trace, calls);
}

static int copy_peers(struct nt_loaded_trace *out, const struct nt_trace *trace) {
  size_t count = nt_trace_peer_count(trace);
  if (!count)
    return 0;
  out->peers = malloc(count * sizeof *out->peers);
  if (!out->peers)
    return -NT_ERR_MEMORY;
  for (size_t i = 0; i < count; i++)
    out->peers[out->peer_count++] = (struct nt_loaded_note){.note = *nt_trace_peer_at(trace, i)};
  return 0;
}

static void fill_gpu(struct nt_model_rank *rank, const struct nt_trace *trace) {
  char key[32];
  struct nt_rank_name name = {0};
  int device = rank->view_count ? rank->views[0].device : -1;
  nt_rank_name_gpu(&name, trace, device < 0 ? 0 : device);
  if (device >= 0 || name.pci)
    rank->cuda_device = name.cuda_device;
  rank->gpu_index = name.gpu_index;
  rank->pci = copy(name.pci);
  snprintf(key, sizeof key, "gpu.%d.uuid", name.cuda_device);
  rank->gpu = copy(nt_trace_evidence(trace, key));
}

/* FNV-1a; 0 if there is no text. */
static uint64_t hash_of(const char *text) {
  uint64_t hash = UINT64_C(14695981039346656037);
  for (const char *c = text ? text : ""; *c; c++)
    hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
  return text && *text ? hash : 0;
}

static void fill_process(struct nt_model_rank *rank, const struct nt_process_info *process,
                         const char *source) {
  rank->world = process->world_rank;
  rank->world_size = process->world_size;
  rank->pid = process->pid;
  rank->start_time = process->start_time;
  rank->restart = process->restart;
  rank->host = copy(process->host);
  rank->boot = hash_of(process->boot_id);
  rank->run_id = copy(process->run_id);
  rank->source = copy(source);
  rank->total_calls = process->calls;
  rank->lost = process->lost;
  rank->overwritten = process->overwritten;
  rank->comms_lost = process->comms_lost;
  rank->abandoned = process->abandoned;
  rank->write_errors = process->write_errors;
  rank->digest_ns = process->digest_ns;
  rank->left_out = process->left_out;
  rank->moved = process->moved;
}

/* What is in front of the window. */
static void count_unread(struct nt_model_rank *rank, const struct nt_trace *trace) {
  const uint64_t there = rank->call_count + rank->lost + rank->overwritten;
  if (!nt_trace_is_cut(trace))
    return;
  rank->unread = rank->total_calls > there ? rank->total_calls - there : 1;
  rank->overwritten += rank->unread;
}

/* What the process counted and its file does not hold: state and calls are written at different moments. Recording begins with
 * the first communicator, so a file that knows of none has lost everything. */
static void find_damage(struct nt_model_rank *rank, const struct nt_trace *trace) {
  const struct nt_process_info *process = nt_trace_process(trace);
  uint64_t there = rank->call_count + rank->lost + rank->overwritten;
  if (process->live)
    return;
  rank->hollow = !rank->view_count && !rank->call_count && process->from_file;
  rank->aged = process->aged;
  rank->outlived = process->outlived;
  if (rank->total_calls > there)
    rank->cut = rank->total_calls - there;
  rank->damaged = nt_trace_warning_count(trace) != 0;
  rank->strange = process->strange;
  if (process->strange)
    rank->writer = copy(process->writer);
}

static int out_of_memory(struct nt_error *err) {
  err->code = -NT_ERR_MEMORY;
  err->offset = 0;
  snprintf(err->reason, sizeof err->reason, "out of memory");
  return -NT_ERR_MEMORY;
}

int nt_trace_load(struct nt_trace *trace, const char *source, struct nt_loaded_trace *out,
                  struct nt_error *err) {
  *out = (struct nt_loaded_trace){.rank = nt_model_no_rank()};
  struct nt_model_rank *rank = &out->rank;
  int status = 0;
  fill_process(rank, nt_trace_process(trace), source);
  nt_load_fate(rank, trace);
  size_t comms = nt_trace_comm_count(trace);
  for (size_t i = 0; i < comms && !status; i++)
    status = add_view(rank, nt_trace_comm_at(trace, i));
  fill_gpu(rank, trace);
  if (!status)
    status = add_calls(rank, trace, err);
  count_unread(rank, trace);
  if (!status && rank->unread)
    status = nt_load_queues(rank, trace);
  if (!status)
    status = nt_load_settings(rank, trace);
  if (!status)
    status = nt_load_untraced(rank, trace);
  if (!status)
    status = nt_load_dump(rank, trace);
  if (!status)
    find_damage(rank, trace);
  if (!status)
    status = copy_peers(out, trace);
  if (!status)
    status = nt_load_kernel_kills(trace, &out->kills, &out->kill_count);
  if (status)
    nt_loaded_trace_free(out);
  return status == -NT_ERR_MEMORY ? out_of_memory(err) : status;
}

void nt_loaded_trace_free(struct nt_loaded_trace *loaded) {
  nt_model_free_rank(&loaded->rank);
  free(loaded->peers);
  free(loaded->kills);
  memset(loaded, 0, sizeof *loaded);
}

/* Appends `count` entries of `size` bytes. */
static int append(void **list, uint32_t *used, uint32_t *room, const void *more, uint32_t count,
                  size_t size) {
  if (!count)
    return 0;
  if (*used + count > *room) {
    uint32_t wanted = 2 * *room + count;
    void *grown = realloc(*list, wanted * size);
    if (!grown)
      return -NT_ERR_MEMORY;
    *list = grown;
    *room = wanted;
  }
  memcpy((char *)*list + *used * size, more, count * size);
  *used += count;
  return 0;
}

int nt_trace_loader_take(struct nt_trace_loader *loader, struct nt_loaded_trace *loaded) {
  struct nt_model_rank *rank = nt_model_add_rank(&loader->model);
  if (!rank)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < loaded->peer_count; i++)
    loaded->peers[i].by = loader->model.rank_count - 1;
  void *peers = loader->peers, *kills = loader->kills;
  const uint32_t peer_count = loader->peer_count;
  int status = append(&peers, &loader->peer_count, &loader->peer_room, loaded->peers,
                      loaded->peer_count, sizeof *loader->peers);
  if (!status)
    status = append(&kills, &loader->kill_count, &loader->kill_room, loaded->kills,
                    loaded->kill_count, sizeof *loader->kills);
  loader->peers = peers;
  loader->kills = kills;
  if (status) {
    loader->peer_count = peer_count;
    nt_model_drop_last(&loader->model);
    return status;
  }
  *rank = loaded->rank;
  free(loaded->peers);
  free(loaded->kills);
  memset(loaded, 0, sizeof *loaded);
  return 0;
}

int nt_trace_loader_add(struct nt_trace_loader *loader, struct nt_trace *trace, const char *source,
                        struct nt_error *err) {
  struct nt_loaded_trace loaded;
  int status = nt_trace_load(trace, source, &loaded, err);
  if (!status && nt_trace_loader_take(loader, &loaded) < 0) {
    nt_loaded_trace_free(&loaded);
    status = out_of_memory(err);
  }
  return status;
}

int nt_trace_loader_join(struct nt_trace_loader *loader, struct nt_trace_loader *from) {
  struct nt_model *model = &from->model;
  uint32_t moved = 0;
  for (; moved < model->rank_count; moved++) {
    struct nt_model_rank *rank = nt_model_add_rank(&loader->model);
    if (!rank)
      break;
    *rank = model->ranks[moved];
  }
  const bool whole = moved == model->rank_count;
  if (moved)
    memmove(model->ranks, model->ranks + moved, (model->rank_count - moved) * sizeof *model->ranks);
  model->rank_count -= moved;
  for (uint32_t i = 0; i < model->note_count && whole; i++)
    nt_model_note(&loader->model, "%s", model->notes[i]);
  return whole ? 0 : -NT_ERR_MEMORY;
}

static int by_process(const void *a, const void *b) {
  const struct nt_model_rank *x = *(struct nt_model_rank *const *)a;
  const struct nt_model_rank *y = *(struct nt_model_rank *const *)b;
  if (x->pid != y->pid)
    return x->pid < y->pid ? -1 : 1;
  return x->start_time < y->start_time ? -1 : x->start_time > y->start_time;
}

static int add_gone(struct nt_model *model, int64_t ns) {
  int64_t *list = realloc(model->gone, (model->gone_count + 1u) * sizeof *list);
  if (!list)
    return -NT_ERR_MEMORY;
  model->gone = list;
  list[model->gone_count++] = ns;
  return 0;
}

/* Each note of those that are gone, or of those that are there, to the processes that it may be about. */
static int apply_notes(struct nt_trace_loader *loader, struct nt_model_rank **sorted, bool gone) {
  struct nt_model *model = &loader->model;
  int status = 0;
  for (uint32_t i = 0; i < loader->peer_count && !status; i++) {
    const struct nt_peer_note *note = &loader->peers[i].note;
    if ((note->vanished_ns != 0) != gone)
      continue;
    const struct nt_model_rank wanted = {.pid = note->pid, .start_time = note->start_time};
    const struct nt_model_rank *key = &wanted;
    uint32_t low = 0, high = model->rank_count;
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      if (by_process(&sorted[middle], &key) < 0)
        low = middle + 1;
      else
        high = middle;
    }
    if (gone && (low == model->rank_count || by_process(&sorted[low], &key) != 0))
      status = add_gone(model, (int64_t)note->last_beat_ns);
    for (; low < model->rank_count && by_process(&sorted[low], &key) == 0; low++)
      nt_load_note(sorted[low], note, &model->ranks[loader->peers[i].by]);
  }
  return status;
}

/* First of those that are gone, which tell until when whoever notes lived. */
static int apply_all_notes(struct nt_trace_loader *loader) {
  struct nt_model *model = &loader->model;
  struct nt_model_rank **sorted = malloc(((size_t)model->rank_count + 1) * sizeof *sorted);
  if (!sorted)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < model->rank_count; i++)
    sorted[i] = &model->ranks[i];
  qsort(sorted, model->rank_count, sizeof *sorted, by_process);
  int status = apply_notes(loader, sorted, true);
  if (!status)
    status = apply_notes(loader, sorted, false);
  free(sorted);
  return status;
}

int nt_trace_loader_finish(struct nt_trace_loader *loader, int64_t now_ns, struct nt_model *out) {
  struct nt_model *model = &loader->model;
  int status = apply_all_notes(loader);
  model->now_ns = now_ns;
  nt_settle_stopped(model);
  if (!status)
    status = nt_model_settle(model);
  nt_settle_kills(model, loader->kills, loader->kill_count);
  nt_settle_released(model);
  for (uint32_t i = 0; i < model->rank_count; i++)
    nt_age_progress(&model->ranks[i], model->now_ns);
  *out = *model;
  memset(model, 0, sizeof *model);
  nt_trace_loader_free(loader);
  return status;
}

void nt_trace_loader_free(struct nt_trace_loader *loader) {
  nt_model_free(&loader->model);
  free(loader->peers);
  free(loader->kills);
  memset(loader, 0, sizeof *loader);
}
