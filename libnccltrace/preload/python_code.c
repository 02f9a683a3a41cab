/* SPDX-License-Identifier: Apache-2.0 */
/* Once per code object: its strings as UTF-8 and its line table, copied as they are. */
#include "preload/python_code.h"

enum { TABLE_MAX = 32 * 1024 };

uint32_t nt_python_reserve(_Atomic uint32_t *used, uint32_t wanted, uint32_t limit) {
  uint32_t at = atomic_load_explicit(used, memory_order_relaxed);
  do {
    if (at > limit || wanted > limit - at)
      return UINT32_MAX;
  } while (!atomic_compare_exchange_weak_explicit(used, &at, at + wanted, memory_order_relaxed,
                                                  memory_order_relaxed));
  return at;
}

static unsigned utf8(uint32_t c, unsigned char out[4]) {
  if (c < 0x80) {
    out[0] = (unsigned char)c;
    return 1;
  }
  /* An undecodable byte of a file name stands as a lone surrogate: it becomes that byte again. */
  if (c >= 0xdc80 && c <= 0xdcff) {
    out[0] = (unsigned char)(c - 0xdc00);
    return 1;
  }
  unsigned more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
  out[0] = (unsigned char)(first[more] | c >> 6 * more);
  for (unsigned i = 1; i <= more; i++)
    out[i] = (unsigned char)(0x80 | (c >> 6 * (more - i) & 0x3f));
  return more + 1;
}

unsigned nt_python_open_text(const struct nt_python *python, const char *object,
                             const char **data) {
  const struct nt_python_layout *layout = &python->layout;
  if (!object || nt_python_pointer(object, 8) != python->text_type)
    return 0;
  uint32_t state = (uint32_t)nt_python_int(object, layout->text_state);
  unsigned shift = layout->text_kind;
  /* Some releases give the field in front of it 16 bits: then what should be the kind is zero. */
  if (!(state >> shift & 0x1f))
    shift = 16;
  unsigned kind = state >> shift & 7;
  bool compact = state >> (shift + 3) & 1, ascii = state >> (shift + 4) & 1;
  if (!compact || (kind != 1 && kind != 2 && kind != 4))
    return 0;
  *data = object + (ascii ? layout->text_ascii : layout->text_compact);
  return kind;
}

uint32_t nt_python_copy_text(const struct nt_python *python, const char *object, unsigned char *out,
                             uint32_t room, bool *cut) {
  const char *data;
  unsigned char c[4];
  unsigned kind = nt_python_open_text(python, object, &data);
  if (!kind) {
    out[0] = '?';
    return 1;
  }
  uint64_t count = nt_python_word(object, python->layout.text_length), from = count;
  uint32_t bytes = 0, written = 0;
  for (int copying = 0; copying < 2; copying++) {
    for (uint64_t i = copying ? from : count; copying ? i < count : i > 0;) {
      uint64_t at = copying ? i++ : --i;
      uint32_t value = kind == 1   ? ((const uint8_t *)data)[at]
                       : kind == 2 ? ((const uint16_t *)(const void *)data)[at]
                                   : ((const uint32_t *)(const void *)data)[at];
      unsigned length = utf8(value, c);
      if (!copying) {
        if (bytes + length > room)
          break;
        bytes += length;
        from = at;
        continue;
      }
      memcpy(out + written, c, length);
      written += length;
    }
  }
  *cut |= from > 0;
  return written;
}

/* The line table's bytes; one that is too long is left out, since the rest of it would be missed. */
static const char *open_table(const struct nt_python *python, const char *code, uint32_t *length) {
  const char *table = nt_python_pointer(code, python->layout.code_table);
  *length = 0;
  if (!table || nt_python_pointer(table, 8) != python->bytes_type)
    return NULL;
  uint64_t size = nt_python_word(table, python->layout.bytes_length);
  if (size > TABLE_MAX)
    return NULL;
  *length = (uint32_t)size;
  return table + python->layout.bytes_data;
}

static uint32_t reserve_code(struct nt_code_region *codes, uint32_t size) {
  const uint32_t unit = NT_CODE_UNIT;
  return nt_python_reserve(&codes->used, (size + unit - 1) & ~(unit - 1), codes->size);
}

uint32_t nt_python_copy_code(const struct nt_python *python, const char *code, uint64_t identity,
                             struct nt_code_region *codes) {
  unsigned char file[NT_PYTHON_FILE_BYTES], name[NT_PYTHON_NAME_BYTES];
  bool cut = false;
  uint32_t file_length = nt_python_copy_text(
      python, nt_python_pointer(code, python->layout.code_file), file, sizeof(file), &cut);
  uint32_t name_length = nt_python_copy_text(
      python, nt_python_pointer(code, python->layout.code_name), name, sizeof(name), &cut);
  uint32_t table_length;
  const char *table = open_table(python, code, &table_length);
  uint32_t size = (uint32_t)sizeof(struct nt_code_entry) + file_length + name_length;
  uint16_t flags = cut ? NT_CODE_CUT : 0;
  uint32_t at = table ? reserve_code(codes, size + table_length) : UINT32_MAX;
  if (at == UINT32_MAX) {
    table_length = 0;
    flags |= NT_CODE_NO_LINES;
    at = reserve_code(codes, size);
  }
  if (at == UINT32_MAX)
    return 0;
  unsigned char *base = (unsigned char *)codes + at;
  struct nt_code_entry *entry = (struct nt_code_entry *)(void *)base;
  *entry = (struct nt_code_entry){.identity = identity,
                                  .first_line = nt_python_int(code, python->layout.code_first_line),
                                  .lines = python->layout.lines,
                                  .flags = flags,
                                  .file_length = file_length,
                                  .name_length = name_length,
                                  .table_length = table_length};
  memcpy(base + sizeof(*entry), file, file_length);
  memcpy(base + sizeof(*entry) + file_length, name, name_length);
  if (table_length)
    memcpy(base + size, table, table_length);
  return at / NT_CODE_UNIT;
}
