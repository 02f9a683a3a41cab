/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/library.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "preload/dlsym_filter.h"
#include "preload/fork_lock.h"
#include "preload/modules.h"

struct nt_library nt_libraries[NT_LIBRARIES];
static unsigned library_count, called_count;
static struct nt_fork_lock lock;

/* Made by the linker: where this object begins and ends. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

bool nt_in_own_object(const void *address) {
  return (uintptr_t)address - (uintptr_t)__ehdr_start < (uintptr_t)_end - (uintptr_t)__ehdr_start;
}

const struct nt_library *nt_library_at(unsigned i) {
  return i < __atomic_load_n(&library_count, __ATOMIC_ACQUIRE) ? &nt_libraries[i] : NULL;
}

unsigned nt_libraries_called(void) {
  return __atomic_load_n(&called_count, __ATOMIC_ACQUIRE);
}

/* ---- facts, from the loader ----------------------------------------------------------------------- */

/* In any namespace. */
static const struct link_map *map_of(const void *address) {
  Dl_info info;
  struct link_map *map = NULL;
  return address && dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) ? map : NULL;
}

static const char *path_of(const struct link_map *map) {
  return map && map->l_name ? map->l_name : "";
}

static void *look_up(void *handle, unsigned fn) {
  void *found = nt_dlsym_bare(handle, nt_fn_symbol(fn));
  return found && !nt_in_own_object(found) ? found : NULL;
}

/* NCCL's own object: where all its functions lie. With an interposer between they lie in several. Linked statically into
 * somebody's library its callers live there too, so an address says nothing. */
static void set_range(struct nt_library *library) {
  uintptr_t low, high;
  const char *base = strrchr(library->path, '/');
  base = base ? base + 1 : library->path;
  if (strncmp(base, "libnccl", 7) != 0 || !nt_module_range((void *)library->object, &low, &high))
    return;
  library->low = low;
  library->high = high;
  for (unsigned i = 0; i < NT_FN_LIMIT; i++)
    if (library->fn[i] && !nt_fn_is_cuda(i) && !nt_library_contains(library, library->fn[i]))
      library->low = library->high = 0;
}

static void describe(struct nt_library *out, void *handle, unsigned fn, void *address) {
  memset(out, 0, sizeof(*out));
  for (unsigned i = 0; i < NT_FN_LIMIT; i++)
    if (nt_fn_name(i))
      out->fn[i] = look_up(handle, i);
  out->fn[fn] = address;
  *(void **)&out->get_version = nt_dlsym_bare(handle, "ncclGetVersion");
  /* What is asked for first may be the CUDA runtime's; an interposer may stand before some functions. */
  const void *nccl = out->fn[NT_FN_CommInitRank] ? out->fn[NT_FN_CommInitRank]
                     : out->fn[NT_FN_AllReduce]  ? out->fn[NT_FN_AllReduce]
                                                 : address;
  const struct link_map *map = map_of(nccl);
  snprintf(out->path, sizeof(out->path), "%s", path_of(map));
  out->object = (uintptr_t)nccl;
  out->base = map ? map->l_addr : 0;
  out->dynamic = map ? (uintptr_t)map->l_ld : 0;
  set_range(out);
}

/* The object is there, or has come back to its place. */
static bool is_current(const struct nt_library *library) {
  const struct link_map *map = map_of((const void *)library->object);
  return map && map->l_addr == library->base && (uintptr_t)map->l_ld == library->dynamic &&
         !strcmp(path_of(map), library->path);
}

/* ---- the table ------------------------------------------------------------------------------------ */

/* The entry for `fn` calls `answer`, from now on if it was nobody's yet. */
static bool claim(struct nt_library *library, unsigned fn, void *answer) {
  void *there = NULL;
  return !answer ||
         __atomic_compare_exchange_n(&library->answer[fn], &there, answer, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE) ||
         there == answer;
}

static const struct nt_library *find(unsigned fn, const void *address, void *answer) {
  for (unsigned i = 0; nt_library_at(i); i++)
    if (nt_libraries[i].fn[fn] == address && is_current(&nt_libraries[i]) &&
        claim(&nt_libraries[i], fn, answer))
      return &nt_libraries[i];
  return NULL;
}

static bool is_same(const struct nt_library *a, const struct nt_library *b) {
  return a->base == b->base && a->dynamic == b->dynamic && !strcmp(a->path, b->path);
}

static const struct nt_library *add(const struct nt_library *fresh, unsigned fn, void *answer) {
  struct nt_library *library = NULL;
  nt_fork_lock(&lock);
  for (unsigned i = 0; i < library_count && !library; i++)
    if (nt_libraries[i].fn[fn] == fresh->fn[fn] && is_same(&nt_libraries[i], fresh) &&
        claim(&nt_libraries[i], fn, answer))
      library = &nt_libraries[i]; /* another thread was faster */
  if (!library && library_count < NT_LIBRARIES) {
    library = &nt_libraries[library_count];
    *library = *fresh;
    library->index = (uint16_t)library_count;
    library->answer[fn] = answer;
    /* Release: whoever sees the count sees the library. */
    __atomic_store_n(&library_count, library_count + 1, __ATOMIC_RELEASE);
  }
  nt_fork_unlock(&lock);
  return library;
}

const struct nt_library *nt_library_of(void *handle, unsigned fn, void *address, void *answer) {
  const struct nt_library *found = address ? find(fn, address, answer) : NULL;
  struct nt_library fresh;
  if (found || !address)
    return found;
  describe(&fresh, handle, fn, address);
  return add(&fresh, fn, answer);
}

/* ---- the first call ------------------------------------------------------------------------------- */

/* A reference of our own on each object that has one of the functions: the application may close them, and their callers
 * may come back. */
static void keep_loaded(const struct nt_library *library) {
  uintptr_t low = 0, high = 0;
  for (unsigned i = 0; i < NT_FN_LIMIT; i++) {
    const uintptr_t address = (uintptr_t)library->fn[i];
    if (!address || address - low < high - low || !nt_module_range((void *)address, &low, &high))
      continue;
    const char *path = path_of(map_of((void *)address));
    if (*path)
      // cppcheck-suppress leakReturnValNotUsed ; the reference is to last
      (void)dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  }
}

void nt_library_call(const struct nt_library *library) {
  if (nt_library_is_called(library))
    return;
  keep_loaded(library);
  int version = 0;
  if (library->get_version && library->get_version(&version) != 0)
    version = 0;
  struct nt_library *ours = &nt_libraries[library->index];
  nt_fork_lock(&lock);
  if (!ours->called) {
    ours->version = version;
    __atomic_store_n(&ours->called, true, __ATOMIC_RELEASE);
    __atomic_store_n(&called_count, called_count + 1, __ATOMIC_RELEASE);
  }
  nt_fork_unlock(&lock);
}
