/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values as a file holds them: what a pickle and JSON have in common.
 *
 * Text is not copied and not terminated: it lies in the bytes that were read, which must outlive the tree. Values
 * may be shared, and in a hostile file a list may hold itself, so whoever walks a tree goes a fixed depth.
 */
#ifndef NT_VALUE_TREE_H
#define NT_VALUE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/error.h"

enum nt_value_type {
  NT_VALUE_NONE,
  NT_VALUE_BOOL,
  NT_VALUE_INTEGER,
  NT_VALUE_REAL,
  NT_VALUE_TEXT, /* text or bytes */
  NT_VALUE_LIST, /* list or tuple */
  NT_VALUE_MAP,  /* keys and values in turn */
};

struct nt_value {
  uint8_t type;   /* enum nt_value_type */
  uint32_t count; /* bytes of text, items of a list, pairs of a map */
  union {
    int64_t integer; /* BOOL too; saturated */
    double real;
    const char *text;
    struct nt_value **items; /* of a map: key, value, key, value … */
  };
};

/* All values of one file; freed at once. */
struct nt_value_store {
  struct nt_value_block *blocks;
  size_t used; /* in the newest */
};

/* Zeroed memory; NULL when there is none. */
void *nt_value_room(struct nt_value_store *store, size_t size);
struct nt_value *nt_value_add(struct nt_value_store *store, enum nt_value_type type);
/* Appends to a list or map that so far has `*length` items; 0 or -NT_ERR_MEMORY. */
int nt_value_append(struct nt_value_store *store, struct nt_value *list, uint32_t length,
                    struct nt_value *item);
void nt_value_free(struct nt_value_store *store);

/* The value of a key; NULL if `map` is none or has no such key. `hint`, which may be NULL, remembers where the key
 * stood in a map before: entries of one kind have their keys in one order. */
const struct nt_value *nt_value_get(const struct nt_value *map, const char *key, uint32_t *hint);
/* Item of a list, NULL if there is none. */
const struct nt_value *nt_value_at(const struct nt_value *list, uint32_t index);
/* Of a number or of text that is one; `otherwise` if it is neither. */
int64_t nt_value_integer(const struct nt_value *value, int64_t otherwise);
bool nt_value_is_text(const struct nt_value *value, const char *text);
/* A terminated copy, cut to size; "" if it is no text. Returns `out`. */
char *nt_value_copy(char *out, size_t size, const struct nt_value *value);
/* Number of items of a list or map, else 0. */
uint32_t nt_value_count(const struct nt_value *value);

/* JSON text. The tree refers to *document, which the caller frees with nt_json_free once it is done. On failure err
 * says where and why. */
int nt_json_read(const uint8_t *bytes, size_t size, struct nt_value_store *store,
                 const struct nt_value **out, void **document, struct nt_error *err);
void nt_json_free(void *document);

#endif
