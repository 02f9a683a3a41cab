/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an object exports is found in its own tables, since dlsym on a handle answers for its dependencies as well.
 * A fork may leave the loader's lock held for ever in the child, so no look is taken there that the parent has taken.
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

#include "preload/elf_symbols.h"
#include "preload/fork_lock.h"
#include "preload/library.h"
#include "preload/modules.h"

enum { COPIES = 16, PATH_BYTES = 512 };

static struct nt_nccl_copy copies[COPIES];
static unsigned copy_count;
static int runtime_version;
static unsigned libraries_seen =
    UINT_MAX; /* that had been called at the last look; UINT_MAX: there was none */
static struct nt_fork_lock lock;

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

static void remember(const struct dl_phdr_info *info) {
  for (unsigned i = 0; i < copy_count; i++)
    if (!strcmp(copies[i].path, info->dlpi_name))
      return;
  if (copy_count == COPIES)
    return;
  struct nt_nccl_copy *copy = &copies[copy_count];
  snprintf(copy->path, sizeof copy->path, "%s", info->dlpi_name);
  nt_module_build_id(info, copy->build_id);
  /* Release: whoever sees the count sees the copy. */
  __atomic_store_n(&copy_count, copy_count + 1, __ATOMIC_RELEASE);
}

static int look_at(struct dl_phdr_info *info, size_t size, void *data) {
  char *runtime = data;
  const char *base = base_of(info->dlpi_name);
  (void)size;
  if (!strncmp(base, "libcudart.so", 12))
    snprintf(runtime, PATH_BYTES, "%s", info->dlpi_name);
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

void nt_nccl_copies_look(void) {
  const int saved_errno = errno;
  char runtime[PATH_BYTES] = "";
  const unsigned libraries = nt_libraries_called();
  if (__atomic_exchange_n(&libraries_seen, libraries, __ATOMIC_ACQ_REL) == libraries)
    return;
  nt_fork_lock(&lock);
  nt_modules_each(look_at, runtime);
  nt_fork_unlock(&lock);
  if (*runtime && !nt_cuda_runtime_version())
    ask_runtime(runtime);
  errno = saved_errno;
}

const struct nt_nccl_copy *nt_nccl_copy_at(unsigned i) {
  return i < __atomic_load_n(&copy_count, __ATOMIC_ACQUIRE) ? &copies[i] : NULL;
}

int nt_cuda_runtime_version(void) {
  return __atomic_load_n(&runtime_version, __ATOMIC_RELAXED);
}
