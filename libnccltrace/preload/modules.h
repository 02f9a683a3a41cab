/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loaded objects of this process: where each is, its path and its build id.
 *
 * Threads of the application ask the loader through dl_iterate_phdr, which takes a lock that is held for moments where
 * objects come and go; so never on the path of a call whose stack is known. That lock is not mended at a fork: in a child
 * whose parent's other thread held it, it is held for ever. So a child reads the loader's list as it is, and so
 * does the dump thread, whose parent's children are not to hang: by way of the kernel, since an object may go meanwhile.
 */
#ifndef NT_MODULES_H
#define NT_MODULES_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NT_MODULE_PATH = 1024, NT_BUILD_ID_TEXT = 2 * 32 + 1 };

struct nt_module {
  uintptr_t low, high;             /* its segments lie in between */
  uintptr_t base;                  /* address in memory less the address that its file gives */
  char build_id[NT_BUILD_ID_TEXT]; /* hex, "" if it has none */
  char path[NT_MODULE_PATH];       /* absolute, but for the kernel's own "linux-vdso.so.1" */
};

/* dl_iterate_phdr, which does not hang in a forked child, and makes none hang: a fork waits until it is over. So the
 * callback is quick, takes no lock and allocates nothing. In a child There a name and the program headers are all that the
 * callback is told, valid until it returns. Its result, or 0. */
int nt_modules_each(int (*look)(struct dl_phdr_info *info, size_t size, void *data), void *data);

/* One of the object's segments holds the address. */
bool nt_module_holds(const struct dl_phdr_info *info, uintptr_t address);

/* Its lowest address, and the end of its highest segment. */
void nt_module_span(const struct dl_phdr_info *info, uintptr_t *low, uintptr_t *high);

/* Its build id in hex, "" if it has none. */
void nt_module_build_id(const struct dl_phdr_info *info, char out[NT_BUILD_ID_TEXT]);

/* Fills *out from inside a callback of dl_iterate_phdr. errno is undefined. */
void nt_module_describe(const struct dl_phdr_info *info, struct nt_module *out);

/* Lowest and highest address of the object that holds `address`; false if none does. */
bool nt_module_range(const void *address, uintptr_t *low, uintptr_t *high);

/* All objects at one moment, by address. Zero-initialise; release with nt_modules_free. */
struct nt_modules {
  struct nt_module *list;
  size_t count, room;
};
/* Any thread; takes no lock of the loader's. Objects for which there is no memory are left out, and those behind the
 * place where the list changed at every try. */
void nt_modules_load(struct nt_modules *modules);
const struct nt_module *nt_modules_find(const struct nt_modules *modules, uintptr_t address);
void nt_modules_free(struct nt_modules *modules);

#endif
