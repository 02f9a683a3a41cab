/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/python_layout.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preload/call_data.h"
#include "preload/fork_lock.h"
#include "preload/modules.h"
#include "preload/python_rows.h"
#include "trace/python_lines.h"

static const struct nt_python_layout table[] = {
    [NT_PYTHON_ROW_3_8] = NT_PYTHON_3_8_AND_3_9(0x0308),
    [NT_PYTHON_ROW_3_9] = NT_PYTHON_3_8_AND_3_9(0x0309),
    [NT_PYTHON_ROW_3_10] = NT_PYTHON_3_10,
    [NT_PYTHON_ROW_3_11] = NT_PYTHON_3_11,
    [NT_PYTHON_ROW_3_12] = NT_PYTHON_3_12,
    [NT_PYTHON_ROW_3_13] = NT_PYTHON_3_13,
    [NT_PYTHON_ROW_3_14] = NT_PYTHON_3_14,
};

NT_CALL_DATA const struct nt_python *nt_python_found;

static struct nt_python python;
static const char *version_text, *state_text;
static struct nt_fork_lock lock;
static bool forbidden;

const struct nt_python_layout *nt_python_layout_at(size_t i) {
  return i < sizeof(table) / sizeof(*table) ? &table[i] : NULL;
}

/* ---- what 3.13 and later publish ---------------------------------------------------------------- */

/* Indexes of 64-bit words behind the cookie. 3.14 put fields in between. */
struct published {
  uint16_t version;
  uint8_t thread_size, thread_frame;
  uint8_t frame_size, frame_back, frame_code, frame_at, frame_owner;
  uint8_t code_size, code_file, code_name, code_table, code_first_line, code_bytes;
  uint8_t bytes_length, bytes_data;
  uint8_t text_state, text_length, text_ascii;
};

static const struct published published[] = {
    {.version = 0x030d,
     .thread_size = 19,
     .thread_frame = 23,
     .frame_size = 28,
     .frame_back = 29,
     .frame_code = 30,
     .frame_at = 31,
     .frame_owner = 33,
     .code_size = 34,
     .code_file = 35,
     .code_name = 37,
     .code_table = 38,
     .code_first_line = 39,
     .code_bytes = 43,
     .bytes_length = 65,
     .bytes_data = 66,
     .text_state = 68,
     .text_length = 69,
     .text_ascii = 70},
    {.version = 0x030e,
     .thread_size = 22,
     .thread_frame = 26,
     .frame_size = 31,
     .frame_back = 32,
     .frame_code = 33,
     .frame_at = 34,
     .frame_owner = 36,
     .code_size = 39,
     .code_file = 40,
     .code_name = 42,
     .code_table = 43,
     .code_first_line = 44,
     .code_bytes = 48,
     .bytes_length = 75,
     .bytes_data = 76,
     .text_state = 78,
     .text_length = 79,
     .text_ascii = 80},
};

static bool refuse(const char **reason, const char *why) {
  *reason = why;
  return false;
}

/* A field of `width` bytes at words[field] lies within an object of words[size] bytes. */
static bool inside(const uint64_t *words, unsigned field, unsigned size, unsigned width) {
  return words[size] <= 4096 && words[field] + width <= words[size];
}

static bool is_plausible(const uint64_t *w, const struct published *p) {
  return inside(w, p->thread_frame, p->thread_size, 8) &&
         inside(w, p->frame_back, p->frame_size, 8) && inside(w, p->frame_code, p->frame_size, 8) &&
         inside(w, p->frame_at, p->frame_size, 8) && inside(w, p->frame_owner, p->frame_size, 1) &&
         inside(w, p->code_file, p->code_size, 8) && inside(w, p->code_name, p->code_size, 8) &&
         inside(w, p->code_table, p->code_size, 8) &&
         inside(w, p->code_first_line, p->code_size, 4) &&
         inside(w, p->code_bytes, p->code_size, 1) && w[p->code_bytes] >= 64 &&
         w[p->bytes_length] == 16 && w[p->bytes_data] == 32 && w[p->text_length] == 16 &&
         w[p->text_state] == 32 && w[p->text_ascii] >= 36 && w[p->text_ascii] <= 64;
}

bool nt_python_read_offsets(const void *offsets, uint32_t hex, struct nt_python_layout *out,
                            const char **reason) {
  enum { VERSION = 1, FREE_THREADED = 2, RELEASE_CANDIDATE = 0xc };
  uint64_t w[NT_PYTHON_OFFSETS / 8];
  const struct published *p = NULL;
  memcpy(w, offsets, sizeof(w));
  for (size_t i = 0; i < sizeof(published) / sizeof(*published); i++)
    if (published[i].version == hex >> 16)
      p = &published[i];
  if (!p)
    return refuse(reason, "its layout is not known");
  if (memcmp(w, "xdebugpy", 8) != 0 || w[VERSION] != hex)
    return refuse(reason, "it does not publish its layout");
  if (w[FREE_THREADED])
    return refuse(reason, "free-threaded interpreters are not supported");
  if ((hex >> 4 & 0xf) < RELEASE_CANDIDATE)
    return refuse(reason, "pre-releases are not supported");
  if (!is_plausible(w, p))
    return refuse(reason, "the layout it publishes is impossible");
  *out = (struct nt_python_layout){
      .version = p->version,
      .frames = NT_PYTHON_DIRECT,
      .lines = NT_PYTHON_LINES_3_11,
      .text_kind = 2,
      .thread_frame = (uint16_t)w[p->thread_frame],
      .frame_back = (uint16_t)w[p->frame_back],
      .frame_code = (uint16_t)w[p->frame_code],
      .frame_at = (uint16_t)w[p->frame_at],
      .frame_owner = (uint16_t)w[p->frame_owner],
      .code_file = (uint16_t)w[p->code_file],
      .code_name = (uint16_t)w[p->code_name],
      .code_table = (uint16_t)w[p->code_table],
      .code_first_line = (uint16_t)w[p->code_first_line],
      /* Not published, but in both releases: the sixth int behind the first line, and the int in front
       * of the pointer in front of the code. */
      .code_version = (uint16_t)(w[p->code_first_line] + 24),
      .code_first_traceable = (uint16_t)(w[p->code_bytes] - 16),
      .code_bytes = (uint16_t)w[p->code_bytes],
      .code_size = (uint16_t)w[p->code_bytes],
      .text_length = (uint16_t)w[p->text_length],
      .text_hash = (uint16_t)(w[p->text_length] + 8),
      .text_state = (uint16_t)w[p->text_state],
      .text_ascii = (uint16_t)w[p->text_ascii],
      .text_compact = (uint16_t)(w[p->text_ascii] + 16),
      .bytes_length = (uint16_t)w[p->bytes_length],
      .bytes_data = (uint16_t)w[p->bytes_data]};
  return true;
}

/* ---- the interpreter in this process ------------------------------------------------------------ */

/* RTLD_DEFAULT sees the main program and what was loaded for everybody; an interpreter embedded by a
 * plug-in may be behind RTLD_LOCAL. */
static int find_library(struct dl_phdr_info *info, size_t size, void *out) {
  (void)size;
  const char *name = strrchr(info->dlpi_name, '/');
  name = name ? name + 1 : info->dlpi_name;
  if (strncmp(name, "libpython3.", 11) != 0)
    return 0;
  snprintf(out, 1024, "%s", info->dlpi_name);
  return 1;
}

/* RTLD_DEFAULT itself is a null pointer, so the answer is apart from the handle. */
static bool find_handle(void **out) {
  char path[1024];
  *out = RTLD_DEFAULT;
  if (dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"))
    return true;
  if (!nt_modules_each(find_library, path))
    return false;
  *out = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  return *out && dlsym(*out, "PyGILState_GetThisThreadState");
}

static uint32_t hex_version(void *handle, const char *text) {
  const unsigned long *hex = dlsym(handle, "Py_Version");
  unsigned major = 0, minor = 0;
  if (hex)
    return (uint32_t)*hex;
  return sscanf(text, "%u.%u", &major, &minor) == 2 ? major << 24 | minor << 16 : 0;
}

/* What PyType_Type objects say of the size of theirs: behind the head of a variable object and a name. */
static int64_t basic_size(const void *type) {
  int64_t size;
  memcpy(&size, (const char *)type + 32, sizeof(size));
  return size;
}

static bool set_layout(void *handle, uint32_t hex, struct nt_python *out, const char **reason) {
  struct nt_python_layout *layout = &out->layout;
  const void *runtime = out->runtime = dlsym(handle, "_PyRuntime");
  if (hex < 0x03080000)
    return refuse(reason, "versions before 3.8 are not supported");
  if (hex >= 0x030d0000) {
    if (!runtime)
      return refuse(reason, "it does not publish its layout");
    if (!nt_python_read_offsets(runtime, hex, layout, reason))
      return false;
  } else if (dlsym(handle, "_Py_NegativeRefcount") || dlsym(handle, "_Py_AddToAllObjects")) {
    /* Both exist only in builds whose objects are larger. */
    return refuse(reason, "debug builds before 3.13 are not supported");
  }
  nt_python_read_lists(runtime, hex, &out->lists);
  for (out->row = 0; out->row < NT_PYTHON_ROWS; out->row++) {
    const struct nt_python_layout *row = &table[out->row];
    if (hex < 0x030d0000 && row->version == hex >> 16)
      *layout = *row;
    if (row->version == hex >> 16 && memcmp(row, layout, sizeof(*row)) == 0)
      return true;
  }
  return hex >= 0x030d0000; /* a layout of its own: the walk looks offsets up */
}

static bool set_symbols(void *handle, struct nt_python *out, const char **reason) {
  *(void **)&out->first_interpreter = dlsym(handle, "PyInterpreterState_Head");
  out->frame_type = dlsym(handle, "PyFrame_Type");
  *(void **)&out->this_thread = dlsym(handle, "PyGILState_GetThisThreadState");
  *(void **)&out->is_finalizing = dlsym(handle, "Py_IsFinalizing");
  if (!out->is_finalizing)
    *(void **)&out->is_finalizing = dlsym(handle, "_Py_IsFinalizing");
  out->code_type = dlsym(handle, "PyCode_Type");
  out->text_type = dlsym(handle, "PyUnicode_Type");
  out->bytes_type = dlsym(handle, "PyBytes_Type");
  if (!out->this_thread || !out->is_finalizing || !out->code_type || !out->text_type ||
      !out->bytes_type)
    return refuse(reason, "it lacks a symbol that is needed");
  return true;
}

static bool agrees(const struct nt_python *found, const char **reason) {
  const struct nt_python_layout *layout = &found->layout;
  if (basic_size(found->code_type) != layout->code_size ||
      (layout->frame_size &&
       (!found->frame_type || basic_size(found->frame_type) != layout->frame_size)))
    return refuse(reason, "its objects are not those of the release");
  return true;
}

/* No other lock is taken under this one, and the loader is not asked. */
static void publish(const struct nt_python *found, const char *text, const char *reason) {
  static char version[32], state[128];
  nt_fork_lock(&lock);
  if (!version_text) {
    snprintf(version, sizeof(version), "%.*s", (int)strcspn(text, " +"), text);
    snprintf(state, sizeof(state), found ? "on" : "off: %s", reason);
    state_text = state;
    if (found) {
      python = *found;
      __atomic_store_n(&nt_python_found, &python, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&version_text, version, __ATOMIC_RELEASE);
  }
  nt_fork_unlock(&lock);
}

void nt_python_find(void) {
  struct nt_python found = {0};
  const char *reason = "";
  void *handle;
  const char *(*get_version)(void) = NULL;
  if (__atomic_load_n(&version_text, __ATOMIC_ACQUIRE))
    return;
  if (find_handle(&handle))
    *(void **)&get_version = dlsym(handle, "Py_GetVersion");
  if (get_version) {
    const char *text = get_version();
    uint32_t hex = hex_version(handle, text);
    bool usable = set_layout(handle, hex, &found, &reason) &&
                  set_symbols(handle, &found, &reason) && agrees(&found, &reason);
    publish(usable ? &found : NULL, text, reason);
  }
  (void)dlerror(); /* what our look-ups left is not the application's */
}

void nt_python_allow(bool allowed) {
  __atomic_store_n(&forbidden, !allowed, __ATOMIC_RELAXED);
}

bool nt_python_allowed(void) {
  return !__atomic_load_n(&forbidden, __ATOMIC_RELAXED);
}

bool nt_python_describe(const char **version, const char **state) {
  *version = __atomic_load_n(&version_text, __ATOMIC_ACQUIRE);
  *state = state_text;
  return *version != NULL;
}
