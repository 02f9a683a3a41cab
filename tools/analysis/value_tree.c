/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of memory that only grow, so that a tree of a million values is freed at once. */
#include "analysis/value_tree.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES ((size_t)256 << 10)
#define ALIGN sizeof(void *)

struct nt_value_block {
  struct nt_value_block *next;
  size_t size;
  _Alignas(16) unsigned char bytes[];
};

void *nt_value_room(struct nt_value_store *store, size_t size) {
  size = (size + ALIGN - 1) & ~(ALIGN - 1);
  if (!store->blocks || size > store->blocks->size - store->used) {
    size_t wanted = size > BLOCK_BYTES / 4 ? size : BLOCK_BYTES;
    struct nt_value_block *block = calloc(1, sizeof *block + wanted);
    if (!block)
      return NULL;
    block->size = wanted;
    if (store->blocks &&
        wanted == size) { /* a large one must not hide what is free in the newest */
      block->next = store->blocks->next;
      store->blocks->next = block;
      return block->bytes;
    }
    block->next = store->blocks;
    store->blocks = block;
    store->used = 0;
  }
  void *room = store->blocks->bytes + store->used;
  store->used += size;
  return room;
}

struct nt_value *nt_value_add(struct nt_value_store *store, enum nt_value_type type) {
  struct nt_value *value = nt_value_room(store, sizeof *value);
  if (value)
    value->type = (uint8_t)type;
  return value;
}

/* Room is for a power of two items, from 4 on, so that it need not be remembered. */
int nt_value_append(struct nt_value_store *store, struct nt_value *list, uint32_t length,
                    struct nt_value *item) {
  bool full = length == 0 || (length >= 4 && (length & (length - 1)) == 0);
  if (full) {
    size_t room = length ? 2 * (size_t)length : 4;
    struct nt_value **items = nt_value_room(store, room * sizeof(struct nt_value *));
    if (!items || length > UINT32_MAX / 4)
      return -NT_ERR_MEMORY;
    if (length)
      memcpy(items, list->items, length * sizeof *items);
    list->items = items;
  }
  list->items[length] = item;
  return 0;
}

void nt_value_free(struct nt_value_store *store) {
  while (store->blocks) {
    struct nt_value_block *next = store->blocks->next;
    free(store->blocks);
    store->blocks = next;
  }
  store->used = 0;
}

bool nt_value_is_text(const struct nt_value *value, const char *text) {
  size_t length = strlen(text);
  return value && value->type == NT_VALUE_TEXT && value->count == length &&
         !memcmp(value->text, text, length);
}

const struct nt_value *nt_value_get(const struct nt_value *map, const char *key, uint32_t *hint) {
  if (!map || map->type != NT_VALUE_MAP)
    return NULL;
  if (hint && *hint < map->count && nt_value_is_text(map->items[2 * (size_t)*hint], key))
    return map->items[2 * (size_t)*hint + 1];
  for (uint32_t i = 0; i < map->count; i++)
    if (nt_value_is_text(map->items[2 * (size_t)i], key)) {
      if (hint)
        *hint = i;
      return map->items[2 * (size_t)i + 1];
    }
  return NULL;
}

const struct nt_value *nt_value_at(const struct nt_value *list, uint32_t index) {
  return list && list->type == NT_VALUE_LIST && index < list->count ? list->items[index] : NULL;
}

int64_t nt_value_integer(const struct nt_value *value, int64_t otherwise) {
  char text[32], *end;
  if (!value)
    return otherwise;
  if (value->type == NT_VALUE_INTEGER || value->type == NT_VALUE_BOOL)
    return value->integer;
  if (value->type != NT_VALUE_TEXT || !value->count || value->count >= sizeof text)
    return otherwise;
  nt_value_copy(text, sizeof text, value);
  int64_t number = strtoll(text, &end, 10);
  return *end ? otherwise : number;
}

char *nt_value_copy(char *out, size_t size, const struct nt_value *value) {
  size_t length = value && value->type == NT_VALUE_TEXT ? value->count : 0;
  if (length >= size)
    length = size - 1;
  if (length)
    memcpy(out, value->text, length);
  out[length] = '\0';
  return out;
}

uint32_t nt_value_count(const struct nt_value *value) {
  return value && (value->type == NT_VALUE_LIST || value->type == NT_VALUE_MAP) ? value->count : 0;
}
