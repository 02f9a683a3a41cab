/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Return addresses are hashed together with the Python stack's id; a hash that is known answers for the stack. Only
 * for a new one the loader is asked which modules its addresses lie in.
 */
#include "preload/native_stack.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nccl/comm_id.h"
#include "preload/call_data.h"
#include "preload/log.h"
#include "preload/modules.h"
#include "preload/process.h"
#include "preload/python_code.h"
#include "preload/stack_intern.h"
#include "preload/unwinder.h"
#include "trace/python_lines.h"

enum { OWN_FRAMES = 8 /* at most, in front of the caller of NCCL */ };

NT_CALL_DATA bool nt_native_on;

static char state[240];
static const struct nt_unwinder *unwinder;

/* Made by the linker: where this object begins and ends. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));
static uintptr_t own_low, own_high;
static _Atomic uintptr_t python_low, python_high; /* high 0: not known yet */
static _Atomic uint64_t
    unloads; /* modules that had gone when last looked at, and the hashes' salt */

void nt_native_start(bool wanted) {
  const char *reason;
  nt_native_on = false;
  state[0] = 0;
  if (!wanted)
    return;
  unwinder = nt_unwinder_open(&reason);
  if (!unwinder) {
    snprintf(state, sizeof(state), "off: %s", reason);
    nt_log("native stacks: %s", reason);
    return;
  }
  own_low = (uintptr_t)__ehdr_start;
  own_high = (uintptr_t)_end;
  if (!nt_intern_tables) {
    snprintf(state, sizeof(state), "off: there was no memory");
    return;
  }
  snprintf(state, sizeof(state), "on");
  nt_native_on = true;
}

const char *nt_native_describe(void) {
  return state[0] ? state : NULL;
}

/* ---- a stack that is new ------------------------------------------------------------------------ */

struct frames {
  void *const *pcs; /* innermost first */
  uint32_t count, known;
  uint32_t code[NT_STACK_FRAMES];
  uint32_t offset[NT_STACK_FRAMES];
  uint64_t unloads;
  bool full; /* a module found no room */
};

static uint32_t copy_module(const void *context, uint64_t identity, struct nt_code_region *codes) {
  const struct nt_module *module = context;
  const uint32_t unit = NT_CODE_UNIT;
  struct nt_code_entry entry = {.identity = identity,
                                .lines = NT_LINES_MODULE,
                                .flags = NT_CODE_NO_LINES,
                                .file_length = (uint32_t)strlen(module->path),
                                .name_length = (uint32_t)strlen(module->build_id)};
  uint32_t size = (uint32_t)sizeof(entry) + entry.file_length + entry.name_length;
  uint32_t at = nt_python_reserve(&codes->used, (size + unit - 1) & ~(unit - 1), codes->size);
  if (at == UINT32_MAX)
    return 0;
  unsigned char *to = (unsigned char *)codes + at;
  memcpy(to, &entry, sizeof(entry));
  memcpy(to + sizeof(entry), module->path, entry.file_length);
  memcpy(to + sizeof(entry) + entry.file_length, module->build_id, entry.name_length);
  return at / unit;
}

static uint32_t module_code(const struct nt_module *module) {
  struct nt_id128 path = nt_hash(module->path, strlen(module->path));
  struct nt_id128 id = nt_hash(module->build_id, strlen(module->build_id));
  return nt_intern_code(nt_intern_fold(path.lo, id.lo ^ NT_LINES_MODULE), copy_module, module);
}

/* A return address stands behind its call, which may be the last instruction of its function. */
static uintptr_t call_of(const void *pc) {
  return (uintptr_t)pc - 1;
}

static int take_module(struct dl_phdr_info *info, size_t size, void *data) {
  struct frames *frames = data;
  struct nt_module module;
  uint32_t code = 0;
  (void)size;
  frames->unloads = info->dlpi_subs;
  for (uint32_t i = 0; i < frames->count; i++) {
    uintptr_t call = call_of(frames->pcs[i]);
    if (frames->code[i] || !nt_module_holds(info, call))
      continue;
    if (!code) {
      nt_module_describe(info, &module);
      code = module_code(&module);
      if (!code) {
        frames->full = true;
        return 1;
      }
    }
    frames->code[i] = code;
    frames->offset[i] = (uint32_t)(call - module.base);
    frames->known++;
  }
  return frames->known == frames->count;
}

/* Those outside all modules: code made at run time. */
static bool take_rest(struct frames *frames) {
  static const struct nt_module none = {.path = "?"};
  for (uint32_t i = 0; i < frames->count; i++)
    if (!frames->code[i] && !(frames->code[i] = module_code(&none)))
      return false;
  return true;
}

static uint32_t intern(struct frames *frames, uint32_t python, bool cut) {
  uint32_t id = python, depth = nt_intern_depth(python);
  if (cut)
    depth |= NT_STACK_CUT;
  nt_modules_each(take_module, frames);
  if (frames->full || !take_rest(frames))
    return 0;
  for (uint32_t i = frames->count; i-- > 0;) {
    struct nt_stack_node node = {.parent = id,
                                 .code = frames->code[i],
                                 .offset = (int32_t)frames->offset[i],
                                 .depth = depth + frames->count - i};
    id = nt_intern_node(&node);
    if (!id)
      return 0;
  }
  return id;
}

/* What is known of addresses is no longer so: hashes get another salt, and libunwind forgets as well. */
static bool forget_unloaded(uint64_t now) {
  uint64_t before = atomic_load_explicit(&unloads, memory_order_relaxed);
  if (before == now || !atomic_compare_exchange_strong_explicit(
                           &unloads, &before, now, memory_order_relaxed, memory_order_relaxed))
    return false;
  unwinder->flush_cache(unwinder->space, 0, 0);
  return true;
}

static __attribute__((noinline)) uint32_t take_new(void *const *pcs, uint32_t count,
                                                   uint32_t python, bool cut, uint64_t hash) {
  struct frames frames = {.pcs = pcs, .count = count};
  uint32_t id = intern(&frames, python, cut);
  /* The hash has the old salt then; the next call of this stack finds its new one unknown. */
  if (!forget_unloaded(frames.unloads))
    nt_intern_remember(hash, id);
  return id;
}

/* ---- the path of every call --------------------------------------------------------------------- */

/* Where the interpreter's own frames begin. */
static bool in_interpreter(uintptr_t pc) {
  uintptr_t high = atomic_load_explicit(&python_high, memory_order_acquire);
  if (NT_UNLIKELY(!high)) {
    const struct nt_python *python = nt_python_get();
    uintptr_t low;
    if (!python || !nt_module_range(python->code_type, &low, &high))
      return false;
    atomic_store_explicit(&python_low, low, memory_order_relaxed);
    atomic_store_explicit(&python_high, high, memory_order_release);
  }
  return pc < high && pc >= atomic_load_explicit(&python_low, memory_order_relaxed);
}

static uint64_t hash_frames(void *const *pcs, uint32_t *count, uint32_t python) {
  const uint64_t k = UINT64_C(0x9e3779b97f4a7c15);
  uint64_t hash = nt_intern_fold(atomic_load_explicit(&unloads, memory_order_relaxed) ^ k, k) +
                  ((uint64_t)python << 32 | NT_LINES_MODULE);
  uint32_t i = 0;
  for (; i < *count && !(python && in_interpreter((uintptr_t)pcs[i])); i++)
    hash = hash * k + nt_intern_fold((uintptr_t)pcs[i] ^ k, UINT64_C(0xa0761d6478bd642f));
  *count = i;
  hash = nt_intern_fold(hash ^ i, UINT64_C(0xe7037ed1a0b428db));
  return hash ? hash : 1;
}

uint32_t nt_native_stack(uint32_t python, uint16_t *flags) {
  void *room[OWN_FRAMES + NT_STACK_FRAMES + 1], **pcs = room;
  int saved_errno = errno;
  nt_unwinder_begin(false);
  int taken = unwinder->backtrace(room, OWN_FRAMES + NT_STACK_FRAMES + 1);
  uint32_t count = taken > 0 ? (uint32_t)taken : 0;
  while (count && (uintptr_t)*pcs - own_low < own_high - own_low)
    pcs++, count--;
  bool cut = count > NT_STACK_FRAMES;
  if (cut)
    count = NT_STACK_FRAMES;
  uint64_t hash = hash_frames(pcs, &count, python);
  uint32_t id = python;
  if (count) {
    id = nt_intern_find(hash);
    if (NT_UNLIKELY(!id))
      id = take_new(pcs, count, python, cut && !python, hash);
  }
  errno = saved_errno;
  if (NT_LIKELY(!count || (id && id != NT_INTERN_NO_ROOM)))
    return id;
  nt_intern_count_lost();
  if (!python)
    *flags |= NT_CALL_NO_STACK;
  return python;
}
