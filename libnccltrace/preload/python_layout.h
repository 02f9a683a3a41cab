/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which Python interpreter lives in this process, and where its structures have the few fields that a
 * stack walk reads.
 *
 * 3.8 to 3.12 are known by a table made from their headers (python_rows.h); 3.13 and 3.14 publish their offsets themselves, at the start of _PyRuntime.
 * Whatever is known is checked against what the running interpreter says of itself - its version, the
 * sizes of its types - and an interpreter that does not agree is left alone.
 */
#ifndef NT_PYTHON_LAYOUT_H
#define NT_PYTHON_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/python_lists.h"

enum nt_python_frames {
  NT_PYTHON_OBJECTS, /* to 3.10: a list of frame objects */
  NT_PYTHON_CFRAME,  /* 3.11, 3.12: frames on the interpreter's own stack, behind a C frame */
  NT_PYTHON_DIRECT,  /* 3.13 and later: the same, right from the thread state */
};

/* Offsets in bytes. The bool-like bits of a string's state are `kind` (3 bits at text_kind), then
 * compact, then ascii. */
struct nt_python_layout {
  uint16_t version; /* 0x030b for 3.11 */
  uint8_t frames;   /* enum nt_python_frames */
  uint8_t lines;    /* enum nt_python_lines, python_lines.h */
  uint8_t unit;     /* to 3.10: bytes in one unit of frame_at */
  uint8_t text_kind;
  /* thread state -> frame */
  uint16_t thread_frame;
  uint16_t cframe_frame;
  /* frame */
  uint16_t frame_back, frame_code, frame_at, frame_owner;
  uint16_t frame_size; /* what PyFrame_Type says; 0: not checked */
  /* code object */
  uint16_t code_file, code_name, code_table, code_first_line, code_first_traceable, code_bytes;
  uint16_t
      code_version;   /* number of the code object in the interpreter's life, from 3.12 on; or 0 */
  uint16_t code_size; /* what PyCode_Type says */
  /* str and bytes */
  uint16_t text_length, text_hash, text_state, text_ascii, text_compact;
  uint16_t bytes_length, bytes_data;
};

/* Rows of the table. */
enum nt_python_row {
  NT_PYTHON_ROW_3_8,
  NT_PYTHON_ROW_3_9,
  NT_PYTHON_ROW_3_10,
  NT_PYTHON_ROW_3_11,
  NT_PYTHON_ROW_3_12,
  NT_PYTHON_ROW_3_13,
  NT_PYTHON_ROW_3_14,
  NT_PYTHON_ROWS,
};

/* An interpreter that can be walked. */
struct nt_python {
  struct nt_python_layout layout;
  struct nt_python_lists lists;
  unsigned row; /* enum nt_python_row of the same layout, NT_PYTHON_ROWS if there is none */
  void *(*this_thread)(void);
  int (*is_finalizing)(void);
  void *(*first_interpreter)(void); /* a load from _PyRuntime */
  const void *runtime;
  const void *code_type, *text_type, *bytes_type, *frame_type;
};

/* Bytes of a thread state, at most, in which the fields lie that are looked at. */
#define NT_PYTHON_THREAD_BYTES 512

/*
 * Looks for an interpreter, until one has been found. Uses the loader and may take its lock, so it is
 * called where communicators are created, never on the path of another call, and under no lock of ours; errno is
 * undefined afterwards. Any thread.
 */
void nt_python_find(void);

extern const struct nt_python *nt_python_found; /* read it through nt_python_get() */

/* The interpreter, NULL while none was found that can be walked. Any thread. */
static inline const struct nt_python *nt_python_get(void) {
  return __atomic_load_n(&nt_python_found, __ATOMIC_ACQUIRE);
}

/* Whether the user wants Python's stacks at all; true until told otherwise. */
void nt_python_allow(bool allowed);
bool nt_python_allowed(void);

/* For the evidence: version ("3.11.7") and state ("on", "off: reason"). False while no interpreter was
 * seen. Valid for ever; any thread. */
bool nt_python_describe(const char **version, const char **state);

/* The layout that a 3.13 or 3.14 interpreter publishes. `offsets` are its first NT_PYTHON_OFFSETS bytes,
 * `hex` its Py_Version. False, with the reason, if it is not to be used. */
#define NT_PYTHON_OFFSETS 800
bool nt_python_read_offsets(const void *offsets, uint32_t hex, struct nt_python_layout *out,
                            const char **reason);

/* The i-th row of the table; NULL past its end. */
const struct nt_python_layout *nt_python_layout_at(size_t i);

#endif
