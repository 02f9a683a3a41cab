/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live area: what a traced process shares with its helper, with tools and with whoever comes
 * after its death.
 *
 * One file per process on a tmpfs, named PID-START-PIDNS-RANDOM.area in a directory of the user's
 * own. Everything in it is valid at any instant, so a process may vanish between any two
 * instructions: single words are stored atomically, and groups of words are guarded by a sequence
 * counter that is odd while they change. Regions follow the header at the offsets it gives; all
 * sizes are in the header, so that a reader of another version can still find its way.
 *
 * Who writes what:  application threads - records, communicator counters;  the thread that creates
 * or ends a communicator (under a lock) - communicator definitions;  helper - heartbeat, clock,
 * spool, drained marks, process facts;  tools - the request word only.
 */
#ifndef NT_AREA_H
#define NT_AREA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "trace/gpu_area.h"
#include "trace/record.h"
#include "trace/stack_area.h"

#define NT_AREA_MAGIC "NCCLAREA"
/* Grows with the versions of frames, too: whoever finds the area of a dead process drains it into that process's file. */
#define NT_AREA_MAJOR 2
#define NT_AREA_MINOR 0

#define NT_CHUNK_BYTES 16384
#define NT_CHUNK_RECORDS 255
#define NT_SUM_LEVELS 24
#define NT_SUM_KEPT 4

/* A chunk's owner and life: FREE -> OWNED (a thread writes) -> RETIRED (full or its thread gone; the
 * helper drains it) -> FREE. */
enum nt_chunk_state { NT_CHUNK_FREE = 0, NT_CHUNK_OWNED = 1, NT_CHUNK_RETIRED = 2 };

/*
 * 16 KiB: this header, then 255 records. Writer: serial and thread while it owns the chunk, then
 * published before a call enters NCCL and closed after it returned; both are release stores that
 * pair with the reader's acquire loads. The generation is odd while the chunk is being reset.
 */
struct nt_chunk {
  _Atomic uint32_t state;      /*  0 enum nt_chunk_state */
  _Atomic uint32_t generation; /*  4 */
  uint64_t serial;             /*  8 unique in the area; (serial, index) names a record for ever */
  uint32_t thread;             /* 16 index into the thread table */
  _Atomic uint32_t published;  /* 20 records that exist, the open one included */
  _Atomic uint32_t closed;     /* 24 records that are complete: published or published - 1 */
  _Atomic uint32_t drained;    /* 28 see nt_ring_drained(): records that are in a frame already */
  _Atomic uint64_t
      lost; /* 32 calls lost since the chunk was claimed: it was full and no other free */
  _Atomic uint32_t tid; /* 40 the owner's thread id, 0 while it is being claimed or free */
  uint8_t reserved[20];
  struct nt_record records[NT_CHUNK_RECORDS];
};
_Static_assert(sizeof(struct nt_chunk) == NT_CHUNK_BYTES, "chunk layout");

/* How a communicator came to be; on disk too, append-only. */
enum nt_comm_origin {
  NT_COMM_UNKNOWN = 0, /* its creation was not seen */
  NT_COMM_INIT = 1,
  NT_COMM_INIT_ALL = 2,
  NT_COMM_SPLIT = 3,
  NT_COMM_SHRINK = 4,
  NT_COMM_GROW = 5,
};

#define NT_EXCLUDED 6
#define NT_EXCLUDED_MANY UINT32_MAX /* more runs than that */

#define NT_COMM_FREE 0
#define NT_COMM_CREATING 1 /* the creating call has not returned, or has not been confirmed */
#define NT_COMM_LIVE 2
#define NT_COMM_FINALIZED 3
#define NT_COMM_DESTROYED 4
#define NT_COMM_ABORTED 5
#define NT_COMM_FAILED 6 /* creation was refused */

/* What is known of a communicator once and for all. Same bytes in the area and in files. */
struct nt_comm_def {
  uint32_t number;        /*   0 1-based in this process, never reused */
  uint32_t parent_number; /*   4 0 if none or not known */
  uint8_t id[16];         /*   8 equal on all ranks */
  uint8_t parent_id[16];  /*  24 zero if none */
  uint8_t uid_hash[16];   /*  40 hash of the (first) unique id alone; zero if none */
  int32_t rank;           /*  56 own rank; -1 while not known (split) */
  int32_t nranks;         /*  60 size; -1 while not known (split) */
  int32_t world_rank;     /*  64 of the process, -1 if not known */
  int32_t device;         /*  68 CUDA ordinal, -1 if not known */
  int32_t color;          /*  72 split */
  int32_t key;            /*  76 split */
  uint32_t ordinal; /*  80 which use of the same unique id, or which split of the parent, 1-based */
  uint16_t origin;  /*  84 enum nt_comm_origin */
  uint16_t library; /*  86 index of the NCCL copy that made it */
  uint64_t enter;   /*  88 clock ticks at the creating call's entry */
  uint64_t handle;  /*  96 ncclComm_t, for matching debugger output only; 0 while not known */
  uint8_t root[32]; /* 104 from the unique id: the bootstrap root's socket address */
  char name[48];    /* 136 commName of the configuration, or empty; NUL-terminated */
  int32_t blocking; /* 184 0 non-blocking, 1 blocking, -1 default */
  uint32_t parent_rank;    /* 188 own rank in the parent of a split or shrink */
  uint32_t excluded_count; /* 192 shrink: runs of ranks that are left out; NT_EXCLUDED_MANY */
  uint32_t reserved1;      /* 196 */
  struct nt_excluded {
    uint32_t first, count; /* of the parent's ranks, ascending */
  } excluded[NT_EXCLUDED]; /* 200 */
  uint8_t reserved[8];     /* 248 */
};
_Static_assert(sizeof(struct nt_comm_def) == 256, "communicator definition layout");

/* What changes with every call. Same bytes in the area and in state slots. */
struct nt_comm_live {
  _Atomic uint32_t state;       /*   0 NT_COMM_* */
  _Atomic uint32_t collectives; /*   4 collectives issued, the open one included */
  _Atomic uint64_t sum;         /*   8 running sum of mix(signature, position) */
  _Atomic uint32_t all_peer;    /*  16 AlltoAll, Gather, Scatter issued */
  _Atomic uint32_t sends;       /*  20 Send calls issued, all peers together */
  _Atomic uint32_t recvs;       /*  24 */
  _Atomic uint32_t async_error; /*  28 last error that CommGetAsyncError reported */
  _Atomic uint64_t last_enter;  /*  32 ticks of the last call's entry */
  _Atomic uint32_t splits;      /*  40 splits and grows of this communicator */
  _Atomic uint32_t shrinks;     /*  44 */
  _Atomic uint32_t syncs;       /*  48 suspends and resumes */
  uint8_t reserved[12];
  /* sums[j][k]: the running sum after position p, p a multiple of 2^j with (p >> j) % 4 == k; the
   * last four multiples not above `collectives` are valid. */
  _Atomic uint64_t sums[NT_SUM_LEVELS][NT_SUM_KEPT]; /* 64 */
};
_Static_assert(sizeof(struct nt_comm_live) == 64 + 8 * NT_SUM_LEVELS * NT_SUM_KEPT, "live layout");

/* Slot 0 is never used, so that 0 in a record means none. The same holds for streams. */
struct nt_comm_slot {
  _Atomic uint32_t guard; /* odd while def changes */
  uint8_t reserved[60];
  struct nt_comm_def def;
  struct nt_comm_live live;
  uint8_t pad[128];
};
_Static_assert(sizeof(struct nt_comm_slot) % 64 == 0, "slots do not share cache lines");

struct nt_thread_slot {
  _Atomic uint32_t tid; /* 0: slot free */
  uint32_t index;       /* unique in the process, never reused: what chunks and frames hold */
  _Atomic uint64_t last_enter;
  char name[16];
  uint8_t reserved[32];
};
_Static_assert(sizeof(struct nt_thread_slot) == 64, "thread slot layout");

struct nt_stream_slot {
  _Atomic uint64_t handle; /* cudaStream_t; 0 with number 0: free. The default stream is handle 0 */
  uint32_t number;         /* 1-based, never reused */
  int32_t device;
};
_Static_assert(sizeof(struct nt_stream_slot) == 16, "stream slot layout");

/* A peer on the same node that was seen to hold its lock, and when that was seen free: who vanished first. */
struct nt_peer_note {
  uint32_t pid;
  int32_t world_rank;
  uint64_t start_time; /* of the peer, to tell reused pids apart */
  _Atomic uint64_t
      vanished_ns; /* CLOCK_REALTIME when this process noticed, 0 while it is there; written last */
  uint64_t last_beat_ns; /* the peer's last heartbeat then, CLOCK_REALTIME */
  uint32_t oom_kills;    /* of the out-of-memory killer in the peer's cgroup since that heartbeat */
  uint32_t reserved;
};

enum nt_clock_kind { NT_CLOCK_MONOTONIC = 0, NT_CLOCK_TSC = 1 };

/* One instant on three clocks. */
struct nt_clock_sync {
  uint64_t ticks;
  uint64_t monotonic_ns;
  uint64_t realtime_ns;
};

#define NT_RUN_RUNNING 0
#define NT_RUN_EXITING 1 /* exit() or _exit() was called; exit_code says with what */

/* Bits of `phase`. */
#define NT_PHASE_PYTHON_ENDS 1 /* the interpreter is being finalized */

#define NT_OOM_UNKNOWN UINT64_MAX

#define NT_PEER_NOTES 16
#define NT_DUMP_ANSWERS 16
#define NT_DUMP_NONE 0               /* none could begin in time */
#define NT_DUMP_NO_THREAD UINT32_MAX /* the process makes none */

/* One page. Fields written once before `magic` is set (by a release store of `ready`) are plain. */
struct nt_area_header {
  char magic[8];        /*   0 */
  uint16_t major;       /*   8 another major is not readable */
  uint16_t minor;       /*  10 */
  uint32_t header_size; /*  12 */
  uint64_t total_size;  /*  16 */
  /* regions: byte offset from the start of the area, bytes of one entry, entries */
  uint32_t evidence_offset, evidence_size; /* 24: text "key=value\n"…, length in evidence_length */
  uint32_t comm_offset, comm_size, comm_count;
  uint32_t thread_offset, thread_size, thread_count;
  uint32_t stream_offset, stream_size, stream_count;
  uint32_t chunk_offset, chunk_size, chunk_count;
  uint32_t spool_offset, spool_size;
  /* identity */
  uint32_t pid;
  uint32_t uid;
  uint64_t start_time; /* field 22 of /proc/PID/stat: clock ticks since boot */
  uint64_t pid_ns;     /* inode of /proc/self/ns/pid */
  uint64_t nonce;
  char boot_id[40];
  char host[64];
  char run_id[64]; /* TORCHELASTIC_RUN_ID, SLURM_JOB_ID …, or empty */
  int32_t world_rank, world_size, local_rank;
  uint32_t restart;
  /* clock */
  uint32_t clock_kind;          /* enum nt_clock_kind */
  _Atomic uint32_t clock_guard; /* odd while clock_last changes */
  struct nt_clock_sync clock_first;
  struct nt_clock_sync clock_last;
  /* what the helper publishes */
  _Atomic uint32_t ready;
  _Atomic uint32_t helper_tid;
  _Atomic uint64_t heartbeat_ns; /* CLOCK_REALTIME of the helper's last tick */
  _Atomic uint64_t heartbeat_mono_ns;
  _Atomic uint32_t evidence_length;
  _Atomic uint32_t peer_notes; /* entries of peers[] that are valid */
  /* requests: see nt_area_ask */
  _Atomic uint32_t request;      /* number << NT_REQUEST_BITS | kinds not yet taken; a futex */
  _Atomic uint32_t acknowledged; /* number of the newest request whose flush is done; a futex */
  _Atomic uint32_t dump_answers; /* given so far, see dump_answer; a futex */
  /* how the process left */
  _Atomic uint32_t run_state; /* NT_RUN_* */
  _Atomic int32_t exit_code;
  _Atomic uint64_t exit_ns; /* CLOCK_REALTIME */
  /* counts: nothing is lost in silence */
  _Atomic uint64_t calls; /* in chunks that were given back, or without one; see nt_ring_calls */
  _Atomic uint64_t lost;  /* calls that found no room */
  _Atomic uint64_t overwritten;  /* calls that were in segments the ring has retired */
  _Atomic uint64_t comms_lost;   /* communicators that found no slot */
  _Atomic uint64_t abandoned;    /* calls that never returned though their thread went on */
  _Atomic uint64_t write_errors; /* frames that could not be written */
  _Atomic int32_t last_errno;    /* of the last of them */
  _Atomic uint32_t next_comm;    /* numbers handed out so far */
  _Atomic uint32_t next_thread;
  _Atomic uint32_t next_stream;
  _Atomic uint64_t next_serial; /* chunk serials handed out so far */
  /* the trace file of this process */
  uint64_t file_dev, file_ino;
  _Atomic uint32_t file_ready;  /* file_path is valid */
  _Atomic uint32_t spool_guard; /* odd while the spool changes */
  _Atomic uint32_t spool_used;  /* bytes of whole frames waiting in the spool */
  uint32_t spool_reserved;
  char file_path[1024];
  struct nt_peer_note peers[NT_PEER_NOTES];
  /* GPU progress, gpu_area.h */
  uint32_t gpu_stream_offset, gpu_stream_size,
      gpu_stream_count; /* entry i belongs to stream slot i */
  uint32_t gpu_mark_offset, gpu_mark_size, gpu_mark_count;
  _Atomic uint64_t gpu_marks;         /* marks written so far; the last gpu_mark_count are there */
  _Atomic uint64_t gpu_marks_drained; /* of them in frames already; written by the helper */
  _Atomic uint64_t gpu_marks_lost;    /* overwritten before they were */
  _Atomic uint64_t
      gpu_heartbeat_ns; /* CLOCK_REALTIME of the gpu thread's last look, 0: no such thread */
  /* Python stacks, stack_area.h; all 0 where there are none */
  uint32_t code_offset, code_size;
  uint32_t stack_offset, stack_size;
  /* fate */
  _Atomic uint32_t phase;      /* NT_PHASE_* */
  _Atomic uint32_t comms_used; /* slots [0, this) have ever been taken; 0: any may have been */
  _Atomic uint64_t oom_kills;  /* what the process's memory cgroup had counted, NT_OOM_UNKNOWN */
  /* dumps, preload/dump_thread.h */
  _Atomic uint32_t dump_signal;  /* the signal that asks for one, 0: none */
  _Atomic uint32_t dumps;        /* begun so far */
  _Atomic uint32_t dump_section; /* enum nt_dump_section being worked on, 0: no dump is going on */
  _Atomic uint32_t chunks_used;  /* the same of chunks */
  /* The last answers to requests for a dump, in a ring: the number of the newest request that it answers, and above it
   * the number of the dump that began after all of them, or one of NT_DUMP_NONE, NT_DUMP_NO_THREAD. */
  _Atomic uint64_t dump_answer[NT_DUMP_ANSWERS];
};
_Static_assert(sizeof(struct nt_area_header) <= 4096, "the header is one page");

/* A number that only grows, as up to where a table has ever been used; release: whoever sees more of it finds what is there. */
static inline void nt_area_raise(_Atomic uint32_t *high, uint32_t to) {
  uint32_t now = atomic_load_explicit(high, memory_order_relaxed);
  while (now < to && !atomic_compare_exchange_weak_explicit(high, &now, to, memory_order_release,
                                                            memory_order_relaxed))
    ;
}

/* How many communicator slots, or chunks, there are to look through: most tables are nearly empty, and each entry is
 * a page or a cache line that nobody else touches. Any process. */
static inline uint32_t nt_area_comms_used(const struct nt_area_header *header) {
  const uint32_t used = atomic_load_explicit(&header->comms_used, memory_order_acquire);
  return used && used < header->comm_count ? used : header->comm_count;
}

static inline uint32_t nt_area_chunks_used(const struct nt_area_header *header) {
  const uint32_t used = atomic_load_explicit(&header->chunks_used, memory_order_acquire);
  return used && used < header->chunk_count ? used : header->chunk_count;
}

/* The lower bits of `request`; whoever asks adds its own, the helper takes all at once. */
#define NT_REQUEST_FLUSH 1  /* write everything closed to the file and sync it */
#define NT_REQUEST_DUMP 2   /* the same, with a dump of what can be known of the process */
#define NT_REQUEST_NATIVE 4 /* with native stacks of all threads in the dump */
#define NT_REQUEST_SIGNAL 8 /* it was a signal that asked */
#define NT_REQUEST_BITS 4
#define NT_REQUEST_KINDS 15u

/* Adds a request of these kinds and returns its number; the caller then wakes the futex. Async-signal-safe. Release:
 * pairs with the helper's taking of the kinds. */
static inline uint32_t nt_area_ask(struct nt_area_header *header, uint32_t kinds) {
  uint32_t next, now = atomic_load_explicit(&header->request, memory_order_relaxed);
  do
    next = (now + NT_REQUEST_KINDS + 1) | kinds;
  while (!atomic_compare_exchange_weak_explicit(&header->request, &now, next, memory_order_acq_rel,
                                                memory_order_relaxed));
  return next >> NT_REQUEST_BITS;
}

/* Request `mine` is not newer than `number`: numbers wrap. */
static inline bool nt_area_has_reached(uint32_t number, uint32_t mine) {
  return (int32_t)((number - mine) << NT_REQUEST_BITS) >= 0;
}

/* The oldest of the answers that are still there to request `mine`: its dump in `number`. */
static inline bool nt_area_find_answer(const struct nt_area_header *header, uint32_t mine,
                                       uint32_t *number) {
  uint32_t nearest = UINT32_MAX;
  for (unsigned i = 0; i < NT_DUMP_ANSWERS; i++) {
    uint64_t answer = atomic_load_explicit(&header->dump_answer[i], memory_order_acquire);
    uint32_t distance = ((uint32_t)answer - mine) << NT_REQUEST_BITS;
    if (answer == 0 || !nt_area_has_reached((uint32_t)answer, mine) || distance >= nearest)
      continue;
    nearest = distance;
    *number = (uint32_t)(answer >> 32);
  }
  return nearest != UINT32_MAX;
}

/* A mapped area. Opaque but for the helpers below; made by nt_area_create or nt_area_open. */
struct nt_area {
  struct nt_area_header *header;
  struct nt_comm_slot *comms;
  struct nt_thread_slot *threads;
  struct nt_stream_slot *streams;
  struct nt_chunk *chunks;
  struct nt_gpu_stream *gpu_streams;
  struct nt_gpu_mark *gpu_mark_ring;
  struct nt_code_region *codes;   /* of header->code_size bytes, NULL if there is none */
  struct nt_stack_region *stacks; /* of header->stack_size bytes, NULL likewise */
  char *evidence;
  unsigned char *spool;
  uint64_t mapped;     /* bytes */
  int fd;              /* -1 once handed to the helper */
  char path[256];      /* empty: an anonymous memory file that dies with the process */
  int fallback_reason; /* negative enum nt_err: why nt_area_create made such a memory file */
};

/*
 * Creates and maps an area of about `bytes` for the calling process (sizes are shrunk to a sixteenth
 * of the free space of the file system, never below 512 KiB). `dir` is made 0700 and must belong to the
 * caller and be on a tmpfs; when it cannot be used the area is a memfd, and out->fallback_reason tells why:
 * NT_ERR_SPACE, NT_ERR_FOREIGN (no tmpfs), NT_ERR_UNSAFE (not the caller's own) or NT_ERR_IO. Header
 * identity fields are filled in. Returns 0 or a negative enum nt_err; errno is undefined.
 */
int nt_area_create(const char *dir, uint64_t bytes, struct nt_area *out);

/* Maps another process's area read-only (writable != 0: for the request word and for draining).
 * Every size in it is checked against the file's. */
int nt_area_open(const char *path, int writable, struct nt_area *out);

void nt_area_close(struct nt_area *area);

/* "/dev/shm/nccltrace-UID" (or NCCLTRACE_SHM): where this user's areas are. */
int nt_area_directory(char *out, uint64_t size);

/* Takes the lock that says "this process lives"; held through `fd` until the file table it is in
 * goes away. Returns 0, or NT_ERR_BUSY if another process holds it. */
int nt_area_lock(int fd);

/* The program that the area belongs to is seen alive in /proc: on this node, in this pid namespace, and not replaced by
 * another one in the same process (exec). */
bool nt_area_owner_lives(const struct nt_area *area);

/* The same, but another program may have taken its place. */
bool nt_area_process_lives(const struct nt_area *area);

/* 1 if some process holds the lock, 0 if none, negative enum nt_err if it cannot be told. */
int nt_area_is_locked(int fd);

#endif
