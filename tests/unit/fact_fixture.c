/* SPDX-License-Identifier: Apache-2.0 */
#include "fact_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char value[4096];

const char *fact(const struct nt_buffer *facts, const char *key) {
  struct nt_cursor cursor = {facts->data, facts->length, false};
  const unsigned char *at;
  const char *found = NULL;
  uint32_t length;
  uint16_t kind;
  const size_t key_length = strlen(key);
  while (nt_entry_next(&cursor, &kind, &at, &length)) {
    if (kind != NT_ENTRY_DUMP_FACT || length <= key_length || at[key_length] != '=' ||
        memcmp(at, key, key_length))
      continue;
    assert_null(found);
    memcpy(value, at + key_length + 1, length - key_length - 1);
    value[length - key_length - 1] = 0;
    found = value;
  }
  return found;
}

unsigned fact_count(const struct nt_buffer *facts) {
  struct nt_cursor cursor = {facts->data, facts->length, false};
  const unsigned char *at;
  uint32_t length;
  uint16_t kind;
  unsigned count = 0;
  while (nt_entry_next(&cursor, &kind, &at, &length))
    count += kind == NT_ENTRY_DUMP_FACT;
  return count;
}

void assert_fact(const struct nt_buffer *facts, const char *key, const char *wanted) {
  const char *found = fact(facts, key);
  if (!found)
    fail_msg("no fact %s", key);
  else if (strcmp(found, wanted))
    fail_msg("%s is '%s', not '%s'", key, found, wanted);
}

void assert_no_fact(const struct nt_buffer *facts, const char *key) {
  const char *found = fact(facts, key);
  if (found)
    fail_msg("%s is '%s'", key, found);
}

void fact_clear(struct nt_buffer *facts) {
  free(facts->data);
  *facts = (struct nt_buffer){0};
}
