/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two walks. The first only hashes: for each frame what identifies its code object, and the instruction.
 * A table of hashes (stack_intern.h) answers for a stack that was seen before, and that is the path of nearly every
 * call. The second, for a stack that is new, copies what is new of it into the area (stack_area.h).
 *
 * Identity. An address names a code object only while it lives, and then the allocator likes to give the
 * same address to a similar one. From 3.12 on the interpreter numbers its code objects. Before, file,
 * function and line table count with their addresses and with what of their contents is at hand: the
 * strings' own hashes and last characters, the table's length, first, middle and last bytes. Nothing here
 * keeps an object alive, since a reference count must not be touched without the GIL.
 */
#include "preload/python_stack.h"

#include <stdbool.h>
#include <string.h>

#include "preload/process.h"
#include "preload/python_code.h"
#include "preload/python_layout.h"
#include "preload/python_rows.h"
#include "preload/stack_intern.h"
#include "trace/python_lines.h"

enum { STEPS_MAX = 1024 /* frames looked at, kept or not */ };

/* A frame that counts. */
struct place {
  const char *code;
  int32_t offset;
};

static bool wanted;

void nt_python_stack_enable(bool on) {
  wanted = on;
}

/* ---- frames ------------------------------------------------------------------------------------- */

NT_IN_LINE const char *innermost(const struct nt_python_layout *layout, const char *thread) {
  const char *frame = nt_python_pointer(thread, layout->thread_frame);
  if (layout->frames == NT_PYTHON_CFRAME && frame)
    frame = nt_python_pointer(frame, layout->cframe_frame);
  return frame;
}

/*
 * False for what is on the list but is no frame of a program: those that only mark where C called the
 * interpreter (owner 3 and above), and those not yet set up, in which an allocation may run a finalizer
 * (an instruction in front of the first traceable one; a generator's frame may be anywhere).
 */
NT_IN_LINE bool read_frame(const struct nt_python_layout *layout, const void *code_type,
                           const char *frame, struct place *out) {
  enum { OWNED_BY_GENERATOR = 1, OWNED_BY_INTERPRETER = 3, TAG = 3, CODE_UNIT = 2 };
  const unsigned frames = layout->frames;
  unsigned owner = 0;
  if (frames != NT_PYTHON_OBJECTS) {
    owner = *(const unsigned char *)(frame + layout->frame_owner);
    if (owner >= OWNED_BY_INTERPRETER)
      return false;
  }
  const char *code = nt_python_pointer(frame, layout->frame_code);
  if (frames == NT_PYTHON_DIRECT)
    code = (const char *)((uintptr_t)code & ~(uintptr_t)TAG);
  if (NT_UNLIKELY(!code || nt_python_pointer(code, 8) != code_type))
    return false;
  out->code = code;
  if (frames == NT_PYTHON_OBJECTS) {
    out->offset = nt_python_int(frame, layout->frame_at) * layout->unit;
    return true;
  }
  out->offset = (int32_t)(nt_python_pointer(frame, layout->frame_at) - (code + layout->code_bytes));
  return owner == OWNED_BY_GENERATOR ||
         out->offset >= nt_python_int(code, layout->code_first_traceable) * CODE_UNIT;
}

/* ---- hashes ------------------------------------------------------------------------------------- */

#define K0 UINT64_C(0x9e3779b97f4a7c15)
#define K1 UINT64_C(0xd6e8feb86659fd93)
#define K2 UINT64_C(0xa0761d6478bd642f)
#define K3 UINT64_C(0xe7037ed1a0b428db)
#define K4 UINT64_C(0x8ebc6af09c88c6e3)

/*
 * Sums of products with odd constants, folded pairwise. Addresses and counters differ in few bits and in
 * step with each other, so that shifts and exclusive-ors alone let their differences cancel out.
 */

/* A string's own hash, where it has been asked for, its length, and the last bytes of its characters. */
NT_IN_LINE uint64_t sample_text(const struct nt_python_layout *layout, const char *text) {
  uint64_t length = nt_python_word(text, layout->text_length);
  uint64_t sample = nt_python_word(text, layout->text_hash) + length * K1;
  /* Within the object whatever the width of its characters, if they are behind its head at all. */
  if (NT_LIKELY(length >= 8 && nt_python_int(text, layout->text_state) >> layout->text_kind & 0x8))
    sample += nt_python_word(text, layout->text_ascii + (unsigned)length - 8) * K2;
  return sample;
}

NT_IN_LINE uint64_t sample_table(const struct nt_python_layout *layout, const char *table) {
  uint64_t length = nt_python_word(table, layout->bytes_length), sample = length * K1;
  unsigned data = layout->bytes_data, size = (unsigned)length;
  if (NT_LIKELY(length >= 8))
    return sample + nt_python_word(table, data) + nt_python_word(table, data + size / 2 - 4) * K2 +
           nt_python_word(table, data + size - 8) * K3;
  for (unsigned i = 0; i < size; i++)
    sample = sample * K2 + *(const unsigned char *)(table + data + i);
  return sample;
}

/* What is read here, every code object has: the interpreter makes none without. */
NT_IN_LINE uint64_t identify(const struct nt_python_layout *layout, const char *code) {
  const char *file = nt_python_pointer(code, layout->code_file);
  const char *name = nt_python_pointer(code, layout->code_name);
  const char *table = nt_python_pointer(code, layout->code_table);
  uint64_t line = (uint32_t)nt_python_int(code, layout->code_first_line);
  uint64_t version = layout->code_version ? (uint32_t)nt_python_int(code, layout->code_version) : 0;
  uint64_t a = (uintptr_t)code + (uintptr_t)file * K3, b = (uintptr_t)name + (uintptr_t)table * K2;
  if (NT_LIKELY(version)) /* it is 0 only when four billion have been given */
    return nt_intern_fold(a + version * K4, b + line * K1);
  return nt_intern_fold(a + sample_text(layout, file) * K4, b + line * K1) +
         nt_intern_fold(sample_table(layout, table) ^ K0,
                        nt_python_word(name, layout->text_hash) ^ K3);
}

NT_IN_LINE uint64_t hash_frames(const struct nt_python_layout *layout, const void *code_type,
                                const char *frame) {
  uint64_t hash = 0;
  unsigned kept = 0;
  for (unsigned steps = 0; frame && steps < STEPS_MAX; steps++) {
    struct place place;
    const char *back = nt_python_pointer(frame, layout->frame_back);
    if (read_frame(layout, code_type, frame, &place)) {
      if (kept++ == NT_STACK_FRAMES) /* the outer ones do not count, only that there are some */
        return nt_intern_fold(hash ^ K4, K2) | 1;
      hash = hash * K0 + nt_intern_fold(identify(layout, place.code) ^ (uint32_t)place.offset, K2);
    }
    frame = back;
  }
  hash = nt_intern_fold(hash ^ K1, K3);
  return !kept ? 0 : hash ? hash : 1;
}

/* The same for each release, with its offsets as constants. */
#define WALK(name, row)                                                                            \
  static uint64_t name(const struct nt_python *python, const char *frame) {                        \
    static const struct nt_python_layout layout = row;                                             \
    return hash_frames(&layout, python->code_type, frame);                                         \
  }
WALK(hash_3_8, NT_PYTHON_3_8_AND_3_9(0))
WALK(hash_3_10, NT_PYTHON_3_10)
WALK(hash_3_11, NT_PYTHON_3_11)
WALK(hash_3_12, NT_PYTHON_3_12)
WALK(hash_3_13, NT_PYTHON_3_13)
WALK(hash_3_14, NT_PYTHON_3_14)

static uint64_t hash_stack(const struct nt_python *python, const char *frame) {
  switch ((enum nt_python_row)python->row) {
  case NT_PYTHON_ROW_3_8:
  case NT_PYTHON_ROW_3_9:
    return hash_3_8(python, frame);
  case NT_PYTHON_ROW_3_10:
    return hash_3_10(python, frame);
  case NT_PYTHON_ROW_3_11:
    return hash_3_11(python, frame);
  case NT_PYTHON_ROW_3_12:
    return hash_3_12(python, frame);
  case NT_PYTHON_ROW_3_13:
    return hash_3_13(python, frame);
  case NT_PYTHON_ROW_3_14:
    return hash_3_14(python, frame);
  case NT_PYTHON_ROWS:
    break;
  }
  return hash_frames(&python->layout, python->code_type, frame);
}

/* ---- a stack that is new ------------------------------------------------------------------------ */

struct code {
  const struct nt_python *python;
  const char *code;
};

static uint32_t copy_code(const void *context, uint64_t identity, struct nt_code_region *codes) {
  const struct code *what = context;
  return nt_python_copy_code(what->python, what->code, identity, codes);
}

static uint32_t find_code(const struct nt_python *python, const char *code) {
  const struct code what = {python, code};
  return nt_intern_code(identify(&python->layout, code), copy_code, &what);
}

/* Id of the stack that begins at `frame`, 0 if there is no room for it. */
static uint32_t intern(const struct nt_python *python, const char *frame) {
  struct place places[NT_STACK_FRAMES];
  uint32_t count = 0, id = 0;
  uint32_t cut = 0;
  for (unsigned steps = 0; frame && steps < STEPS_MAX; steps++) {
    struct place place;
    if (read_frame(&python->layout, python->code_type, frame, &place)) {
      if (count == NT_STACK_FRAMES) {
        cut = NT_STACK_CUT;
        break;
      }
      places[count++] = place;
    }
    frame = nt_python_pointer(frame, python->layout.frame_back);
  }
  for (uint32_t i = count; i-- > 0;) {
    struct nt_stack_node node = {.parent = id,
                                 .code = find_code(python, places[i].code),
                                 .offset = places[i].offset,
                                 .depth = (count - i) | cut};
    id = node.code ? nt_intern_node(&node) : 0;
    if (!id)
      return 0;
  }
  return id;
}

/* ---- the path of every call --------------------------------------------------------------------- */

static __attribute__((noinline)) uint32_t take_new(const struct nt_python *python,
                                                   const char *frame, uint64_t hash) {
  uint32_t id = intern(python, frame);
  nt_intern_remember(hash, id);
  return id;
}

uint32_t nt_python_stack_of(const struct nt_python *python, uint16_t *flags) {
  if (NT_UNLIKELY(!wanted) || NT_UNLIKELY(python->is_finalizing()))
    return 0;
  const char *thread = python->this_thread();
  const char *frame = thread ? innermost(&python->layout, thread) : NULL;
  uint64_t hash = frame ? hash_stack(python, frame) : 0;
  if (!hash)
    return 0;
  uint32_t id = nt_intern_find(hash);
  if (NT_UNLIKELY(!id))
    id = take_new(python, frame, hash);
  if (NT_LIKELY(id && id != NT_INTERN_NO_ROOM))
    return id;
  nt_intern_count_lost();
  *flags |= NT_CALL_NO_STACK;
  return 0;
}
