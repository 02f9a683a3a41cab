/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks and code objects read back, from frames of a file and from the regions of an area.
 *
 * Ids are given once in the life of a process, so what different sources say of one id is the same, and
 * one with a line table is preferred. Everything may be wrong: lengths are checked here, and a stack whose
 * node or code is missing ends there.
 */
#ifndef NT_READ_STACKS_H
#define NT_READ_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/stack_area.h"

struct nt_area;
struct nt_stack_frame;

struct nt_known_code {
  uint32_t id;
  uint32_t table_length;
  int32_t first_line;
  uint16_t lines, flags;
  char *file, *function; /* one allocation, which the line table follows; begins at `file` */
  const unsigned char *table;
};

struct nt_known_node {
  uint32_t id;
  struct nt_stack_node node;
  struct nt_stack_frame *frames; /* decoded when first asked for */
  uint32_t frame_count;
};

/* Zero-initialise; release with nt_stack_table_free. */
struct nt_stack_table {
  struct nt_known_code *codes;
  struct nt_known_node *nodes;
  size_t code_count, code_room, node_count, node_room;
  bool sorted;
};

void nt_stack_table_free(struct nt_stack_table *table);

/* Payloads of CODES and STACKS frames. -NT_ERR_CORRUPT (what came before it counts), -NT_ERR_MEMORY. */
int nt_stack_table_codes(struct nt_stack_table *table, const unsigned char *payload, size_t length);
int nt_stack_table_nodes(struct nt_stack_table *table, const unsigned char *payload, size_t length);

/* One entry of a region that is `size` bytes long. False: there is none, or it cannot be right. */
bool nt_stack_code_at(const struct nt_code_region *region, uint64_t size, uint32_t id,
                      struct nt_code_entry *entry, const unsigned char **bytes);
bool nt_stack_node_at(const struct nt_stack_region *region, uint64_t size, uint32_t id,
                      struct nt_stack_node *node);

/* Everything in the two regions, of which `codes_size` and `stacks_size` bytes are mapped. Call it after
 * the records have been copied. Any process. */
int nt_stack_table_area(struct nt_stack_table *table, const struct nt_code_region *codes,
                        uint64_t codes_size, const struct nt_stack_region *stacks,
                        uint64_t stacks_size);

/* Frames of a stack, innermost first; valid until the table is freed. Returns their number, 0 if the
 * stack is not known, -NT_ERR_MEMORY. */
int nt_stack_table_get(struct nt_stack_table *table, uint32_t id,
                       const struct nt_stack_frame **frames);

#endif
