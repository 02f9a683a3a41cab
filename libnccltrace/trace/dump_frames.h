/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dumps: what could be learnt of a whole process at one moment, beyond its calls.
 *
 * A dump is made of sections, taken one after the other, from what never blocks to what may; each is a frame
 * of its own, so that one that never ends loses nothing else. Writers add entries to a buffer; the reader
 * puts the sections of one number together.
 */
#ifndef NT_DUMP_FRAMES_H
#define NT_DUMP_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "trace/frame.h"

enum nt_dump_reason {
  NT_DUMP_REQUESTED = 1, /* nccltrace dump */
  NT_DUMP_SIGNAL = 2,
  NT_DUMP_WATCHDOG = 3, /* something had been unfinished for too long */
};

/* In the order in which they are taken; on disk too, append-only. */
enum nt_dump_section {
  NT_DUMP_THREADS = 1,  /* names, states, wait channels, system calls */
  NT_DUMP_MEMORY = 2,   /* of the process, its cgroup, the machine; limits */
  NT_DUMP_PYTHON = 3,   /* Python stacks of all threads */
  NT_DUMP_NATIVE = 4,   /* native stacks of all threads */
  NT_DUMP_HARDWARE = 5, /* kernel log, network, GPUs */
  NT_DUMP_JOB = 6,      /* what NCCL's own RAS says */
  NT_DUMP_SECTIONS
};

/* "threads", "memory" …; "?" for others. */
const char *nt_dump_section_name(unsigned section);

enum nt_dump_stack_kind { NT_DUMP_STACK_PYTHON = 1, NT_DUMP_STACK_NATIVE = 2 };

#define NT_DUMP_THREAD_MAIN 0x01 /* the process's first thread */
#define NT_DUMP_THREAD_OURS 0x02 /* one of this library's */

#define NT_DUMP_STACK_CUT 0x0001    /* there are more frames outwards */
#define NT_DUMP_STACK_MOVING 0x0002 /* the thread ran on; frames that came and went are left out */
#define NT_DUMP_FRAMES_MAX 128      /* frames of one stack that are kept */

#define NT_SYSCALL_NONE (-1)
#define NT_SYSCALL_UNKNOWN (-2)

struct nt_dump_head {
  uint32_t number, reason, section, asked;
  uint64_t began_ns, taken_ns; /* CLOCK_REALTIME */
};

struct nt_dump_thread_facts {
  uint32_t tid;
  char state; /* letter of /proc/PID/stat, 0 if not known */
  uint8_t flags;
  uint64_t cpu_ns;
  int64_t syscall; /* NT_SYSCALL_* or a number */
  uint64_t args[6];
  char name[16];
  char wait[64]; /* "" if it does not sleep or it cannot be told */
};

/* One frame to be written; texts need no terminator and may be NULL with length 0. */
struct nt_dump_frame {
  uint64_t at; /* line; native: offset in the module */
  const char *file, *name;
  uint16_t file_length, name_length;
};

/* Each appends one entry; out->failed tells of a lack of room. */
void nt_dump_add_head(struct nt_buffer *out, const struct nt_dump_head *head);
void nt_dump_add_thread(struct nt_buffer *out, const struct nt_dump_thread_facts *thread);
void nt_dump_add_stack(struct nt_buffer *out, uint32_t tid, enum nt_dump_stack_kind kind,
                       uint16_t flags, const struct nt_dump_frame *frames, uint32_t count);
/*
 * "key=value", the value of at most 4000 bytes with its control characters replaced by spaces. Keys are words with
 * dots, unique in a dump. A source that could not be asked is "missing.SOURCE" with the reason as its value.
 */
void nt_dump_add_fact(struct nt_buffer *out, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
