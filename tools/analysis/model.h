/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model: what is known of a job, whatever it was read from.
 *
 * It is the only input of the analysis. A loader (load_trace.h) appends ranks, their views of
 * communicators and their calls; nothing here interprets them. A *view* is one rank's side of one
 * communicator; which views belong together is found by identify.h. Times are CLOCK_REALTIME
 * nanoseconds, 0 where not known.
 */
#ifndef NT_MODEL_H
#define NT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/process_text.h"
#include "cli/rank_set.h"
#include "nccl/nccl_api.h"
#include "trace/reader.h"

#define NT_NONE UINT32_MAX          /* no such index */
#define NT_COUNT_UNKNOWN UINT64_MAX /* the count of a call may be any */

/* How far the device got with an operation. UNKNOWN unless the source tells. */
enum nt_progress {
  NT_PROGRESS_UNKNOWN,
  NT_PROGRESS_ENQUEUED, /* handed over, not at the head of its stream */
  NT_PROGRESS_REACHED,  /* at the head of its stream, not finished */
  NT_PROGRESS_FINISHED,
  NT_PROGRESS_UNFINISHED, /* not finished; whether its stream has come to it is not known */
};

/* One cache line: a job of a thousand ranks has millions of them. */
struct nt_model_call {
  int64_t enter_ns;
  int64_t exit_ns; /* 0: still inside NCCL when the trace ends */
  union {
    uint64_t count;
    uint64_t event; /* of cudaEventRecord, cudaEventSynchronize and cudaStreamWaitEvent */
  };
  uint32_t view; /* index into the rank's views, NT_NONE if the call has no communicator */
  uint32_t seq;
  uint32_t group; /* of this thread, 0 outside */
  uint32_t
      launch;  /* on its stream, 0 if not known; of an event's record: launches in front of it */
  uint32_t at; /* call site, see nt_model_site; equal on all ranks; 0 if not known */
  uint32_t buffer; /* which of the view's buffer pairs, by first use from 1; 0 if not known */
  int32_t peer;
  uint8_t fn, dtype, op, result;
  /* Low bits of numbers that seldom have more. */
  uint32_t thread : 16;
  uint32_t graph : 16; /* the capture that it belongs to, or whose graph it launches; 0: none */
  uint32_t stream : 20;
  uint32_t flags : 8;    /* NT_CALL_* */
  uint32_t progress : 3; /* enum nt_progress */
  uint32_t pending : 1;  /* in a group that was not ended: NCCL has not begun it */
};
_Static_assert(sizeof(struct nt_model_call) == 64, "memory of large jobs");

struct nt_model_view {
  uint8_t id[16], parent_id[16], uid_hash[16];
  uint32_t number, parent_number; /* in this process; 0 if it has none */
  int32_t rank;                   /* in the communicator, -1 while not known (split) */
  int32_t nranks;                 /* -1 while not known (split) */
  int32_t color, key, device;
  uint32_t parent_rank;
  uint32_t ordinal; /* use of the unique id, or split of the parent */
  uint16_t origin;  /* enum nt_comm_origin */
  uint16_t state;   /* NT_COMM_* */
  uint32_t collectives, async_error;
  uint32_t sends, recvs, all_peer; /* struct nt_comm_live */
  uint32_t excluded_count;         /* of a shrink: runs of the parent's ranks, NT_EXCLUDED_MANY */
  struct nt_excluded excluded[NT_EXCLUDED];
  int64_t created_ns;
  char root[64]; /* address of the bootstrap root, "" if not known */
  char name[48];
  uint64_t sum;
  uint64_t (*sums)[NT_SUM_KEPT]; /* NT_SUM_LEVELS rows, or NULL */
};

/*
 * What was seen of a launched call's way over the device, in microseconds after it was entered, 0 where nothing was.
 * Only of the last NT_SEEN_KEPT of each view, and of those with an exact duration.
 */
struct nt_model_seen {
  uint32_t call;          /* index */
  uint32_t unreached_us;  /* earlier work of its stream was not done yet */
  uint32_t reached_us;    /* by then it had come to the head of its stream */
  uint32_t unfinished_us; /* it was not finished yet */
  uint32_t finished_us;   /* by then it was */
  uint32_t waited_us;     /* a host wait behind it in its thread had returned: finished, too */
  uint32_t took_us;       /* exactly, from the head of the stream to its end; of one launch in 64 */
};
#define NT_SEEN_KEPT 256

/* A line of the program from which NCCL is called. */
struct nt_model_site {
  uint32_t at; /* hash of the text */
  char *text;  /* "train.py:88 step", escaped */
};

/* Where a call was made, one line a frame, innermost first, escaped. */
struct nt_model_stack {
  uint32_t call;
  char *user,
      *all; /* the first frames of the program itself, others folded, "" if it has none; all frames */
};

/* A thread in a dump: the main thread, and those that have called NCCL. Texts are escaped. */
struct nt_model_dump_thread {
  uint32_t tid, thread; /* the latter as in calls, 0 if it made none */
  bool main;
  char *name;  /* "pt_autograd_0" */
  char *place; /* "load_batch() at data.py:41": the innermost frame of the program, NULL if none */
  char *doing; /* "sleeping in read(fd 7)", NULL if not known */
  struct nt_model_stack
      stack; /* of Python, else native; `user` and `all` are NULL if there is none */
};

/* Messages to or from one peer in a communicator, of a trace of which only the last calls were read: all in its file. */
struct nt_model_queue {
  uint32_t view;
  int32_t peer;
  bool sends, varies; /* not all are of one size */
  uint64_t bytes;     /* of each */
};

enum nt_fact_of { NT_FACT_OF_PROCESS, NT_FACT_OF_NODE, NT_FACT_OF_JOB };

/* What a dump tells of a possible fault of hardware, or of what NCCL's RAS knows of the job. Escaped. */
struct nt_model_fact {
  char *text;    /* "gpu.0.fault: GPU is lost" */
  int64_t at_ns; /* when it happened, 0 if not known */
  enum nt_fact_of of;
};

/* The newest dump of a process. */
struct nt_model_dump {
  int64_t began_ns;
  bool stacks; /* it has stacks, or was asked for native ones: another would tell no more */
  struct nt_model_dump_thread *threads;
  uint32_t thread_count;
  struct nt_model_fact *facts;
  uint32_t fact_count;
  char *
      missing; /* "NVML (no permission), kernel log (…)": sources of such facts, NULL if all were asked */
};

/* Who recorded a process, and so what can be known of it (load_source.h). */
enum nt_recorder {
  NT_RECORDER_TRACE,  /* this library */
  NT_RECORDER_FLIGHT, /* PyTorch's flight recorder */
  NT_RECORDER_LOG,    /* NCCL_DEBUG=INFO with INIT and COLL */
};

/* One process. */
struct nt_model_rank {
  int32_t world, world_size; /* -1 if not known */
  enum nt_recorder recorder;
  uint32_t pid, restart;
  uint64_t start_time, pid_ns, nonce;
  char *host, *run_id, *gpu, *pci, *source; /* NULL if not known */
  uint64_t boot; /* of the host, hashed: equal ones have one clock; 0 if not known */
  int32_t gpu_index, cuda_device; /* on the machine, in the process; -1 if not known */
  enum nt_process_state state;
  int exit_code;
  uint32_t phase; /* NT_PHASE_* */
  bool python;    /* the program is a Python interpreter: when that ends, so does the process */
  bool leaving; /* alive, but on its way out, and in no call: it will make none (nt_model_settle) */
  int64_t started_ns, last_beat_ns, exit_ns;
  int64_t seen_ns; /* as of when its state is known */
  enum nt_oom_proof oom;
  bool oom_machine;          /* struct nt_fate_facts */
  uint64_t oom_from, oom_to; /* likewise */
  int64_t gone_ns; /* last sign of life that others noted of it when it vanished; 0 if none did */
  int64_t noticed_ns; /* when the first of them noticed, 0 if none did */
  int64_t stood_ns;   /* of a process that vanished: for so long it had been stopped before */
  int64_t
      there_ns; /* last sign of life of those who knew it and did not notice; 0: there are none */
  bool live;
  bool moved;        /* it made a call between two looks at a live job */
  int64_t digest_ns; /* when its digest was made; 0: the trace itself is here */
  uint64_t left_out; /* calls that the digest left out; they are in `overwritten` as well */
  uint64_t total_calls, lost, overwritten, comms_lost, abandoned, write_errors;
  uint64_t unread; /* calls in front of the window that was read; they count as overwritten */
  /* Calls that are not there because the file is cut short, damaged, or older than its state; in `lost` as well once
   * the model is settled. */
  uint64_t cut;
  bool aged;          /* nor is it known how many */
  bool damaged;       /* parts of its file could not be read */
  uint64_t strange;   /* of those cut, calls of a form that this program does not know */
  char *writer;       /* of such a file: the version of the library and of the format; else NULL */
  uint64_t undone;    /* launches that the device had not finished when it was last looked at */
  bool outlived;      /* it may have called more after what its file tells */
  bool hollow;        /* the file has nothing behind its header */
  uint64_t gpu_steps; /* launches seen to begin or finish, all streams together */
  int64_t gpu_ns;     /* when a stream was last looked at; 0: never */
  int64_t blocked_ns; /* since when the thread that looks is stuck in the driver; 0: it is not */
  char *
      untraced; /* copies of NCCL whose calls are not in its trace, one line each; NULL: none is known */
  char *warning, *peer_error; /* the first that its log tells; NULL */
  uint32_t warning_line, error_line;
  char *nccl,
      *nccl_env; /* version; what of the environment matters to NCCL, lines NAME=VALUE, sorted; NULL if not known */
  struct nt_model_view *views;
  uint32_t view_count, view_room;
  struct nt_model_site *sites;
  uint32_t site_count, site_room;
  struct nt_model_stack *stacks; /* of the last calls of each thread */
  uint32_t stack_count;
  bool python_stacks;            /* of these, some are of Python */
  struct nt_model_dump *dump;    /* NULL if there is none */
  struct nt_model_queue *queues; /* sorted; none where all messages were read */
  uint32_t queue_count;
  bool queues_lack;           /* it is not known which there are */
  struct nt_model_seen *seen; /* sorted by call */
  uint32_t seen_count;
  struct nt_model_call *calls; /* by thread, in program order within one */
  uint32_t call_count, call_room;
  uint64_t shapes; /* of its calls, bits 1 << enum nt_shape; 0: not known */
};

_Static_assert(NT_SHAPE_LIMIT <= 64, "bits of shapes");

/* A file that was meant, and why nothing of it is in the model. */
struct nt_unreadable {
  char *file, *reason;
};

struct nt_model {
  struct nt_model_rank *ranks; /* sorted by world rank once nt_model_settle has run */
  uint32_t rank_count, rank_room;
  int32_t expected; /* size of the world, 0 if not known */
  struct nt_rank_set
      held; /* world ranks of processes that have others besides: several GPUs each */
  struct nt_rank_set
      damaged; /* world ranks of traces that were left out since they lack their end */
  struct nt_rank_set
      idle;      /* world ranks without a trace, whose processes on this node carry the library
                            * and have made no communicator */
  int64_t *gone; /* last beats of processes without a trace that vanished, as others noted */
  uint32_t gone_count;
  int64_t now_ns; /* when the model was read */
  char **notes;   /* what was left out and why, one line each */
  uint32_t note_count;
  struct nt_unreadable *unreadable;
  uint32_t unreadable_count;
  bool doubtful; /* a rank may be of another run: nothing is certain */
  bool bounded;  /* no more calls were read than memory is meant for */
};

/* Appends; the pointer is valid until the next append of its kind. NULL when there is no memory. */
struct nt_model_rank *nt_model_add_rank(struct nt_model *model);
struct nt_model_view *nt_model_add_view(struct nt_model_rank *rank);
struct nt_model_call *nt_model_add_call(struct nt_model_rank *rank);
/* Makes room for so many calls and no more. Returns 0 or -NT_ERR_MEMORY. */
int nt_model_reserve_calls(struct nt_model_rank *rank, uint32_t count);
/* False: none of its calls has that shape. */
static inline bool nt_model_may_have(const struct nt_model_rank *rank, enum nt_shape shape) {
  return !rank->shapes || rank->shapes >> shape & 1;
}
/* Its last calls are not all there: of what is not seen it is not known whether it was called. */
static inline bool nt_model_lacks_end(const struct nt_model_rank *rank) {
  return rank->cut || rank->hollow || rank->aged;
}
/* The number of a call site, for nt_model_call.at; 0 when there is no memory. */
uint32_t nt_model_add_site(struct nt_model_rank *rank, const char *text);
/* Its text, NULL if it is 0 or not known. */
const char *nt_model_site(const struct nt_model_rank *rank, uint32_t at);
/* The whole stack of a call, NULL if it is not known. */
const struct nt_model_stack *nt_model_stack(const struct nt_model_rank *rank, uint32_t call);
void nt_model_note(struct nt_model *model, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Once each; left out when there is no memory. */
void nt_model_unreadable(struct nt_model *model, const char *file, const char *reason);

/* Call once when everything is loaded: picks the newest run and attempt and one process per world
 * rank, sorts, sets `expected`, marks calls in groups that were never ended and adds the messages that graphs replay. */
int nt_model_settle(struct nt_model *model);

/* By its largest communicator, if it is not known. */
void nt_model_guess_world(struct nt_model_rank *rank);
/* One that nothing is known of. */
struct nt_model_rank nt_model_no_rank(void);
/* Takes the rank that was added last out again. */
void nt_model_drop_last(struct nt_model *model);
void nt_model_free_rank(struct nt_model_rank *rank);
void nt_model_free(struct nt_model *model);

/* Index of the process with this world rank, NT_NONE if there is none. */
uint32_t nt_model_find(const struct nt_model *model, int32_t world);

/* A process has it, as its world rank or as one more. */
bool nt_model_has(const struct nt_model *model, int32_t world);
/* Ranks of the world without a trace. */
int64_t nt_model_absent(const struct nt_model *model);

/* The last beat of its heart, by itself and by those who noted it. */
int64_t nt_model_last_sign(const struct nt_model_rank *rank);
/* When the process was seen last or ended, or began to; best of what itself and others tell. */
int64_t nt_model_end(const struct nt_model_rank *rank);

/* Something that it called is not finished, as far as is known. */
bool nt_model_waits(const struct nt_model_rank *rank);

/* It makes no further call: the process is gone, or another program, or on its way out. */
bool nt_model_is_over(const struct nt_model_rank *rank);
/* Whether it lives is not known, as of one on another node, and nobody else of the job is known to: it was not heard of after
 * nt_model_end. */
bool nt_model_is_silent(const struct nt_model *model, const struct nt_model_rank *rank);
/* What it did at `ns` may stand nowhere: that is after the last that is known of it. Files are written now and then, on shared
 * file systems once a minute; who was heard of even longer ago had stood still. */
bool nt_model_is_unseen(const struct nt_model *model, const struct nt_model_rank *rank, int64_t ns);
/* It still lived at `ns`, and has not been seen to end. */
bool nt_model_was_there(const struct nt_model_rank *rank, int64_t ns);
/* It can be dumped: it runs, is stopped, or is about to leave. */
bool nt_model_lives(const struct nt_model_rank *rank);
/* Over, and neither its host nor its device goes on with anything. */
bool nt_model_is_gone(const struct nt_model_rank *rank);
/* Its end was no failure: it exited with code 0, runs another program, or is about to leave. */
bool nt_model_left(const struct nt_model_rank *rank);
/* When it began to end its last communicator, if it has ended all it ever made; else 0. */
int64_t nt_model_parted_ns(const struct nt_model_rank *rank);

#endif
