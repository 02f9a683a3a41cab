/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one reader: a process's trace, wherever its parts are.
 *
 * A trace is the file (rankN.trace), the live or left-over area of the same process on this node,
 * or both: what the file lacks after SIGKILL the area still has, and records that are in both are
 * delivered once. The tools see only this interface, never the layout. Input is hostile: every
 * length is checked, a damaged part is skipped with a warning and loses nothing else.
 */
#ifndef NT_READER_H
#define NT_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/area.h"
#include "trace/codec.h"
#include "trace/dump_frames.h"
#include "trace/error.h"
#include "trace/record.h"

struct nt_trace; /* one process */

/* One call, decoded. Times are CLOCK_REALTIME nanoseconds. */
struct nt_call {
  int64_t enter_ns;
  int64_t exit_ns; /* 0: still inside NCCL when the trace ends */
  uint64_t order;  /* strictly increasing in program order within one thread */
  uint64_t count, send, recv;
  uint32_t thread; /* index of a thread of this process */
  uint32_t comm;   /* communicator number, 0 if none */
  uint32_t stream; /* stream number, 0 if none */
  uint32_t seq;
  uint32_t group; /* number of the group in this thread, 0 outside */
  uint32_t stack;
  uint32_t launch;
  int32_t peer;
  uint8_t fn, dtype, op, result;
  uint16_t flags;
};

/* Its number among its stream's launches; 0: it has none, as what was captured, which has that of its capture. */
static inline uint32_t nt_call_launch(const struct nt_call *call) {
  return call->flags & NT_CALL_CAPTURED ? 0 : call->launch;
}

enum nt_process_state {
  NT_PROCESS_UNKNOWN, /* not on this node, and the file does not tell */
  NT_PROCESS_RUNNING, /* on this node, alive */
  NT_PROCESS_STOPPED, /* alive, stopped (SIGSTOP, debugger) */
  NT_PROCESS_EXITED,  /* left through exit, _exit or return from main; exit_code is valid */
  NT_PROCESS_VANISHED, /* heartbeat and lock gone without an exit: killed by a signal or with its node */
  NT_PROCESS_ENDING, /* exit(exit_code) was called at exit_ns, and it still lived when last seen */
  NT_PROCESS_REPLACED, /* its number lives, but runs another program: exec */
};

struct nt_process_info {
  int world_rank, world_size, local_rank; /* -1 if not known */
  uint32_t pid;
  uint64_t start_time, pid_ns, nonce; /* the nonce tells two programs of one process apart */
  uint32_t restart;
  const char *host, *run_id, *boot_id;
  enum nt_process_state state;
  int exit_code;
  int64_t started_ns;   /* first communicator: when tracing began */
  int64_t last_beat_ns; /* last sign of life: heartbeat, call or exit */
  int64_t exit_ns;      /* when it left or began to; 0 if it did not, or not known */
  int64_t
      seen_ns; /* as of when all this is: now for one that lives here, else its last heartbeat */
  int64_t gpu_beat_ns; /* when the GPU's progress was last looked at; 0: nobody looks */
  bool gpu_blocked;   /* the thread that looks was stuck since then, in a call of the CUDA driver */
  uint32_t phase;     /* NT_PHASE_* */
  uint64_t oom_kills; /* of its memory cgroup at its last sign of life; NT_OOM_UNKNOWN */
  uint64_t oom_now;   /* the same now, for one that vanished on this node; NT_OOM_UNKNOWN */
  bool oom_machine;   /* both are of the whole machine: its cgroup is not known */
  bool live;          /* read from an area whose process was alive at that moment */
  bool from_file, from_area;
  bool
      outlived; /* it may have gone on after what is told here: only its own file is there, which it wrote now and then */
  bool aged;    /* the file ends inside its state: what is told of the process may be long past */
  uint64_t calls, lost, overwritten, comms_lost, abandoned, write_errors;
  const char *file_path; /* as opened, or as the area names it; NULL if none */
  int64_t digest_ns;     /* when the digest that this is was made; 0: it is none */
  uint64_t left_out;     /* calls that a digest left out, in `overwritten` too */
  bool moved;            /* it made calls, or its GPU got further, shortly before the digest */
  const char
      *writer; /* what wrote the file, "libnccltrace 0.1.0, format 1.0"; "" if there is none */
  /* Calls in frames of a form that this program does not know: they were skipped. Once calls are read. */
  uint64_t strange;
};

struct nt_trace_comm {
  struct nt_comm_def def;
  uint32_t state; /* NT_COMM_* */
  uint32_t collectives, all_peer, sends, recvs, async_error;
  uint64_t sum;
  int64_t created_ns, last_enter_ns;
  uint64_t sums[NT_SUM_LEVELS][NT_SUM_KEPT];
};

/*
 * How far the GPU had come with one stream when the trace was taken. Launches up to `finished` are complete, up to
 * `reached` have had their turn; both are lower bounds as of polled_ns. Launches in (frozen_after, frozen] were
 * unfinished when a communicator was aborted: nothing can be said of them. polled_ns 0: nobody looked. `unmarked` launches
 * had no marks, unmarked_last was the newest of them; `followed` is the oldest with marks that was not complete, 0 if there was none.
 */
struct nt_trace_stream {
  uint32_t number;
  int32_t device;
  uint64_t handle;
  uint32_t issued, reached, finished, frozen, frozen_after, unmarked, unmarked_last, followed,
      error;
  int64_t polled_ns;
};

/* How far one launch of a stream had come, but for what an abort does to it. */
enum nt_launch_state {
  NT_LAUNCH_UNKNOWN,
  NT_LAUNCH_ENQUEUED, /* earlier work of the stream was not done */
  NT_LAUNCH_REACHED,  /* it had its turn and was not seen to finish */
  NT_LAUNCH_FINISHED
};
enum nt_launch_state nt_trace_launch(const struct nt_trace_stream *stream, uint32_t launch);

/*
 * A step of GPU progress: launches first…last of the stream were seen to have been reached, or to be finished,
 * after not_before_ns (0: not known) and by by_ns. NT_GPU_DURATION: not_before_ns is the exact time from start to
 * end mark of launch `first`, in nanoseconds; one launch in 64 has one.
 */
struct nt_trace_mark {
  uint32_t stream, kind, first, last;
  int64_t not_before_ns, by_ns;
};

/* A trace is opened from a rankN.trace file or from an area file; when it is a file of a process whose
 * area is on this node, both are joined (NT_OPEN_NO_AREA: not). Ownership of *out passes to the caller. On failure
 * returns a negative enum nt_err and fills err. Damage that loses only a part is not a failure: see
 * nt_trace_warning. Not thread-safe for one trace; different traces may be read in parallel. */
#define NT_OPEN_NO_AREA 1u
int nt_trace_open(const char *path, unsigned flags, struct nt_trace **out, struct nt_error *err);
void nt_trace_close(struct nt_trace *trace);

/* Memory that reading one trace after the other can use again: of one thread, and of one open trace at a time.
 * It must live longer than the trace. nt_read_room_new: NULL when there is no memory. */
struct nt_read_room;
struct nt_read_room *nt_read_room_new(void);
void nt_read_room_free(struct nt_read_room *room);
/* Of files opened in the room from now on only the last calls are read, at least so many; 0: all. Traces with a live
 * area are read as a whole. */
void nt_read_room_window(struct nt_read_room *room, uint32_t calls);
int nt_trace_open_in(struct nt_read_room *room, const char *path, unsigned flags,
                     struct nt_trace **out, struct nt_error *err);

/* Valid until nt_trace_close. */
const struct nt_process_info *nt_trace_process(const struct nt_trace *trace);
/* Value of an evidence key ("host", "gpu.0.uuid", "env.NCCL_DEBUG" …), NULL if absent. */
const char *nt_trace_evidence(const struct nt_trace *trace, const char *key);
/* The i-th "key" and value in file order; returns false past the end. */
bool nt_trace_evidence_at(const struct nt_trace *trace, size_t i, const char **key,
                          const char **value);
size_t nt_trace_comm_count(const struct nt_trace *trace);
const struct nt_trace_comm *nt_trace_comm_at(const struct nt_trace *trace, size_t i);
const struct nt_trace_comm *nt_trace_comm_by_number(const struct nt_trace *trace, uint32_t number);
size_t nt_trace_stream_count(const struct nt_trace *trace);
struct nt_trace_stream nt_trace_stream_at(const struct nt_trace *trace, size_t i);
/* The step of `kind` that includes the call's launch; NULL if none was seen or kept. */
const struct nt_trace_mark *nt_trace_mark_of(const struct nt_trace *trace,
                                             enum nt_gpu_mark_kind kind,
                                             const struct nt_call *call);
/* The same, for calls of which one lies near the other: begins to look at *near, which is 0 at first. */
const struct nt_trace_mark *nt_trace_mark_near(const struct nt_trace *trace,
                                               enum nt_gpu_mark_kind kind,
                                               const struct nt_call *call, size_t *near);
/* The kernel's number of a call's thread, 0 if it is not known. */
uint32_t nt_trace_thread_tid(const struct nt_trace *trace, uint32_t index);
size_t nt_trace_peer_count(const struct nt_trace *trace);
const struct nt_peer_note *nt_trace_peer_at(const struct nt_trace *trace, size_t i);
/* Damage that was skipped, one line each ("at byte 8192: frame checksum wrong, 312 bytes skipped"). */
size_t nt_trace_warning_count(const struct nt_trace *trace);
const char *nt_trace_warning_at(const struct nt_trace *trace, size_t i);

/* All calls, sorted by (thread, order). The array belongs to the trace. Returns the number, or a
 * negative enum nt_err. */
int64_t nt_trace_calls(struct nt_trace *trace, const struct nt_call **out, struct nt_error *err);

/* There are calls in the file in front of those that nt_trace_calls gave: the trace was opened with a window. */
bool nt_trace_is_cut(const struct nt_trace *trace);
/* Of these the device had not finished some, or what was read is damaged: a wider window is needed. */
bool nt_trace_is_short(const struct nt_trace *trace);
/* Every kind of send and receive in the file, those in front of the window included, perhaps several times: calls fn until it returns
 * other than 0, and returns that. -NT_ERR_CORRUPT: a part of the file is damaged. */
int nt_trace_kinds(struct nt_trace *trace, nt_call_kind_fn *fn, void *ctx);

/* One frame of a stack. Text as the program has it (escape it). Python: file, function and line (0: not known).
 * Native (build_id is not NULL): `file` is the module's path, `build_id` its build id in hex or "", `offset` the
 * byte in the module's file image; function is "" and line 0, for the tools to find. */
struct nt_stack_frame {
  const char *file, *function;
  int line;
  const char *build_id;
  uint64_t offset;
};

/* The stack with this id (nt_call.stack), innermost frame first, native frames before those of Python; valid
 * until the trace is closed. Returns the number of frames, 0 if the id is 0 or not known, -NT_ERR_MEMORY. */
int nt_trace_stack(struct nt_trace *trace, uint32_t id, const struct nt_stack_frame **frames);

/* A thread in a dump. Texts as the program has them. */
struct nt_dump_thread {
  uint32_t tid;
  char state;    /* letter of /proc/PID/stat, 0 if not known */
  uint8_t flags; /* NT_DUMP_THREAD_* */
  bool kernel;   /* the section of threads has it; else only stacks are known */
  uint64_t cpu_ns;
  int64_t syscall; /* NT_SYSCALL_* or a number */
  uint64_t args[6];
  char name[17], wait[65];
  const struct nt_stack_frame *python, *native; /* innermost first */
  uint32_t python_count, native_count;
  bool python_cut, native_cut; /* there are more frames outwards */
};

/* What was learnt of the whole process at one moment. Sections are bits 1 << enum nt_dump_section. */
struct nt_dump_view {
  uint32_t number, reason;              /* enum nt_dump_reason */
  uint32_t asked, taken;                /* sections */
  int64_t began_ns, taken_ns;           /* CLOCK_REALTIME; of the last section */
  const struct nt_dump_thread *threads; /* the main thread first, then by thread id */
  size_t thread_count;
  size_t fact_count; /* nt_trace_dump_fact_at */
};

/* Dumps, oldest first; valid until nt_trace_close. */
size_t nt_trace_dump_count(const struct nt_trace *trace);
const struct nt_dump_view *nt_trace_dump_at(const struct nt_trace *trace, size_t i);
/* The k-th fact of the i-th dump, in the order in which they were taken; false past the end. */
bool nt_trace_dump_fact_at(const struct nt_trace *trace, size_t i, size_t k, const char **key,
                           const char **value);

/* Live areas and left-over areas of this user on this node: calls fn(path, ctx) for each *.area file. */
int nt_area_each(int (*fn)(const char *path, void *ctx), void *ctx);

#endif
