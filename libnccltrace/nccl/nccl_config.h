/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ncclConfig_t of any release, which an application fills in when it makes a communicator.
 *
 * Its first fields say how large it is and which release's header it was made from; what lies beyond either does not
 * exist and is not read. Fields of releases newer than the table are left alone.
 */
#ifndef NT_NCCL_CONFIG_H
#define NT_NCCL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum nt_config_field {
#define NT_CONFIG(name, offset, type, since) NT_CONFIG_##name,
#include "nccl/nccl_config.def"
  NT_CONFIG_FIELDS,
};

enum {
  NT_CONFIG_HEAD = 16,   /* size, magic, version */
  NT_CONFIG_BYTES = 116, /* all fields of the table */
};

/* A copy of the beginning; bytes from `length` on are not part of it. */
struct nt_config {
  unsigned char bytes[NT_CONFIG_BYTES];
  size_t length;
};

/* How many bytes to copy of the structure that begins with these NT_CONFIG_HEAD bytes; 0: it is no initialised
 * configuration. */
size_t nt_config_length(const void *head);

/* "minCTAs". */
const char *nt_config_name(enum nt_config_field field);
/* It is a string. */
bool nt_config_is_text(enum nt_config_field field);

/* The value of a number, or the address of a string; false if the structure does not have the field, or leaves it
 * to NCCL. */
bool nt_config_number(const struct nt_config *config, enum nt_config_field field, int *out);
bool nt_config_text(const struct nt_config *config, enum nt_config_field field, uint64_t *out);

#endif
