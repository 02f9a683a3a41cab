/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An area read without its process's help.
 *
 * Records move from the ring to the spool to the file. The copies are made in that order, so that a record
 * on its way is seen twice rather than not at all. Communicators come after the ring: a slot is not
 * given to another communicator while an undrained record refers to it.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "trace/read_parts.h"

void nt_area_copy_free(struct nt_area_copy *copy) {
  free(copy->chunks);
  free(copy->spool);
  free(copy->comm_numbers);
  free(copy->stream_numbers);
  free(copy->comm_enter);
  memset(copy, 0, sizeof *copy);
}

static bool snapshot(const struct nt_chunk *chunk, struct nt_chunk_copy *out) {
  for (int tries = 0; tries < 3; tries++)
    if (nt_ring_snapshot(chunk, 0, out))
      return out->published != 0;
  return false;
}

static bool is_behind(const struct nt_chunk_copy *chunks, uint32_t count,
                      const struct nt_chunk_copy *copy) {
  for (uint32_t i = 0; i < count; i++)
    if (chunks[i].thread == copy->thread && chunks[i].serial > copy->serial)
      return true;
  return false;
}

/*
 * Chunks are copied one after the other while their threads go on, so a chunk may be seen half full, or
 * free, and its successor with records that are later than all it lacks. So there is a second round: what
 * is behind a chunk of the first has been finished meanwhile and is copied again. If it has been drained
 * and freed as well, its records are in the spool or the file, which are read after this.
 */
static int copy_chunks(const struct nt_area *area, struct nt_area_copy *out) {
  const uint32_t count = area->header->chunk_count;
  /* A chunk and, were it given to another thread between the rounds, its second contents. */
  out->chunks = malloc(((size_t)count * 2 + 1) * sizeof *out->chunks);
  if (!out->chunks)
    return -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < count; i++)
    out->chunk_count += snapshot(&area->chunks[i], &out->chunks[out->chunk_count]);
  const uint32_t first_round = out->chunk_count;
  for (uint32_t i = 0; i < count; i++) {
    struct nt_chunk_copy *copy = &out->chunks[out->chunk_count];
    if (!snapshot(&area->chunks[i], copy) || !is_behind(out->chunks, first_round, copy))
      continue;
    uint32_t same = 0;
    while (same < first_round && out->chunks[same].serial != copy->serial)
      same++;
    if (same < first_round)
      out->chunks[same] = *copy;
    else
      out->chunk_count++;
  }
  return 0;
}

static int copy_spool(const struct nt_area *area, struct nt_area_copy *out) {
  const struct nt_area_header *header = area->header;
  out->spool = malloc(header->spool_size ? header->spool_size : 1);
  if (!out->spool)
    return -NT_ERR_MEMORY;
  for (int tries = 0; tries < 64; tries++) {
    const uint32_t before = atomic_load_explicit(&header->spool_guard, memory_order_acquire);
    const uint32_t used = atomic_load_explicit(&header->spool_used, memory_order_acquire);
    if (used > header->spool_size)
      return 0;
    memcpy(out->spool, area->spool, used);
    out->spool_length = used;
    atomic_thread_fence(memory_order_acquire);
    if (!(before & 1) && atomic_load_explicit(&header->spool_guard, memory_order_relaxed) == before)
      break;
  }
  return 0;
}

static int copy_numbers(const struct nt_area *area, struct nt_area_copy *out) {
  const struct nt_area_header *header = area->header;
  out->comm_numbers = calloc(header->comm_count + 1, sizeof *out->comm_numbers);
  out->comm_enter = calloc(header->comm_count + 1, sizeof *out->comm_enter);
  out->stream_numbers = calloc(header->stream_count + 1, sizeof *out->stream_numbers);
  if (!out->comm_numbers || !out->comm_enter || !out->stream_numbers)
    return -NT_ERR_MEMORY;
  out->comm_count = header->comm_count;
  out->stream_count = header->stream_count;
  for (uint32_t slot = 0; slot < header->comm_count; slot++) {
    struct nt_comm_facts comm;
    if (!nt_area_comm(area, slot, &comm))
      continue;
    out->comm_numbers[slot] = comm.def.number;
    out->comm_enter[slot] = comm.def.enter;
  }
  for (uint32_t slot = 0; slot < header->stream_count; slot++)
    out->stream_numbers[slot] = nt_area_stream_number(area, slot);
  return 0;
}

static void copy_evidence(struct nt_trace *trace, const struct nt_area *area) {
  uint32_t length = atomic_load_explicit(&area->header->evidence_length, memory_order_acquire);
  if (!length || length > area->header->evidence_size)
    return;
  char *text = malloc((size_t)length + 1);
  if (!text)
    return;
  memcpy(text, area->evidence, length);
  text[length] = 0;
  nt_read_evidence(trace, text);
}

static void copy_identity(const struct nt_area_header *header, struct nt_super *out) {
  out->pid = header->pid;
  out->uid = header->uid;
  out->start_time = header->start_time;
  out->pid_ns = header->pid_ns;
  out->nonce = header->nonce;
  out->restart = header->restart;
  out->clock_kind = header->clock_kind;
  out->clock_first = header->clock_first;
  out->world_rank = header->world_rank;
  out->world_size = header->world_size;
  out->local_rank = header->local_rank;
  memcpy(out->boot_id, header->boot_id, sizeof out->boot_id);
  memcpy(out->host, header->host, sizeof out->host);
  memcpy(out->run_id, header->run_id, sizeof out->run_id);
  out->boot_id[sizeof out->boot_id - 1] = 0;
  out->host[sizeof out->host - 1] = 0;
  out->run_id[sizeof out->run_id - 1] = 0;
}

static bool is_of(const struct nt_area_header *header, const struct nt_super *want) {
  return header->pid == want->pid && header->start_time == want->start_time &&
         header->nonce == want->nonce &&
         !strncmp(header->boot_id, want->boot_id, sizeof header->boot_id);
}

static int refuse_area(struct nt_error *err, int rc) {
  switch (-rc) {
  case NT_ERR_FOREIGN:
    return nt_refuse(err, NT_ERR_FOREIGN, 0, "not an area of libnccltrace");
  case NT_ERR_VERSION:
    return nt_refuse(err, NT_ERR_VERSION, 8,
                     "an area of another release of libnccltrace: this program does not know its "
                     "format, that release's nccltrace does");
  case NT_ERR_TRUNCATED:
    return nt_refuse(err, NT_ERR_TRUNCATED, 0, "the area is shorter than its header says");
  case NT_ERR_CORRUPT:
    return nt_refuse(err, NT_ERR_CORRUPT, 24, "the area's layout is impossible");
  case NT_ERR_MEMORY:
    return nt_refuse(err, NT_ERR_MEMORY, 0, "the area cannot be mapped");
  default:
    return nt_refuse(err, NT_ERR_IO, 0, "the area cannot be opened: %m");
  }
}

/* From the oldest that the ring still has: those that are in frames as well are dropped later. */
static int copy_marks(struct nt_trace *trace, const struct nt_area *area) {
  struct nt_buffer marks = {0};
  uint64_t from = 0;
  nt_area_marks(area, &from, &marks);
  int rc = marks.failed ? -NT_ERR_MEMORY : nt_take_marks(trace, &marks);
  free(marks.data);
  return rc;
}

int nt_read_area(struct nt_trace *trace, const char *path, const struct nt_super *want,
                 struct nt_error *err) {
  struct nt_area area;
  int rc = nt_area_open(path, 0, &area);
  if (rc)
    return refuse_area(err, rc);
  if (!atomic_load_explicit(&area.header->ready, memory_order_acquire)) {
    rc = nt_refuse(err, NT_ERR_TRUNCATED, 0,
                   "the process died, or is, while it was starting to trace");
    goto out;
  }
  if (want && !is_of(area.header, want)) {
    rc = nt_refuse(err, NT_ERR_FOREIGN, 0, "the area of another process");
    goto out;
  }
  copy_identity(area.header, &trace->identity);
  rc = copy_chunks(&area, &trace->area);
  if (!rc)
    rc = copy_spool(&area, &trace->area);
  if (!rc)
    rc = copy_numbers(&area, &trace->area);
  if (!rc)
    rc = nt_area_facts(&area, &trace->facts);
  if (!rc)
    rc = copy_marks(trace, &area);
  if (!rc && area.stacks)
    rc = nt_stack_table_area(&trace->stacks, area.codes, area.header->code_size, area.stacks,
                             area.header->stack_size);
  if (rc) {
    nt_area_copy_free(&trace->area);
    rc = nt_refuse(err, -rc, 0, "out of memory");
    goto out;
  }
  copy_evidence(trace, &area);
  trace->area.present = true;
  trace->area.locked = nt_area_is_locked(area.fd) == 1;
  trace->area.helper_tid = atomic_load_explicit(&area.header->helper_tid, memory_order_acquire);
  snprintf(trace->area_path, sizeof trace->area_path, "%s", path);
  if (!want && atomic_load_explicit(&area.header->file_ready, memory_order_acquire)) {
    memcpy(trace->file_path, area.header->file_path, sizeof trace->file_path);
    trace->file_path[sizeof trace->file_path - 1] = 0;
  }
out:
  nt_area_close(&area);
  return rc;
}

struct search {
  struct nt_trace *trace;
  char prefix[32];
};

static int try_area(const char *path, void *ctx) {
  struct search *search = ctx;
  const char *name = strrchr(path, '/');
  struct nt_error ignored = {0};
  if (strncmp(name ? name + 1 : path, search->prefix, strlen(search->prefix)) != 0)
    return 0;
  const struct nt_super want = search->trace->identity;
  return nt_read_area(search->trace, path, &want, &ignored) == 0;
}

int nt_find_area(struct nt_trace *trace) {
  /* Another machine's, or of before it was started anew: areas of that are here only if somebody has brought them. */
  if (nt_boot_differs(trace->identity.boot_id) && !getenv("NCCLTRACE_SHM"))
    return 0;
  struct search search = {.trace = trace};
  snprintf(search.prefix, sizeof search.prefix, "%" PRIu32 "-", trace->identity.pid);
  const int rc = nt_area_each(try_area, &search);
  return rc < 0 ? rc : 0;
}

int nt_area_each(int (*fn)(const char *path, void *ctx), void *ctx) {
  char directory[256];
  if (nt_area_directory(directory, sizeof directory))
    return -NT_ERR_SPACE;
  DIR *list = opendir(directory);
  if (!list)
    return 0;
  int rc = 0;
  for (struct dirent *entry; !rc && (entry = readdir(list));) {
    char path[600];
    const size_t length = strlen(entry->d_name);
    if (length < 6 || strcmp(entry->d_name + length - 5, ".area") != 0)
      continue;
    snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
    rc = fn(path, ctx);
  }
  closedir(list);
  return rc;
}
