/* SPDX-License-Identifier: Apache-2.0 */
/* The Python stack of any thread, read through the kernel while the thread runs on. Dump thread only. */
#ifndef NT_PYTHON_WALK_H
#define NT_PYTHON_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/python_code.h"
#include "preload/python_layout.h"
#include "trace/dump_frames.h"

enum {
  NT_PYTHON_STEPS_MAX = 1024,  /* frames looked at, kept or not */
  NT_PYTHON_FRAME_BYTES = 128, /* that are looked at, at most */
  NT_PYTHON_CODE_BYTES = 256,
  NT_PYTHON_TABLE_BYTES = 256 * 1024, /* a longer line table is not used */
};

/* A frame as it was read. Addresses of 0: none, or not read. */
struct nt_python_place {
  uint64_t frame, back, code, at;
  uint64_t file, name, table; /* of the code */
  uint32_t version;           /* of the code, or 0 */
  int32_t first_line, offset; /* of the code; in the code, in bytes */
  bool counts;                /* it is one of the program's */
};

/* A stack, and the room to read it; 1 MiB, from the heap. */
struct nt_python_walk {
  uint16_t flags; /* NT_DUMP_STACK_* */
  uint32_t count;
  struct nt_dump_frame frame[NT_DUMP_FRAMES_MAX];
  /* the rest is this module's */
  uint32_t steps;
  struct nt_python_place place[NT_PYTHON_STEPS_MAX];
  unsigned char file[NT_DUMP_FRAMES_MAX][NT_PYTHON_FILE_BYTES];
  unsigned char name[NT_DUMP_FRAMES_MAX][NT_PYTHON_NAME_BYTES];
  char raw[NT_PYTHON_STEPS_MAX + 1][NT_PYTHON_FRAME_BYTES];
  unsigned char table[2][NT_PYTHON_TABLE_BYTES];
};

/* Reads the stack of the thread with this state. False if its state cannot be read. */
bool nt_python_walk_thread(const struct nt_python *python, uint64_t state,
                           struct nt_python_walk *out);

#endif
