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

/* Terminals obey U+0080 to U+009F as well, and jansson passes them on. Its pieces are whole characters. */
static int print_escaped(const char *text, size_t size, void *file) {
  size_t from = 0;
  for (size_t i = 0; i + 1 < size; i++) {
    unsigned char low = (unsigned char)text[i + 1];
    if ((unsigned char)text[i] != 0xc2 || low < 0x80 || low > 0x9f)
      continue;
    fwrite(text + from, 1, i - from, file);
    fprintf(file, "\\u%04x", low);
    from = ++i + 1;
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
