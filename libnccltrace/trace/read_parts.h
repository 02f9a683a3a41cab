/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the reader share. Included by reader.c, read_*.c and process_state.c only. */
#ifndef NT_READ_PARTS_H
#define NT_READ_PARTS_H

#include "trace/codec.h"
#include "trace/read_dumps.h"
#include "trace/read_stacks.h"
#include "trace/reader.h"
#include "trace/ring.h"
#include "trace/segment.h"
#include "trace/state_slot.h"
#include "trace/trace_file.h"

#define NT_WARNINGS_MAX 100

/* What was copied out of an area when the trace was opened. */
struct nt_area_copy {
  bool present, locked;
  uint32_t helper_tid; /* 0: it had not begun */
  struct nt_chunk_copy *chunks;
  uint32_t chunk_count;
  unsigned char *spool;
  uint32_t spool_length;
  /* by communicator slot: number and the ticks of its creation */
  uint32_t *comm_numbers, *stream_numbers;
  uint64_t *comm_enter;
  uint32_t comm_count, stream_count;
};

struct nt_read_room {
  struct nt_unpacker *unpacker;
  struct nt_codec *codec; /* NULL until calls are read */
  struct nt_call *calls;
  uint64_t call_room;
  uint32_t window; /* of the traces opened from now on: calls, 0: all */
};

/* The newest part of a file, from the frame on that the window begins with. */
struct nt_window {
  struct nt_segment *segments; /* oldest first */
  uint32_t segment_count;
  uint64_t begin; /* in the first segment: its frames of calls in front of it are not read */
  uint64_t
      marks; /* likewise of its frames of marks: they may lie in front of their calls, by a frame */
  uint64_t records; /* in its frames */
  bool older;       /* the file has segments in front of these */
  bool cut;         /* there are calls in front of it */
  bool lacks;       /* of these, some that the device had not finished */
};

struct nt_evidence_line {
  const char *key, *value;
};

struct nt_trace {
  struct nt_process_info info;
  struct nt_super
      identity; /* of the file's superblock or the area's header; layout only if has_file */
  bool has_file, network, aged;
  uint64_t dev, ino, size;
  char file_path[1024], area_path[512], writer[64];
  struct nt_area_copy area;
  struct nt_facts facts;
  double rate;                 /* nt_clock_rate, once all is taken */
  struct nt_trace_comm *comms; /* by number */
  size_t comm_count;
  char *evidence;
  struct nt_evidence_line *lines;
  size_t line_count;
  char **warnings;
  size_t warning_count, warnings_dropped;
  struct nt_stack_table stacks;
  struct nt_trace_mark *marks; /* ticks until nt_finish_marks */
  size_t mark_count;
  struct nt_known_dumps dumps;
  struct nt_read_room *room;
  bool own_room;
  struct nt_call *calls; /* in the room */
  size_t call_count;
  bool calls_loaded;
  struct nt_window window;
};

/* Fills err for "at byte OFFSET: ...". Returns -code. */
int nt_refuse(struct nt_error *err, int code, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void nt_warn(struct nt_trace *trace, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* An nt_damage that warns. */
struct nt_damage nt_warn_of_damage(struct nt_trace *trace);

/* CLOCK_REALTIME nanoseconds; what a damaged clock makes impossible becomes the start of tracing. */
int64_t nt_read_time(const struct nt_trace *trace, uint64_t ticks);

/* ---- read_room.c */
/* NULL when there is no memory. */
struct nt_codec *nt_read_room_codec(struct nt_read_room *room);
/* Zeroed. */
struct nt_call *nt_read_room_calls(struct nt_read_room *room, uint64_t count);

/* ---- read_file.c */
/* Reads and checks the superblock at `path` into trace->identity and the file's place. */
int nt_read_super(struct nt_trace *trace, const char *path, struct nt_error *err);
/* Evidence, state, and the definitions of all segments. */
int nt_read_file_facts(struct nt_trace *trace, struct nt_error *err);
/* Calls fn for every frame of calls; segments in the order of their epochs. */
typedef int nt_calls_fn(const struct nt_frame *frame, const unsigned char *stored, uint64_t offset,
                        void *ctx);
int nt_read_file_calls(struct nt_trace *trace, nt_calls_fn *fn, void *ctx, bool warn,
                       struct nt_error *err);
/* Every frame of the segments that are older. */
int nt_read_file_before(struct nt_trace *trace, uint64_t epoch, nt_calls_fn *fn, void *ctx,
                        const struct nt_damage *damage);
/* Takes over `text` (malloc, NUL-terminated) as the evidence. */
void nt_read_evidence(struct nt_trace *trace, char *text);

/* ---- read_window.c */
/* Takes over the segment in front of those that are there. `earlier`: the file has segments in front of it. *enough: the
 * window is complete. */
int nt_window_add(struct nt_trace *trace, struct nt_segment *segment, bool earlier, bool *enough);
void nt_window_free(struct nt_window *window);
bool nt_window_is_before(const struct nt_window *window, const struct nt_frame *frame,
                         uint64_t offset);
/* Every frame of the window's segments; where `calls` are wanted, from its begin on. */
int nt_window_walk(const struct nt_window *window, nt_calls_fn *fn, void *ctx, bool calls,
                   const struct nt_damage *damage);
/* Once all its calls are there, leaves out those older than both the wanted number and what is unfinished. */
void nt_window_trim(struct nt_trace *trace);

/* ---- read_area.c */
/* Copies chunks, spool and facts from the area at `path`, which must be of the process `want` if that
 * is not NULL. -NT_ERR_FOREIGN: another process's. */
int nt_read_area(struct nt_trace *trace, const char *path, const struct nt_super *want,
                 struct nt_error *err);
/* Finds the area of trace->identity among this user's; 0 if there is none too. */
int nt_find_area(struct nt_trace *trace);
void nt_area_copy_free(struct nt_area_copy *copy);

/* ---- read_calls.c */
int nt_assemble_calls(struct nt_trace *trace, struct nt_error *err);
/* Calls fn for every frame in the spool. */
int nt_walk_spool(const struct nt_area_copy *area, nt_calls_fn *fn, void *ctx);

/* ---- read_marks.c */
/* Of a GPU frame, unpacked. -NT_ERR_VERSION, -NT_ERR_CORRUPT, -NT_ERR_MEMORY. */
int nt_take_mark_frame(struct nt_trace *trace, const struct nt_frame *frame,
                       const unsigned char *payload);
/* Of an area (nt_area_marks). */
int nt_take_marks(struct nt_trace *trace, const struct nt_buffer *marks);
/* Sorts, drops doubles, converts times: once everything is taken. */
void nt_finish_marks(struct nt_trace *trace);

/* ---- read_dumps.c */
/* A frame function: takes it if it is one of a dump. `ctx` is the trace. */
int nt_take_dump(const struct nt_frame *frame, const unsigned char *stored, uint64_t offset,
                 void *ctx);
/* Takes those in the spool and puts all together: once the file has been read. */
int nt_finish_dumps(struct nt_trace *trace);

/* ---- process_state.c */
void nt_judge_process(struct nt_trace *trace);
/* It is known to be of another kernel than the one that runs here. */
bool nt_boot_differs(const char *boot_id);

#endif
