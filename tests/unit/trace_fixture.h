/* SPDX-License-Identifier: Apache-2.0 */
/* A traced process in miniature: an area, communicators, and calls that a test makes by hand. */
#ifndef TRACE_FIXTURE_H
#define TRACE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "trace/area.h"
#include "trace/drain.h"
#include "trace/python_lines.h"
#include "trace/reader.h"
#include "trace/ring.h"
#include "trace/stack_frames.h"

struct fixture {
  char root[64]; /* everything is below it, on a tmpfs */
  char areas[80], files[80];
  struct nt_area area;
  struct nt_ring_writer writer;
  struct nt_drain *drain;
  uint32_t seq;
};

/* Makes the directories and points NCCLTRACE_SHM at `areas`. */
void fixture_begin(struct fixture *f);
/* Removes all that the test has made. */
void fixture_end(struct fixture *f);

/* An area of about `bytes` for this process, with communicator 1 in slot 1, stream 1 in slot 1 and the
 * calling thread; clock in nanoseconds. Locked, as a traced process has it. */
void fixture_area(struct fixture *f, uint64_t bytes);
void fixture_comm(struct fixture *f, uint32_t slot, uint32_t number);
/* A drain for it; `size` of the file. */
void fixture_drain(struct fixture *f, uint64_t size);

/* One all-reduce, `seq` counted on; not closed if `open`. */
void fixture_call(struct fixture *f, bool open);
void fixture_calls(struct fixture *f, uint32_t count);
/* Any record. */
void fixture_record(struct fixture *f, const struct nt_record *record);

/* Reads `path` and checks that it has exactly the all-reduces first … last of one thread, in order, once
 * each, the last one open if `open`. */
void fixture_expect(const char *path, unsigned flags, uint32_t first, uint32_t last, bool open);

/* Runs fn in a child that then kills itself with SIGKILL, and waits for its end. */
void fixture_doomed(struct fixture *f, void (*fn)(struct fixture *f));

/* Path of the only (or first) file ending in `suffix` in `directory`; false if there is none. */
bool fixture_find(const char *directory, const char *suffix, char *out, uint64_t size);

unsigned char *fixture_load(const char *path, uint64_t *length);
void fixture_store(const char *path, const unsigned char *bytes, uint64_t length);

uint64_t fixture_random(void);

/* One code object of "file.py" whose instruction n is on line first + n (of long tables: any); returns its id. */
static inline uint32_t fixture_code(struct fixture *f, const char *name, int first,
                                    unsigned table_length) {
  struct nt_code_region *region = f->area.codes;
  const uint32_t used = atomic_load(&region->used);
  unsigned char *at = (unsigned char *)region + used;
  const struct nt_code_entry entry = {.first_line = first,
                                      .lines = NT_PYTHON_LINES_3_10,
                                      .file_length = 7,
                                      .name_length = (uint32_t)strlen(name),
                                      .table_length = table_length};
  memcpy(at, &entry, sizeof entry);
  memcpy(at + sizeof entry, "file.py", 7);
  memcpy(at + sizeof entry + 7, name, strlen(name));
  unsigned char *table = at + sizeof entry + 7 + strlen(name);
  for (unsigned i = 0; i < table_length; i++)
    table[i] = table_length > 200 ? (unsigned char)fixture_random() : i % 2 ? i > 1 : 2;
  const uint32_t size = (uint32_t)sizeof entry + 7 + (uint32_t)strlen(name) + table_length;
  atomic_store(&region->used, used + ((size + 7) & ~7u));
  assert_true(atomic_load(&region->used) <= f->area.header->code_size);
  return used / NT_CODE_UNIT;
}

static inline uint32_t fixture_node(struct fixture *f, uint32_t parent, uint32_t code, int offset) {
  const uint32_t id = atomic_fetch_add(&f->area.stacks->used, 1);
  struct nt_stack_node *node = (struct nt_stack_node *)(void *)(f->area.stacks + 1) + id;
  *node = (struct nt_stack_node){.parent = parent, .code = code, .offset = offset, .depth = 1};
  return id;
}

#endif
