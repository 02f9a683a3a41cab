/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs in application threads at a call site's first NCCL call; afterwards the answer is found in a table. dlopen is only
 * ever asked for what is loaded already (RTLD_NOLOAD), by name: a link_map is not a handle.
 *
 * A call site is an address, and what lies there changes where objects come and go. While an object may be going, calls see no
 * sites: each finds its own by the object that it lies in. So nothing that comes to lie there meanwhile is taken for what was there,
 * and calls need not look at their object otherwise.
 */
#include "preload/resolve.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "preload/dlsym_filter.h"
#include "preload/fork_lock.h"
#include "preload/modules.h"

static struct nt_site site_pool[NT_SITES / 2];
static uint64_t site_objects[NT_SITES / 2]; /* what object_at said when the site was new */
static unsigned site_count;
static struct nt_site *all_sites[NT_SITES];
struct nt_site *nt_sites[NT_SITES]; /* those of all_sites that calls see */
static struct {
  unsigned count; /* of dlclose, going on … */
  pid_t process;  /* … in this process: a child has none of its parent's */
} closing;
static struct nt_fork_lock lock; /* of all of these; never held while the loader is asked */

/* The loaded object that holds `address`, NULL if it cannot be told. */
static struct link_map *object_of(const void *address) {
  Dl_info info;
  struct link_map *map = NULL;
  if (!dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP))
    return NULL;
  return map;
}

/* dlsym that never answers with one of our wrappers. */
static void *look_up(void *handle, unsigned fn) {
  void *found = handle ? nt_dlsym_bare(handle, nt_fn_symbol(fn)) : NULL;
  return found && !nt_in_own_object(found) ? found : NULL;
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

static void close_scope(void *scope) {
  if (scope && scope != RTLD_NEXT)
    dlclose(scope);
}

/* Keeps a scope in which `fn` is found, closes any other. */
static bool is_scope(void *scope, unsigned fn) {
  if (look_up(scope, fn))
    return true;
  close_scope(scope);
  return false;
}

/* A handle in whose scope `fn` is found, as the loader would have searched for this caller: to be closed. */
static void *find_scope(unsigned fn, const void *caller) {
  if (look_up(RTLD_NEXT, fn))
    return RTLD_NEXT;
  struct link_map *object = object_of(caller);
  void *handle = object ? open_loaded(object->l_name) : NULL;
  if (is_scope(handle, fn))
    return handle;
  handle = nt_fn_is_cuda(fn) ? NULL : open_loaded("libnccl.so.2");
  if (is_scope(handle, fn))
    return handle;
  handle = scan_objects(fn);
  if (handle)
    return handle;
  const char *path = getenv("NCCLTRACE_NCCL");
  handle = path && *path ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
  return is_scope(handle, fn) ? handle : NULL;
}

/* ---- call sites --------------------------------------------------------------------------------- */

/* Tells objects apart that come to lie at the same address: by their names. Never 0. */
static uint64_t object_number(const struct dl_phdr_info *info) {
  uint64_t number = UINT64_C(0xcbf29ce484222325) ^ info->dlpi_addr;
  for (const char *at = info->dlpi_name; at && *at && at < info->dlpi_name + NT_MODULE_PATH - 1;
       at++)
    number = (number ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
  return number ? number : 1;
}

struct at {
  uintptr_t address;
  uint64_t object;
};

static int match_object(struct dl_phdr_info *info, size_t size, void *data) {
  struct at *at = data;
  (void)size;
  if (!nt_module_holds(info, at->address))
    return 0;
  at->object = object_number(info);
  return 1;
}

/* Of the object that holds the address, 0 if none does. Takes no lock that is held while code of an object runs. */
static uint64_t object_at(const void *address) {
  struct at at = {(uintptr_t)address, 0};
  nt_modules_each(match_object, &at);
  return at.object;
}

/* Under the lock. */
static bool is_closing(void) {
  return closing.count && closing.process == getpid();
}

static void show_sites(bool visible) {
  for (unsigned i = 0; i < NT_SITES; i++)
    if (all_sites[i])
      __atomic_store_n(&nt_sites[i], visible ? all_sites[i] : NULL, __ATOMIC_RELEASE);
}

/* Under the lock. A site that is used again may be seen by a reader with its old caller and its new library, but only by
 * one whose object is unloaded. */
static void remember(const void *caller, uint64_t object, const struct nt_library *library) {
  unsigned i = nt_site_hash(caller);
  while (all_sites[i] && all_sites[i]->caller)
    i = (i + 1) & (NT_SITES - 1);
  if (!all_sites[i] && site_count == NT_SITES / 2)
    return; /* further call sites pay for their look-up each time */
  struct nt_site *site = all_sites[i] ? all_sites[i] : &site_pool[site_count];
  site_objects[site - site_pool] = object;
  site->library = library;
  __atomic_store_n(&site->caller, caller, __ATOMIC_RELEASE);
  if (!all_sites[i])
    __atomic_store_n(&site_count, site_count + 1, __ATOMIC_RELEASE);
  all_sites[i] = site;
  if (!is_closing())
    __atomic_store_n(&nt_sites[i], site, __ATOMIC_RELEASE);
}

/* Under the lock. A site that calls do not see: an object is going, or was when this process was forked. */
static const struct nt_library *find_hidden(unsigned fn, const void *caller, uint64_t object) {
  for (unsigned i = nt_site_hash(caller); all_sites[i]; i = (i + 1) & (NT_SITES - 1)) {
    const struct nt_site *site = all_sites[i];
    if (site->caller != caller || site_objects[site - site_pool] != object ||
        !site->library->fn[fn])
      continue;
    if (!is_closing())
      show_sites(true);
    return site->library;
  }
  return NULL;
}

static const struct nt_library *known_library(unsigned fn, const void *caller, uint64_t object) {
  nt_fork_lock(&lock);
  const struct nt_library *library = find_hidden(fn, caller, object);
  nt_fork_unlock(&lock);
  return library;
}

static __attribute__((noinline)) const struct nt_library *resolve_slowly(unsigned fn,
                                                                         const void *caller) {
  int saved_errno = errno;
  const uint64_t object = object_at(caller);
  const struct nt_library *known = known_library(fn, caller, object);
  if (known) {
    errno = saved_errno;
    return known;
  }
  void *scope = find_scope(fn, caller);
  const struct nt_library *library =
      scope ? nt_library_of(scope, fn, look_up(scope, fn), NULL) : NULL;
  if (library) {
    nt_library_call(library);
    nt_fork_lock(&lock);
    remember(caller, object, library);
    nt_fork_unlock(&lock);
  }
  close_scope(scope);
  (void)dlerror(); /* what our look-ups left is not the application's */
  errno = saved_errno;
  return library;
}

void *nt_resolve_untraced(unsigned fn, const void *caller) {
  int saved_errno = errno;
  void *scope = find_scope(fn, caller);
  void *address = look_up(scope, fn);
  close_scope(scope);
  (void)dlerror();
  errno = saved_errno;
  return address;
}

const struct nt_library *nt_resolve(unsigned fn, const void *caller) {
  for (unsigned i = nt_site_hash(caller);; i = (i + 1) & (NT_SITES - 1)) {
    struct nt_site *site = __atomic_load_n(&nt_sites[i], __ATOMIC_ACQUIRE);
    if (!site)
      return resolve_slowly(fn, caller);
    /* One place may call NCCL and the CUDA runtime, as libffi does. */
    if (__atomic_load_n(&site->caller, __ATOMIC_ACQUIRE) == caller && site->library->fn[fn])
      return site->library;
  }
}

bool nt_resolve_has_site(uintptr_t low, uintptr_t high) {
  const unsigned count = __atomic_load_n(&site_count, __ATOMIC_ACQUIRE);
  for (unsigned i = 0; i < count; i++)
    if ((uintptr_t)__atomic_load_n(&site_pool[i].caller, __ATOMIC_RELAXED) - low < high - low)
      return true;
  return false;
}

/* ---- objects that go ---------------------------------------------------------------------------- */

struct loaded {
  struct {
    uintptr_t caller; /* in ascending order */
    uint64_t object;
    unsigned site;
    bool stays;
  } at[NT_SITES / 2];
  unsigned count;
};

static int by_caller(const void *a, const void *b) {
  const uintptr_t *x = a, *y = b;
  return *x < *y ? -1 : *x > *y;
}

/* Under the loader's lock, so quick: only callers between the object's ends are looked at. */
static int mark_loaded(struct dl_phdr_info *info, size_t size, void *data) {
  struct loaded *loaded = data;
  unsigned first = 0, end = loaded->count;
  uintptr_t low, high;
  (void)size;
  nt_module_span(info, &low, &high);
  while (first < end) {
    const unsigned middle = (first + end) / 2;
    if (loaded->at[middle].caller < low)
      first = middle + 1;
    else
      end = middle;
  }
  for (unsigned i = first; i < loaded->count && loaded->at[i].caller < high; i++)
    if (!loaded->at[i].stays)
      loaded->at[i].stays = nt_module_holds(info, loaded->at[i].caller) &&
                            loaded->at[i].object == object_number(info);
  return 0;
}

static int count_unloads(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size;
  *(unsigned long long *)data = info->dlpi_subs;
  return 1;
}

/* What comes to lie at the same addresses later is another caller. */
static void forget_unloaded(void) {
  static unsigned long long unloads_seen;
  unsigned long long unloads = 0;
  struct loaded loaded;
  nt_modules_each(count_unloads, &unloads);
  if (__atomic_exchange_n(&unloads_seen, unloads, __ATOMIC_RELAXED) == unloads)
    return;
  nt_fork_lock(&lock);
  loaded.count = site_count;
  for (unsigned i = 0; i < loaded.count; i++) {
    loaded.at[i].caller = (uintptr_t)site_pool[i].caller;
    loaded.at[i].object = site_objects[i];
    loaded.at[i].site = i;
    loaded.at[i].stays = false;
  }
  nt_fork_unlock(&lock);
  qsort(loaded.at, loaded.count, sizeof loaded.at[0], by_caller);
  nt_modules_each(mark_loaded, &loaded);
  nt_fork_lock(&lock);
  for (unsigned i = 0; i < loaded.count; i++) {
    struct nt_site *site = &site_pool[loaded.at[i].site];
    if (!loaded.at[i].stays && (uintptr_t)site->caller == loaded.at[i].caller &&
        site_objects[loaded.at[i].site] == loaded.at[i].object)
      __atomic_store_n(&site->caller, NULL, __ATOMIC_RELEASE);
  }
  nt_fork_unlock(&lock);
}

/* From here to end_close calls see no sites. */
static void begin_close(void) {
  nt_fork_lock(&lock);
  if (!is_closing())
    closing.count = 0;
  closing.count++;
  closing.process = getpid();
  show_sites(false);
  nt_fork_unlock(&lock);
}

static void end_close(void) {
  nt_fork_lock(&lock);
  if (is_closing() && !--closing.count)
    show_sites(true);
  nt_fork_unlock(&lock);
}

static bool has_sites(void) {
  return __atomic_load_n(&site_count, __ATOMIC_ACQUIRE) != 0;
}

__attribute__((visibility("default"))) int dlclose(void *handle) {
  const bool hides = has_sites();
  if (hides)
    begin_close();
  int result = nt_dlclose_next(handle), saved_errno = errno;
  if (has_sites())
    forget_unloaded();
  if (hides)
    end_close();
  errno = saved_errno;
  return result;
}
