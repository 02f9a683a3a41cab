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

static const char *path_of(const void *address) {
  Dl_info info;
  struct link_map *map = NULL;
  return address && dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) && map->l_name
             ? map->l_name
             : "";
}

static void *look_up(void *handle, unsigned fn) {
  void *found = nt_dlsym_bare(handle, nt_fn_symbol(fn));
  return found && !nt_in_own_object(found) ? found : NULL;
}

/* NCCL's own object: where all its functions lie. With an interposer between they lie in several. Linked statically into
 * somebody's library its callers live there too, so an address says nothing. */
static void set_range(struct nt_library *library, const void *nccl) {
  const char *base = strrchr(library->path, '/');
  base = base ? base + 1 : library->path;
  if (!nt_module_range(nccl, &library->object_low, &library->object_high) ||
      strncmp(base, "libnccl", 7) != 0)
    return;
  library->low = library->object_low;
  library->high = library->object_high;
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
  snprintf(out->path, sizeof(out->path), "%s", path_of(nccl));
  set_range(out, nccl);
}

/* One that was called stays. Any other is what it was if its object is still there. */
static bool is_current(const struct nt_library *library) {
  uintptr_t low, high;
  return nt_library_is_called(library) ||
         (nt_module_range((const void *)library->object_low, &low, &high) &&
          low == library->object_low && high == library->object_high &&
          !strcmp(path_of((const void *)library->object_low), library->path));
}

/* ---- the table ------------------------------------------------------------------------------------ */

static const struct nt_library *find(unsigned fn, const void *address) {
  const struct nt_library *library;
  for (unsigned i = 0; (library = nt_library_at(i)); i++)
    if (library->fn[fn] == address && is_current(library))
      return library;
  return NULL;
}

/* A slot whose object is gone before it was ever called. */
static int find_left(void) {
  const struct nt_library *library;
  for (unsigned i = 0; (library = nt_library_at(i)); i++)
    if (!is_current(library))
      return (int)i;
  return -1;
}

static const struct nt_library *add(const struct nt_library *fresh, unsigned fn, int left) {
  struct nt_library *library = NULL;
  nt_fork_lock(&lock);
  for (unsigned i = 0; i < library_count && !library; i++)
    if (nt_libraries[i].fn[fn] == fresh->fn[fn] && (int)i != left)
      library = &nt_libraries[i]; /* another thread was faster */
  if (!library && left >= 0 && !nt_libraries[left].called) {
    library = &nt_libraries[left];
    *library = *fresh;
    library->index = (uint16_t)left;
  } else if (!library && library_count < NT_LIBRARIES) {
    library = &nt_libraries[library_count];
    *library = *fresh;
    library->index = (uint16_t)library_count;
    /* Release: whoever sees the count sees the library. */
    __atomic_store_n(&library_count, library_count + 1, __ATOMIC_RELEASE);
  }
  nt_fork_unlock(&lock);
  return library;
}

const struct nt_library *nt_library_of(void *handle, unsigned fn, void *address) {
  const struct nt_library *found = address ? find(fn, address) : NULL;
  struct nt_library fresh;
  if (found || !address)
    return found;
  describe(&fresh, handle, fn, address);
  return add(&fresh, fn, find_left());
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
    const char *path = path_of((void *)address);
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
