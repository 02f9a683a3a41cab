/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two walks. The first only hashes: for each frame what identifies its code object, and the instruction.
 * A table of hashes answers for a stack that was seen before, and that is the path of nearly every call.
 * The second, for a stack that is new, copies what is new of it into the area (stack_area.h).
 *
 * Identity. An address names a code object only while it lives, and then the allocator likes to give the
 * same address to a similar one. From 3.12 on the interpreter numbers its code objects. Before, file,
 * function and line table count with their addresses and with what of their contents is at hand: the
 * strings' own hashes and last characters, the table's length, first, middle and last bytes. Nothing here
 * keeps an object alive, since a reference count must not be touched without the GIL.
 *
 * Tables are private to the process, open-addressed, and only ever added to by compare-and-swap: a slot
 * is one word, so it is there as a whole or not at all. Two threads that meet a new stack at once both
 * copy it; one wins, the other's copy is room lost. 63 bits of a hash decide whether two stacks are the
 * same: with 10,000 stacks the odds of one mistake are 1 in 10^11.
 */
#include "preload/python_stack.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "preload/process.h"
#include "preload/python_code.h"
#include "preload/python_layout.h"
#include "preload/python_rows.h"
#include "trace/error.h"
#include "trace/python_lines.h"

enum {
  STACK_SLOTS = 32768,
  NODE_SLOTS = 32768,
  CODE_SLOTS = 8192,
  STACK_PROBES = 16,
  NO_ROOM = 0xffff, /* in place of an id: this stack was tried and did not fit */
  STEPS_MAX = 1024, /* frames looked at, kept or not */
};

_Static_assert(NT_STACK_NODES < NO_ROOM, "a node's index fits into the lower 16 bits of a slot");

/* Slots of `stacks`: 48 bits of a hash, 16 of an id. Of the others: an id. 0 is empty. */
struct tables {
  _Atomic uint64_t stacks[STACK_SLOTS];
  _Atomic uint32_t nodes[NODE_SLOTS];
  _Atomic uint32_t codes[CODE_SLOTS];
};

static struct tables *tables;
static struct nt_code_region *codes;
static struct nt_stack_region *stacks;

/* A frame that counts. */
struct place {
  const char *code;
  int32_t offset;
};

int nt_python_stack_start(struct nt_code_region *code_region,
                          struct nt_stack_region *stack_region) {
  /* Pages come as they are touched; after a fork the parent's entries must go. */
  if (tables)
    munmap(tables, sizeof(*tables));
  tables = NULL;
  if (!code_region || !stack_region)
    return 0;
  void *memory =
      mmap(NULL, sizeof(*tables), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return -NT_ERR_MEMORY;
  codes = code_region;
  stacks = stack_region;
  tables = memory;
  return 0;
}

/* ---- frames ------------------------------------------------------------------------------------- */

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE const char *innermost(const struct nt_python_layout *layout, const char *thread) {
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
ALWAYS_INLINE bool read_frame(const struct nt_python_layout *layout, const void *code_type,
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

ALWAYS_INLINE uint64_t fold(uint64_t a, uint64_t b) {
  unsigned __int128 product = (unsigned __int128)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/*
 * Sums of products with odd constants, folded pairwise. Addresses and counters differ in few bits and in
 * step with each other, so that shifts and exclusive-ors alone let their differences cancel out.
 */

/* A string's own hash, where it has been asked for, its length, and the last bytes of its characters. */
ALWAYS_INLINE uint64_t sample_text(const struct nt_python_layout *layout, const char *text) {
  uint64_t length = nt_python_word(text, layout->text_length);
  uint64_t sample = nt_python_word(text, layout->text_hash) + length * K1;
  /* Within the object whatever the width of its characters, if they are behind its head at all. */
  if (NT_LIKELY(length >= 8 && nt_python_int(text, layout->text_state) >> layout->text_kind & 0x8))
    sample += nt_python_word(text, layout->text_ascii + (unsigned)length - 8) * K2;
  return sample;
}

ALWAYS_INLINE uint64_t sample_table(const struct nt_python_layout *layout, const char *table) {
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
ALWAYS_INLINE uint64_t identify(const struct nt_python_layout *layout, const char *code) {
  const char *file = nt_python_pointer(code, layout->code_file);
  const char *name = nt_python_pointer(code, layout->code_name);
  const char *table = nt_python_pointer(code, layout->code_table);
  uint64_t line = (uint32_t)nt_python_int(code, layout->code_first_line);
  uint64_t version = layout->code_version ? (uint32_t)nt_python_int(code, layout->code_version) : 0;
  uint64_t a = (uintptr_t)code + (uintptr_t)file * K3, b = (uintptr_t)name + (uintptr_t)table * K2;
  if (NT_LIKELY(version)) /* it is 0 only when four billion have been given */
    return fold(a + version * K4, b + line * K1);
  return fold(a + sample_text(layout, file) * K4, b + line * K1) +
         fold(sample_table(layout, table) ^ K0, nt_python_word(name, layout->text_hash) ^ K3);
}

ALWAYS_INLINE uint64_t hash_frames(const struct nt_python_layout *layout, const void *code_type,
                                   const char *frame) {
  uint64_t hash = 0;
  unsigned kept = 0;
  for (unsigned steps = 0; frame && steps < STEPS_MAX; steps++) {
    struct place place;
    const char *back = nt_python_pointer(frame, layout->frame_back);
    if (read_frame(layout, code_type, frame, &place)) {
      if (kept++ == NT_STACK_FRAMES) /* the outer ones do not count, only that there are some */
        return fold(hash ^ K4, K2) | 1;
      hash = hash * K0 + fold(identify(layout, place.code) ^ (uint32_t)place.offset, K2);
    }
    frame = back;
  }
  hash = fold(hash ^ K1, K3);
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

static uint32_t find_code(const struct nt_python *python, const char *code) {
  uint64_t identity = identify(&python->layout, code);
  uint32_t made = 0;
  for (uint32_t i = 0; i < CODE_SLOTS; i++) {
    _Atomic uint32_t *slot = &tables->codes[(identity + i) % CODE_SLOTS];
    uint32_t id = atomic_load_explicit(slot, memory_order_acquire);
    if (!id) {
      made = made ? made : nt_python_copy_code(python, code, identity, codes);
      /* Release: pairs with the acquire above in the thread that finds it. */
      if (!made || atomic_compare_exchange_strong_explicit(slot, &id, made, memory_order_acq_rel,
                                                           memory_order_acquire))
        return made;
    }
    const struct nt_code_entry *entry =
        (const struct nt_code_entry *)(const void *)((const char *)codes +
                                                     (size_t)id * NT_CODE_UNIT);
    if (entry->identity == identity)
      return id;
  }
  return 0;
}

static struct nt_stack_node *node_at(uint32_t id) {
  return (struct nt_stack_node *)(void *)(stacks + 1) + id;
}

static bool same_node(const struct nt_stack_node *a, const struct nt_stack_node *b) {
  return a->parent == b->parent && a->code == b->code && a->offset == b->offset &&
         a->depth == b->depth;
}

static uint32_t find_node(const struct nt_stack_node *wanted) {
  uint64_t hash = fold((uint64_t)wanted->parent << 32 ^ wanted->code ^ K0,
                       (uint32_t)wanted->offset ^ (uint64_t)wanted->depth << 32 ^ K1);
  uint32_t made = 0;
  for (uint32_t i = 0; i < NODE_SLOTS; i++) {
    _Atomic uint32_t *slot = &tables->nodes[(hash + i) % NODE_SLOTS];
    uint32_t id = atomic_load_explicit(slot, memory_order_acquire);
    if (!id) {
      if (!made) {
        made = nt_python_reserve(&stacks->used, 1, stacks->count);
        if (made == UINT32_MAX)
          return 0;
        *node_at(made) = *wanted;
      }
      if (atomic_compare_exchange_strong_explicit(slot, &id, made, memory_order_acq_rel,
                                                  memory_order_acquire))
        return made;
    }
    if (same_node(node_at(id), wanted))
      return id;
  }
  return 0;
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
    id = node.code ? find_node(&node) : 0;
    if (!id)
      return 0;
  }
  return id;
}

/* ---- the path of every call --------------------------------------------------------------------- */

static __attribute__((noinline)) uint32_t take_new(const struct nt_python *python,
                                                   const char *frame, uint64_t hash) {
  uint32_t id = intern(python, frame);
  uint64_t word = (hash & ~UINT64_C(0xffff)) | (id ? id : NO_ROOM);
  for (uint32_t i = 0; i < STACK_PROBES; i++) {
    _Atomic uint64_t *slot = &tables->stacks[(hash + i) % STACK_SLOTS];
    uint64_t found = 0;
    if (atomic_compare_exchange_strong_explicit(slot, &found, word, memory_order_acq_rel,
                                                memory_order_relaxed))
      break;
  }
  return id;
}

uint32_t nt_python_stack(uint16_t *flags) {
  const struct nt_python *python = nt_python_get();
  if (!python || NT_UNLIKELY(!tables) || NT_UNLIKELY(python->is_finalizing()))
    return 0;
  const char *thread = python->this_thread();
  const char *frame = thread ? innermost(&python->layout, thread) : NULL;
  uint64_t hash = frame ? hash_stack(python, frame) : 0;
  if (!hash)
    return 0;
  uint32_t id = 0;
  for (uint32_t i = 0; i < STACK_PROBES && !id; i++) {
    /* Acquire: pairs with the release of the thread that made the stack. */
    uint64_t word =
        atomic_load_explicit(&tables->stacks[(hash + i) % STACK_SLOTS], memory_order_acquire);
    if (!word)
      break;
    if (NT_LIKELY((word ^ hash) < 0x10000))
      id = (uint32_t)(word & 0xffff);
  }
  if (NT_UNLIKELY(!id))
    id = take_new(python, frame, hash);
  if (NT_LIKELY(id && id != NO_ROOM))
    return id;
  atomic_fetch_add_explicit(&stacks->lost, 1, memory_order_relaxed);
  *flags |= NT_CALL_NO_STACK;
  return 0;
}
