/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of a trace file, in numbers. docs/FORMAT.md is the specification in words; the test
 * test_format.c compares the tables there with the constants here.
 *
 *   superblock | two evidence copies | two state slots | eight segments
 *
 * Everything after the superblock is made of frames: a header of 64 bytes, an index that can be
 * read without unpacking, and a payload. All numbers are little-endian.
 */
#ifndef NT_FORMAT_H
#define NT_FORMAT_H

#include <stdint.h>

#define NT_FILE_MAGIC "NCCLTRCE"
#define NT_FILE_MAJOR 1
#define NT_FILE_MINOR 1 /* 1: CALLS frames of version 2 */

/* Superblock: written once when the file is made. Offsets of its fields in bytes. */
#define NT_SUPER_SIZE 4096
#define NT_SUPER_MAGIC 0
#define NT_SUPER_MAJOR 8
#define NT_SUPER_MINOR 10
#define NT_SUPER_HEADER_SIZE 12
#define NT_SUPER_EVIDENCE_OFFSET 16
#define NT_SUPER_EVIDENCE_SIZE 24
#define NT_SUPER_EVIDENCE_COUNT 28
#define NT_SUPER_STATE_OFFSET 32
#define NT_SUPER_STATE_SIZE 40
#define NT_SUPER_STATE_COUNT 44
#define NT_SUPER_SEGMENT_OFFSET 48
#define NT_SUPER_SEGMENT_SIZE 56
#define NT_SUPER_SEGMENT_COUNT 64
#define NT_SUPER_CLOCK_KIND 68
#define NT_SUPER_PID 72
#define NT_SUPER_UID 76
#define NT_SUPER_START_TIME 80
#define NT_SUPER_PID_NS 88
#define NT_SUPER_NONCE 96
#define NT_SUPER_CLOCK_FIRST 104 /* clock sync, 24 bytes */
#define NT_SUPER_WORLD_RANK 128
#define NT_SUPER_WORLD_SIZE 132
#define NT_SUPER_LOCAL_RANK 136
#define NT_SUPER_RESTART 140
#define NT_SUPER_BOOT_ID 144
#define NT_SUPER_HOST 184
#define NT_SUPER_RUN_ID 248
#define NT_SUPER_WRITER 312
#define NT_SUPER_DIGEST 344 /* CLOCK_REALTIME ns at which a digest was made, 0: this is none */
#define NT_SUPER_DIGEST_LEFT_OUT 352 /* calls of the trace that are not in it */
#define NT_SUPER_DIGEST_OOM 360      /* as NT_PROCESS_FIELD_OOM_KILLS, but when it was made */
#define NT_SUPER_DIGEST_STATE 368    /* enum nt_process_state then */
#define NT_SUPER_DIGEST_FLAGS 372    /* NT_DIGEST_* */
#define NT_SUPER_CHECKSUM 4088       /* xxh64 of the bytes before it */

#define NT_DIGEST_LIVE 0x01     /* read from the area of a living process */
#define NT_DIGEST_MOVED 0x02    /* which made a call, or whose GPU got further, shortly before */
#define NT_DIGEST_DAMAGED 0x04  /* parts of the trace could not be read */
#define NT_DIGEST_OUTLIVED 0x08 /* the process may have gone on after what its trace tells */
#define NT_DIGEST_AGED 0x10     /* likewise, since the trace ends inside its state */

/* Frame header. */
#define NT_FRAME_MAGIC UINT32_C(0x5246544e) /* "NTFR" */
#define NT_FRAME_HEADER 64
#define NT_FRAME_TYPE 4
#define NT_FRAME_VERSION 6
#define NT_FRAME_FLAGS 7
#define NT_FRAME_EPOCH 8
#define NT_FRAME_STORED 16
#define NT_FRAME_INDEX 20
#define NT_FRAME_RAW 24
#define NT_FRAME_RECORDS 28
#define NT_FRAME_FIRST 32
#define NT_FRAME_LAST 40
#define NT_FRAME_CHECKSUM 48        /* xxh64 of index and payload as stored */
#define NT_FRAME_HEADER_CHECKSUM 56 /* xxh64 of the header's bytes before it */
#define NT_FRAME_ALIGN 8
#define NT_FRAME_MAX_RAW (UINT32_C(16) << 20)
#define NT_FRAME_MAX_STORED (UINT32_C(17) << 20)
#define NT_FRAME_PACKED 0x01 /* flags: the payload is one zstd frame */

/* Frame types; append-only. A reader skips those it does not know. */
enum nt_frame_type {
  NT_FRAME_EVIDENCE = 1, /* text, key=value lines */
  NT_FRAME_STATE = 2,    /* entries: what is true now */
  NT_FRAME_SEGMENT = 3,  /* entries: the first frame of a segment */
  NT_FRAME_DEFS = 4,     /* entries: what later frames of the segment refer to */
  NT_FRAME_CALLS = 5,    /* columns, codec.h */
  NT_FRAME_STACKS = 6,   /* nodes, stack_frames.h */
  NT_FRAME_CODES = 7,    /* entries: code objects, stack_frames.h */
  NT_FRAME_GPU = 8,      /* marks: steps of GPU progress, mark_codec.h */
  /* reserved: 9 updates of calls */
  NT_FRAME_DUMP = 10, /* entries: one section of a dump, dump_frames.h */
};

/* Entries of STATE, SEGMENT, DEFS and DUMP payloads: a head of 8 bytes {u16 kind, u16 0, u32 length}, then
 * `length` bytes, padded with zeros to a multiple of 8. Append-only; longer entries than known are
 * read as far as known, shorter ones are an error. */
#define NT_ENTRY_HEAD 8
enum nt_entry_kind {
  NT_ENTRY_COMM = 1,     /* struct nt_comm_def, then struct nt_comm_live */
  NT_ENTRY_STREAM = 2,   /* u32 number, i32 device, u64 handle */
  NT_ENTRY_THREAD = 3,   /* u32 index, u32 tid, u64 last enter, 16 bytes name */
  NT_ENTRY_CLOCK = 4,    /* two clock syncs: first and last */
  NT_ENTRY_OPEN = 5,     /* an open record, see NT_OPEN_* */
  NT_ENTRY_PROCESS = 6,  /* heartbeat, exit and counters, see NT_PROCESS_FIELD_* */
  NT_ENTRY_PEER = 7,     /* struct nt_peer_note */
  NT_ENTRY_POSITION = 8, /* u64 epoch of the current segment, u64 bytes used in it */
  NT_ENTRY_GPU = 9,      /* how far a stream has come, see NT_GPU_FIELD_* */
  /* of DUMP frames alone, see NT_DUMP_* */
  NT_ENTRY_DUMP = 10,
  NT_ENTRY_DUMP_FACT = 11,   /* text, key=value */
  NT_ENTRY_DUMP_THREAD = 12, /* a thread as the kernel shows it */
  NT_ENTRY_DUMP_STACK = 13,  /* of a thread */
};
#define NT_ENTRY_COMM_SIZE 1088
#define NT_ENTRY_STREAM_SIZE 16
#define NT_ENTRY_THREAD_SIZE 32
#define NT_ENTRY_CLOCK_SIZE 48
#define NT_ENTRY_PEER_SIZE 40
#define NT_ENTRY_POSITION_SIZE 16

/* Progress of a stream: gpu_area.h. */
#define NT_GPU_FIELD_STREAM 0 /* number */
#define NT_GPU_FIELD_ISSUED 4
#define NT_GPU_FIELD_REACHED 8
#define NT_GPU_FIELD_FINISHED 12
#define NT_GPU_FIELD_FROZEN 16
#define NT_GPU_FIELD_FROZEN_AFTER 20
#define NT_GPU_FIELD_UNMARKED 24
#define NT_GPU_FIELD_ERROR 28
#define NT_GPU_FIELD_POLLED 32 /* ticks */
#define NT_GPU_FIELD_FOLLOWED 40
#define NT_GPU_FIELD_UNMARKED_LAST 44
#define NT_ENTRY_GPU_SIZE 48
#define NT_ENTRY_GPU_LEAST 40 /* before there was FOLLOWED */

/* An open record: where it is, the numbers that its slots stood for, then struct nt_record. */
#define NT_OPEN_SERIAL 0
#define NT_OPEN_INDEX 8
#define NT_OPEN_THREAD 12
#define NT_OPEN_COMM 16
#define NT_OPEN_STREAM 20
#define NT_OPEN_RECORD 24
#define NT_ENTRY_OPEN_SIZE 88

/* The process as a whole. */
#define NT_PROCESS_FIELD_HEARTBEAT 0      /* CLOCK_REALTIME ns */
#define NT_PROCESS_FIELD_HEARTBEAT_MONO 8 /* CLOCK_MONOTONIC ns */
#define NT_PROCESS_FIELD_EXIT 16          /* CLOCK_REALTIME ns, 0 if it has not left */
#define NT_PROCESS_FIELD_RUN_STATE 24     /* NT_RUN_* */
#define NT_PROCESS_FIELD_EXIT_CODE 28
#define NT_PROCESS_FIELD_CALLS 32
#define NT_PROCESS_FIELD_LOST 40
#define NT_PROCESS_FIELD_OVERWRITTEN 48
#define NT_PROCESS_FIELD_COMMS_LOST 56
#define NT_PROCESS_FIELD_ABANDONED 64
#define NT_PROCESS_FIELD_WRITE_ERRORS 72
#define NT_PROCESS_FIELD_LAST_ERRNO 80
#define NT_PROCESS_FIELD_WRITER 84    /* enum nt_state_writer */
#define NT_PROCESS_FIELD_GPU_BEAT 88  /* CLOCK_REALTIME ns of the last look at the GPU, 0: none */
#define NT_PROCESS_FIELD_OOM_KILLS 96 /* of the memory cgroup; NT_OOM_UNKNOWN */
#define NT_PROCESS_FIELD_PHASE 104    /* u32, NT_PHASE_* */
#define NT_ENTRY_PROCESS_SIZE 112

/* The first entry of every DUMP frame: which dump and which part of it this is. */
#define NT_DUMP_NUMBER 0  /* 1-based in the process */
#define NT_DUMP_REASON 4  /* enum nt_dump_reason */
#define NT_DUMP_SECTION 8 /* enum nt_dump_section */
#define NT_DUMP_ASKED 12  /* bit 1 << section for each that this dump is to have */
#define NT_DUMP_BEGAN 16  /* CLOCK_REALTIME ns: the dump */
#define NT_DUMP_TAKEN 24  /* CLOCK_REALTIME ns: this section was complete */
#define NT_ENTRY_DUMP_SIZE 32

#define NT_DUMP_THREAD_TID 0
#define NT_DUMP_THREAD_STATE 4    /* the letter of /proc/PID/stat, 0: not known */
#define NT_DUMP_THREAD_FLAGS 5    /* NT_DUMP_THREAD_* flags, dump_frames.h */
#define NT_DUMP_THREAD_CPU 8      /* ns of processor time used so far */
#define NT_DUMP_THREAD_SYSCALL 16 /* i64 number; -1: in none; -2: not known */
#define NT_DUMP_THREAD_ARGS 24    /* 6 × u64 */
#define NT_DUMP_THREAD_NAME 72    /* 16 bytes */
#define NT_DUMP_THREAD_WAIT 88    /* 64 bytes: the kernel function it sleeps in */
#define NT_ENTRY_DUMP_THREAD_SIZE 152

/* A stack: head, then its frames, innermost first, each followed by its texts without terminators and by zeros to a
 * multiple of 8. */
#define NT_DUMP_STACK_TID 0
#define NT_DUMP_STACK_KIND 4  /* u16 enum nt_dump_stack_kind */
#define NT_DUMP_STACK_FLAGS 6 /* u16, NT_DUMP_STACK_CUT */
#define NT_DUMP_STACK_COUNT 8 /* u32 frames */
#define NT_DUMP_STACK_HEAD 16
#define NT_DUMP_FRAME_AT 0    /* u64: the line, 0 if not known; native: byte offset in the module */
#define NT_DUMP_FRAME_FILE 8  /* u16 bytes: the file; native: the module's path */
#define NT_DUMP_FRAME_NAME 10 /* u16 bytes: the function; native: the module's build id, in hex */
#define NT_DUMP_FRAME_HEAD 16

enum nt_state_writer {
  NT_STATE_BY_PROCESS = 0, /* the traced process itself */
  NT_STATE_BY_OTHER = 1,   /* after its death, by whoever found what it had left */
};

/* CALLS index: u32 runs, u32 ranges, then these. A run is a piece of one chunk. */
#define NT_RUN_SIZE 24   /* u64 serial, u32 first index, u32 count, u32 thread, u32 0 */
#define NT_RANGE_SIZE 16 /* u32 communicator, u32 calls, u32 least and u32 greatest seq */

#define NT_SEGMENT_COUNT 8
#define NT_SEGMENT_MIN (UINT64_C(64) << 10)
#define NT_EVIDENCE_COPIES 2
#define NT_STATE_SLOTS 2

#endif
