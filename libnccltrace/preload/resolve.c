/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs in application threads at a call site's first NCCL call, under a lock; afterwards the answer
 * is found in a table that only grows. dlopen is only ever asked for what is loaded already
 * (RTLD_NOLOAD), by name: a link_map is not a handle.
 */
#include "preload/resolve.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preload/fork_lock.h"
#include "preload/modules.h"

enum { LIBRARIES = 16, SITES = 1024 /* power of two */ };

struct site {
  const void *caller;
  const struct nt_library *library;
};

static struct nt_library libraries[LIBRARIES];
static unsigned library_count;
static struct site site_pool[SITES / 2];
static unsigned site_count;
static struct site *site_table[SITES];
static struct nt_fork_lock lock;

/* The loaded object that holds `address`, NULL if it cannot be told. */
static struct link_map *object_of(const void *address) {
  Dl_info info;
  struct link_map *map = NULL;
  if (!dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP))
    return NULL;
  return map;
}

static bool in_own_object(const void *address) {
  static uintptr_t low, high;
  if (!high)
    (void)nt_module_range(&site_table, &low, &high);
  return (uintptr_t)address >= low && (uintptr_t)address < high;
}

/* dlsym that never answers with one of our wrappers. */
static void *look_up(void *handle, unsigned fn) {
  void *found = handle ? dlsym(handle, nt_fn_symbol(fn)) : NULL;
  return found && !in_own_object(found) ? found : NULL;
}

static void *open_loaded(const char *path) {
  return path && *path ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
}

struct scan {
  unsigned fn;
  void *handle;
};

static int scan_object(const struct link_map *map, struct scan *scan) {
  void *handle = open_loaded(map->l_name);
  if (!handle)
    return 0;
  if (look_up(handle, scan->fn)) {
    scan->handle = handle;
    return 1;
  }
  dlclose(handle);
  return 0;
}

static void *scan_objects(unsigned fn) {
  struct scan scan = {fn, NULL};
  void *self = dlopen(NULL, RTLD_LAZY | RTLD_NOLOAD);
  struct link_map *map = NULL;
  if (!self || dlinfo(self, RTLD_DI_LINKMAP, &map) != 0)
    return NULL;
  for (; map && !scan_object(map, &scan); map = map->l_next)
    ;
  return scan.handle;
}

/* A handle in whose scope `fn` is found, as the loader would have searched for this caller. */
static void *find_scope(unsigned fn, const void *caller) {
  if (look_up(RTLD_NEXT, fn))
    return RTLD_NEXT;
  struct link_map *object = object_of(caller);
  void *handle = object ? open_loaded(object->l_name) : NULL;
  if (look_up(handle, fn))
    return handle;
  handle = nt_fn_is_cuda(fn) ? NULL : open_loaded("libnccl.so.2");
  if (look_up(handle, fn))
    return handle;
  handle = scan_objects(fn);
  if (handle)
    return handle;
  const char *path = getenv("NCCLTRACE_NCCL");
  handle = path && *path ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
  return look_up(handle, fn) ? handle : NULL;
}

static int version_of(void *scope) {
  int (*get_version)(int *) = NULL;
  int version = 0;
  void *found = dlsym(scope, "ncclGetVersion");
  *(void **)&get_version = found && !in_own_object(found) ? found : NULL;
  return get_version && get_version(&version) == 0 ? version : 0;
}

static const struct nt_library *library_from(void *scope, unsigned fn) {
  void *address = look_up(scope, fn);
  for (unsigned i = 0; i < library_count; i++)
    if (libraries[i].fn[fn] == address)
      return &libraries[i];
  if (library_count == LIBRARIES)
    return NULL;
  struct nt_library *library = &libraries[library_count];
  /* What is called first may be the CUDA runtime's; the copy is NCCL's object all the same. */
  void *nccl = look_up(scope, NT_FN_AllReduce);
  struct link_map *asked = object_of(address), *object = nccl ? object_of(nccl) : asked;
  /* A reference of our own: the application may close the objects, and their callers may come back. */
  if (asked)
    (void)open_loaded(asked->l_name);
  if (object && object != asked)
    (void)open_loaded(object->l_name);
  for (unsigned i = 0; i < NT_FN_LIMIT; i++)
    if (nt_fn_name(i))
      library->fn[i] = look_up(scope, i);
  library->index = (uint16_t)library_count;
  library->version = version_of(scope);
  snprintf(library->path, sizeof(library->path), "%s",
           object && object->l_name ? object->l_name : "");
  /* NCCL linked statically into somebody's library: its callers live in the same object, so the
   * address of a caller says nothing there. */
  const char *base = strrchr(library->path, '/');
  base = base ? base + 1 : library->path;
  if (strncmp(base, "libnccl", 7) == 0)
    (void)nt_module_range(nccl ? nccl : address, &library->low, &library->high);
  __atomic_store_n(&library_count, library_count + 1, __ATOMIC_RELEASE);
  return library;
}

static unsigned site_hash(const void *caller) {
  return (unsigned)((uintptr_t)caller * UINT64_C(0x9e3779b97f4a7c15) >> 54) & (SITES - 1);
}

static void remember(const void *caller, const struct nt_library *library) {
  if (site_count == SITES / 2)
    return; /* further call sites pay for their look-up each time */
  struct site *site = &site_pool[site_count++];
  *site = (struct site){caller, library};
  unsigned i = site_hash(caller);
  while (site_table[i])
    i = (i + 1) & (SITES - 1);
  __atomic_store_n(&site_table[i], site, __ATOMIC_RELEASE);
}

static const struct nt_library *resolve_slowly(unsigned fn, const void *caller) {
  int saved_errno = errno;
  nt_fork_lock(&lock);
  void *scope = find_scope(fn, caller);
  const struct nt_library *library = scope ? library_from(scope, fn) : NULL;
  if (library)
    remember(caller, library);
  (void)dlerror(); /* what our look-ups left is not the application's */
  nt_fork_unlock(&lock);
  errno = saved_errno;
  return library;
}

const struct nt_library *nt_resolve(unsigned fn, const void *caller) {
  for (unsigned i = site_hash(caller);; i = (i + 1) & (SITES - 1)) {
    struct site *site = __atomic_load_n(&site_table[i], __ATOMIC_ACQUIRE);
    if (!site)
      return resolve_slowly(fn, caller);
    if (site->caller == caller)
      return site->library;
  }
}

const struct nt_library *nt_library_at(unsigned i) {
  return i < __atomic_load_n(&library_count, __ATOMIC_ACQUIRE) ? &libraries[i] : NULL;
}
