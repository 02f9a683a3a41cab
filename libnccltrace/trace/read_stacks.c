/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/read_stacks.h"

#include <stdlib.h>
#include <string.h>

#include "trace/frame.h"
#include "trace/python_lines.h"
#include "trace/reader.h"
#include "trace/stack_frames.h"

#define ENTRIES_MAX ((size_t)1 << 20)

enum { FRAMES_MAX = 2 * NT_STACK_FRAMES }; /* native ones, then Python's */

void nt_stack_table_free(struct nt_stack_table *table) {
  for (size_t i = 0; i < table->code_count; i++)
    free(table->codes[i].file);
  for (size_t i = 0; i < table->node_count; i++)
    free(table->nodes[i].frames);
  free(table->codes);
  free(table->nodes);
  memset(table, 0, sizeof *table);
}

/* ---- adding ------------------------------------------------------------------------------------- */

/* One more of `size` bytes at the end of *items. */
static int grow(void **items, size_t count, size_t *room, size_t size) {
  if (count < *room)
    return 0;
  if (count >= ENTRIES_MAX)
    return -NT_ERR_SPACE;
  const size_t wanted = *room ? *room * 2 : 64;
  void *grown = realloc(*items, wanted * size);
  if (!grown)
    return -NT_ERR_MEMORY;
  *items = grown;
  *room = wanted;
  return 0;
}

/* `bytes` are file, function and line table, of the lengths that `entry` gives. */
static int add_code(struct nt_stack_table *table, uint32_t id, const struct nt_code_entry *entry,
                    const unsigned char *bytes) {
  void *codes = table->codes;
  int rc = grow(&codes, table->code_count, &table->code_room, sizeof *table->codes);
  table->codes = codes;
  if (rc)
    return rc;
  const size_t file = entry->file_length, name = entry->name_length, lines = entry->table_length;
  char *copy = malloc(file + name + lines + 2);
  if (!copy)
    return -NT_ERR_MEMORY;
  memcpy(copy, bytes, file);
  copy[file] = 0;
  memcpy(copy + file + 1, bytes + file, name);
  copy[file + 1 + name] = 0;
  memcpy(copy + file + name + 2, bytes + file + name, lines);
  table->codes[table->code_count++] =
      (struct nt_known_code){.id = id,
                             .table_length = entry->table_length,
                             .first_line = entry->first_line,
                             .lines = entry->lines,
                             .flags = entry->flags,
                             .file = copy,
                             .function = copy + file + 1,
                             .table = (const unsigned char *)copy + file + name + 2};
  table->sorted = false;
  return 0;
}

static int add_node(struct nt_stack_table *table, uint32_t id, const struct nt_stack_node *node) {
  void *nodes = table->nodes;
  int rc = grow(&nodes, table->node_count, &table->node_room, sizeof *table->nodes);
  table->nodes = nodes;
  if (rc)
    return rc;
  table->nodes[table->node_count++] = (struct nt_known_node){.id = id, .node = *node};
  table->sorted = false;
  return 0;
}

/* The sizes add up to no more than `length`. */
static bool fits(const struct nt_code_entry *entry, uint64_t length) {
  return (uint64_t)entry->file_length + entry->name_length + entry->table_length <= length;
}

int nt_stack_table_codes(struct nt_stack_table *table, const unsigned char *payload,
                         size_t length) {
  struct nt_cursor cursor = {.at = payload, .left = length};
  const unsigned char *at;
  uint16_t kind;
  uint32_t size;
  while (nt_entry_next(&cursor, &kind, &at, &size)) {
    if (kind != NT_ENTRY_CODE)
      continue;
    if (size < NT_CODE_HEAD)
      return -NT_ERR_CORRUPT;
    const struct nt_code_entry entry = {
        .lines = nt_get_u16(at + NT_CODE_LINES),
        .flags = nt_get_u16(at + NT_CODE_FLAGS),
        .first_line = (int32_t)nt_get_u32(at + NT_CODE_FIRST_LINE),
        .file_length = nt_get_u32(at + NT_CODE_FILE_LENGTH),
        .name_length = nt_get_u32(at + NT_CODE_NAME_LENGTH),
        .table_length = nt_get_u32(at + NT_CODE_TABLE_LENGTH),
    };
    if (!fits(&entry, size - NT_CODE_HEAD))
      return -NT_ERR_CORRUPT;
    int rc = add_code(table, nt_get_u32(at + NT_CODE_ID), &entry, at + NT_CODE_HEAD);
    if (rc)
      return rc;
  }
  return cursor.failed ? -NT_ERR_CORRUPT : 0;
}

int nt_stack_table_nodes(struct nt_stack_table *table, const unsigned char *payload,
                         size_t length) {
  if (length % NT_NODE_SIZE)
    return -NT_ERR_CORRUPT;
  for (const unsigned char *at = payload; at < payload + length; at += NT_NODE_SIZE) {
    const struct nt_stack_node node = {.parent = nt_get_u32(at + NT_NODE_PARENT),
                                       .code = nt_get_u32(at + NT_NODE_CODE),
                                       .offset = (int32_t)nt_get_u32(at + NT_NODE_OFFSET),
                                       .depth = nt_get_u32(at + NT_NODE_DEPTH)};
    int rc = add_node(table, nt_get_u32(at + NT_NODE_ID), &node);
    if (rc)
      return rc;
  }
  return 0;
}

/* ---- from an area ------------------------------------------------------------------------------- */

bool nt_stack_code_at(const struct nt_code_region *region, uint64_t size, uint32_t id,
                      struct nt_code_entry *entry, const unsigned char **bytes) {
  const uint64_t at = (uint64_t)id * NT_CODE_UNIT;
  if (at < sizeof *region || at > size || size - at < sizeof *entry)
    return false;
  memcpy(entry, (const unsigned char *)region + at, sizeof *entry);
  *bytes = (const unsigned char *)region + at + sizeof *entry;
  return fits(entry, size - at - sizeof *entry);
}

bool nt_stack_node_at(const struct nt_stack_region *region, uint64_t size, uint32_t id,
                      struct nt_stack_node *node) {
  const uint64_t at = sizeof *region + (uint64_t)id * sizeof *node;
  if (!id || size < at + sizeof *node ||
      id >= atomic_load_explicit(&region->used, memory_order_relaxed))
    return false;
  memcpy(node, (const unsigned char *)region + at, sizeof *node);
  return node->code && node->parent < id;
}

/* Ids, and what begins with its id. */
static int by_id(const void *a, const void *b) {
  const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

/* Nodes lead to the codes: entries of the region of codes can be found in no other way. */
int nt_stack_table_area(struct nt_stack_table *table, const struct nt_code_region *codes,
                        uint64_t codes_size, const struct nt_stack_region *stacks,
                        uint64_t stacks_size) {
  const uint64_t nodes = stacks_size / sizeof(struct nt_stack_node);
  struct nt_stack_node node;
  size_t count = 0;
  int rc = 0;
  uint32_t *ids = calloc(nodes + 1, sizeof *ids);
  if (!ids)
    return -NT_ERR_MEMORY;
  for (uint32_t id = 1; !rc && id < nodes; id++) {
    if (!nt_stack_node_at(stacks, stacks_size, id, &node))
      continue;
    rc = add_node(table, id, &node);
    ids[count++] = node.code;
  }
  qsort(ids, count, sizeof *ids, by_id);
  for (size_t i = 0; !rc && i < count; i++) {
    struct nt_code_entry entry;
    const unsigned char *bytes;
    if ((!i || ids[i] != ids[i - 1]) && nt_stack_code_at(codes, codes_size, ids[i], &entry, &bytes))
      rc = add_code(table, ids[i], &entry, bytes);
  }
  free(ids);
  return rc;
}

/* ---- asking ------------------------------------------------------------------------------------- */

static void sort(struct nt_stack_table *table) {
  if (table->sorted)
    return;
  if (table->code_count) {
    qsort(table->codes, table->code_count, sizeof *table->codes, by_id);
    size_t kept = 0;
    for (size_t i = 0; i < table->code_count; i++) {
      struct nt_known_code *before = kept ? &table->codes[kept - 1] : NULL;
      if (!before || before->id != table->codes[i].id) {
        table->codes[kept++] = table->codes[i];
      } else if (before->flags & NT_CODE_NO_LINES) {
        free(before->file);
        *before = table->codes[i];
      } else {
        free(table->codes[i].file);
      }
    }
    table->code_count = kept;
  }
  if (table->node_count) {
    qsort(table->nodes, table->node_count, sizeof *table->nodes, by_id);
    size_t kept = 0;
    for (size_t i = 0; i < table->node_count; i++) {
      if (kept && table->nodes[kept - 1].id == table->nodes[i].id)
        free(table->nodes[i].frames);
      else
        table->nodes[kept++] = table->nodes[i];
    }
    table->node_count = kept;
  }
  table->sorted = true;
}

static struct nt_known_node *known_node(const struct nt_stack_table *table, uint32_t id) {
  return table->node_count
             ? bsearch(&id, table->nodes, table->node_count, sizeof *table->nodes, by_id)
             : NULL;
}

static const struct nt_known_code *known_code(const struct nt_stack_table *table, uint32_t id) {
  return table->code_count
             ? bsearch(&id, table->codes, table->code_count, sizeof *table->codes, by_id)
             : NULL;
}

/* A parent's id is less than its child's, so this ends; a file that says otherwise is cut off there. */
static uint32_t decode(const struct nt_stack_table *table, const struct nt_known_node *node,
                       struct nt_stack_frame out[FRAMES_MAX]) {
  uint32_t count = 0;
  while (node && count < FRAMES_MAX) {
    const struct nt_known_code *code = known_code(table, node->node.code);
    struct nt_stack_frame *frame = &out[count++];
    *frame = (struct nt_stack_frame){.file = "?", .function = "?"};
    if (code && code->lines == NT_LINES_MODULE) {
      *frame = (struct nt_stack_frame){.file = code->file,
                                       .function = "",
                                       .build_id = code->function,
                                       .offset = (uint32_t)node->node.offset};
    } else if (code) {
      frame->file = code->file;
      frame->function = code->function;
      if (!(code->flags & NT_CODE_NO_LINES))
        frame->line = nt_python_line(code->lines, code->table, code->table_length, code->first_line,
                                     node->node.offset);
    }
    node = node->node.parent < node->id ? known_node(table, node->node.parent) : NULL;
  }
  return count;
}

int nt_stack_table_get(struct nt_stack_table *table, uint32_t id,
                       const struct nt_stack_frame **frames) {
  struct nt_stack_frame buffer[FRAMES_MAX];
  *frames = NULL;
  sort(table);
  struct nt_known_node *node = id ? known_node(table, id) : NULL;
  if (!node)
    return 0;
  if (!node->frames) {
    const uint32_t count = decode(table, node, buffer);
    node->frames = malloc(count * sizeof *node->frames);
    if (!node->frames)
      return -NT_ERR_MEMORY;
    memcpy(node->frames, buffer, count * sizeof *node->frames);
    node->frame_count = count;
  }
  *frames = node->frames;
  return (int)node->frame_count;
}
