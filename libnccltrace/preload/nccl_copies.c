/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an object exports is found in its own tables, since dlsym on a handle answers for its dependencies as well.
 * They are read while the loader's lock keeps the object where it is, so only of objects that are new, and only as far as
 * they name NCCL at all. A fork may leave that lock held for ever in the child, so no look is taken there that the parent
 * has taken.
 */
#include "preload/nccl_copies.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "preload/dlsym_filter.h"
#include "preload/dump_thread.h"
#include "preload/elf_symbols.h"
#include "preload/fork_lock.h"
#include "preload/library.h"
#include "preload/modules.h"
#include "preload/resolve.h"

enum { COPIES = 16, PATH_BYTES = 512, USERS = 8, PLACES = 128, OBJECTS = 4096 };

static struct nt_nccl_copy copies[COPIES];
static struct span {
  uintptr_t low, high;
} spans[COPIES]; /* where they were at the last look; those of other interposers are nowhere */
static unsigned copy_count;
static int runtime_version;
static unsigned changes;
/* At the last look: libraries that had been called, objects that had come and gone. */
static unsigned libraries_seen = UINT_MAX;
static unsigned long long objects_seen;
static struct nt_fork_lock lock;

/* Objects that a look has found, in the loader's order; more than there is room for are new every time. */
struct objects {
  uint64_t key[OBJECTS];
  unsigned count;
};
static struct objects object_lists[2];
static unsigned list_now;

static uint64_t key_of(const struct dl_phdr_info *info) {
  uint64_t hash = info->dlpi_addr;
  for (const char *c = info->dlpi_name; *c; c++)
    hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
  return hash;
}

/* *hint: where the last one was, since two lists differ little. */
static bool is_in(const struct objects *list, uint64_t key, unsigned *hint) {
  for (unsigned i = 0, at = *hint; i < list->count; i++, at++) {
    at = at < list->count ? at : 0;
    if (list->key[at] == key) {
      *hint = at + 1;
      return true;
    }
  }
  return false;
}

struct look {
  const struct objects *before;
  struct objects *now;
  unsigned before_hint, now_hint;
  char runtime[PATH_BYTES];
};

static bool tables_of(const struct dl_phdr_info *info, struct nt_elf_tables *out) {
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
      return nt_elf_tables(info->dlpi_addr,
                           (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr), out);
  return false;
}

static bool exports(const struct dl_phdr_info *info, const char *name) {
  struct nt_elf_tables tables;
  return tables_of(info, &tables) && nt_elf_symbol(&tables, name);
}

_Static_assert(sizeof((struct nt_nccl_copy *)0)->build_id == NT_BUILD_ID_TEXT,
               "nt_module_build_id");

static const char *base_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* Another interposer has no need to define what changes nothing. */
static bool defines_nccl(const struct dl_phdr_info *info) {
  return exports(info, "ncclGetErrorString") && exports(info, "ncclCommInitRank");
}

static void changed(void) {
  __atomic_fetch_add(&changes, 1, __ATOMIC_RELEASE);
}

static void remember(const struct dl_phdr_info *info) {
  unsigned i = 0;
  while (i < copy_count && strcmp(copies[i].path, info->dlpi_name) != 0)
    i++;
  if (i == COPIES)
    return;
  if (defines_nccl(info))
    nt_module_span(info, &spans[i].low, &spans[i].high);
  if (i < copy_count)
    return;
  struct nt_nccl_copy *copy = &copies[copy_count];
  snprintf(copy->path, sizeof copy->path, "%s", info->dlpi_name);
  nt_module_build_id(info, copy->build_id);
  /* Release: whoever sees the count sees the copy. */
  __atomic_store_n(&copy_count, copy_count + 1, __ATOMIC_RELEASE);
  changed();
}

static int look_at(struct dl_phdr_info *info, size_t size, void *data) {
  struct look *look = data;
  const char *base = base_of(info->dlpi_name);
  const uint64_t key = key_of(info);
  (void)size;
  if (look->now->count < OBJECTS)
    look->now->key[look->now->count++] = key;
  if (is_in(look->before, key, &look->before_hint))
    return 0;
  if (!strncmp(base, "libcudart.so", 12))
    snprintf(look->runtime, PATH_BYTES, "%s", info->dlpi_name);
  else if (!nt_module_holds(info, (uintptr_t)&look_at) &&
           (!strncmp(base, "libnccl.so", 10) || exports(info, "ncclAllReduce")))
    remember(info);
  return 0;
}

/* Answers with a constant of its own; neither a context nor the thread's last error is touched. */
static void ask_runtime(const char *path) {
  int (*ask)(int *) = NULL;
  int version = 0;
  void *runtime = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (runtime) {
    *(void **)&ask = dlsym(runtime, "cudaRuntimeGetVersion");
    if (ask && ask(&version) == 0)
      __atomic_store_n(&runtime_version, version, __ATOMIC_RELAXED);
    dlclose(runtime);
  }
  (void)dlerror(); /* what our look-ups left is not the application's */
}

/* ---- who is bound past us ------------------------------------------------------------------------ */

/* A place that leads into its own object until the first call through it. */
static struct place {
  uintptr_t where; /* 0: free */
  uint64_t object; /* it lies in */
  unsigned user;   /* whose it is */
} places[PLACES];
static char users[USERS][PATH_BYTES];
static unsigned place_count, user_count;

static int copy_with(uintptr_t address) {
  for (unsigned i = 0; i < copy_count; i++)
    if (address - spans[i].low < spans[i].high - spans[i].low)
      return (int)i;
  return -1;
}

static void set_bound(struct nt_nccl_copy *copy, const char *user) {
  if (copy->bound[0])
    return;
  snprintf(copy->bound, sizeof copy->bound, "%s", *user ? user : "the program itself");
  changed();
}

/* One of those that we call, an interposer maybe: what goes through it has come by us. */
static bool is_called(const struct dl_phdr_info *info) {
  const struct nt_library *library;
  for (unsigned i = 0; (library = nt_library_at(i)); i++)
    for (unsigned fn = 0; fn < NT_FN_LIMIT && nt_library_is_called(library); fn++)
      if (library->fn[fn] && !nt_fn_is_cuda(fn) &&
          nt_module_holds(info, (uintptr_t)library->fn[fn]))
        return true;
  return false;
}

static void watch(uintptr_t where, uint64_t object, const char *user) {
  unsigned i = 0, free = 0;
  while (i < user_count && strcmp(users[i], user) != 0)
    i++;
  while (free < place_count && places[free].where)
    free++;
  if (i == USERS || free == PLACES)
    return;
  if (i == user_count)
    snprintf(users[user_count++], PATH_BYTES, "%s", user);
  places[free].object = object;
  places[free].user = i;
  __atomic_store_n(&places[free].where, where, __ATOMIC_RELEASE);
  if (free == place_count)
    __atomic_store_n(&place_count, free + 1, __ATOMIC_RELEASE);
}

/* What comes to lie at the same addresses later is somebody else's. */
static void forget_gone(const struct objects *now) {
  unsigned hint = 0;
  for (unsigned i = 0; i < place_count; i++)
    if (places[i].where && !is_in(now, places[i].object, &hint))
      __atomic_store_n(&places[i].where, 0, __ATOMIC_RELEASE);
}

struct user {
  const struct dl_phdr_info *info;
  const struct nt_elf_tables *tables;
  uint64_t object;
  unsigned places; /* through which it calls NCCL */
  bool unsettled;  /* the loader is not through with it */
};

static bool is_nccl_name(const char *name) {
  name += *name == 'p';
  return !strncmp(name, "nccl", 4);
}

/* Symbols that an object needs come before those that it exports. */
static bool names_nccl(const struct nt_elf_tables *tables) {
  const bool gnu = tables->gnu_hash != NULL;
  const uint32_t end = gnu ? tables->gnu_hash[1] : tables->sysv_hash[1];
  if (gnu && end <= 1)
    return true; /* linkers write this also where they do not tell */
  for (uint32_t i = 1; i < end; i++)
    if (is_nccl_name(tables->strings + tables->symbols[i].st_name))
      return true;
  for (unsigned fn = 1; gnu && fn < NT_FN_LIMIT; fn++)
    if (nt_fn_symbol(fn) && !nt_fn_is_cuda(fn) && nt_elf_symbol(tables, nt_fn_symbol(fn)))
      return true;
  return false;
}

static void look_at_places(struct user *user, const ElfW(Rela) * relocation, size_t first,
                           size_t count) {
  const struct nt_elf_tables *tables = user->tables;
  for (size_t i = first; i < count; i++) {
    const size_t symbol = ELF64_R_SYM(relocation[i].r_info);
    const char *name = symbol ? tables->strings + tables->symbols[symbol].st_name : "";
    /* Functions without a wrapper are bound to NCCL by design. */
    if (!is_nccl_name(name) || !nt_dlsym_fn_named(name))
      continue;
    const uintptr_t where = tables->base + relocation[i].r_offset;
    const uintptr_t address = *(const uintptr_t *)where;
    const int copy = copy_with(address);
    user->places++;
    if (copy >= 0)
      set_bound(&copies[copy], user->info->dlpi_name);
    else if (nt_module_holds(user->info, address))
      watch(where, user->object, user->info->dlpi_name);
    else if (address < tables->base)
      user->unsettled = true;
  }
}

/* NCCL's own calls of itself are nobody's. */
static bool is_nccl(const struct dl_phdr_info *info) {
  return !strncmp(base_of(info->dlpi_name), "libnccl", 7);
}

/* It has NCCL inside and no place for the loader to put an address. One that passes on to us has none either. */
static bool hides_nccl(const struct user *user, const struct span *span) {
  return (!user->places || user->tables->symbolic) && span->high &&
         !nt_resolve_has_site(span->low, span->high);
}

static bool is_of_interest(const struct dl_phdr_info *info, struct nt_elf_tables *tables) {
  return !is_nccl(info) && !nt_module_holds(info, (uintptr_t)&is_of_interest) &&
         tables_of(info, tables) && names_nccl(tables) && !is_called(info);
}

/* One that came after look_at was through is left for the next look. */
static int look_for_users(struct dl_phdr_info *info, size_t size, void *data) {
  struct look *look = data;
  struct nt_elf_tables tables;
  struct user user = {info, &tables, key_of(info), 0, false};
  unsigned here = look->now_hint;
  (void)size;
  if (is_in(look->before, user.object, &look->before_hint) || !is_in(look->now, user.object, &here))
    return 0;
  look->now_hint = here;
  if (!is_of_interest(info, &tables))
    return 0;
  look_at_places(&user, tables.rela, tables.relative_count, tables.rela_count);
  look_at_places(&user, tables.plt, 0, tables.plt_count);
  for (unsigned i = 0; i < copy_count; i++)
    if (!strcmp(copies[i].path, info->dlpi_name) && hides_nccl(&user, &spans[i]))
      set_bound(&copies[i], info->dlpi_name);
  if (user.unsettled)
    look->now->key[here - 1] = 0; /* looked at again next time */
  return 0;
}

void nt_nccl_copies_watch(void) {
  const unsigned count = __atomic_load_n(&place_count, __ATOMIC_ACQUIRE);
  for (unsigned i = 0; i < count; i++) {
    uintptr_t address;
    const uintptr_t where = __atomic_load_n(&places[i].where, __ATOMIC_ACQUIRE);
    int copy = where && nt_dump_read(where, &address, sizeof address) ? copy_with(address) : -1;
    if (copy >= 0)
      set_bound(&copies[copy], users[places[i].user]);
  }
}

/* ---- looks -------------------------------------------------------------------------------------- */

static int count_objects(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size;
  *(unsigned long long *)data = info->dlpi_adds + info->dlpi_subs;
  return 1;
}

static void look_through(struct look *look) {
  struct objects *now = &object_lists[!list_now];
  look->before = &object_lists[list_now];
  look->now = now;
  now->count = 0;
  nt_modules_each(look_at, look);
  forget_gone(now);
  look->before_hint = look->now_hint = 0;
  nt_modules_each(look_for_users, look);
  list_now = !list_now;
}

/* A thread that finds another one looking goes on: a lock that is waited for may not be held over what the loader is
 * asked. */
void nt_nccl_copies_look(void) {
  const int saved_errno = errno;
  struct look look = {0};
  const unsigned libraries = nt_libraries_called();
  unsigned long long objects = 0;
  nt_modules_each(count_objects, &objects);
  if ((__atomic_load_n(&libraries_seen, __ATOMIC_ACQUIRE) == libraries &&
       __atomic_load_n(&objects_seen, __ATOMIC_RELAXED) == objects) ||
      !nt_fork_trylock(&lock))
    return;
  __atomic_store_n(&objects_seen, objects, __ATOMIC_RELAXED);
  __atomic_store_n(&libraries_seen, libraries, __ATOMIC_RELEASE);
  look_through(&look);
  nt_fork_unlock(&lock);
  if (*look.runtime && !nt_cuda_runtime_version())
    ask_runtime(look.runtime);
  errno = saved_errno;
}

unsigned nt_nccl_copies_version(void) {
  return __atomic_load_n(&changes, __ATOMIC_ACQUIRE);
}

const struct nt_nccl_copy *nt_nccl_copy_at(unsigned i) {
  return i < __atomic_load_n(&copy_count, __ATOMIC_ACQUIRE) ? &copies[i] : NULL;
}

int nt_cuda_runtime_version(void) {
  return __atomic_load_n(&runtime_version, __ATOMIC_RELAXED);
}
