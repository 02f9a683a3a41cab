/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/native_symbols.h"

#include <dlfcn.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A module that was asked for once; `module` is NULL if it is not to be had. */
struct object {
  struct object *next;
  char *path, *build_id;
  Dwfl *session;
  Dwfl_Module *module;
  GElf_Addr bias; /* added to the addresses in the file */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* libdwfl and the list */
static struct object *objects;

/* ---- files -------------------------------------------------------------------------------------- */

static void hex(const unsigned char *bytes, int count, char *out, size_t size) {
  out[0] = '\0';
  for (int i = 0; i < count && 2 * (size_t)i + 2 < size; i++)
    snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static void build_id_of(Dwfl_Module *module, char *out, size_t size) {
  const unsigned char *bits = NULL;
  GElf_Addr address;
  int count = dwfl_module_build_id(module, &bits, &address);
  hex(bits, count > 0 ? count : 0, out, size);
}

static int open_regular(const char *path) {
  struct stat status;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd >= 0 && (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))) {
    close(fd);
    return -1;
  }
  return fd;
}

static int no_elf(Dwfl_Module *module, void **user, const char *name, Dwarf_Addr base, char **file,
                  Elf **elf) {
  (void)module, (void)user, (void)name, (void)base, (void)file, (void)elf;
  return -1;
}

/* By build id alone, and on this machine alone: libdwfl's own search may ask servers. */
static int find_debug_file(Dwfl_Module *module, void **user, const char *name, Dwarf_Addr base,
                           const char *file, const char *link, GElf_Word crc, char **found) {
  char id[129], path[200];
  (void)user, (void)name, (void)base, (void)file, (void)link, (void)crc;
  build_id_of(module, id, sizeof id);
  if (strlen(id) < 4)
    return -1;
  snprintf(path, sizeof path, "/usr/lib/debug/.build-id/%.2s/%s.debug", id, id + 2);
  int fd = open_regular(path);
  if (fd >= 0)
    *found = strdup(path);
  return fd;
}

static void open_module(struct object *object) {
  static const Dwfl_Callbacks callbacks = {.find_elf = no_elf,
                                           .find_debuginfo = find_debug_file,
                                           .section_address = dwfl_offline_section_address};
  enum { BASE = 0x10000000 };
  char id[129];
  int fd = open_regular(object->path);
  if (fd < 0)
    return;
  object->session = dwfl_begin(&callbacks);
  if (object->session == NULL) {
    close(fd);
    return;
  }
  dwfl_report_begin(object->session);
  Dwfl_Module *module = dwfl_report_elf(object->session, "module", object->path, fd, BASE, true);
  dwfl_report_end(object->session, NULL, NULL);
  if (module == NULL) {
    close(fd);
    return;
  }
  if (dwfl_module_getelf(module, &object->bias) == NULL)
    return;
  build_id_of(module, id, sizeof id);
  if (strcmp(id, object->build_id) == 0)
    object->module = module;
}

static struct object *find_object(const struct nt_stack_frame *frame) {
  for (struct object *object = objects; object != NULL; object = object->next)
    if (strcmp(object->path, frame->file) == 0 && strcmp(object->build_id, frame->build_id) == 0)
      return object;
  struct object *object = calloc(1, sizeof *object);
  if (object == NULL)
    return NULL;
  object->path = strdup(frame->file);
  object->build_id = strdup(frame->build_id);
  if (object->path == NULL || object->build_id == NULL) {
    free(object->path);
    free(object->build_id);
    free(object);
    return NULL;
  }
  object->next = objects;
  objects = object;
  open_module(object);
  return object;
}

/* ---- names -------------------------------------------------------------------------------------- */

/* "a::f(int) const" -> "a::f": all calls of a function look alike. */
static void cut_parameters(char *name) {
  char *end = strrchr(name, ')');
  int depth = 0;
  for (char *at = end; at != NULL && at > name; at--) {
    depth += *at == ')';
    depth -= *at == '(';
    if (depth == 0) {
      /* "operator()" alone, "(anonymous namespace)::f": these are no parameters. */
      if (at[-1] != ':' && strncmp(at, "(anonymous", 10) != 0 &&
          !(at - name >= 8 && strncmp(at - 8, "operator", 8) == 0))
        *at = '\0';
      return;
    }
  }
}

/* Without the version of the symbol, and without what the compiler adds to a copy (".isra.0"). The C++ library is used where it is there; its names stay as they are otherwise. */
static void set_function(const char *name, struct nt_native_symbol *out) {
  static char *(*demangle)(const char *, char *, size_t *, int *);
  static bool looked;
  int status = -1;
  if (!looked) {
    void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_LOCAL);
    *(void **)&demangle = library != NULL ? dlsym(library, "__cxa_demangle") : NULL;
    looked = true;
    // cppcheck-suppress resourceLeak ; stays open
  }
  char *plain =
      strncmp(name, "_Z", 2) == 0 && demangle != NULL ? demangle(name, NULL, NULL, &status) : NULL;
  if (plain != NULL)
    cut_parameters(plain);
  if (plain == NULL && name[0] != '.')
    snprintf(out->function, sizeof out->function, "%.*s", (int)strcspn(name, "@."), name);
  else
    snprintf(out->function, sizeof out->function, "%s", plain != NULL ? plain : name);
  free(plain);
}

/* The file's line table leaves code without debug information to its neighbour: only what a unit says that it has. */
static bool has_debug_information(Dwfl_Module *module, GElf_Addr address) {
  Dwarf_Addr bias;
  Dwarf_Die *unit = dwfl_module_addrdie(module, address, &bias);
  return unit != NULL && dwarf_haspc(unit, address - bias) > 0;
}

static bool ask(const struct object *object, uint64_t at, struct nt_native_symbol *out) {
  const GElf_Addr address = object->bias + at;
  GElf_Off offset;
  GElf_Sym symbol;
  const char *name =
      dwfl_module_addrinfo(object->module, address, &offset, &symbol, NULL, NULL, NULL);
  if (name == NULL)
    return false;
  set_function(name, out);
  out->offset = offset;
  Dwfl_Line *line = has_debug_information(object->module, address)
                        ? dwfl_module_getsrc(object->module, address)
                        : NULL;
  const char *file = line != NULL ? dwfl_lineinfo(line, NULL, &out->line, NULL, NULL, NULL) : NULL;
  if (file != NULL)
    snprintf(out->file, sizeof out->file, "%s", file);
  else
    out->line = 0;
  return true;
}

bool nt_native_symbol(const struct nt_stack_frame *frame, struct nt_native_symbol *out) {
  *out = (struct nt_native_symbol){.line = 0};
  if (frame->build_id == NULL || frame->file[0] != '/')
    return false;
  pthread_mutex_lock(&lock);
  const struct object *object = find_object(frame);
  bool known = object != NULL && object->module != NULL && ask(object, frame->offset, out);
  pthread_mutex_unlock(&lock);
  return known;
}
