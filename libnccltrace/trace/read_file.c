/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace file read back. Everything in it may be wrong: sizes are believed only when a checksum covers
 * them and a bound holds; whatever else is damaged is reported and left out.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/read_parts.h"

#define SLOT_MAX (UINT64_C(32) << 20)
enum { SLOT_MOSTLY = 2048 }; /* bytes that hold most copies: one read */

/* ---- opening ----------------------------------------------------------------------------------- */

static int read_fully(int fd, unsigned char *out, uint64_t length, uint64_t offset, uint64_t *got) {
  for (*got = 0; *got < length;) {
    const ssize_t n = pread(fd, out + *got, length - *got, (off_t)(offset + *got));
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return -NT_ERR_IO;
    if (n == 0)
      break;
    *got += (uint64_t)n;
  }
  return 0;
}

int nt_read_super(struct nt_trace *trace, const char *path, struct nt_error *err) {
  unsigned char bytes[NT_SUPER_SIZE];
  struct stat file;
  uint64_t got;
  int rc;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return nt_refuse(err, NT_ERR_IO, 0, "cannot be opened: %s", strerror(errno));
  if (fstat(fd, &file)) {
    rc = nt_refuse(err, NT_ERR_IO, 0, "cannot be examined: %s", strerror(errno));
  } else if (!S_ISREG(file.st_mode)) {
    rc = nt_refuse(err, NT_ERR_FOREIGN, 0, "not a regular file");
  } else if (read_fully(fd, bytes, sizeof bytes, 0, &got)) {
    rc = nt_refuse(err, NT_ERR_IO, 0, "cannot be read: %s", strerror(errno));
  } else {
    rc = nt_super_parse(bytes, got, &trace->identity, err);
  }
  if (!rc) {
    trace->dev = (uint64_t)file.st_dev;
    trace->ino = (uint64_t)file.st_ino;
    trace->size = (uint64_t)file.st_size;
    trace->has_file = true;
    snprintf(trace->file_path, sizeof trace->file_path, "%s", path);
  }
  close(fd);
  return rc;
}

/* The same file again; its name may have gone to another. */
static int reopen(const struct nt_trace *trace, struct nt_error *err) {
  struct stat file;
  const int fd = open(trace->file_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return nt_refuse(err, NT_ERR_IO, 0, "cannot be opened: %s", strerror(errno));
  if (fstat(fd, &file) || (uint64_t)file.st_dev != trace->dev ||
      (uint64_t)file.st_ino != trace->ino) {
    close(fd);
    return nt_refuse(err, NT_ERR_IO, 0, "was replaced while it was being read");
  }
  return fd;
}

/* ---- slots ------------------------------------------------------------------------------------- */

struct slot {
  unsigned char *stored; /* as it lies there; NULL if it is not whole */
  struct nt_frame frame;
};

/* One copy of a slot, checked. *written: there was something. */
static void load_slot(const struct nt_trace *trace, int fd, uint64_t offset, uint64_t size,
                      uint16_t type, struct slot *out, bool *written) {
  unsigned char head[NT_FRAME_HEADER + SLOT_MOSTLY];
  uint64_t got;
  out->stored = NULL;
  *written = false;
  if (read_fully(fd, head, size < sizeof head ? size : sizeof head, offset, &got) || got == 0)
    return;
  int rc = nt_frame_parse(head, (size_t)got, &out->frame);
  if (rc == -NT_ERR_FOREIGN)
    return;
  *written = true;
  const uint64_t span = NT_FRAME_HEADER + (uint64_t)out->frame.stored;
  if ((rc && rc != -NT_ERR_TRUNCATED) || !out->frame.epoch || out->frame.type != type ||
      span > size || span > SLOT_MAX || offset + span > trace->size)
    return;
  unsigned char *stored = malloc(out->frame.stored ? out->frame.stored : 1);
  bool there = stored != NULL;
  if (there && span <= got)
    memcpy(stored, head + NT_FRAME_HEADER, out->frame.stored);
  else if (there)
    there = !read_fully(fd, stored, out->frame.stored, offset + NT_FRAME_HEADER, &got) &&
            got == out->frame.stored;
  if (there && nt_frame_is_whole(&out->frame, stored))
    out->stored = stored;
  else
    free(stored);
}

struct slots {
  uint64_t offset, size;
  uint32_t count;
  uint16_t type;
  const char *what;
};

/* The newest whole copy older than `epoch`; counts those that are damaged. */
static struct slot load_newest(const struct nt_trace *trace, int fd, const struct slots *slots,
                               uint64_t epoch, uint32_t *damaged) {
  struct slot newest = {0};
  *damaged = 0;
  for (uint32_t i = 0; i < slots->count; i++) {
    struct slot slot;
    bool written;
    load_slot(trace, fd, slots->offset + i * slots->size, slots->size, slots->type, &slot,
              &written);
    *damaged += written && (!slot.stored || slot.frame.epoch >= epoch);
    if (slot.stored && slot.frame.epoch < epoch &&
        (!newest.stored || slot.frame.epoch > newest.frame.epoch)) {
      free(newest.stored);
      newest = slot;
    } else {
      free(slot.stored);
    }
  }
  return newest;
}

/* Unpacks the newest copy that can be, which the caller frees; NULL if there is none. */
static unsigned char *read_slot(struct nt_trace *trace, int fd, const struct slots *slots,
                                uint32_t *raw) {
  uint64_t epoch = UINT64_MAX;
  uint32_t damaged;
  unsigned char *bytes = NULL;
  struct slot slot;
  bool found;
  do {
    slot = load_newest(trace, fd, slots, epoch, &damaged);
    found = slot.stored != NULL;
    if (found)
      nt_frame_unpack_with(trace->room->unpacker, &slot.frame, slot.stored, &bytes);
    free(slot.stored);
    epoch = slot.frame.epoch;
  } while (found && !bytes);
  *raw = slot.frame.raw;
  if (damaged)
    nt_warn(trace, "at byte %" PRIu64 ": %" PRIu32 " of %" PRIu32 " copies of the %s damaged%s",
            slots->offset, damaged, slots->count, slots->what, bytes ? ", the other is used" : "");
  return bytes;
}

static void read_slots(struct nt_trace *trace, int fd, bool have_evidence) {
  const struct nt_layout *layout = &trace->identity.layout;
  const struct slots evidence = {layout->evidence_offset, layout->evidence_size,
                                 layout->evidence_count, NT_FRAME_EVIDENCE, "evidence"};
  const struct slots state = {layout->state_offset, layout->state_size, layout->state_count,
                              NT_FRAME_STATE, "state"};
  uint32_t raw;
  unsigned char *bytes = read_slot(trace, fd, &evidence, &raw);
  if (bytes && !have_evidence) {
    char *text = malloc((size_t)raw + 1);
    if (text) {
      memcpy(text, bytes, raw);
      text[raw] = 0;
      nt_read_evidence(trace, text);
    }
  }
  free(bytes);
  bytes = read_slot(trace, fd, &state, &raw);
  if (bytes && nt_facts_merge(&trace->facts, bytes, raw))
    nt_warn(trace, "at byte %" PRIu64 ": the state ends inside an entry", layout->state_offset);
  free(bytes);
}

/* Key and value lie in one copy of the text, which is cut up. */
void nt_read_evidence(struct nt_trace *trace, char *text) {
  free(trace->evidence);
  free(trace->lines);
  trace->evidence = text;
  trace->lines = NULL;
  trace->line_count = 0;
  size_t count = 1;
  for (const char *at = text; *at; at++)
    count += *at == '\n';
  trace->lines = calloc(count, sizeof *trace->lines);
  if (!trace->lines)
    return;
  for (char *line = text; line && *line;) {
    char *next = strchr(line, '\n');
    if (next)
      *next++ = 0;
    char *equals = strchr(line, '=');
    if (equals && equals != line) {
      *equals = 0;
      trace->lines[trace->line_count++] = (struct nt_evidence_line){line, equals + 1};
    }
    line = next;
  }
}

/* ---- segments ---------------------------------------------------------------------------------- */

/* A living process may begin the segment anew while it is being read: then it is read again. */
static int load_steady(int fd, const struct nt_layout *layout, uint32_t i, struct nt_segment *out) {
  for (int tries = 0;; tries++) {
    unsigned char head[NT_FRAME_HEADER];
    uint64_t got;
    int rc = nt_segment_load(fd, layout, i, out);
    if (rc || out->length < sizeof head || tries == 3)
      return rc;
    rc = read_fully(fd, head, sizeof head, out->offset, &got);
    if (rc || (got == sizeof head && !memcmp(head, out->bytes, sizeof head)))
      return rc;
    nt_segment_free(out);
  }
}

struct order {
  uint64_t epoch;
  uint32_t segment;
};

static int by_epoch(const void *a, const void *b) {
  const struct order *x = a, *y = b;
  return x->epoch < y->epoch ? -1 : x->epoch > y->epoch;
}

/* The epoch that a segment's first whole header announces; 0 for none. */
static uint64_t peek_epoch(struct nt_trace *trace, int fd, uint32_t i) {
  const struct nt_layout *layout = &trace->identity.layout;
  const uint64_t offset = layout->segment_offset + i * layout->segment_size;
  unsigned char head[NT_FRAME_HEADER];
  struct nt_frame frame;
  uint64_t got;
  if (offset >= trace->size || read_fully(fd, head, sizeof head, offset, &got) || !got)
    return 0;
  const int rc = nt_frame_parse(head, (size_t)got, &frame);
  if ((rc == 0 || rc == -NT_ERR_TRUNCATED) && frame.epoch)
    return frame.epoch;
  if (rc == -NT_ERR_FOREIGN)
    return 0;
  struct nt_segment segment;
  if (nt_segment_load(fd, layout, i, &segment))
    return 0;
  nt_segment_free(&segment);
  return segment.epoch;
}

/* Those that were written, oldest first. */
static uint32_t order_segments(struct nt_trace *trace, int fd, struct order *order) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < trace->identity.layout.segment_count; i++) {
    const uint64_t epoch = peek_epoch(trace, fd, i);
    if (epoch)
      order[count++] = (struct order){epoch, i};
  }
  qsort(order, count, sizeof *order, by_epoch);
  return count;
}

static int walk_all(struct nt_trace *trace, int fd, const struct order *order, uint32_t count,
                    nt_calls_fn *fn, void *ctx, const struct nt_damage *damage) {
  int rc = 0;
  for (uint32_t k = 0; k < count && !rc; k++) {
    struct nt_segment segment;
    rc = load_steady(fd, &trace->identity.layout, order[k].segment, &segment);
    if (!rc)
      rc = nt_segment_walk(&segment, fn, ctx, damage);
    nt_segment_free(&segment);
  }
  return rc;
}

/* Newest first, until the window's calls are there. */
static int load_window(struct nt_trace *trace, int fd, const struct order *order, uint32_t count) {
  int rc = 0;
  bool enough = false;
  for (uint32_t k = count; k-- > 0 && !enough && !rc;) {
    struct nt_segment segment;
    rc = load_steady(fd, &trace->identity.layout, order[k].segment, &segment);
    if (!rc)
      rc = nt_window_add(trace, &segment, k > 0, &enough);
  }
  return rc;
}

static bool has_window(const struct nt_trace *trace) {
  return trace->room->window && !trace->area.present;
}

/* Walks all segments, oldest first; those of the window, if one is asked for. */
static int walk_file(struct nt_trace *trace, int fd, nt_calls_fn *fn, void *ctx, bool calls,
                     const struct nt_damage *damage, struct nt_error *err) {
  const struct nt_layout *layout = &trace->identity.layout;
  struct stat now;
  if (!fstat(fd, &now))
    trace->size = (uint64_t)now.st_size;
  struct order *order = calloc(layout->segment_count, sizeof *order);
  int rc = order ? 0 : nt_refuse(err, NT_ERR_MEMORY, 0, "out of memory");
  const uint32_t count = rc ? 0 : order_segments(trace, fd, order);
  if (!rc && has_window(trace)) {
    rc = load_window(trace, fd, order, count);
    if (!rc)
      rc = nt_window_walk(&trace->window, fn, ctx, calls, damage);
  } else if (!rc) {
    rc = walk_all(trace, fd, order, count, fn, ctx, damage);
  }
  if (rc && !err->code)
    nt_refuse(err, -rc, layout->segment_offset, "a segment cannot be read");
  free(order);
  return rc;
}

static void warn_of_marks(struct nt_trace *trace, const struct nt_frame *frame, uint64_t offset,
                          int status) {
  const char *ending = frame->records == 1 ? "" : "s";
  const struct nt_super *super = &trace->identity;
  if (status == -NT_ERR_VERSION)
    nt_warn(trace,
            "byte %" PRIu64 " of segment %" PRIu64
            ": a form of the GPU's marks that this program does not know (version %u), %" PRIu32
            " mark%s skipped: use the tools of the version that wrote it: %s, format %u.%u",
            offset, frame->epoch, frame->version, frame->records, ending, super->writer,
            (unsigned)super->major, (unsigned)super->minor);
  else if (status)
    nt_warn(trace,
            "byte %" PRIu64 " of segment %" PRIu64 ": %" PRIu32 " mark%s of the GPU cannot be read",
            offset, frame->epoch, frame->records, ending);
}

static int take_definitions(const struct nt_frame *frame, const unsigned char *stored,
                            uint64_t offset, void *ctx) {
  struct nt_trace *trace = ctx;
  unsigned char *payload;
  int rc;
  if (frame->type == NT_FRAME_DUMP)
    return nt_take_dump(frame, stored, offset, ctx);
  if (frame->type != NT_FRAME_DEFS && frame->type != NT_FRAME_SEGMENT &&
      frame->type != NT_FRAME_STACKS && frame->type != NT_FRAME_CODES &&
      frame->type != NT_FRAME_GPU)
    return 0;
  if (frame->type == NT_FRAME_GPU && nt_window_is_before(&trace->window, frame, offset))
    return 0; /* a mark lies behind its call */
  if (nt_frame_unpack_with(trace->room->unpacker, frame, stored, &payload)) {
    nt_warn(trace, "byte %" PRIu64 " of segment %" PRIu64 ": definitions damaged", offset,
            frame->epoch);
    return 0;
  }
  if (frame->type == NT_FRAME_GPU) {
    warn_of_marks(trace, frame, offset, nt_take_mark_frame(trace, frame, payload));
    rc = 0;
  } else if (frame->type == NT_FRAME_STACKS)
    rc = nt_stack_table_nodes(&trace->stacks, payload, frame->raw);
  else if (frame->type == NT_FRAME_CODES)
    rc = nt_stack_table_codes(&trace->stacks, payload, frame->raw);
  else
    rc = nt_facts_merge(&trace->facts, payload, frame->raw);
  if (rc)
    nt_warn(trace, "byte %" PRIu64 " of segment %" PRIu64 ": definitions end inside an entry",
            offset, frame->epoch);
  free(payload);
  return 0;
}

/* A file that is shorter than its own state says has lost its end. Copies of the state are written in turn from the second one
 * on: where that is not there, the newest may be lost as well. */
static void check_position(struct nt_trace *trace) {
  const struct nt_facts *facts = &trace->facts;
  const struct nt_layout *layout = &trace->identity.layout;
  if (layout->state_count > 1 && trace->size > layout->state_offset &&
      trace->size <= layout->state_offset + layout->state_size) {
    nt_warn(trace, "at byte %" PRIu64 ": the file ends here, inside its state", trace->size);
    trace->aged = true;
    return;
  }
  if (!facts->has_position || !facts->position_epoch)
    return;
  const uint64_t end = layout->segment_offset +
                       (facts->position_epoch - 1) % layout->segment_count * layout->segment_size +
                       facts->position_used;
  if (facts->position_used <= layout->segment_size && end > trace->size)
    nt_warn(trace, "at byte %" PRIu64 ": the file ends here, its state says %" PRIu64, trace->size,
            end);
}

int nt_read_file_facts(struct nt_trace *trace, struct nt_error *err) {
  const int fd = reopen(trace, err);
  if (fd < 0)
    return fd;
  struct nt_facts newest = {0}, definitions = {0};
  const struct nt_damage damage = nt_warn_of_damage(trace);
  /* State first: what closes after it is written is found in the frames read later. */
  trace->facts = newest;
  read_slots(trace, fd, trace->evidence != NULL);
  newest = trace->facts;
  trace->facts = definitions;
  int rc = walk_file(trace, fd, take_definitions, trace, false, &damage, err);
  close(fd);
  definitions = trace->facts;
  /* The state is newer than the definitions, but it lacks what had ended before it was written. */
  for (size_t i = 0; i < definitions.comm_count && !rc; i++) {
    const struct nt_comm_facts *comm = &definitions.comms[i];
    if (!nt_facts_comm(&newest, comm->def.number) || comm->live.state >= NT_COMM_DESTROYED)
      rc = nt_facts_add_comm(&newest, comm);
  }
  if (!newest.clock_first.ticks)
    newest.clock_first = definitions.clock_first;
  if (definitions.clock_last.ticks > newest.clock_last.ticks)
    newest.clock_last = definitions.clock_last;
  nt_facts_free(&definitions);
  trace->facts = newest;
  if (rc)
    return err->code ? rc : nt_refuse(err, -rc, 0, "too many communicators");
  check_position(trace);
  return 0;
}

int nt_read_file_before(struct nt_trace *trace, uint64_t epoch, nt_calls_fn *fn, void *ctx,
                        const struct nt_damage *damage) {
  struct nt_error ignored = {0};
  const int fd = reopen(trace, &ignored);
  if (fd < 0)
    return fd;
  struct order *order = calloc(trace->identity.layout.segment_count, sizeof *order);
  uint32_t older = 0;
  for (uint32_t count = order ? order_segments(trace, fd, order) : 0; older < count; older++)
    if (order[older].epoch >= epoch)
      break;
  const int rc = order ? walk_all(trace, fd, order, older, fn, ctx, damage) : -NT_ERR_MEMORY;
  free(order);
  close(fd);
  return rc;
}

int nt_read_file_calls(struct nt_trace *trace, nt_calls_fn *fn, void *ctx, bool warn,
                       struct nt_error *err) {
  const struct nt_damage damage = nt_warn_of_damage(trace);
  const struct nt_damage *told = warn ? &damage : NULL;
  if (trace->window.segment_count)
    return nt_window_walk(&trace->window, fn, ctx, true, told);
  const int fd = reopen(trace, err);
  if (fd < 0)
    return fd;
  const int rc = walk_file(trace, fd, fn, ctx, true, told, err);
  close(fd);
  return rc;
}
