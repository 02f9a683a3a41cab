/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a dump tells of its process and its operations.
 *
 * Entries come in the order in which they were recorded. Operations that PyTorch coalesces have one number and an entry
 * each without a state, and one more that closes the group and holds the state of all: of collectives they become one
 * call here, whose count is their sum, since NCCL may carry them out in any order; messages stay single.
 *
 * A state is "scheduled" until the end of the kernel was seen, or its start; but starts are only recorded when timing is on,
 * and without them nothing is known but that the operation has not finished.
 */
#include "analysis/load_flight_recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "analysis/flight_parts.h"
#include "analysis/load_parts.h"
#include "analysis/pickle.h"
#include "cli/stack_text.h"
#include "nccl/nccl_api.h"
#include "nccl/nccl_types.h"

enum { THREADS_MAX = 64, FRAMES_MAX = 64, FRAME_TEXT = 512, SITES = 256, LAYOUT = 64 };

enum key {
  RECORD,
  PG_ID,
  GROUP,
  SEQ,
  P2P_SEQ,
  OLD_SEQ,
  NAME,
  CREATED,
  IN_SIZES,
  IN_TYPES,
  OUT_SIZES,
  OUT_TYPES,
  STATE,
  THREAD,
  FRAMES,
  STARTED,
  IS_P2P,
  KEYS
};

static const char *const key_names[KEYS] = {[RECORD] = "record_id",
                                            [PG_ID] = "pg_id",
                                            [GROUP] = "process_group",
                                            [SEQ] = "collective_seq_id",
                                            [P2P_SEQ] = "p2p_seq_id",
                                            [OLD_SEQ] = "seq_id",
                                            [NAME] = "profiling_name",
                                            [CREATED] = "time_created_ns",
                                            [IN_SIZES] = "input_sizes",
                                            [IN_TYPES] = "input_dtypes",
                                            [OUT_SIZES] = "output_sizes",
                                            [OUT_TYPES] = "output_dtypes",
                                            [STATE] = "state",
                                            [THREAD] = "thread_id",
                                            [FRAMES] = "frames",
                                            [STARTED] = "time_discovered_started_ns",
                                            [IS_P2P] = "is_p2p"};

struct entries {
  struct nt_flight flight;
  const struct nt_value *threads[THREADS_MAX];
  uint32_t thread_count;
  struct {
    uint64_t key;
    uint32_t at;
  } sites[SITES];
  const struct nt_value *newest_frames; /* of the newest call */
  uint32_t newest;
  int64_t newest_record;
  bool first_coalesced; /* the first collective is a group, of which the begin may be overwritten */
  uint32_t group;       /* of messages that are coalesced */
  uint8_t layout[LAYOUT]; /* which key stood where in the entry before */
  char *room;             /* for the texts of frames */
};

bool nt_is_flight_recorder(const uint8_t *bytes, size_t size, bool named) {
  static const char *const keys[] = {"entries", "pg_config", "pg_status"};
  size_t start = 0;
  bool pickle = size >= 2 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5;
  while (!pickle && start < size && memchr(" \t\r\n", bytes[start], 4))
    start++;
  if (!pickle && (start == size || bytes[start] != '{'))
    return false;
  for (size_t i = 0; i < sizeof keys / sizeof *keys && !named; i++)
    named = memmem(bytes, size, keys[i], strlen(keys[i])) != NULL;
  return named;
}

static int refuse(struct nt_error *err, int code, const char *reason) {
  err->code = code;
  err->offset = 0;
  snprintf(err->reason, sizeof err->reason, "%s", reason);
  return code;
}

/* ---- call sites ------------------------------------------------------------------------------------- */

/* Frames as the rest of the tools has them; texts in `room`, FRAME_TEXT bytes each for file and function. */
static size_t read_frames(const struct nt_value *frames, struct nt_stack_frame *out, char *room) {
  uint32_t name = 0, file = 0, line = 0;
  size_t count = nt_value_count(frames);
  count = count < FRAMES_MAX ? count : FRAMES_MAX;
  for (size_t i = 0; i < count; i++, room += 2 * FRAME_TEXT) {
    const struct nt_value *frame = nt_value_at(frames, (uint32_t)i);
    const int64_t number = nt_value_integer(nt_value_get(frame, "line", &line), 0);
    out[i] = (struct nt_stack_frame){
        .file = nt_value_copy(room, FRAME_TEXT, nt_value_get(frame, "filename", &file)),
        .function =
            nt_value_copy(room + FRAME_TEXT, FRAME_TEXT, nt_value_get(frame, "name", &name)),
        .line = number > 0 && number <= INT32_MAX ? (int)number : 0};
  }
  return count;
}

/* Stacks are few and come again and again. Frames are shared within a pickle, so they are known by where they are. */
static uint32_t site_of(struct entries *e, const struct nt_value *frames) {
  struct nt_stack_frame list[FRAMES_MAX];
  char text[NT_SITE_TEXT];
  uint64_t key = UINT64_C(14695981039346656037);
  if (!nt_value_count(frames) || frames->type != NT_VALUE_LIST)
    return 0;
  for (uint32_t i = 0; i < frames->count; i++)
    key = (key ^ (uintptr_t)frames->items[i]) * UINT64_C(1099511628211);
  const size_t slot = key % SITES;
  if (e->sites[slot].key != key) {
    size_t count = read_frames(frames, list, e->room);
    e->sites[slot].key = key;
    e->sites[slot].at =
        nt_model_add_site(e->flight.rank, nt_stack_site_text(text, sizeof text, list, count));
  }
  return e->sites[slot].at;
}

/* The whole stack of the newest call: that is where a culprit was seen last. */
static int add_stack(struct entries *e) {
  struct nt_stack_frame list[FRAMES_MAX];
  struct nt_model_rank *rank = e->flight.rank;
  size_t count = nt_value_count(e->newest_frames);
  if (!count || e->newest_frames->type != NT_VALUE_LIST)
    return 0;
  rank->stacks = calloc(1, sizeof *rank->stacks);
  if (!rank->stacks)
    return -NT_ERR_MEMORY;
  rank->stack_count = 1;
  rank->stacks->call = e->newest;
  rank->python_stacks = true;
  return nt_load_stack(rank->stacks, list, read_frames(e->newest_frames, list, e->room),
                       count > FRAMES_MAX);
}

/* ---- entries ---------------------------------------------------------------------------------------- */

/* Puts the fields of an entry in their places. Entries of one dump have their keys in one order. */
static void read_fields(struct entries *e, const struct nt_value *entry,
                        const struct nt_value *field[KEYS]) {
  for (int k = 0; k < KEYS; k++)
    field[k] = NULL;
  for (uint32_t i = 0; i < entry->count; i++) {
    const struct nt_value *key = entry->items[2 * (size_t)i];
    int known = i < LAYOUT ? e->layout[i] : KEYS;
    if (known == KEYS || !nt_value_is_text(key, key_names[known]))
      for (known = 0; known < KEYS && !nt_value_is_text(key, key_names[known]);)
        known++;
    if (i < LAYOUT)
      e->layout[i] = (uint8_t)known;
    if (known < KEYS)
      field[known] = entry->items[2 * (size_t)i + 1];
  }
}

static enum nt_progress progress_of(const struct nt_value *const field[KEYS]) {
  if (nt_value_is_text(field[STATE], "completed"))
    return NT_PROGRESS_FINISHED;
  return nt_value_is_text(field[STATE], "started") ? NT_PROGRESS_REACHED : NT_PROGRESS_UNFINISHED;
}

/* Numbers of threads in the order in which they come; 0 for those beyond. */
static uint32_t thread_of(struct entries *e, const struct nt_value *id) {
  uint32_t i = 0;
  if (!id || id->type != NT_VALUE_TEXT)
    return 0;
  while (i < e->thread_count && (e->threads[i]->count != id->count ||
                                 memcmp(e->threads[i]->text, id->text, id->count) != 0))
    i++;
  if (i == THREADS_MAX)
    return 0;
  if (i == e->thread_count)
    e->threads[e->thread_count++] = id;
  return i + 1;
}

static struct nt_model_call *new_call(struct entries *e, const struct nt_flight_group *group,
                                      const struct nt_value *const field[KEYS],
                                      const struct nt_flight_op *op, int64_t seq) {
  const struct nt_flight_sizes sizes = {field[IN_SIZES], field[IN_TYPES], field[OUT_SIZES],
                                        field[OUT_TYPES]};
  struct nt_model_call *call = nt_model_add_call(e->flight.rank);
  if (!call)
    return NULL;
  const int64_t created = nt_value_integer(field[CREATED], 0);
  call->enter_ns = call->exit_ns = created > 0 ? created : 1; /* when it returned is not known */
  call->view = group->view;
  call->fn = op->fn;
  call->op = 255;
  call->seq = (uint32_t)seq;
  call->count = nt_flight_count(op->fn, &sizes, &call->dtype);
  call->thread = thread_of(e, field[THREAD]);
  call->progress = (uint8_t)progress_of(field);
  call->at = site_of(e, field[FRAMES]);
  e->newest = e->flight.rank->call_count - 1;
  e->newest_frames = field[FRAMES];
  return call;
}

/* What closes a coalesced group says how far all of it came. */
static void close_group(struct entries *e, const struct nt_flight_group *group, bool p2p,
                        enum nt_progress progress) {
  struct nt_model_rank *rank = e->flight.rank;
  uint32_t first = p2p ? group->p2p : group->call;
  for (uint32_t i = first; i < rank->call_count; i++)
    if (rank->calls[i].view == group->view && p2p == (rank->calls[i].peer >= 0) &&
        rank->calls[i].seq == (p2p ? group->p2p_seq : group->call_seq))
      rank->calls[i].progress = (uint8_t)progress;
}

static int add_message(struct entries *e, struct nt_flight_group *group,
                       const struct nt_value *const field[KEYS], const struct nt_flight_op *op,
                       int64_t seq) {
  struct nt_model_rank *rank = e->flight.rank;
  const bool joins = group->p2p != NT_NONE && group->p2p_seq == seq;
  group->any = group->any_p2p = true;
  if (op->end) {
    if (joins)
      close_group(e, group, true, progress_of(field));
    group->p2p = NT_NONE;
    return 0;
  }
  struct nt_model_call *call = new_call(e, group, field, op, seq);
  if (!call)
    return -NT_ERR_MEMORY;
  call->peer = op->fn == NT_FN_Send ? op->destination : op->source;
  if (!joins) {
    group->p2p = rank->call_count - 1;
    group->p2p_seq = (uint32_t)seq;
    return 0;
  }
  if (!rank->calls[group->p2p].group)
    rank->calls[group->p2p].group = ++e->group;
  call->group = rank->calls[group->p2p].group;
  return 0;
}

/* Elements as bytes, saturated. */
static uint64_t bytes_of(uint64_t count, uint8_t dtype) {
  const size_t size = nt_dtype_size(dtype);
  return __builtin_mul_overflow(count, size ? size : 1, &count) ? NT_COUNT_UNKNOWN : count;
}

/* One more operation of a coalesced group, in which order is free: sizes add up, of different types in bytes. */
static void merge(struct nt_model_call *call, const struct nt_value *const field[KEYS],
                  const struct nt_flight_op *op) {
  const struct nt_flight_sizes sizes = {field[IN_SIZES], field[IN_TYPES], field[OUT_SIZES],
                                        field[OUT_TYPES]};
  uint8_t dtype;
  uint64_t count = nt_flight_count(op->fn, &sizes, &dtype);
  if (dtype != call->dtype) {
    call->count = bytes_of(call->count, call->dtype);
    count = bytes_of(count, dtype);
    call->dtype = ncclUint8;
  }
  if (__builtin_add_overflow(call->count, count, &call->count))
    call->count = NT_COUNT_UNKNOWN;
  if (op->fn && op->fn < call->fn)
    call->fn = op->fn;
}

static int add_collective(struct entries *e, struct nt_flight_group *group,
                          const struct nt_value *const field[KEYS], const struct nt_flight_op *op,
                          int64_t seq) {
  struct nt_model_rank *rank = e->flight.rank;
  const bool joins = group->call != NT_NONE && group->call_seq == seq;
  group->any = true;
  if (seq > group->last_seq)
    group->last_seq = (uint32_t)seq;
  if (joins) {
    e->first_coalesced |= group->call == 0;
    if (op->end)
      close_group(e, group, false, progress_of(field));
    else
      merge(&rank->calls[group->call], field, op);
    return 0;
  }
  if (op->fn == NT_FN_NONE) { /* of a kind that is not known here: a gap */
    e->flight.unknown += !op->end;
    rank->lost++;
    return 0;
  }
  struct nt_model_call *call = new_call(e, group, field, op, seq);
  group->call = call ? rank->call_count - 1 : NT_NONE;
  group->call_seq = (uint32_t)seq;
  return call ? 0 : -NT_ERR_MEMORY;
}

static int add_entry(struct entries *e, const struct nt_value *entry) {
  const struct nt_value *field[KEYS];
  read_fields(e, entry, field);
  struct nt_flight_op op = nt_flight_op(field[NAME]);
  bool p2p = field[IS_P2P] && field[IS_P2P]->type == NT_VALUE_BOOL ? field[IS_P2P]->integer != 0
                                                                   : op.source >= 0;
  const struct nt_value *seq = p2p && field[P2P_SEQ] ? field[P2P_SEQ]
                               : field[SEQ]          ? field[SEQ]
                                                     : field[OLD_SEQ];
  const struct nt_value *name = nt_value_at(field[GROUP], 0);
  const int64_t number = nt_value_integer(seq, -1), record = nt_value_integer(field[RECORD], -1);
  if (record > e->newest_record)
    e->newest_record = record;
  if (!name && field[GROUP] && field[GROUP]->type == NT_VALUE_TEXT)
    name = field[GROUP];
  if (!name || name->type != NT_VALUE_TEXT || !field[NAME] || number < 0 || number >= UINT32_MAX ||
      (p2p && !op.end && op.source < 0)) {
    e->flight.damaged++;
    return 0;
  }
  e->flight.timed |= nt_value_integer(field[STARTED], 0) > 0;
  struct nt_flight_group *group = nt_flight_group(&e->flight, name, nt_value_at(field[GROUP], 1));
  if (!group)
    return -NT_ERR_MEMORY;
  group->pg_id = nt_value_integer(field[PG_ID], -1);
  if (!field[IS_P2P] && op.end && group->p2p != NT_NONE && group->p2p_seq == number)
    p2p = true; /* older recorders do not say what a group was of */
  return p2p ? add_message(e, group, field, &op, number)
             : add_collective(e, group, field, &op, number);
}

/* ---- the dump --------------------------------------------------------------------------------------- */

/* Messages of a group that was never closed: it has not ended, or its end was left out as it was completed. */
static void open_groups(struct entries *e, bool complete) {
  struct nt_model_rank *rank = e->flight.rank;
  for (uint32_t g = 0; g < e->flight.group_count; g++) {
    const struct nt_flight_group *group = &e->flight.groups[g];
    if (group->p2p != NT_NONE && rank->calls[group->p2p].group && !complete)
      close_group(e, group, true, NT_PROGRESS_UNKNOWN);
  }
}

/* With timing on, what was not seen to start stands behind something; of which, if an earlier operation of another group
 * is unfinished, nobody knows. */
static void place_enqueued(struct entries *e) {
  struct nt_model_rank *rank = e->flight.rank;
  for (uint32_t i = 0; i < rank->call_count && e->flight.timed; i++) {
    struct nt_model_call *call = &rank->calls[i];
    if (call->progress == NT_PROGRESS_FINISHED)
      continue;
    if (call->progress == NT_PROGRESS_UNFINISHED && !call->group)
      call->progress = NT_PROGRESS_ENQUEUED;
    break;
  }
}

static int by_thread(const void *a, const void *b) {
  const struct nt_model_call *x = a, *y = b;
  if (x->thread != y->thread)
    return x->thread < y->thread ? -1 : 1;
  return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

/* The model has calls by thread, in program order within one. */
static void sort_calls(struct entries *e) {
  struct nt_model_rank *rank = e->flight.rank;
  if (e->thread_count < 2 || !rank->call_count)
    return;
  for (uint32_t i = 0; i < rank->call_count; i++)
    rank->calls[i].buffer = i; /* keeps the order */
  uint32_t newest = e->newest;
  qsort(rank->calls, rank->call_count, sizeof *rank->calls, by_thread);
  for (uint32_t i = 0; i < rank->call_count; i++) {
    if (rank->calls[i].buffer == newest)
      e->newest = i;
    rank->calls[i].buffer = 0;
  }
}

/* When the dump was made stands nowhere: not before what it holds, and as far as is known when the file was written. */
static void find_times(struct nt_model_rank *rank, const char *source) {
  struct stat status;
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const int64_t ns = rank->calls[i].enter_ns;
    rank->last_beat_ns = ns > rank->last_beat_ns ? ns : rank->last_beat_ns;
    rank->started_ns = !rank->started_ns || ns < rank->started_ns ? ns : rank->started_ns;
  }
  if (stat(source, &status) == 0) {
    const int64_t ns = status.st_mtim.tv_sec * INT64_C(1000000000) + status.st_mtim.tv_nsec;
    rank->last_beat_ns = ns > rank->last_beat_ns ? ns : rank->last_beat_ns;
  }
  rank->seen_ns = rank->last_beat_ns;
}

static int fill(struct entries *e, const char *source) {
  struct nt_flight *flight = &e->flight;
  struct nt_model_rank *rank = flight->rank;
  uint32_t count = nt_value_count(flight->entries);
  e->newest_record = -1;
  memset(e->layout, KEYS, sizeof e->layout);
  e->room = malloc((size_t)FRAMES_MAX * 2 * FRAME_TEXT);
  int status = e->room ? nt_flight_groups(flight) : -NT_ERR_MEMORY;
  for (uint32_t i = 0; i < count && !status; i++) {
    const struct nt_value *entry = nt_value_at(flight->entries, i);
    if (entry && entry->type == NT_VALUE_MAP)
      status = add_entry(e, entry);
    else
      flight->damaged++;
  }
  if (status)
    return status;
  if (e->newest_record >= count)
    rank->overwritten = (uint64_t)e->newest_record + 1 - count;
  else if (!count) /* completed operations may have been left out; how many is not known */
    rank->overwritten = 1 + nt_value_count(flight->status);
  rank->total_calls = count + rank->overwritten;
  rank->lost += flight->damaged;
  for (uint32_t g = 0; g < flight->group_count; g++)
    rank->views[flight->groups[g].view].collectives = flight->groups[g].last_seq;
  if (rank->overwritten)
    nt_flight_status(flight);
  if (rank->overwritten && e->first_coalesced)
    rank->calls[0].flags |= NT_CALL_VOID; /* what of it is left says nothing */
  open_groups(e, !rank->overwritten);
  place_enqueued(e);
  sort_calls(e);
  find_times(rank, source);
  return add_stack(e);
}

static int load(struct nt_trace_loader *loader, const char *source, const struct nt_value *root,
                struct nt_error *err) {
  char version[16], text[64], *end;
  nt_value_copy(version, sizeof version, nt_value_get(root, "version", NULL));
  const long major = strtol(version, &end, 10);
  struct entries *e = calloc(1, sizeof *e);
  struct nt_model_rank *rank = e ? nt_model_add_rank(&loader->model) : NULL;
  int status = rank ? 0 : refuse(err, -NT_ERR_MEMORY, "out of memory");
  if (status)
    goto out;
  e->flight = (struct nt_flight){.rank = rank,
                                 .entries = nt_value_get(root, "entries", NULL),
                                 .config = nt_value_get(root, "pg_config", NULL),
                                 .status = nt_value_get(root, "pg_status", NULL)};
  rank->recorder = NT_RECORDER_FLIGHT;
  rank->source = strdup(source);
  const struct nt_value *nccl = nt_value_get(root, "comm_lib_version", NULL);
  nt_value_copy(text, sizeof text, nccl ? nccl : nt_value_get(root, "nccl_version", NULL));
  rank->nccl = *text ? strdup(text) : NULL;
  rank->world = nt_flight_world(source, &e->flight);
  if (!*version || (!e->flight.entries && !e->flight.config))
    status = refuse(err, -NT_ERR_FOREIGN, "no dump of a flight recorder: no version, no entries");
  else if (end == version || major != 2)
    status = refuse(err, -NT_ERR_VERSION,
                    "not version 2 of the flight recorder's dumps; 2.0 to 2.10 are known");
  else if (rank->world < 0)
    status = refuse(err, -NT_ERR_FOREIGN,
                    "nothing tells whose dump it is: its file's name must end with the rank");
  else if (fill(e, source))
    status = refuse(err, -NT_ERR_MEMORY, "out of memory");
  if (status)
    nt_model_drop_last(&loader->model);
  else if (e->flight.damaged || e->flight.unknown)
    nt_model_note(&loader->model, "%s: %llu entries are damaged, %llu of an unknown kind", source,
                  (unsigned long long)e->flight.damaged, (unsigned long long)e->flight.unknown);
out:
  if (e) {
    free(e->flight.groups);
    free(e->room);
  }
  free(e);
  return status;
}

int nt_load_flight_recorder(struct nt_trace_loader *loader, const char *source,
                            const uint8_t *bytes, size_t size, struct nt_error *err) {
  struct nt_value_store store = {0};
  const struct nt_value *root = NULL;
  void *document = NULL;
  int status = size && bytes[0] == 0x80 ? nt_pickle_read(bytes, size, &store, &root, err)
                                        : nt_json_read(bytes, size, &store, &root, &document, err);
  if (!status)
    status = load(loader, source, root, err);
  nt_value_free(&store);
  nt_json_free(document);
  return status;
}
