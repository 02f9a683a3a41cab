/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From an instruction's offset to a line, through the table that Python's compiler makes for each code
 * object. Three formats are in use. A table may come from a damaged file: anything is read safely.
 */
#ifndef NT_PYTHON_LINES_H
#define NT_PYTHON_LINES_H

#include <stddef.h>
#include <stdint.h>

/* In areas and files too: append-only. */
enum nt_python_lines {
  NT_PYTHON_LINES_3_8 = 0,  /* to 3.9: pairs of increments, co_lnotab */
  NT_PYTHON_LINES_3_10 = 1, /* pairs of range length and increment */
  NT_PYTHON_LINES_3_11 = 2, /* 3.11 and later: entries of variable length, columns included */
  NT_LINES_MODULE = 3,      /* no Python code and no table: a module, see stack_area.h */
};

/* The line of the instruction at byte `offset` of the code; a negative offset is in front of the first
 * instruction. 0: the instruction has no line, or the table does not reach it, or the format is not
 * known. */
int32_t nt_python_line(uint32_t format, const unsigned char *table, size_t length,
                       int32_t first_line, int32_t offset);

#endif
