/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/modules.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "preload/dump_thread.h"
#include "preload/fork_gate.h"

/* The loader is in every process; a need for it in this library is one too many. */
#pragma weak _r_debug

static pid_t loaded_in;

__attribute__((constructor)) static void remember_process(void) {
  loaded_in = getpid();
}

/* ---- the loader's list, without its lock ---------------------------------------------------------- */

enum { OBJECTS_MAX = 16384, SEGMENTS_MAX = 64, PAGE = 4096, TRIES = 4 };

/* An object as it was read: nothing in it points to what the loader may free. */
struct object {
  struct link_map map;
  struct dl_phdr_info info;
  ElfW(Phdr) segments[SEGMENTS_MAX];
  char name[NT_MODULE_PATH];
};

/* "" where it cannot be read. Page by page: what lies behind its end may be unreadable. */
static void read_name(uintptr_t at, char out[NT_MODULE_PATH]) {
  for (size_t length = 0; at && length < NT_MODULE_PATH - 1;) {
    size_t piece = PAGE - (at + length) % PAGE, left = NT_MODULE_PATH - 1 - length;
    piece = piece < left ? piece : left;
    if (!nt_dump_read(at + length, out + length, piece))
      break;
    if (memchr(out + length, 0, piece))
      return;
    length += piece;
    out[length] = 0;
    if (length == NT_MODULE_PATH - 1)
      return;
  }
  out[0] = 0;
}

/* Where its program headers are: the kernel has told of the program's, an object's follow its ELF header. */
static bool find_headers(struct object *object) {
  ElfW(Ehdr) header;
  object->info.dlpi_addr = object->map.l_addr;
  object->info.dlpi_name = object->name;
  read_name((uintptr_t)object->map.l_name, object->name);
  if (!object->map.l_prev) {
    object->info.dlpi_phdr = (const void *)getauxval(AT_PHDR);
    object->info.dlpi_phnum = (ElfW(Half))getauxval(AT_PHNUM);
    return object->info.dlpi_phdr != NULL;
  }
  if (!nt_dump_read(object->map.l_addr, &header, sizeof(header)) ||
      memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(ElfW(Phdr)))
    return false;
  object->info.dlpi_phdr = object->segments;
  object->info.dlpi_phnum = header.e_phnum < SEGMENTS_MAX ? header.e_phnum : SEGMENTS_MAX;
  return nt_dump_read(object->map.l_addr + header.e_phoff, object->segments,
                      object->info.dlpi_phnum * sizeof(*object->segments));
}

/* false: the list changed under the reader, and ends too early. *result is the callback's last one. */
static bool walk_list(int (*look)(struct dl_phdr_info *info, size_t size, void *data), void *data,
                      int *result) {
  struct object object;
  const struct r_debug *loader = &_r_debug;
  const struct link_map *at = loader ? loader->r_map : NULL, *before = NULL;
  *result = 0;
  for (unsigned i = 0; at && i < OBJECTS_MAX; i++) {
    object.info = (struct dl_phdr_info){0};
    if (!nt_dump_read((uintptr_t)at, &object.map, sizeof(object.map)) ||
        object.map.l_prev != before)
      return false;
    if (find_headers(&object) && (*result = look(&object.info, sizeof(object.info), data)))
      return true;
    before = at;
    at = object.map.l_next;
  }
  return !at;
}

int nt_modules_each(int (*look)(struct dl_phdr_info *info, size_t size, void *data), void *data) {
  int result, cancel_state;
  if (getpid() != loaded_in) {
    walk_list(look, data, &result);
    return result;
  }
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state); /* nobody would leave */
  bool entered = nt_fork_gate_enter(NT_GATE_CALL_MS);
  result = dl_iterate_phdr(look, data);
  if (entered)
    nt_fork_gate_leave();
  pthread_setcancelstate(cancel_state, NULL);
  return result;
}

/* ---- one object --------------------------------------------------------------------------------- */

bool nt_module_holds(const struct dl_phdr_info *info, uintptr_t address) {
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    if (segment->p_type == PT_LOAD &&
        address - (info->dlpi_addr + segment->p_vaddr) < segment->p_memsz)
      return true;
  }
  return false;
}

void nt_module_span(const struct dl_phdr_info *info, uintptr_t *low, uintptr_t *high) {
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

static bool set_build_id(uintptr_t at, size_t length, char out[NT_BUILD_ID_TEXT]) {
  unsigned char id[NT_BUILD_ID_TEXT / 2];
  length = length < sizeof(id) ? length : sizeof(id);
  if (!nt_dump_read(at, id, length))
    return false;
  for (size_t i = 0; i < length; i++)
    snprintf(out + 2 * i, 3, "%02x", id[i]);
  return true;
}

/* Notes: name size, content size, type, name, content; name and content padded to the segment's alignment. */
static bool find_build_id(const struct dl_phdr_info *info, const ElfW(Phdr) * segment,
                          char out[NT_BUILD_ID_TEXT]) {
  const size_t align = segment->p_align == 8 ? 8 : 4;
  uintptr_t at = info->dlpi_addr + segment->p_vaddr;
  struct {
    ElfW(Nhdr) head;
    char name[4];
  } note;
  for (size_t left = segment->p_memsz; left >= sizeof(note);) {
    if (!nt_dump_read(at, &note, sizeof(note)))
      return false;
    size_t name = (sizeof(note.head) + (size_t)note.head.n_namesz + align - 1) & ~(align - 1);
    size_t next = (name + (size_t)note.head.n_descsz + align - 1) & ~(align - 1);
    if (name + note.head.n_descsz > left)
      return false;
    if (note.head.n_type == NT_GNU_BUILD_ID && note.head.n_namesz == 4 &&
        !memcmp(note.name, "GNU", 4))
      return set_build_id(at + name, note.head.n_descsz, out);
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
  nt_module_span(info, &out->low, &out->high);
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
  nt_module_span(info, &range->low, &range->high);
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
  int full = 0;
  for (int tries = 0; tries < TRIES; tries++) {
    modules->count = 0;
    if (walk_list(add_module, modules, &full))
      break;
  }
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
