/* SPDX-License-Identifier: Apache-2.0 */
/* Increments of lines are summed up in 64 bits: no table that fits into memory overflows them. */
#include "trace/python_lines.h"

#include "trace/bytes.h"

#define NO_LINE_3_10 (-128)
#define KIND_SHORT_END 10 /* entries of kind 0…9: same line, one more byte */
#define KIND_NEXT_LINES 12
#define KIND_NO_COLUMNS 13
#define KIND_LONG 14
#define KIND_NONE 15

static int32_t as_line(int64_t line) {
  return line > 0 && line <= INT32_MAX ? (int32_t)line : 0;
}

/* (bytes, lines)…: the code moves on by so many bytes, and then the line by so many. */
static int32_t line_3_8(struct nt_cursor table, int32_t first_line, int32_t offset) {
  int64_t line = first_line, at = 0;
  while (table.left >= 2) {
    at += nt_take_u8(&table);
    if (at > offset)
      break;
    line += (int8_t)nt_take_u8(&table);
  }
  return as_line(line);
}

/* (bytes, lines)…: the line moves first, and then holds for so many bytes. */
static int32_t line_3_10(struct nt_cursor table, int32_t first_line, int32_t offset) {
  int64_t line = first_line, end = 0;
  while (table.left >= 2) {
    end += nt_take_u8(&table);
    const int8_t step = (int8_t)nt_take_u8(&table);
    if (step != NO_LINE_3_10)
      line += step;
    if (end > offset)
      return step == NO_LINE_3_10 ? 0 : as_line(line);
  }
  return 0;
}

/* Six bits a byte, the least first, bit 6 for "more follows", and the sign in bit 0 of the whole. */
static int64_t take_signed(struct nt_cursor *table) {
  uint64_t value = 0;
  unsigned shift = 0;
  uint8_t byte;
  do {
    byte = nt_take_u8(table);
    if (shift < 36)
      value |= (uint64_t)(byte & 0x3f) << shift;
    shift += 6;
  } while (byte & 0x40 && !table->failed);
  const int64_t magnitude = (int64_t)(value >> 1);
  return value & 1 ? -magnitude : magnitude;
}

/* An entry opens with a byte that has its top bit set - kind, number of code units less one - and no
 * other byte of it has. */
static int32_t line_3_11(struct nt_cursor table, int32_t first_line, int32_t offset) {
  int64_t line = first_line, end = 0;
  while (table.left) {
    const uint8_t head = nt_take_u8(&table);
    const unsigned kind = head >> 3 & 15;
    end += ((head & 7) + 1) * 2;
    if (kind == KIND_NO_COLUMNS || kind == KIND_LONG)
      line += take_signed(&table);
    else if (kind >= KIND_SHORT_END && kind <= KIND_NEXT_LINES)
      line += (int64_t)kind - KIND_SHORT_END;
    while (table.left && !(*table.at & 0x80))
      nt_take_u8(&table);
    if (end > offset)
      return kind == KIND_NONE ? 0 : as_line(line);
  }
  return 0;
}

int32_t nt_python_line(uint32_t format, const unsigned char *table, size_t length,
                       int32_t first_line, int32_t offset) {
  const struct nt_cursor cursor = {.at = table, .left = length};
  if (offset < 0)
    return as_line(first_line);
  switch (format) {
  case NT_PYTHON_LINES_3_8:
    return line_3_8(cursor, first_line, offset);
  case NT_PYTHON_LINES_3_10:
    return line_3_10(cursor, first_line, offset);
  case NT_PYTHON_LINES_3_11:
    return line_3_11(cursor, first_line, offset);
  default:
    return 0;
  }
}
