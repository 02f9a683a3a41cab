/* SPDX-License-Identifier: Apache-2.0 */
/* JSON values from untrusted text and from times. A value that finds no memory is NULL, which
 * json_object_set_new and json_pack refuse. */
#include "cli/json_output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/text.h"

json_t *nt_json_text(const char *text) {
  if (text == NULL)
    return json_null();
  json_t *value = json_string(text);
  if (value != NULL)
    return value;
  char *valid = malloc(4 * strlen(text) + 1), *end = valid;
  if (valid == NULL)
    return NULL;
  while (*text != '\0') {
    uint32_t character;
    size_t length = nt_text_utf8(text, &character);
    if (length > 0) {
      memcpy(end, text, length);
      end += length;
      text += length;
    } else {
      end += snprintf(end, 5, "\\x%02x", (unsigned char)*text++);
    }
  }
  *end = '\0';
  value = json_string(valid);
  free(valid);
  return value;
}

json_t *nt_json_time(int64_t realtime_ns) {
  char text[NT_TIME_TEXT];
  return realtime_ns >= 0 && realtime_ns < NT_TIME_FIRST
             ? json_null()
             : json_string(nt_time_text(text, realtime_ns));
}

json_t *nt_json_count(uint64_t count) {
  return json_integer(count > INT64_MAX ? INT64_MAX : (json_int_t)count);
}

json_t *nt_json_index(int32_t index) {
  return index < 0 ? json_null() : json_integer(index);
}

json_t *nt_json_address(uint64_t address) {
  char text[24];
  if (address == 0)
    return json_null();
  snprintf(text, sizeof text, "0x%" PRIx64, address);
  return json_string(text);
}

/* jansson passes on what terminals obey beside ASCII's control characters, and what hides or reorders text. Its
 * pieces are whole characters. */
static int print_escaped(const char *text, size_t size, void *file) {
  size_t from = 0, length;
  for (size_t i = 0; i < size; i += length) {
    char one[5] = {0};
    uint32_t c = 0;
    memcpy(one, text + i, size - i < 4 ? size - i : 4);
    length = nt_text_utf8(one, &c);
    if (!length || c == '\n' || !nt_text_is_unsafe(c)) {
      length += !length;
      continue;
    }
    fwrite(text + from, 1, i - from, file);
    if (c > 0xffff)
      fprintf(file, "\\u%04x\\u%04x", 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
    else
      fprintf(file, "\\u%04x", c);
    from = i + length;
  }
  return fwrite(text + from, 1, size - from, file) == size - from ? 0 : -1;
}

int nt_json_print(json_t *value, FILE *file) {
  if (value == NULL)
    return -1;
  int rc = json_dump_callback(value, print_escaped, file, JSON_INDENT(2));
  json_decref(value);
  fputc('\n', file);
  return rc != 0 || ferror(file) ? -1 : 0;
}
