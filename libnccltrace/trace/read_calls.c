/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All calls of a trace in one array, each once.
 *
 * A record is named by its chunk's serial and its index, wherever a copy of it lies: in frames of the
 * file, in the spool, in the ring, or as an open call of the state slot. Two passes: the first reads only
 * the indexes of frames and decides which copy of which record is delivered and at which place; the second
 * decodes frame by frame into the array. Copies of the file come first: their communicator numbers were
 * looked up when the slots were certainly still theirs.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "nccl/nccl_api.h"
#include "trace/read_parts.h"

#define CALLS_MAX UINT64_C(100000000)
#define SPOOL_EPOCH UINT64_MAX

enum source { FROM_FILE, FROM_SPOOL, FROM_RING, FROM_STATE };

struct piece {
  uint64_t serial;
  uint64_t mine[4];                     /* records of the chunk that this copy delivers, by index */
  uint64_t base;                        /* place of the chunk's first record in the array */
  uint32_t thread, first, count, where; /* where: chunk copy or open call */
  uint32_t sorted;                      /* index into plan->sorted of the chunk's first piece */
  enum source source;
};

/* A frame of the first pass, found again in the second. */
struct planned {
  uint64_t epoch, offset;
  size_t first_piece;
  uint32_t pieces;
};

struct plan {
  struct nt_trace *trace;
  struct nt_codec *codec;
  struct piece *pieces;
  struct piece **sorted;
  struct planned *frames;
  size_t piece_count, piece_room, frame_count, frame_room, next_frame;
  uint64_t total;
  int rc;
};

static int add_piece(struct plan *plan, const struct piece *piece) {
  if (!piece->count)
    return 0;
  if (plan->piece_count == plan->piece_room) {
    const size_t room = plan->piece_room ? plan->piece_room * 2 : 256;
    struct piece *grown = realloc(plan->pieces, room * sizeof *grown);
    if (!grown)
      return -NT_ERR_MEMORY;
    plan->pieces = grown;
    plan->piece_room = room;
  }
  plan->pieces[plan->piece_count++] = *piece;
  return 0;
}

static int add_frame(struct plan *plan, uint64_t epoch, uint64_t offset) {
  if (plan->frame_count == plan->frame_room) {
    const size_t room = plan->frame_room ? plan->frame_room * 2 : 64;
    struct planned *grown = realloc(plan->frames, room * sizeof *grown);
    if (!grown)
      return -NT_ERR_MEMORY;
    plan->frames = grown;
    plan->frame_room = room;
  }
  plan->frames[plan->frame_count++] = (struct planned){epoch, offset, plan->piece_count, 0};
  return 0;
}

/* ---- first pass -------------------------------------------------------------------------------- */

static int plan_runs(struct plan *plan, const struct nt_frame *frame, const unsigned char *stored,
                     uint64_t epoch, uint64_t offset) {
  struct nt_run *runs;
  uint32_t run_count;
  int rc = nt_codec_runs(stored, frame->index, frame->records, &runs, &run_count);
  for (uint32_t r = 0; !rc && r < run_count; r++)
    if (runs[r].first + runs[r].count > NT_CHUNK_RECORDS)
      rc = -NT_ERR_CORRUPT;
  if (rc == -NT_ERR_CORRUPT) {
    nt_warn(plan->trace,
            "byte %" PRIu64 " of segment %" PRIu64 ": a frame's index is wrong, %" PRIu32
            " calls skipped",
            offset, frame->epoch, frame->records);
    free(runs);
    return 0;
  }
  if (!rc)
    rc = add_frame(plan, epoch, offset);
  for (uint32_t r = 0; !rc && r < run_count; r++) {
    /* Empty runs are pieces too: the second pass counts runs. */
    const struct piece piece = {.serial = runs[r].serial,
                                .thread = runs[r].thread,
                                .first = runs[r].first,
                                .count = runs[r].count,
                                .source = epoch == SPOOL_EPOCH ? FROM_SPOOL : FROM_FILE};
    if (!runs[r].count)
      continue;
    rc = add_piece(plan, &piece);
    plan->frames[plan->frame_count - 1].pieces++;
  }
  free(runs);
  return rc;
}

static bool is_calls(const struct nt_frame *frame) {
  return frame->type == NT_FRAME_CALLS && frame->version == NT_CODEC_VERSION;
}

static int plan_frame(const struct nt_frame *frame, const unsigned char *stored, uint64_t offset,
                      void *ctx) {
  struct plan *plan = ctx;
  if (is_calls(frame))
    return plan_runs(plan, frame, stored, frame->epoch, offset);
  if (frame->type == NT_FRAME_CALLS) {
    plan->trace->info.strange += frame->records;
    nt_warn(plan->trace,
            "byte %" PRIu64 " of segment %" PRIu64
            ": a form of calls that this program does not know (version %u), %" PRIu32
            " call%s skipped: use the tools of the version that wrote it%s%s",
            offset, frame->epoch, frame->version, frame->records, frame->records == 1 ? "" : "s",
            *plan->trace->writer ? ": " : "", plan->trace->writer);
  }
  return 0;
}

int nt_walk_spool(const struct nt_area_copy *area, nt_calls_fn *fn, void *ctx) {
  for (uint32_t at = 0; at < area->spool_length;) {
    struct nt_frame frame;
    if (nt_frame_parse(area->spool + at, area->spool_length - at, &frame))
      return 0;
    int rc = fn(&frame, area->spool + at + NT_FRAME_HEADER, at, ctx);
    if (rc)
      return rc;
    at += (uint32_t)nt_frame_span(&frame);
  }
  return 0;
}

static int plan_spool_frame(const struct nt_frame *frame, const unsigned char *stored,
                            uint64_t offset, void *ctx) {
  return is_calls(frame) ? plan_runs(ctx, frame, stored, SPOOL_EPOCH, offset) : 0;
}

static int plan_rest(struct plan *plan) {
  const struct nt_area_copy *area = &plan->trace->area;
  const struct nt_facts *facts = &plan->trace->facts;
  int rc = area->present ? nt_walk_spool(area, plan_spool_frame, plan) : 0;
  for (uint32_t i = 0; !rc && i < area->chunk_count; i++) {
    const struct nt_chunk_copy *copy = &area->chunks[i];
    const struct piece piece = {.serial = copy->serial,
                                .thread = copy->thread,
                                .count = copy->published,
                                .where = i,
                                .source = FROM_RING};
    rc = add_piece(plan, &piece);
  }
  for (size_t i = 0; !rc && i < facts->open_count; i++) {
    const struct nt_open_call *open = &facts->open[i];
    if (open->index >= NT_CHUNK_RECORDS)
      continue;
    const struct piece piece = {.serial = open->serial,
                                .thread = open->thread,
                                .first = open->index,
                                .count = 1,
                                .where = (uint32_t)i,
                                .source = FROM_STATE};
    rc = add_piece(plan, &piece);
  }
  return rc;
}

/* ---- deciding ---------------------------------------------------------------------------------- */

static int by_chunk(const void *a, const void *b) {
  const struct piece *x = *(struct piece *const *)a, *y = *(struct piece *const *)b;
  if (x->thread != y->thread)
    return x->thread < y->thread ? -1 : 1;
  if (x->serial != y->serial)
    return x->serial < y->serial ? -1 : 1;
  if (x->source != y->source)
    return x->source < y->source ? -1 : 1;
  return x < y ? -1 : x > y;
}

static bool has_bit(const uint64_t bits[4], uint32_t i) {
  return bits[i / 64] >> (i % 64) & 1;
}

/* How many bits below `i` are set. */
static uint32_t rank_of(const uint64_t bits[4], uint32_t i) {
  uint32_t rank = 0;
  for (uint32_t word = 0; word < i / 64; word++)
    rank += (uint32_t)__builtin_popcountll(bits[word]);
  if (i % 64)
    rank += (uint32_t)__builtin_popcountll(bits[i / 64] << (64 - i % 64));
  return rank;
}

/* Deals the records of one chunk out to the pieces from..to; `all` becomes their union. */
static void deal(struct plan *plan, size_t from, size_t to, bool last_of_thread, uint64_t all[4]) {
  uint32_t end = 0;
  for (size_t k = from; k < to; k++) {
    struct piece *piece = plan->sorted[k];
    /* An open call of the state that later calls follow was closed since: its record is lost. */
    const bool stale = piece->source == FROM_STATE && (!last_of_thread || end > piece->first + 1);
    for (uint32_t i = piece->first; i < piece->first + piece->count && !stale; i++) {
      if (has_bit(all, i))
        continue;
      all[i / 64] |= UINT64_C(1) << (i % 64);
      piece->mine[i / 64] |= UINT64_C(1) << (i % 64);
    }
    if (!stale && piece->first + piece->count > end)
      end = piece->first + piece->count;
    piece->base = plan->total;
    piece->sorted = (uint32_t)from;
  }
  plan->total += rank_of(all, 255) + has_bit(all, 255);
}

static bool only_state(const struct piece *piece) {
  return piece->source == FROM_STATE;
}

static int decide(struct plan *plan) {
  if (plan->piece_count > UINT32_MAX)
    return -NT_ERR_MEMORY;
  plan->sorted = malloc((plan->piece_count + 1) * sizeof *plan->sorted);
  if (!plan->sorted)
    return -NT_ERR_MEMORY;
  for (size_t i = 0; i < plan->piece_count; i++)
    plan->sorted[i] = &plan->pieces[i];
  qsort(plan->sorted, plan->piece_count, sizeof *plan->sorted, by_chunk);
  for (size_t from = 0, to; from < plan->piece_count; from = to) {
    const struct piece *first = plan->sorted[from];
    for (to = from; to < plan->piece_count && plan->sorted[to]->thread == first->thread &&
                    plan->sorted[to]->serial == first->serial;)
      to++;
    bool last = true;
    for (size_t k = to; last && k < plan->piece_count && plan->sorted[k]->thread == first->thread;
         k++)
      last = only_state(plan->sorted[k]);
    uint64_t all[4] = {0};
    deal(plan, from, to, last, all);
  }
  return plan->total > CALLS_MAX ? -NT_ERR_SPACE : 0;
}

/* ---- second pass ------------------------------------------------------------------------------- */

/* Which records of the piece's chunk are delivered at all, by this piece or another. */
static void all_of(const struct plan *plan, const struct piece *piece, uint64_t all[4]) {
  memset(all, 0, 4 * sizeof *all);
  for (size_t k = piece->sorted; k < plan->piece_count; k++) {
    const struct piece *other = plan->sorted[k];
    if (other->thread != piece->thread || other->serial != piece->serial)
      break;
    for (int word = 0; word < 4; word++)
      all[word] |= other->mine[word];
  }
}

/* `to`: its place in the array. */
static void place(struct plan *plan, const struct piece *piece, uint32_t index, uint64_t to,
                  const struct nt_record *record, uint32_t comm, uint32_t stream) {
  if (!has_bit(piece->mine, index))
    return;
  const struct nt_trace *trace = plan->trace;
  const uint64_t end = record->enter + nt_duration_decode(record->duration);
  const bool open = record->result == NT_RESULT_OPEN;
  trace->calls[to] = (struct nt_call){
      .enter_ns = nt_read_time(trace, record->enter),
      .exit_ns = open ? 0 : nt_read_time(trace, end),
      .order = (piece->serial << 8 | index) + 1,
      .count = record->count,
      .send = record->send,
      .recv = record->recv,
      .thread = piece->thread,
      .comm = comm,
      .stream = stream,
      .seq = record->seq,
      .group = record->group,
      .stack = record->stack,
      .launch = record->launch,
      .peer = record->peer,
      .fn = record->fn,
      .dtype = record->dtype,
      .op = record->op,
      .result = record->result,
      .flags = record->flags,
  };
}

static int place_frame(struct plan *plan, const struct nt_frame *frame, const unsigned char *stored,
                       uint64_t epoch, uint64_t offset) {
  size_t at = plan->next_frame;
  while (at < plan->frame_count &&
         (plan->frames[at].epoch != epoch || plan->frames[at].offset != offset))
    at++;
  if (at == plan->frame_count)
    return 0; /* written since the first pass, or refused there */
  plan->next_frame = at + 1;
  const struct planned *planned = &plan->frames[at];
  struct nt_batch batch;
  unsigned char *payload;
  const char *reason = "the frame cannot be unpacked";
  int rc = nt_frame_unpack_with(plan->trace->room->unpacker, frame, stored, &payload);
  if (!rc)
    rc = nt_codec_decode(plan->codec, payload, frame->raw, stored, frame->index, frame->records,
                         &batch, &reason);
  free(payload);
  if (rc == -NT_ERR_CORRUPT) {
    nt_warn(plan->trace, "byte %" PRIu64 " of segment %" PRIu64 ": %s, %" PRIu32 " calls skipped",
            offset, frame->epoch, reason, frame->records);
    return 0;
  }
  if (rc)
    return rc;
  uint32_t call = 0, piece_index = 0;
  for (uint32_t r = 0; r < batch.run_count && piece_index < planned->pieces; r++) {
    const struct nt_run *run = &batch.runs[r];
    if (!run->count)
      continue;
    const struct piece *piece = &plan->pieces[planned->first_piece + piece_index++];
    if (piece->serial != run->serial || piece->first != run->first || piece->count != run->count)
      break; /* another frame at the same place: the file was being written */
    uint64_t all[4];
    all_of(plan, piece, all);
    uint64_t to = piece->base + rank_of(all, run->first);
    for (uint32_t i = 0; i < run->count; i++, call++) {
      const struct nt_batch_call *from = &batch.calls[call];
      place(plan, piece, run->first + i, to, &from->record, from->comm, from->stream);
      to += has_bit(all, run->first + i);
    }
  }
  nt_batch_free(&batch);
  return 0;
}

static int place_file_frame(const struct nt_frame *frame, const unsigned char *stored,
                            uint64_t offset, void *ctx) {
  return is_calls(frame) ? place_frame(ctx, frame, stored, frame->epoch, offset) : 0;
}

static int place_spool_frame(const struct nt_frame *frame, const unsigned char *stored,
                             uint64_t offset, void *ctx) {
  return is_calls(frame) ? place_frame(ctx, frame, stored, SPOOL_EPOCH, offset) : 0;
}

static void place_ring(struct plan *plan, const struct piece *piece) {
  const struct nt_area_copy *area = &plan->trace->area;
  const struct nt_chunk_copy *copy = &area->chunks[piece->where];
  uint64_t all[4];
  all_of(plan, piece, all);
  uint64_t to = piece->base;
  for (uint32_t i = 0; i < piece->count; to += has_bit(all, i++)) {
    struct nt_record record = copy->records[i];
    uint32_t comm = 0, stream = 0;
    /* A drained record may name a slot that is another communicator's by now, which is younger. */
    if (record.comm < area->comm_count && record.enter >= area->comm_enter[record.comm])
      comm = area->comm_numbers[record.comm];
    if (record.stream < area->stream_count)
      stream = area->stream_numbers[record.stream];
    if (i >= copy->closed) {
      record.result = NT_RESULT_OPEN;
      if (copy->state == NT_CHUNK_RETIRED)
        record.flags |= NT_CALL_ABANDONED;
    }
    place(plan, piece, i, to, &record, comm, stream);
  }
}

static int place_all(struct plan *plan, struct nt_error *err) {
  struct nt_trace *trace = plan->trace;
  int rc = 0;
  if (trace->has_file)
    rc = nt_read_file_calls(trace, place_file_frame, plan, false, err);
  if (!rc && trace->area.present)
    rc = nt_walk_spool(&trace->area, place_spool_frame, plan);
  for (size_t i = 0; i < plan->piece_count; i++) {
    const struct piece *piece = &plan->pieces[i];
    if (piece->source == FROM_RING)
      place_ring(plan, piece);
    if (piece->source == FROM_STATE) {
      const struct nt_open_call *open = &trace->facts.open[piece->where];
      struct nt_record record = open->record;
      record.result = NT_RESULT_OPEN;
      uint64_t all[4];
      all_of(plan, piece, all);
      place(plan, piece, open->index, piece->base + rank_of(all, open->index), &record, open->comm,
            open->stream);
    }
  }
  return rc;
}

/* ---- finishing --------------------------------------------------------------------------------- */

/* Places whose copy turned out to be unreadable stay empty (order 0). */
static void close_gaps(struct nt_trace *trace, uint64_t total) {
  size_t kept = 0;
  for (uint64_t i = 0; i < total; i++)
    if (trace->calls[i].order)
      trace->calls[kept++] = trace->calls[i];
  trace->call_count = kept;
}

/* Sixteen bits of the group's number are recorded, 1 … 65535 and again: the rest is the order's. */
static void number_groups(struct nt_trace *trace) {
  uint32_t turns = 0, before = 0;
  for (size_t i = 0; i < trace->call_count; i++) {
    struct nt_call *call = &trace->calls[i];
    if (i == 0 || trace->calls[i - 1].thread != call->thread)
      turns = before = 0;
    if (!call->group)
      continue;
    if (call->group < before)
      turns++;
    before = call->group;
    call->group += turns * UINT32_C(65535);
  }
}

/* A group that was not launched takes those of its members with it that waited for its end. */
static void void_groups(struct nt_trace *trace) {
  for (size_t i = 0; i < trace->call_count; i++) {
    const struct nt_call *end = &trace->calls[i];
    const enum nt_shape shape = nt_fn_shape(end->fn);
    const bool failed = shape == NT_SHAPE_GROUP_END && end->result != 0 && end->result != 7 &&
                        end->result != NT_RESULT_OPEN;
    if (!end->group || !(failed || (shape == NT_SHAPE_GROUP_SIMULATE && end->result == 0)))
      continue;
    for (size_t k = i; k-- > 0;) {
      struct nt_call *call = &trace->calls[k];
      if (call->thread != end->thread || (call->group && call->group != end->group))
        break;
      if (call->group && nt_shape_is_deferred(nt_fn_shape(call->fn)))
        call->flags |= NT_CALL_VOID;
    }
  }
}

/* An open call that another of its thread follows was left by a jump, whoever recorded it. */
static void mark_abandoned(struct nt_trace *trace) {
  for (size_t i = 0; i + 1 < trace->call_count; i++)
    if (trace->calls[i].result == NT_RESULT_OPEN &&
        trace->calls[i + 1].thread == trace->calls[i].thread)
      trace->calls[i].flags |= NT_CALL_ABANDONED;
}

static int assemble(struct nt_trace *trace, struct nt_error *err) {
  struct plan plan = {.trace = trace};
  int rc = -NT_ERR_MEMORY;
  plan.codec = nt_read_room_codec(trace->room);
  if (!plan.codec)
    goto out;
  rc = trace->has_file ? nt_read_file_calls(trace, plan_frame, &plan, false, err) : 0;
  if (!rc)
    rc = plan_rest(&plan);
  if (!rc)
    rc = decide(&plan);
  if (rc)
    goto out;
  trace->calls = nt_read_room_calls(trace->room, plan.total);
  rc = trace->calls ? place_all(&plan, err) : -NT_ERR_MEMORY;
  if (rc)
    goto out;
  close_gaps(trace, plan.total);
out:
  if (rc && !err->code)
    nt_refuse(err, -rc, 0, rc == -NT_ERR_SPACE ? "implausibly many calls" : "out of memory");
  if (rc)
    trace->calls = NULL;
  free(plan.pieces);
  free(plan.sorted);
  free(plan.frames);
  return rc;
}

int nt_assemble_calls(struct nt_trace *trace, struct nt_error *err) {
  const int rc = assemble(trace, err);
  if (rc)
    return rc;
  if (trace->window.segment_count)
    nt_window_trim(trace);
  number_groups(trace);
  void_groups(trace);
  mark_abandoned(trace);
  trace->calls_loaded = true;
  return 0;
}
