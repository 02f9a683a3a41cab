/* SPDX-License-Identifier: Apache-2.0 */
/* Where the fields of ncclConfig_t lie, expanded from nccl_config.def. No state. */
#include "nccl/nccl_config.h"

#include <limits.h>
#include <string.h>

enum { MAGIC_AT = 8, VERSION_AT = 12 };

static const uint32_t magic_number = 0xcafebeef;

struct field {
  const char *name;
  uint32_t offset, size, since;
};

static const struct field fields[NT_CONFIG_FIELDS] = {
#define NT_CONFIG(name, offset, type, since) {#name, offset, sizeof(type), since},
#include "nccl/nccl_config.def"
};

#define NT_CONFIG(name, offset, type, since)                                                       \
  _Static_assert((offset) >= NT_CONFIG_HEAD && (offset) + sizeof(type) <= NT_CONFIG_BYTES, #name);
#include "nccl/nccl_config.def"

static uint32_t word(const void *bytes, size_t at) {
  uint32_t value;
  memcpy(&value, (const char *)bytes + at, sizeof(value));
  return value;
}

size_t nt_config_length(const void *head) {
  size_t size;
  memcpy(&size, head, sizeof(size));
  if (word(head, MAGIC_AT) != magic_number || size < NT_CONFIG_HEAD)
    return 0;
  return size < NT_CONFIG_BYTES ? size : NT_CONFIG_BYTES;
}

/* A new field may lie where an older structure has padding, so its size alone does not tell. */
static const unsigned char *find(const struct nt_config *config, enum nt_config_field field) {
  const struct field *f = &fields[field];
  if (config->length < NT_CONFIG_HEAD || f->offset + f->size > config->length ||
      word(config->bytes, VERSION_AT) < f->since)
    return NULL;
  return config->bytes + f->offset;
}

const char *nt_config_name(enum nt_config_field field) {
  return fields[field].name;
}

bool nt_config_is_text(enum nt_config_field field) {
  return fields[field].size == sizeof(char *);
}

bool nt_config_number(const struct nt_config *config, enum nt_config_field field, int *out) {
  const unsigned char *at = nt_config_is_text(field) ? NULL : find(config, field);
  if (!at)
    return false;
  memcpy(out, at, sizeof(*out));
  return *out != INT_MIN;
}

bool nt_config_text(const struct nt_config *config, enum nt_config_field field, uint64_t *out) {
  const unsigned char *at = nt_config_is_text(field) ? find(config, field) : NULL;
  uintptr_t address;
  if (!at)
    return false;
  memcpy(&address, at, sizeof(address));
  *out = address;
  return address != 0;
}
