/* SPDX-License-Identifier: Apache-2.0 */
/* What jansson parsed, as values; its texts stay where they are. */
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "analysis/value_tree.h"

enum { DEPTH_MAX = 64 };

static struct nt_value *convert(struct nt_value_store *store, json_t *from, int depth, int *status);

static int convert_list(struct nt_value_store *store, json_t *from, struct nt_value *to,
                        int depth) {
  int status = 0;
  size_t count = json_array_size(from);
  for (size_t i = 0; i < count && !status; i++) {
    struct nt_value *item = convert(store, json_array_get(from, i), depth + 1, &status);
    if (!status)
      status = nt_value_append(store, to, (uint32_t)i, item);
  }
  to->count = (uint32_t)count;
  return status;
}

static int convert_map(struct nt_value_store *store, json_t *from, struct nt_value *to, int depth) {
  int status = 0;
  uint32_t length = 0;
  for (void *at = json_object_iter(from); at && !status; at = json_object_iter_next(from, at)) {
    struct nt_value *key = nt_value_add(store, NT_VALUE_TEXT);
    if (!key)
      return -NT_ERR_MEMORY;
    key->text = json_object_iter_key(at);
    key->count = (uint32_t)strlen(key->text);
    struct nt_value *item = convert(store, json_object_iter_value(at), depth + 1, &status);
    if (!status)
      status = nt_value_append(store, to, length++, key);
    if (!status)
      status = nt_value_append(store, to, length++, item);
  }
  to->count = length / 2;
  return status;
}

static struct nt_value *convert(struct nt_value_store *store, json_t *from, int depth,
                                int *status) {
  static const enum nt_value_type types[] = {
      [JSON_OBJECT] = NT_VALUE_MAP,  [JSON_ARRAY] = NT_VALUE_LIST,
      [JSON_STRING] = NT_VALUE_TEXT, [JSON_INTEGER] = NT_VALUE_INTEGER,
      [JSON_REAL] = NT_VALUE_REAL,   [JSON_TRUE] = NT_VALUE_BOOL,
      [JSON_FALSE] = NT_VALUE_BOOL,  [JSON_NULL] = NT_VALUE_NONE};
  if (depth > DEPTH_MAX) {
    *status = -NT_ERR_CORRUPT;
    return NULL;
  }
  struct nt_value *to = nt_value_add(store, types[json_typeof(from)]);
  if (!to) {
    *status = -NT_ERR_MEMORY;
    return NULL;
  }
  switch (json_typeof(from)) {
  case JSON_OBJECT:
    *status = convert_map(store, from, to, depth);
    break;
  case JSON_ARRAY:
    *status = convert_list(store, from, to, depth);
    break;
  case JSON_STRING:
    to->text = json_string_value(from);
    to->count = (uint32_t)json_string_length(from);
    break;
  case JSON_INTEGER:
    to->integer = json_integer_value(from);
    break;
  case JSON_REAL:
    to->real = json_real_value(from);
    break;
  default:
    to->integer = json_is_true(from);
  }
  return to;
}

int nt_json_read(const uint8_t *bytes, size_t size, struct nt_value_store *store,
                 const struct nt_value **out, void **document, struct nt_error *err) {
  json_error_t error;
  json_t *root = json_loadb((const char *)bytes, size, 0, &error);
  int status = 0;
  *document = root;
  *out = NULL;
  err->offset = root || error.position < 0 ? 0 : (uint64_t)error.position;
  if (!root) {
    err->code =
        json_error_code(&error) == json_error_out_of_memory ? -NT_ERR_MEMORY : -NT_ERR_CORRUPT;
    snprintf(err->reason, sizeof err->reason, "no JSON: %.140s", error.text);
    return err->code;
  }
  *out = convert(store, root, 0, &status);
  if (status) {
    err->code = status;
    snprintf(err->reason, sizeof err->reason, "%s",
             status == -NT_ERR_MEMORY ? "out of memory" : "JSON nested more than 64 deep");
  }
  return status;
}

void nt_json_free(void *document) {
  json_decref(document);
}
