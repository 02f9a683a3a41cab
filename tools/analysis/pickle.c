/* SPDX-License-Identifier: Apache-2.0 */
/* One opcode at a time. No function here calls itself: nesting costs the file its bytes and us no stack. */
#include "analysis/pickle.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  MARKS_MAX = 256,
  LINE_MAX_BYTES = 64, /* a number written as text */
};

struct machine {
  const uint8_t *bytes;
  size_t size, at, start; /* `start`: of the opcode under way */
  struct nt_value_store *store;
  struct nt_value **stack;
  size_t depth, room;
  size_t marks[MARKS_MAX];
  uint32_t mark_count;
  struct nt_value **memo;
  size_t memo_length, memo_room;
  struct nt_error *err;
};

static int refuse(struct machine *m, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse(struct machine *m, int code, const char *format, ...) {
  va_list arguments;
  m->err->code = code;
  m->err->offset = m->start;
  va_start(arguments, format);
  vsnprintf(m->err->reason, sizeof m->err->reason, format, arguments);
  va_end(arguments);
  return code;
}

static int no_memory(struct machine *m) {
  return refuse(m, -NT_ERR_MEMORY, "out of memory");
}

/* What would import, call or build; and what this reader has no use for. */
static const char *foreign_name(uint8_t opcode) {
  static const struct {
    uint8_t opcode;
    const char *name;
  } names[] = {{'c', "GLOBAL"},
               {0x93, "STACK_GLOBAL"},
               {'R', "REDUCE"},
               {'b', "BUILD"},
               {'i', "INST"},
               {'o', "OBJ"},
               {0x81, "NEWOBJ"},
               {0x92, "NEWOBJ_EX"},
               {0x82, "EXT1"},
               {0x83, "EXT2"},
               {0x84, "EXT4"},
               {'P', "PERSID"},
               {'Q', "BINPERSID"},
               {0x97, "NEXT_BUFFER"},
               {0x98, "READONLY_BUFFER"},
               {0x8f, "EMPTY_SET"},
               {0x90, "ADDITEMS"},
               {0x91, "FROZENSET"},
               {'V', "UNICODE (as text)"},
               {'S', "STRING (as text)"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].opcode == opcode)
      return names[i].name;
  return NULL;
}

/* `count` bytes of the opcode's argument; NULL, with err set, if the file ends before. */
static const uint8_t *take(struct machine *m, size_t count) {
  if (count > m->size - m->at) {
    refuse(m, -NT_ERR_TRUNCATED, "the pickle ends inside a value");
    return NULL;
  }
  const uint8_t *from = m->bytes + m->at;
  m->at += count;
  return from;
}

static uint64_t little(const uint8_t *bytes, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; i++)
    value |= (uint64_t)bytes[i] << (8 * i);
  return value;
}

static int push(struct machine *m, struct nt_value *value) {
  if (!value)
    return no_memory(m);
  if (m->depth == m->room) {
    size_t room = 2 * m->room;
    struct nt_value **stack = realloc(m->stack, room * sizeof(struct nt_value *));
    if (!stack)
      return no_memory(m);
    m->stack = stack;
    m->room = room;
  }
  m->stack[m->depth++] = value;
  return 0;
}

/* How many values stand above the newest mark, or all if there is none. */
static size_t above(const struct machine *m) {
  return m->depth - (m->mark_count ? m->marks[m->mark_count - 1] : 0);
}

static int need(struct machine *m, size_t count) {
  return above(m) >= count ? 0 : refuse(m, -NT_ERR_CORRUPT, "an operation lacks its operands");
}

static int push_mark(struct machine *m) {
  if (m->mark_count == MARKS_MAX)
    return refuse(m, -NT_ERR_CORRUPT, "nested more than %d deep", MARKS_MAX);
  m->marks[m->mark_count++] = m->depth;
  return 0;
}

/* The values above the newest mark, which is taken away with them; NULL, with err set, if there is no mark. */
static struct nt_value **pop_mark(struct machine *m, size_t *count) {
  if (!m->mark_count) {
    refuse(m, -NT_ERR_CORRUPT, "an operation lacks its mark");
    return NULL;
  }
  size_t mark = m->marks[--m->mark_count];
  *count = m->depth - mark;
  m->depth = mark;
  return m->stack + mark;
}

static int push_integer(struct machine *m, enum nt_value_type type, int64_t integer) {
  struct nt_value *value = nt_value_add(m->store, type);
  if (value)
    value->integer = integer;
  return push(m, value);
}

/* `width` bytes of length, then so many of text. */
static int push_text(struct machine *m, size_t width) {
  const uint8_t *head = take(m, width);
  uint64_t length = head ? little(head, width) : 0;
  if (!head)
    return m->err->code;
  if (length > UINT32_MAX || length > m->size - m->at)
    return refuse(m, -NT_ERR_TRUNCATED, "a text of %" PRIu64 " bytes does not fit into the file",
                  length);
  struct nt_value *value = nt_value_add(m->store, NT_VALUE_TEXT);
  if (value) {
    value->text = (const char *)m->bytes + m->at;
    value->count = (uint32_t)length;
  }
  m->at += length;
  return push(m, value);
}

/* An integer of any size, two's complement; what does not fit into 64 bits is saturated. */
static int push_long(struct machine *m, size_t width) {
  const uint8_t *head = take(m, width), *digits = NULL;
  uint64_t length = head ? little(head, width) : 0;
  if (head && length > m->size - m->at)
    return refuse(m, -NT_ERR_TRUNCATED, "a number of %" PRIu64 " bytes does not fit into the file",
                  length);
  if (!head || !(digits = take(m, length)))
    return m->err->code;
  bool negative = length && (digits[length - 1] & 0x80);
  while (length > 8 && digits[length - 1] == (negative ? 0xff : 0) &&
         (digits[length - 2] & 0x80) == (negative ? 0x80 : 0))
    length--;
  if (length > 8)
    return push_integer(m, NT_VALUE_INTEGER, negative ? INT64_MIN : INT64_MAX);
  uint64_t value = little(digits, length);
  if (negative && length < 8)
    value |= UINT64_MAX << (8 * length);
  return push_integer(m, NT_VALUE_INTEGER, (int64_t)value);
}

static int push_real(struct machine *m) {
  const uint8_t *bytes = take(m, 8);
  uint64_t bits = 0;
  if (!bytes)
    return m->err->code;
  for (int i = 0; i < 8; i++)
    bits = bits << 8 | bytes[i];
  struct nt_value *value = nt_value_add(m->store, NT_VALUE_REAL);
  if (value)
    memcpy(&value->real, &bits, sizeof bits);
  return push(m, value);
}

/* A line that holds a number, terminated in `out`. */
static int take_line(struct machine *m, char out[LINE_MAX_BYTES]) {
  const uint8_t *from = m->bytes + m->at, *end = memchr(from, '\n', m->size - m->at);
  size_t length = end ? (size_t)(end - from) : LINE_MAX_BYTES;
  if (length >= LINE_MAX_BYTES)
    return refuse(m, end ? -NT_ERR_CORRUPT : -NT_ERR_TRUNCATED, "a number has no end");
  memcpy(out, from, length);
  out[length] = '\0';
  m->at += length + 1;
  return 0;
}

static int push_line(struct machine *m, uint8_t opcode) {
  char line[LINE_MAX_BYTES], *end;
  int status = take_line(m, line);
  if (status)
    return status;
  if (opcode == 'I' && (!strcmp(line, "00") || !strcmp(line, "01")))
    return push_integer(m, NT_VALUE_BOOL, line[1] == '1');
  if (opcode == 'F') {
    struct nt_value *value = nt_value_add(m->store, NT_VALUE_REAL);
    if (value)
      value->real = strtod(line, NULL);
    return push(m, value);
  }
  int64_t number = strtoll(line, &end, 10);
  if (end == line || (*end && strcmp(end, "L") != 0))
    return refuse(m, -NT_ERR_CORRUPT, "no number");
  return push_integer(m, NT_VALUE_INTEGER, number);
}

static int add_items(struct machine *m, struct nt_value *to, struct nt_value **items,
                     size_t count) {
  bool map = to->type == NT_VALUE_MAP;
  if (count > UINT32_MAX / 4 - to->count)
    return refuse(m, -NT_ERR_CORRUPT, "too many items");
  if (map && count % 2)
    return refuse(m, -NT_ERR_CORRUPT, "a key has no value");
  uint32_t length = map ? 2 * to->count : to->count;
  for (size_t i = 0; i < count; i++)
    if (nt_value_append(m->store, to, length++, items[i]))
      return no_memory(m);
  to->count = map ? length / 2 : length;
  return 0;
}

/* A list or map of the values above the mark, or of the last `count` if that is not SIZE_MAX. */
static int make(struct machine *m, enum nt_value_type type, size_t count) {
  struct nt_value **items;
  if (count == SIZE_MAX) {
    if (!(items = pop_mark(m, &count)))
      return m->err->code;
  } else {
    int status = need(m, count);
    if (status)
      return status;
    m->depth -= count;
    items = m->stack + m->depth;
  }
  struct nt_value *value = nt_value_add(m->store, type);
  if (!value)
    return no_memory(m);
  int status = add_items(m, value, items, count);
  return status ? status : push(m, value);
}

/* Adds to the list or map below. */
static int extend(struct machine *m, enum nt_value_type type, bool marked) {
  struct nt_value **items;
  size_t count = type == NT_VALUE_MAP ? 2 : 1;
  if (marked) {
    if (!(items = pop_mark(m, &count)))
      return m->err->code;
  } else {
    int status = need(m, count + 1);
    if (status)
      return status;
    m->depth -= count;
    items = m->stack + m->depth;
  }
  if (!above(m) || m->stack[m->depth - 1]->type != type)
    return refuse(m, -NT_ERR_CORRUPT, "items are added to what is no %s",
                  type == NT_VALUE_MAP ? "dictionary" : "list");
  return add_items(m, m->stack[m->depth - 1], items, count);
}

static int memo_put(struct machine *m, uint64_t index) {
  int status = need(m, 1);
  if (status)
    return status;
  if (index >= m->size)
    return refuse(m, -NT_ERR_CORRUPT, "memo entry %" PRIu64 " in a file of %zu bytes", index,
                  m->size);
  if (index >= m->memo_room) {
    size_t room = 2 * (index + 32);
    struct nt_value **memo = realloc(m->memo, room * sizeof(struct nt_value *));
    if (!memo)
      return no_memory(m);
    memset(memo + m->memo_room, 0, (room - m->memo_room) * sizeof *memo);
    m->memo = memo;
    m->memo_room = room;
  }
  m->memo[index] = m->stack[m->depth - 1];
  if (index >= m->memo_length)
    m->memo_length = index + 1;
  return 0;
}

static int memo_get(struct machine *m, uint64_t index) {
  if (index >= m->memo_length || !m->memo[index])
    return refuse(m, -NT_ERR_CORRUPT, "memo entry %" PRIu64 " was never made", index);
  return push(m, m->memo[index]);
}

/* The memo's opcodes: the index is `width` bytes, or a line if that is 0. */
static int memo(struct machine *m, bool put, size_t width) {
  char line[LINE_MAX_BYTES];
  uint64_t index;
  if (width) {
    const uint8_t *bytes = take(m, width);
    if (!bytes)
      return m->err->code;
    index = little(bytes, width);
  } else {
    int status = take_line(m, line);
    if (status)
      return status;
    index = strtoull(line, NULL, 10);
  }
  return put ? memo_put(m, index) : memo_get(m, index);
}

static int step_constant(struct machine *m, uint8_t opcode) {
  const uint8_t *bytes;
  size_t width = opcode == 'J' ? 4 : opcode == 'M' ? 2 : 1;
  switch (opcode) {
  case 'N':
    return push(m, nt_value_add(m->store, NT_VALUE_NONE));
  case 0x88:
  case 0x89:
    return push_integer(m, NT_VALUE_BOOL, opcode == 0x88);
  case 'J':
  case 'K':
  case 'M':
    if (!(bytes = take(m, width)))
      return m->err->code;
    return push_integer(m, NT_VALUE_INTEGER,
                        opcode == 'J' ? (int32_t)little(bytes, width)
                                      : (int64_t)little(bytes, width));
  case 'I':
  case 'L':
  case 'F':
    return push_line(m, opcode);
  case 'G':
    return push_real(m);
  case 0x8a:
    return push_long(m, 1);
  case 0x8b:
    return push_long(m, 4);
  case 0x8c: /* SHORT_BINUNICODE */
  case 'C':
  case 'U':
    return push_text(m, 1);
  case 'X':
  case 'B':
  case 'T':
    return push_text(m, 4);
  case 0x8d: /* BINUNICODE8, BINBYTES8, BYTEARRAY8 */
  case 0x8e:
  case 0x96:
    return push_text(m, 8);
  default:
    return 1;
  }
}

static int step_container(struct machine *m, uint8_t opcode) {
  switch (opcode) {
  case ']':
  case ')':
    return make(m, NT_VALUE_LIST, 0);
  case '}':
    return make(m, NT_VALUE_MAP, 0);
  case 'l':
  case 't':
    return make(m, NT_VALUE_LIST, SIZE_MAX);
  case 'd':
    return make(m, NT_VALUE_MAP, SIZE_MAX);
  case 0x85: /* TUPLE1 to TUPLE3 */
  case 0x86:
  case 0x87:
    return make(m, NT_VALUE_LIST, opcode - 0x84u);
  case 'a':
  case 'e':
    return extend(m, NT_VALUE_LIST, opcode == 'e');
  case 's':
  case 'u':
    return extend(m, NT_VALUE_MAP, opcode == 'u');
  default:
    return 1;
  }
}

static int step_stack(struct machine *m, uint8_t opcode) {
  size_t count;
  switch (opcode) {
  case '(':
    return push_mark(m);
  case '0':
    if (need(m, 1))
      return m->err->code;
    m->depth--;
    return 0;
  case '1':
    return pop_mark(m, &count) ? 0 : m->err->code;
  case '2':
    return need(m, 1) ? m->err->code : push(m, m->stack[m->depth - 1]);
  case 'q':
    return memo(m, true, 1);
  case 'r':
    return memo(m, true, 4);
  case 'p':
    return memo(m, true, 0);
  case 'h':
    return memo(m, false, 1);
  case 'j':
    return memo(m, false, 4);
  case 'g':
    return memo(m, false, 0);
  case 0x94:
    return memo_put(m, m->memo_length);
  case 0x95: /* FRAME: a length that a reader of streams needs */
    return take(m, 8) ? 0 : m->err->code;
  case 0x80:
    return take(m, 1) ? 0 : m->err->code;
  default:
    return 1;
  }
}

static int run(struct machine *m, const struct nt_value **out) {
  for (;;) {
    m->start = m->at;
    const uint8_t *opcode = take(m, 1);
    if (!opcode)
      return refuse(m, -NT_ERR_TRUNCATED, "the pickle has no end");
    if (*opcode == '.')
      break;
    int status = step_constant(m, *opcode);
    if (status == 1)
      status = step_container(m, *opcode);
    if (status == 1)
      status = step_stack(m, *opcode);
    const char *name = status == 1 ? foreign_name(*opcode) : NULL;
    if (name)
      return refuse(m, -NT_ERR_UNSAFE,
                    "the pickle uses %s (opcode 0x%02x), which plain data does not need", name,
                    *opcode);
    if (status == 1)
      return refuse(m, -NT_ERR_CORRUPT, "no opcode of a pickle: 0x%02x", *opcode);
    if (status)
      return status;
  }
  if (m->mark_count || m->depth != 1)
    return refuse(m, -NT_ERR_CORRUPT, "the pickle ends with %zu values instead of one", m->depth);
  *out = m->stack[0];
  return 0;
}

int nt_pickle_read(const uint8_t *bytes, size_t size, struct nt_value_store *store,
                   const struct nt_value **out, struct nt_error *err) {
  struct machine m = {.bytes = bytes, .size = size, .store = store, .room = 64, .err = err};
  *out = NULL;
  m.stack = malloc(m.room * sizeof(struct nt_value *));
  int status = !m.stack ? no_memory(&m)
               : size >= 2 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5
                   ? run(&m, out)
                   : refuse(&m, -NT_ERR_FOREIGN, "no pickle of protocol 2 to 5");
  free(m.stack);
  free(m.memo);
  return status;
}
