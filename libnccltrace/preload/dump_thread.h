/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dumps of a whole process: who makes them, and when.
 *
 * A thread of its own takes them, because any of what it asks may block in a stuck process: the loader's lock,
 * the driver, the memory map's lock. It hands finished sections to the helper, which writes them; whatever the thread
 * is stuck in, the helper goes on and says so.
 *
 * The parts (dump_*.c) each fill one section. They run in the dump thread, allocate as they like, never take the
 * GIL, read foreign memory only through nt_dump_read, and say in a "missing." fact what could not be had and why.
 */
#ifndef NT_DUMP_THREAD_H
#define NT_DUMP_THREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/dump_frames.h"

/* Starts the thread. -1: none could be had, and there will be no dumps. */
int nt_dump_start(void);

/* False: nt_dump_start had no thread. */
bool nt_dump_possible(void);
/* Begins a dump and returns its number, from 1; 0 while another is going on or has sections that are not taken. Helper
 * thread only. */
uint32_t nt_dump_begin(enum nt_dump_reason reason, bool native);
/* A dump is going on. */
bool nt_dump_running(void);
/* The next finished section, as the payload of a DUMP frame; NULL: none now. The caller frees it with
 * nt_dump_free. Helper thread only. */
struct nt_buffer *nt_dump_take(void);
void nt_dump_free(struct nt_buffer *section);

/* ---- the parts ---------------------------------------------------------------------------------- */

/* The process's own memory by way of the kernel, which answers with an error where a load would fault.
 * Returns false unless all `length` bytes could be read. */
bool nt_dump_read(uint64_t address, void *out, size_t length);

/* The same for several places in one go, which is the nearest to one moment that can be had. Returns how many
 * were read, up to the first that could not. */
struct nt_dump_part {
  uint64_t address;
  void *out;
  size_t length;
};
unsigned nt_dump_read_parts(const struct nt_dump_part *parts, unsigned count);

void nt_dump_threads(struct nt_buffer *out);
void nt_dump_memory(struct nt_buffer *out);
void nt_dump_python(struct nt_buffer *out);
void nt_dump_native(struct nt_buffer *out);
void nt_dump_hardware(struct nt_buffer *out);
void nt_dump_job(struct nt_buffer *out);

#endif
