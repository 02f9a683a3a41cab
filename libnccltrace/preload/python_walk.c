/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stack that holds still is read as a whole; of one that moves, the part that held still.
 *
 * First the frames alone, from the innermost outwards; then all of them once more at one go, and the thread state's
 * frame: what is the same twice was so in between. A few tries, since most threads only move for moments; then the inner
 * frames up to the outermost that changed are left out. Texts come last. Each is read together with its frame and code
 * object, alive and as they were, so that none is from an object that took the place of the one meant.
 */
#include "preload/python_walk.h"

#include "preload/dump_thread.h"
#include "trace/python_lines.h"

enum { TRIES = 5, TEXT_HEAD_MOST = 80, OWNED_BY_GENERATOR = 1, OWNED_BY_INTERPRETER = 3 };

/* ---- fields -------------------------------------------------------------------------------------- */

static unsigned most(unsigned a, unsigned b) {
  return a > b ? a : b;
}

static unsigned frame_bytes(const struct nt_python_layout *layout) {
  unsigned end = most(layout->frame_back, most(layout->frame_code, layout->frame_at)) + 8;
  return most(end, layout->frame_owner + 1u);
}

static unsigned code_bytes(const struct nt_python_layout *layout) {
  unsigned end = most(layout->code_file, most(layout->code_name, layout->code_table)) + 8;
  unsigned ints = most(layout->code_version, layout->code_first_traceable);
  return most(end, most(ints, layout->code_first_line) + 4);
}

static bool fits(const struct nt_python_layout *layout) {
  return frame_bytes(layout) <= NT_PYTHON_FRAME_BYTES &&
         code_bytes(layout) <= NT_PYTHON_CODE_BYTES && layout->text_compact <= TEXT_HEAD_MOST &&
         layout->text_ascii <= TEXT_HEAD_MOST;
}

/* Of this type, and with references: what was freed has an address in place of their number, or 0. (The upper 16
 * bits are flags from 3.14 on.) */
static bool is_live(const char *object, const void *type) {
  uint64_t references = nt_python_word(object, 0);
  return nt_python_pointer(object, 8) == type && (uint32_t)references &&
         !(references >> 32 & 0xffff);
}

/* What a frame says of itself; false if it cannot be one. `code` stays 0 for what only marks where C called. */
static bool parse_frame(const struct nt_python *python, const char *raw,
                        struct nt_python_place *place) {
  const struct nt_python_layout *layout = &python->layout;
  place->back = nt_python_word(raw, layout->frame_back);
  place->code = 0;
  if (layout->frames == NT_PYTHON_OBJECTS) {
    place->code = nt_python_word(raw, layout->frame_code);
    place->at = (uint32_t)nt_python_int(raw, layout->frame_at);
    return is_live(raw, python->frame_type);
  }
  place->at = nt_python_word(raw, layout->frame_at);
  if ((unsigned char)raw[layout->frame_owner] < OWNED_BY_INTERPRETER)
    place->code = nt_python_word(raw, layout->frame_code);
  if (layout->frames == NT_PYTHON_DIRECT)
    place->code &= ~UINT64_C(3);
  return true;
}

/* What the code object adds: what python_stack.c's walk looks at, and decides by the same rules. */
static void parse_code(const struct nt_python *python, const char *raw, const char *code,
                       struct nt_python_place *place) {
  enum { CODE_UNIT = 2 };
  const struct nt_python_layout *layout = &python->layout;
  if (!is_live(code, python->code_type))
    return;
  place->file = nt_python_word(code, layout->code_file);
  place->name = nt_python_word(code, layout->code_name);
  place->table = nt_python_word(code, layout->code_table);
  place->first_line = nt_python_int(code, layout->code_first_line);
  place->version = layout->code_version ? (uint32_t)nt_python_int(code, layout->code_version) : 0;
  if (layout->frames == NT_PYTHON_OBJECTS) {
    place->offset = (int32_t)(uint32_t)place->at * layout->unit;
    place->counts = true;
    return;
  }
  place->offset = (int32_t)(place->at - place->code - layout->code_bytes);
  place->counts = (unsigned char)raw[layout->frame_owner] == OWNED_BY_GENERATOR ||
                  place->offset >= nt_python_int(code, layout->code_first_traceable) * CODE_UNIT;
}

/* ---- frames -------------------------------------------------------------------------------------- */

/* The innermost frame of a thread state; false if it cannot be read. */
static bool read_top(const struct nt_python *python, uint64_t state, uint64_t *top) {
  const struct nt_python_layout *layout = &python->layout;
  if (!nt_dump_read(state + layout->thread_frame, top, 8))
    return false;
  return layout->frames != NT_PYTHON_CFRAME || !*top ||
         nt_dump_read(*top + layout->cframe_frame, top, 8);
}

/* Follows the frames from `top`. False if they end where they should not. */
static bool follow(const struct nt_python *python, uint64_t top, struct nt_python_walk *out) {
  const unsigned frame_size = frame_bytes(&python->layout), code_size = code_bytes(&python->layout);
  char code[NT_PYTHON_CODE_BYTES];
  uint32_t kept = 0;
  out->steps = 0;
  if (!nt_dump_read(top, out->raw[0], frame_size))
    return false;
  for (uint64_t frame = top; frame;) {
    struct nt_python_place *place = &out->place[out->steps];
    const char *raw = out->raw[out->steps];
    *place = (struct nt_python_place){.frame = frame};
    if (!parse_frame(python, raw, place))
      return false;
    struct nt_dump_part parts[2];
    unsigned count = 0;
    if (place->code)
      parts[count++] = (struct nt_dump_part){place->code, code, code_size};
    if (place->back)
      parts[count++] = (struct nt_dump_part){place->back, out->raw[out->steps + 1], frame_size};
    unsigned got = nt_dump_read_parts(parts, count);
    if (place->code && got)
      parse_code(python, raw, code, place);
    if (place->counts && kept++ == NT_DUMP_FRAMES_MAX) {
      out->flags |= NT_DUMP_STACK_CUT;
      return true;
    }
    out->steps++;
    if (got != count)
      return false;
    frame = place->back;
    if (frame && out->steps == NT_PYTHON_STEPS_MAX) {
      out->flags |= NT_DUMP_STACK_CUT;
      return true;
    }
  }
  return true;
}

/* Reads all frames again. Returns how many of them, from the innermost on, are no longer what they were. The
 * innermost one's instruction may change. */
static uint32_t changed_frames(const struct nt_python *python, struct nt_python_walk *out,
                               struct nt_dump_part *parts) {
  const unsigned frame_size = frame_bytes(&python->layout);
  for (uint32_t i = 0; i < out->steps; i++)
    parts[i] = (struct nt_dump_part){out->place[i].frame, out->raw[i], frame_size};
  uint32_t got = nt_dump_read_parts(parts, out->steps), changed = 0;
  for (uint32_t i = 0; i < out->steps; i++) {
    struct nt_python_place now = {0}, *was = &out->place[i];
    bool same = i < got && parse_frame(python, out->raw[i], &now) && now.back == was->back &&
                now.code == was->code;
    if (!same)
      changed = i + 1;
    else if (now.at != was->at && i) /* it has called something else since */
      changed = i;
  }
  return changed;
}

/* The frames of `out` from *first on are those of the thread. False if its state cannot be read. */
static bool read_frames(const struct nt_python *python, uint64_t state, struct nt_python_walk *out,
                        uint32_t *first) {
  struct nt_dump_part parts[NT_PYTHON_STEPS_MAX];
  for (int i = 0; i < TRIES; i++) {
    uint64_t top, now;
    out->flags = 0;
    out->steps = *first = 0;
    if (!read_top(python, state, &top))
      return false;
    if (!top)
      return true;
    bool whole = follow(python, top, out);
    *first = changed_frames(python, out, parts);
    if (!read_top(python, state, &now))
      return false;
    if (whole && !*first && now == top)
      return true;
    out->flags |= whole ? 0 : NT_DUMP_STACK_CUT;
    if (*first || now != top)
      out->flags |= NT_DUMP_STACK_MOVING;
    for (uint32_t j = *first; j < out->steps; j++)
      if (out->place[j].frame == now)
        *first = j;
  }
  return true;
}

/* ---- texts --------------------------------------------------------------------------------------- */

enum { TEXT_BYTES = TEXT_HEAD_MOST + 4 * NT_PYTHON_FILE_BYTES };

/* A string of which the last characters are wanted. */
struct text {
  uint64_t object, skipped; /* skipped: characters in front of those */
  uint32_t unit, start,
      count; /* bytes of a character, 0: it is no text; where they start; how many */
  char head[TEXT_HEAD_MOST]; /* as it was when its size was learnt */
};

/* All of a frame that is used, read at one go. A string's copy is one that nt_python_copy_text takes for the object. */
struct look {
  char raw[NT_PYTHON_FRAME_BYTES], code[NT_PYTHON_CODE_BYTES];
  char file[TEXT_BYTES], name[TEXT_BYTES];
  char table_head[TEXT_HEAD_MOST];
  unsigned char *table;
};

/* A frame whose sizes are known. */
struct wanted {
  const struct nt_python_place *place;
  struct text file, name;
  int32_t table; /* bytes; -1: there is none that can be used */
};

static void measure_text(const struct nt_python *python, struct text *text) {
  const char *data;
  text->unit = 0;
  if (!is_live(text->head, python->text_type))
    return;
  uint64_t length = nt_python_word(text->head, python->layout.text_length);
  if (length > INT32_MAX)
    return;
  text->unit = nt_python_open_text(python, text->head, &data);
  text->start = text->unit ? (uint32_t)(data - text->head) : 0;
  text->count = (uint32_t)(length < NT_PYTHON_FILE_BYTES ? length : NT_PYTHON_FILE_BYTES);
  text->skipped = length - text->count;
}

static int32_t measure_table(const struct nt_python *python, const char *head) {
  uint64_t length = nt_python_word(head, python->layout.bytes_length);
  return is_live(head, python->bytes_type) && length <= NT_PYTHON_TABLE_BYTES ? (int32_t)length
                                                                              : -1;
}

static void measure(const struct nt_python *python, struct wanted *wanted) {
  const struct nt_python_layout *layout = &python->layout;
  char table[TEXT_HEAD_MOST] = {0};
  const struct nt_dump_part parts[] = {
      {wanted->file.object, wanted->file.head, layout->text_ascii},
      {wanted->name.object, wanted->name.head, layout->text_ascii},
      {wanted->place->table, table, layout->bytes_data},
  };
  nt_dump_read_parts(parts, 3); /* what was not read is zero, and so not alive */
  measure_text(python, &wanted->file);
  measure_text(python, &wanted->name);
  wanted->table = measure_table(python, table);
}

static unsigned add_text(const struct nt_python *python, const struct text *text, char *copy,
                         struct nt_dump_part *parts) {
  memset(copy, 0, TEXT_HEAD_MOST);
  if (!text->unit)
    return 0;
  parts[0] = (struct nt_dump_part){text->object, copy, python->layout.text_ascii};
  if (!text->count)
    return 1;
  parts[1] = (struct nt_dump_part){text->object + text->start + text->skipped * text->unit,
                                   copy + text->start, (size_t)text->count * text->unit};
  return 2;
}

/* The reference count may differ, and whether the hash is known. */
static bool same_text(const struct nt_python *python, const struct text *text, const char *copy) {
  const struct nt_python_layout *layout = &python->layout;
  return !text->unit ||
         (is_live(copy, python->text_type) &&
          nt_python_word(copy, layout->text_length) ==
              nt_python_word(text->head, layout->text_length) &&
          nt_python_int(copy, layout->text_state) == nt_python_int(text->head, layout->text_state));
}

static bool same_place(const struct nt_python *python, const char *raw, const char *code,
                       const struct nt_python_place *was) {
  struct nt_python_place now = {.frame = was->frame};
  if (!parse_frame(python, raw, &now))
    return false;
  parse_code(python, raw, code, &now);
  return now.back == was->back && now.code == was->code && now.file == was->file &&
         now.name == was->name && now.table == was->table && now.version == was->version &&
         now.first_line == was->first_line;
}

/* False if the frame, its code or a text is no longer what it was. */
static bool look_at(const struct nt_python *python, const struct wanted *wanted,
                    struct look *look) {
  const struct nt_python_layout *layout = &python->layout;
  const struct nt_python_place *place = wanted->place;
  struct nt_dump_part parts[8];
  unsigned count = 0;
  parts[count++] = (struct nt_dump_part){place->frame, look->raw, frame_bytes(layout)};
  parts[count++] = (struct nt_dump_part){place->code, look->code, code_bytes(layout)};
  count += add_text(python, &wanted->file, look->file, parts + count);
  count += add_text(python, &wanted->name, look->name, parts + count);
  if (wanted->table >= 0)
    parts[count++] = (struct nt_dump_part){place->table, look->table_head, layout->bytes_data};
  if (wanted->table > 0)
    parts[count++] = (struct nt_dump_part){place->table + layout->bytes_data, look->table,
                                           (size_t)wanted->table};
  return nt_dump_read_parts(parts, count) == count &&
         same_place(python, look->raw, look->code, place) &&
         same_text(python, &wanted->file, look->file) &&
         same_text(python, &wanted->name, look->name) &&
         (wanted->table < 0 || measure_table(python, look->table_head) == wanted->table);
}

static bool same_characters(const struct text *text, const char *a, const char *b) {
  return memcmp(a + text->start, b + text->start, (size_t)text->count * text->unit) == 0;
}

/* Into `out` as UTF-8; the number of bytes. */
static uint16_t put_text(const struct nt_python *python, const struct text *text, char *copy,
                         unsigned char *out, uint32_t room) {
  const uint64_t count = text->count; /* all that the copy has */
  bool cut = false;
  if (text->unit)
    memcpy(copy + python->layout.text_length, &count, sizeof(count));
  return (uint16_t)nt_python_copy_text(python, text->unit ? copy : NULL, out, room, &cut);
}

/*
 * Adds the frame of `place`. False if it, its code or a text changed since it was first read. Read twice: this thread may
 * have to wait in the middle of a read, for as long as it takes to put one code object in the place of another.
 */
static bool add_frame(const struct nt_python *python, const struct nt_python_place *place,
                      struct nt_python_walk *out) {
  struct wanted wanted = {.place = place, .file.object = place->file, .name.object = place->name};
  struct look first, second;
  first.table = out->table[0];
  second.table = out->table[1];
  measure(python, &wanted);
  const size_t table = wanted.table > 0 ? (size_t)wanted.table : 0;
  if (!look_at(python, &wanted, &first) || !look_at(python, &wanted, &second) ||
      !same_characters(&wanted.file, first.file, second.file) ||
      !same_characters(&wanted.name, first.name, second.name) ||
      memcmp(first.table, second.table, table) != 0)
    return false;
  const uint32_t i = out->count++;
  struct nt_dump_frame *frame = &out->frame[i];
  frame->file = (const char *)out->file[i];
  frame->name = (const char *)out->name[i];
  frame->file_length =
      put_text(python, &wanted.file, first.file, out->file[i], NT_PYTHON_FILE_BYTES);
  frame->name_length =
      put_text(python, &wanted.name, first.name, out->name[i], NT_PYTHON_NAME_BYTES);
  frame->at = 0;
  if (wanted.table >= 0)
    frame->at = (uint64_t)nt_python_line(python->layout.lines, first.table, table,
                                         place->first_line, place->offset);
  return true;
}

bool nt_python_walk_thread(const struct nt_python *python, uint64_t state,
                           struct nt_python_walk *out) {
  uint32_t first;
  out->count = 0;
  if (!fits(&python->layout) || !read_frames(python, state, out, &first))
    return false;
  for (uint32_t i = first; i < out->steps; i++) {
    if (!out->place[i].counts)
      continue;
    if (!add_frame(python, &out->place[i], out)) {
      out->count = 0; /* the frames around it are no longer what called what */
      out->flags |= NT_DUMP_STACK_MOVING;
    }
  }
  return true;
}
