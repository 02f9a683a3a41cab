/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/modules.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "preload/dump_thread.h"

static pid_t loaded_in;

__attribute__((constructor)) static void remember_process(void) {
  loaded_in = getpid();
}

/* Where an object's program headers are: the kernel has told of the program's, an object's follow its ELF header. */
static bool find_headers(const struct link_map *object, struct dl_phdr_info *out) {
  ElfW(Ehdr) header;
  out->dlpi_addr = object->l_addr;
  out->dlpi_name = object->l_name ? object->l_name : "";
  if (!object->l_prev) {
    out->dlpi_phdr = (const void *)getauxval(AT_PHDR);
    out->dlpi_phnum = (ElfW(Half))getauxval(AT_PHNUM);
    return out->dlpi_phdr != NULL;
  }
  if (!nt_dump_read(object->l_addr, &header, sizeof(header)) ||
      memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return false;
  out->dlpi_phdr = (const void *)(object->l_addr + header.e_phoff);
  out->dlpi_phnum = header.e_phnum;
  return true;
}

int nt_modules_each(int (*look)(struct dl_phdr_info *info, size_t size, void *data), void *data) {
  struct link_map *object = NULL;
  Dl_info unused;
  if (getpid() == loaded_in)
    return dl_iterate_phdr(look, data);
  if (!dladdr1(&loaded_in, &unused, (void **)&object, RTLD_DL_LINKMAP))
    return 0;
  while (object && object->l_prev)
    object = object->l_prev;
  for (; object; object = object->l_next) {
    struct dl_phdr_info info = {0};
    int result = find_headers(object, &info) ? look(&info, sizeof(info), data) : 0;
    if (result)
      return result;
  }
  return 0;
}

bool nt_module_holds(const struct dl_phdr_info *info, uintptr_t address) {
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    if (segment->p_type == PT_LOAD &&
        address - (info->dlpi_addr + segment->p_vaddr) < segment->p_memsz)
      return true;
  }
  return false;
}

static void find_range(const struct dl_phdr_info *info, uintptr_t *low, uintptr_t *high) {
  *low = UINTPTR_MAX;
  *high = 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD)
      continue;
    uintptr_t start = info->dlpi_addr + segment->p_vaddr;
    *low = start < *low ? start : *low;
    *high = start + segment->p_memsz > *high ? start + segment->p_memsz : *high;
  }
}

static void set_build_id(const unsigned char *id, size_t length, char out[NT_BUILD_ID_TEXT]) {
  for (size_t i = 0; i < length && 2 * i + 2 < NT_BUILD_ID_TEXT; i++)
    snprintf(out + 2 * i, 3, "%02x", id[i]);
}

/* Notes: name size, content size, type, name, content; name and content padded to the segment's alignment. */
static bool find_build_id(const struct dl_phdr_info *info, const ElfW(Phdr) * segment,
                          char out[NT_BUILD_ID_TEXT]) {
  const size_t align = segment->p_align == 8 ? 8 : 4;
  const unsigned char *at = (const unsigned char *)(info->dlpi_addr + segment->p_vaddr);
  for (size_t left = segment->p_memsz; left >= sizeof(ElfW(Nhdr));) {
    ElfW(Nhdr) note;
    memcpy(&note, at, sizeof(note));
    size_t name = (sizeof(note) + (size_t)note.n_namesz + align - 1) & ~(align - 1);
    size_t next = (name + (size_t)note.n_descsz + align - 1) & ~(align - 1);
    if (name + note.n_descsz > left)
      return false;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        !memcmp(at + sizeof(note), "GNU", 4)) {
      set_build_id(at + name, note.n_descsz, out);
      return true;
    }
    if (next > left)
      return false;
    at += next;
    left -= next;
  }
  return false;
}

void nt_module_build_id(const struct dl_phdr_info *info, char out[NT_BUILD_ID_TEXT]) {
  out[0] = 0;
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_NOTE && find_build_id(info, &info->dlpi_phdr[i], out))
      return;
}

static void set_path(const char *name, char out[NT_MODULE_PATH]) {
  char here[NT_MODULE_PATH / 2];
  if (!*name) {
    ssize_t length = readlink("/proc/self/exe", out, NT_MODULE_PATH - 1);
    out[length > 0 ? length : 0] = 0;
  } else if (*name != '/' && strchr(name, '/') && getcwd(here, sizeof(here))) {
    /* As the loader was told it; the program may have gone elsewhere since. */
    snprintf(out, NT_MODULE_PATH, "%s/%.*s", here, NT_MODULE_PATH / 2 - 2, name);
  } else {
    snprintf(out, NT_MODULE_PATH, "%s", name);
  }
}

void nt_module_describe(const struct dl_phdr_info *info, struct nt_module *out) {
  find_range(info, &out->low, &out->high);
  out->base = info->dlpi_addr;
  nt_module_build_id(info, out->build_id);
  set_path(info->dlpi_name ? info->dlpi_name : "", out->path);
}

struct range {
  uintptr_t address, low, high;
};

static int match_range(struct dl_phdr_info *info, size_t size, void *data) {
  struct range *range = data;
  (void)size;
  if (!nt_module_holds(info, range->address))
    return 0;
  find_range(info, &range->low, &range->high);
  return 1;
}

bool nt_module_range(const void *address, uintptr_t *low, uintptr_t *high) {
  struct range range = {.address = (uintptr_t)address};
  if (!nt_modules_each(match_range, &range))
    return false;
  *low = range.low;
  *high = range.high;
  return true;
}

static int add_module(struct dl_phdr_info *info, size_t size, void *data) {
  struct nt_modules *modules = data;
  (void)size;
  if (modules->count == modules->room) {
    size_t room = modules->room ? modules->room * 2 : 64;
    struct nt_module *list = realloc(modules->list, room * sizeof(*list));
    if (!list)
      return 1;
    modules->list = list;
    modules->room = room;
  }
  nt_module_describe(info, &modules->list[modules->count++]);
  return 0;
}

static int by_address(const void *a, const void *b) {
  const struct nt_module *x = a, *y = b;
  return x->low < y->low ? -1 : x->low > y->low;
}

void nt_modules_load(struct nt_modules *modules) {
  nt_modules_each(add_module, modules);
  if (modules->count)
    qsort(modules->list, modules->count, sizeof(*modules->list), by_address);
}

const struct nt_module *nt_modules_find(const struct nt_modules *modules, uintptr_t address) {
  size_t low = 0, high = modules->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (modules->list[middle].high <= address)
      low = middle + 1;
    else
      high = middle;
  }
  const struct nt_module *found = low < modules->count ? &modules->list[low] : NULL;
  return found && found->low <= address ? found : NULL;
}

void nt_modules_free(struct nt_modules *modules) {
  free(modules->list);
  *modules = (struct nt_modules){0};
}
