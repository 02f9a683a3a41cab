/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/drain_stacks.h"

#include <stdlib.h>

#include "trace/read_stacks.h"
#include "trace/stack_frames.h"

struct nt_stack_definer {
  const struct nt_area *area;
  uint64_t epoch;
  uint32_t node_count, code_count; /* ids that the regions have room for */
  uint64_t *nodes, *codes;         /* bits: defined; nodes also: wanted and on the list */
  uint64_t *trial;                 /* codes, once the frames being made are written */
  uint32_t *wanted;                /* nodes; codes follow from them */
  uint32_t wanted_count;
};

static bool has_bit(const uint64_t *bits, uint32_t i) {
  return bits[i / 64] >> (i % 64) & 1;
}

static void set_bit(uint64_t *bits, uint32_t i) {
  bits[i / 64] |= UINT64_C(1) << (i % 64);
}

struct nt_stack_definer *nt_stack_definer_new(const struct nt_area *area) {
  struct nt_stack_definer *definer = calloc(1, sizeof *definer);
  if (!definer)
    return NULL;
  definer->area = area;
  if (area->stacks && area->codes) {
    definer->node_count = area->header->stack_size / (uint32_t)sizeof(struct nt_stack_node);
    definer->code_count = area->header->code_size / NT_CODE_UNIT;
  }
  definer->nodes = calloc(definer->node_count / 64 + 1, sizeof *definer->nodes);
  definer->codes = calloc(definer->code_count / 64 + 1, sizeof *definer->codes);
  definer->trial = calloc(definer->code_count / 64 + 1, sizeof *definer->trial);
  definer->wanted = calloc(definer->node_count + 1, sizeof *definer->wanted);
  if (definer->nodes && definer->codes && definer->trial && definer->wanted)
    return definer;
  nt_stack_definer_free(definer);
  return NULL;
}

void nt_stack_definer_free(struct nt_stack_definer *definer) {
  if (!definer)
    return;
  free(definer->nodes);
  free(definer->codes);
  free(definer->trial);
  free(definer->wanted);
  free(definer);
}

void nt_stack_definer_forget(struct nt_stack_definer *definer) {
  memset(definer->nodes, 0, (definer->node_count / 64 + 1) * sizeof *definer->nodes);
  memset(definer->codes, 0, (definer->code_count / 64 + 1) * sizeof *definer->codes);
  definer->wanted_count = 0;
}

void nt_stack_definer_want(struct nt_stack_definer *definer, uint64_t epoch, uint32_t id) {
  if (definer->epoch != epoch) {
    nt_stack_definer_forget(definer);
    definer->epoch = epoch;
  }
  struct nt_stack_node node;
  for (; id && id < definer->node_count && !has_bit(definer->nodes, id); id = node.parent) {
    if (!nt_stack_node_at(definer->area->stacks, definer->area->header->stack_size, id, &node))
      return;
    set_bit(definer->nodes, id);
    definer->wanted[definer->wanted_count++] = id;
  }
}

/* ---- payloads ----------------------------------------------------------------------------------- */

static void add_code(struct nt_buffer *out, uint32_t id, const struct nt_code_entry *entry,
                     const unsigned char *bytes, bool lines) {
  const uint32_t text = entry->file_length + entry->name_length;
  const uint32_t table = lines ? entry->table_length : 0;
  unsigned char *at = nt_entry_add(out, NT_ENTRY_CODE, NT_CODE_HEAD + text + table);
  if (!at)
    return;
  nt_put_u32(at + NT_CODE_ID, id);
  nt_put_u32(at + NT_CODE_FIRST_LINE, (uint32_t)entry->first_line);
  nt_put_u16(at + NT_CODE_LINES, entry->lines);
  nt_put_u16(at + NT_CODE_FLAGS,
             lines ? entry->flags : (uint16_t)(entry->flags | NT_CODE_NO_LINES));
  nt_put_u32(at + NT_CODE_FILE_LENGTH, entry->file_length);
  nt_put_u32(at + NT_CODE_NAME_LENGTH, entry->name_length);
  nt_put_u32(at + NT_CODE_TABLE_LENGTH, table);
  memcpy(at + NT_CODE_HEAD, bytes, text + table);
}

static void add_node(struct nt_buffer *out, uint32_t id, const struct nt_stack_node *node) {
  unsigned char *at = nt_buffer_add(out, NT_NODE_SIZE);
  if (!at)
    return;
  nt_put_u32(at + NT_NODE_ID, id);
  nt_put_u32(at + NT_NODE_PARENT, node->parent);
  nt_put_u32(at + NT_NODE_CODE, node->code);
  nt_put_u32(at + NT_NODE_OFFSET, (uint32_t)node->offset);
  nt_put_u32(at + NT_NODE_DEPTH, node->depth);
}

static int by_id(const void *a, const void *b) {
  const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

struct payloads {
  struct nt_buffer codes, nodes;
  uint32_t code_count, node_count;
};

/* Fills both from the list; `lines`: with line tables. */
static void gather(const struct nt_stack_definer *definer, bool lines, struct payloads *out) {
  const struct nt_area *area = definer->area;
  for (uint32_t i = 0; i < definer->wanted_count; i++) {
    struct nt_stack_node node;
    struct nt_code_entry entry;
    const unsigned char *bytes;
    if (!nt_stack_node_at(area->stacks, area->header->stack_size, definer->wanted[i], &node))
      continue;
    add_node(&out->nodes, definer->wanted[i], &node);
    out->node_count++;
    if (node.code >= definer->code_count || has_bit(definer->trial, node.code) ||
        !nt_stack_code_at(area->codes, area->header->code_size, node.code, &entry, &bytes))
      continue;
    set_bit(definer->trial, node.code);
    add_code(&out->codes, node.code, &entry, bytes, lines);
    out->code_count++;
  }
}

static int write_frame(struct nt_packer *packer, uint64_t epoch, uint16_t type, uint32_t count,
                       const struct nt_buffer *payload, struct nt_buffer *frames) {
  struct nt_frame frame = {.type = type, .epoch = epoch, .records = count};
  if (payload->failed)
    return -NT_ERR_MEMORY;
  return count ? nt_frame_write(packer, &frame, NULL, 0, payload->data, payload->length, frames)
               : 0;
}

static int try_write(struct nt_stack_definer *definer, struct nt_packer *packer, bool lines,
                     struct nt_buffer *frames) {
  struct payloads payloads = {0};
  memcpy(definer->trial, definer->codes, (definer->code_count / 64 + 1) * sizeof *definer->codes);
  gather(definer, lines, &payloads);
  int rc = write_frame(packer, definer->epoch, NT_FRAME_CODES, payloads.code_count, &payloads.codes,
                       frames);
  if (!rc)
    rc = write_frame(packer, definer->epoch, NT_FRAME_STACKS, payloads.node_count, &payloads.nodes,
                     frames);
  free(payloads.codes.data);
  free(payloads.nodes.data);
  return rc;
}

int nt_stack_definer_write(struct nt_stack_definer *definer, struct nt_packer *packer,
                           uint64_t limit, struct nt_buffer *frames) {
  const size_t before = frames->length;
  if (!definer->wanted_count)
    return 0;
  /* A parent's id is the smaller one, so it comes first. */
  qsort(definer->wanted, definer->wanted_count, sizeof *definer->wanted, by_id);
  int rc = try_write(definer, packer, true, frames);
  if (!rc && frames->length - before > limit) {
    frames->length = before;
    rc = try_write(definer, packer, false, frames);
  }
  if (rc || frames->length - before > limit)
    frames->length = before;
  definer->wanted_count = 0;
  if (rc) {
    nt_stack_definer_forget(definer);
    return rc;
  }
  memcpy(definer->codes, definer->trial, (definer->code_count / 64 + 1) * sizeof *definer->codes);
  return 0;
}
