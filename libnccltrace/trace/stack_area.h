/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks in the live area: two regions to which the application's threads only ever append.
 *
 * The region of codes holds what is to be known of each code object: file, function, line table. The
 * region of stacks holds a tree: a node is one frame, its parent the frame that called it, so stacks that
 * begin alike share their beginnings. A stack's id is the index of its innermost frame's node; a code's
 * id is its offset in the region in units of 8 bytes. 0 is no id.
 *
 * Native frames lie inside Python's: further from the root. Their code entry is the module (NT_LINES_MODULE): file
 * is its path, function its build id in hex, and the node's offset, unsigned, the address of the call in the
 * numbering of the module's own file.
 *
 * Publication. Room is taken by adding to `used`; then the entry is filled with plain stores; then its id
 * becomes known to other threads through a release store in the writer's private tables, and to other
 * processes through the release store that publishes the record it stands in (ring.h). So whoever has
 * read a record finds the record's stack complete, node, ancestors and codes, and nothing that is
 * complete ever changes. What no record refers to may be half written for ever: its writer may have been
 * killed. A reader that copies the regions does so after the records, and checks every id and length.
 */
#ifndef NT_STACK_AREA_H
#define NT_STACK_AREA_H

#include <stdatomic.h>
#include <stdint.h>

#define NT_CODES_BYTES (384u * 1024) /* some 500 functions, by far most of it line tables */
#define NT_STACK_NODES (16u * 1024)  /* 256 KiB, the header included */
#define NT_STACK_FRAMES 64 /* the innermost frames of a stack that are kept, of each kind */
#define NT_CODE_UNIT 8

/* At the start of the region; entries follow. */
struct nt_code_region {
  _Atomic uint32_t used; /*  0 bytes taken, this header included */
  uint32_t size;         /*  4 bytes of the region */
  uint8_t reserved[56];
};
_Static_assert(sizeof(struct nt_code_region) == 64, "code region layout");

#define NT_CODE_NO_LINES 0x0001 /* the line table found no room, and no part of it is kept */
#define NT_CODE_CUT 0x0002      /* of file or function only the end is kept */

/* Then, without terminators: file, function (UTF-8), line table; then zeros to a multiple of 8. */
struct nt_code_entry {
  uint64_t identity;     /*  0 hash of what told this code object from others, see python_stack.c */
  int32_t first_line;    /*  8 */
  uint16_t lines;        /* 12 enum nt_python_lines */
  uint16_t flags;        /* 14 NT_CODE_* */
  uint32_t file_length;  /* 16 */
  uint32_t name_length;  /* 20 */
  uint32_t table_length; /* 24 */
  uint32_t reserved;     /* 28 */
};
_Static_assert(sizeof(struct nt_code_entry) == 32, "code entry layout");

struct nt_stack_region {
  _Atomic uint32_t used; /*  0 nodes taken; node 0 is never used, so 1 in an empty region */
  uint32_t count;        /*  4 nodes in the region */
  _Atomic uint64_t lost; /*  8 calls whose stack found no room */
  uint8_t reserved[48];
};
_Static_assert(sizeof(struct nt_stack_region) == 64, "stack region layout");

#define NT_STACK_CUT                                                                               \
  0x8000 /* depth: there were more than NT_STACK_FRAMES frames, this is not the outermost */

struct nt_stack_node {
  uint32_t parent; /*  0 0: the outermost frame; always less than the node's own index */
  uint32_t code;   /*  4 */
  int32_t
      offset; /*  8 of the instruction, in bytes; negative: in front of the first; unsigned in a module */
  uint32_t depth; /* 12 frames from here outwards, this one included; with NT_STACK_CUT */
};
_Static_assert(sizeof(struct nt_stack_node) == 16, "stack node layout");

#endif
