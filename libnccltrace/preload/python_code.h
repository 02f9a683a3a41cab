/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of Python's objects, and what is kept of a code object. Used by python_*.c only. */
#ifndef NT_PYTHON_CODE_H
#define NT_PYTHON_CODE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "preload/call_data.h"
#include "preload/python_layout.h"
#include "trace/stack_area.h"

NT_IN_LINE const char *nt_python_pointer(const char *object, unsigned offset) {
  const char *value;
  memcpy(&value, object + offset, sizeof(value));
  return value;
}

NT_IN_LINE uint64_t nt_python_word(const char *object, unsigned offset) {
  uint64_t value;
  memcpy(&value, object + offset, sizeof(value));
  return value;
}

NT_IN_LINE int32_t nt_python_int(const char *object, unsigned offset) {
  int32_t value;
  memcpy(&value, object + offset, sizeof(value));
  return value;
}

enum { NT_PYTHON_FILE_BYTES = 1024, NT_PYTHON_NAME_BYTES = 256 }; /* kept, the last ones */

/* Takes room for `wanted` more of what `used` counts, up to `limit`: the first place, or UINT32_MAX. */
uint32_t nt_python_reserve(_Atomic uint32_t *used, uint32_t wanted, uint32_t limit);

/* Where the characters of a string are, and how wide (1, 2, 4); 0: no string, or one whose form is not known. */
unsigned nt_python_open_text(const struct nt_python *python, const char *object, const char **data);

/* A string as UTF-8, "?" if it is none; of one that is too long the end, which tells more of a path. Returns the
 * bytes written. */
uint32_t nt_python_copy_text(const struct nt_python *python, const char *object, unsigned char *out,
                             uint32_t room, bool *cut);

/* Copies a code object that the calling thread's frames keep alive into the region: its id, 0 if there is
 * no room. A line table that does not fit is left out. */
uint32_t nt_python_copy_code(const struct nt_python *python, const char *code, uint64_t identity,
                             struct nt_code_region *codes);

#endif
