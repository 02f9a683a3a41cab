/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs in any thread that calls dlsym. Sanitizers look up libc's functions before their own replacements of them work, so
 * nothing of libc is called until a name is one of NCCL's or of the CUDA runtime's.
 */
#include "preload/dlsym_filter.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "preload/elf_symbols.h"
#include "preload/entries.h"
#include "preload/library.h"
#include "preload/log.h"
#include "preload/settings.h"

/* The loader is in every process; a need for it in this library is one too many. */
#pragma weak _r_debug

#define ABSENT ((void *)1)

nt_dlsym_fn nt_dlsym_next;
static nt_dlsym_fn bare;
static int (*next_close)(void *);
static unsigned unanswered;

/* ---- what lies behind us ------------------------------------------------------------------------ */

static NT_EARLY bool begins(const char *text, const char *with) {
  for (; *with; text++, with++) {
    __asm__ volatile(""); /* no call of strncmp */
    if (*text != *with)
      return false;
  }
  return true;
}

static NT_EARLY bool is_libc(const char *path) {
  const char *base = path;
  for (; *path; path++)
    if (*path == '/')
      base = path + 1;
  return begins(base, "libc.so") || begins(base, "libdl.so") || begins(base, "libc-2") ||
         begins(base, "libdl-2");
}

/* Our own place in the loader's list, which is in load order. NULL in another namespace than the program's. */
static NT_EARLY const struct link_map *own_map(void) {
  const struct r_debug *loader = &_r_debug;
  const struct link_map *map = loader ? loader->r_map : NULL;
  while (map && map->l_ld != _DYNAMIC)
    map = map->l_next;
  return map;
}

/* Among the objects from `map` on: those up to libc are there from the start to the end, so the list may be read at any
 * time. */
static NT_EARLY nt_dlsym_fn find_behind(const struct link_map *map) {
  nt_dlsym_fn first = NULL;
  for (; map; map = map->l_next) {
    struct nt_elf_tables tables;
    nt_dlsym_fn found = NULL;
    if (map == own_map() || !nt_elf_tables(map->l_addr, map->l_ld, &tables))
      continue;
    if (!next_close)
      *(void **)&next_close = nt_elf_symbol(&tables, "dlclose");
    *(void **)&found = nt_elf_symbol(&tables, "dlsym");
    if (!first)
      first = found;
    if (found && is_libc(map->l_name)) {
      bare = found;
      break;
    }
  }
  if (!bare)
    bare = first;
  return first;
}

/* All others stand behind us, unless we were opened instead of preloaded. */
static NT_EARLY void find_next(void) {
  const struct link_map *map = own_map();
  nt_dlsym_fn first = map ? find_behind(map->l_next) : NULL;
  if (!first) {
    while (map && map->l_prev)
      map = map->l_prev;
    first = find_behind(map);
  }
  /* Release: whoever sees it sees the other two. */
  __atomic_store_n(&nt_dlsym_next, first, __ATOMIC_RELEASE);
}

static NT_EARLY nt_dlsym_fn next_dlsym(void) {
  nt_dlsym_fn next = __atomic_load_n(&nt_dlsym_next, __ATOMIC_ACQUIRE);
  if (next)
    return next;
  find_next();
  return nt_dlsym_next;
}

void *nt_dlsym_bare(void *handle, const char *name) {
  return next_dlsym() ? bare(handle, name) : NULL;
}

int nt_dlclose_next(void *handle) {
  return next_dlsym() && next_close ? next_close(handle) : -1;
}

/* ---- which names -------------------------------------------------------------------------------- */

enum { NAMES = 512 /* power of two, more than twice the rows */ };

static unsigned name_hash(const char *name) {
  unsigned hash = 2166136261u;
  for (; *name; name++)
    hash = (hash ^ (unsigned char)*name) * 16777619u;
  return (hash ^ hash >> 16) & (NAMES - 1);
}

/* Function ids by hash of the name. Two threads that fill it write the same. */
static const uint8_t *name_table(void) {
  static uint8_t table[NAMES];
  static bool filled;
  if (__atomic_load_n(&filled, __ATOMIC_ACQUIRE))
    return table;
  for (unsigned fn = 1; fn < NT_FN_LIMIT; fn++) {
    if (!nt_fn_symbol(fn) || !nt_entry(&nt_libraries[0], fn))
      continue;
    unsigned i = name_hash(nt_fn_symbol(fn)), there;
    while ((there = __atomic_load_n(&table[i], __ATOMIC_RELAXED)) && there != fn)
      i = (i + 1) & (NAMES - 1);
    __atomic_store_n(&table[i], (uint8_t)fn, __ATOMIC_RELAXED);
  }
  __atomic_store_n(&filled, true, __ATOMIC_RELEASE);
  return table;
}

unsigned nt_dlsym_fn_named(const char *name) {
  const uint8_t *table = name_table();
  name += *name == 'p';
  for (unsigned i = name_hash(name); table[i]; i = (i + 1) & (NAMES - 1))
    if (!strcmp(nt_fn_symbol(table[i]), name))
      return table[i];
  return 0;
}

/* ---- answers ------------------------------------------------------------------------------------ */

static bool is_on(void) {
  static int state; /* 0: not known yet */
  int known = __atomic_load_n(&state, __ATOMIC_RELAXED);
  if (!known) {
    known = nt_settings_dlsym() ? 1 : -1;
    __atomic_store_n(&state, known, __ATOMIC_RELAXED);
  }
  return known > 0;
}

/* `found` is the next dlsym's answer. Where that is another interposer's own function, the library is told by what lies
 * behind it: nobody but the application is to ask the interposer. */
static void *entry_for(void *handle, unsigned fn, void *found) {
  void *behind = nt_dlsym_next == bare ? found : bare(handle, nt_fn_symbol(fn));
  if (!behind || nt_in_own_object(behind))
    behind = found;
  const struct nt_library *library = nt_library_of(handle, fn, behind, found);
  void *entry = library ? nt_entry(library, fn) : NULL;
  if (!entry && !__atomic_fetch_add(&unanswered, 1, __ATOMIC_RELAXED))
    nt_dlsym_say();
  (void)dlerror(); /* as after any look-up that has found something */
  return entry ? entry : found;
}

static const struct link_map *map_of(const void *address) {
  Dl_info info;
  struct link_map *map = NULL;
  return dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) ? map : NULL;
}

static bool defines(const struct link_map *map, const char *name) {
  struct nt_elf_tables tables;
  return nt_elf_tables(map->l_addr, map->l_ld, &tables) && nt_elf_symbol(&tables, name);
}

/* From an object in front of us RTLD_NEXT leads to our wrapper; it is there only if something is behind us. Anybody
 * behind us goes on from his own place. */
static void *answer_next(const char *name, const void *caller) {
  const struct link_map *self = own_map(), *from = map_of(caller), *map = self;
  while (map && map != from)
    map = map->l_prev;
  if (!map || !from)
    return NULL;
  for (map = from->l_next; map && map != self; map = map->l_next)
    if (defines(map, name))
      return NULL;
  return bare(RTLD_NEXT, name) ? NULL : ABSENT;
}

/* What is in front of us is found before us. Behind us: the global scope, for which our wrapper stands, then the
 * caller's own. A look-up that fails comes last, since it says so for dlerror. */
static void *answer_default(const char *name, unsigned fn, const void *caller) {
  void *first = bare(RTLD_DEFAULT, name);
  if (!first || !nt_in_own_object(first))
    return NULL;
  if (bare(RTLD_NEXT, name)) {
    (void)dlerror();
    return first;
  }
  const struct link_map *from = map_of(caller);
  void *handle = from && *from->l_name ? dlopen(from->l_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
  if (!handle)
    return bare(RTLD_NEXT, name) ? first : ABSENT;
  nt_dlclose_next(handle); /* the caller is running, so its object stays */
  void *found = nt_dlsym_next(handle, name);
  return !found || nt_in_own_object(found) ? ABSENT : entry_for(handle, fn, found);
}

static void *answer_handle(void *handle, const char *name, unsigned fn) {
  void *found = nt_dlsym_next(handle, name);
  if (!found)
    return NULL; /* the next one says so again, for dlerror */
  if (!nt_in_own_object(found))
    return entry_for(handle, fn, found);
  /* The program's own handle has us in its scope. */
  return bare(RTLD_NEXT, name) ? found : ABSENT;
}

static __attribute__((noinline)) void *answer(void *handle, const char *name, const void *caller) {
  unsigned fn = nt_dlsym_fn_named(name);
  if (!fn || nt_in_own_object(caller) || !is_on())
    return NULL;
  int saved_errno = errno;
  void *result = handle == RTLD_NEXT      ? answer_next(name, caller)
                 : handle == RTLD_DEFAULT ? answer_default(name, fn, caller)
                                          : answer_handle(handle, name, fn);
  errno = saved_errno;
  return result;
}

NT_EARLY void *nt_dlsym_filter(void *handle, const char *name, const void *caller) {
  if (!next_dlsym() || !name ||
      !(begins(name, "nccl") || begins(name, "pnccl") || begins(name, "cu")))
    return NULL;
  return answer(handle, name, caller);
}

void nt_dlsym_say(void) {
  if (__atomic_load_n(&unanswered, __ATOMIC_RELAXED))
    nt_log("more than %d copies of NCCL or the CUDA runtime are looked up by name: calls of the "
           "others are not traced",
           NT_ENTRY_LIBRARIES);
}
