/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks of a digest. Line tables are what takes most of a trace's room for stacks: here lines are looked up, and each
 * line from which something is called is a code object of its own that begins there and has no table.
 */
#include <stdlib.h>
#include <string.h>

#include "trace/digest_parts.h"
#include "trace/python_lines.h"
#include "trace/stack_frames.h"

struct code {
  struct nt_stack_frame frame; /* text belongs to the trace */
  uint64_t hash;
};

struct known {
  uint32_t old, new;
};

struct nt_digest_stacks {
  struct nt_trace *trace;
  struct code *codes;
  struct nt_stack_node *nodes; /* node i + 1 */
  struct known *stacks;
  uint32_t code_count, node_count, stack_count;
  uint32_t code_room, node_room, stack_room;
};

struct nt_digest_stacks *nt_digest_stacks_new(struct nt_trace *trace) {
  struct nt_digest_stacks *stacks = calloc(1, sizeof *stacks);
  if (stacks)
    stacks->trace = trace;
  return stacks;
}

void nt_digest_stacks_free(struct nt_digest_stacks *stacks) {
  if (!stacks)
    return;
  free(stacks->codes);
  free(stacks->nodes);
  free(stacks->stacks);
  free(stacks);
}

/* Room for one more; false, and all as it was, when there is no memory. */
static bool grow(void **list, uint32_t count, uint32_t *room, size_t size) {
  if (count < *room)
    return true;
  const uint32_t wanted = *room ? *room * 2 : 64;
  void *grown = realloc(*list, wanted * size);
  if (!grown)
    return false;
  *list = grown;
  *room = wanted;
  return true;
}

static uint64_t hash_text(uint64_t hash, const char *text) {
  for (const char *c = text ? text : ""; *c; c++)
    hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
  return hash * 31;
}

static bool same(const struct nt_stack_frame *a, const struct nt_stack_frame *b) {
  return !a->build_id == !b->build_id && !strcmp(a->file, b->file) &&
         !strcmp(a->function, b->function) && a->line == b->line &&
         (!a->build_id || !strcmp(a->build_id, b->build_id));
}

/* From 1; 0 when there is no memory. */
static uint32_t code_of(struct nt_digest_stacks *stacks, const struct nt_stack_frame *frame) {
  const uint64_t hash = hash_text(
      hash_text(hash_text((uint64_t)frame->line, frame->file), frame->function), frame->build_id);
  for (uint32_t i = 0; i < stacks->code_count; i++)
    if (stacks->codes[i].hash == hash && same(&stacks->codes[i].frame, frame))
      return i + 1;
  void *list = stacks->codes;
  const bool room = grow(&list, stacks->code_count, &stacks->code_room, sizeof *stacks->codes);
  stacks->codes = list;
  if (!room)
    return 0;
  stacks->codes[stacks->code_count] = (struct code){*frame, hash};
  return ++stacks->code_count;
}

static uint32_t node_of(struct nt_digest_stacks *stacks, uint32_t parent, uint32_t code,
                        int32_t offset) {
  /* Children are younger than their parent. */
  for (uint32_t id = parent + 1; id <= stacks->node_count; id++) {
    const struct nt_stack_node *node = &stacks->nodes[id - 1];
    if (node->parent == parent && node->code == code && node->offset == offset)
      return id;
  }
  void *list = stacks->nodes;
  const bool room = grow(&list, stacks->node_count, &stacks->node_room, sizeof *stacks->nodes);
  stacks->nodes = list;
  if (!room)
    return 0;
  const uint32_t depth = parent ? stacks->nodes[parent - 1].depth + 1 : 1;
  stacks->nodes[stacks->node_count] =
      (struct nt_stack_node){.parent = parent, .code = code, .offset = offset, .depth = depth};
  return ++stacks->node_count;
}

static uint32_t add_stack(struct nt_digest_stacks *stacks, uint32_t old) {
  const struct nt_stack_frame *frames;
  const int count = nt_trace_stack(stacks->trace, old, &frames);
  uint32_t id = 0;
  for (int i = count; i-- > 0;) {
    const uint32_t code = code_of(stacks, &frames[i]);
    id = code ? node_of(stacks, id, code, frames[i].build_id ? (int32_t)frames[i].offset : 0) : 0;
    if (!id)
      return 0;
  }
  return id;
}

uint32_t nt_digest_stack(struct nt_digest_stacks *stacks, uint32_t old) {
  if (!old)
    return 0;
  uint32_t low = 0, high = stacks->stack_count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (stacks->stacks[middle].old < old)
      low = middle + 1;
    else
      high = middle;
  }
  if (low < stacks->stack_count && stacks->stacks[low].old == old)
    return stacks->stacks[low].new;
  const uint32_t id = add_stack(stacks, old);
  void *list = stacks->stacks;
  const bool room = grow(&list, stacks->stack_count, &stacks->stack_room, sizeof *stacks->stacks);
  stacks->stacks = list;
  if (!room)
    return id;
  memmove(&stacks->stacks[low + 1], &stacks->stacks[low],
          (stacks->stack_count - low) * sizeof *stacks->stacks);
  stacks->stacks[low] = (struct known){old, id};
  stacks->stack_count++;
  return id;
}

static void add_code(struct nt_buffer *out, uint32_t id, const struct nt_stack_frame *frame) {
  const bool native = frame->build_id != NULL;
  const char *name = native ? frame->build_id : frame->function;
  const size_t file_length = strlen(frame->file), name_length = strlen(name);
  unsigned char *at =
      nt_entry_add(out, NT_ENTRY_CODE, (uint32_t)(NT_CODE_HEAD + file_length + name_length));
  if (!at)
    return;
  nt_put_u32(at + NT_CODE_ID, id);
  nt_put_u32(at + NT_CODE_FIRST_LINE, (uint32_t)frame->line);
  nt_put_u16(at + NT_CODE_LINES, native ? NT_LINES_MODULE : NT_PYTHON_LINES_3_8);
  nt_put_u16(at + NT_CODE_FLAGS, native ? NT_CODE_NO_LINES : 0);
  nt_put_u32(at + NT_CODE_FILE_LENGTH, (uint32_t)file_length);
  nt_put_u32(at + NT_CODE_NAME_LENGTH, (uint32_t)name_length);
  memcpy(at + NT_CODE_HEAD, frame->file, file_length);
  memcpy(at + NT_CODE_HEAD + file_length, name, name_length);
}

int nt_digest_stack_frames(const struct nt_digest *digest, const struct nt_digest_stacks *stacks,
                           struct nt_buffer *out) {
  struct nt_buffer codes = {0}, nodes = {0};
  int rc = 0;
  for (uint32_t i = 0; i < stacks->code_count; i++)
    add_code(&codes, i + 1, &stacks->codes[i].frame);
  for (uint32_t i = 0; i < stacks->node_count; i++) {
    const struct nt_stack_node *node = &stacks->nodes[i];
    unsigned char *at = nt_buffer_add(&nodes, NT_NODE_SIZE);
    if (!at)
      break;
    nt_put_u32(at + NT_NODE_ID, i + 1);
    nt_put_u32(at + NT_NODE_PARENT, node->parent);
    nt_put_u32(at + NT_NODE_CODE, node->code);
    nt_put_u32(at + NT_NODE_OFFSET, (uint32_t)node->offset);
    nt_put_u32(at + NT_NODE_DEPTH, node->depth);
  }
  if (stacks->code_count)
    rc = nt_digest_frame(digest, NT_FRAME_CODES, stacks->code_count, &codes, out);
  if (!rc && stacks->node_count)
    rc = nt_digest_frame(digest, NT_FRAME_STACKS, stacks->node_count, &nodes, out);
  free(codes.data);
  free(nodes.data);
  return rc;
}
