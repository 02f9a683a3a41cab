/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/comm_config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nccl/nccl_config.h"
#include "preload/dump_thread.h"
#include "preload/fork_lock.h"

enum { NOTES = 32, PAGE = 4096 };

static struct note {
  uint32_t comm;
  char text[NT_COMM_CONFIG_TEXT];
} notes[NOTES];
static _Atomic uint32_t noted;
static struct nt_fork_lock lock;

static bool copy_config(const void *config, struct nt_config *out) {
  const uint64_t at = (uint64_t)(uintptr_t)config;
  out->length = 0;
  if (!config || !nt_dump_read(at, out->bytes, NT_CONFIG_HEAD))
    return false;
  size_t length = nt_config_length(out->bytes);
  if (!length || !nt_dump_read(at, out->bytes, length))
    return false;
  out->length = length;
  return true;
}

/* A string of the application's, cut to `size`; a page at a time, since the next one may not be there. */
static void copy_text(uint64_t address, char *out, size_t size) {
  size_t used = 0;
  while (used + 1 < size) {
    size_t length = PAGE - (address + used) % PAGE;
    length = length < size - 1 - used ? length : size - 1 - used;
    if (!nt_dump_read(address + used, out + used, length) || memchr(out + used, 0, length))
      break;
    used += length;
  }
  out[size - 1] = 0;
  out[strnlen(out, size)] = 0;
}

static void describe(const struct nt_config *config, char out[NT_COMM_CONFIG_TEXT]) {
  size_t used = 0;
  out[0] = 0;
  for (enum nt_config_field f = 0; f < NT_CONFIG_FIELDS && used < NT_COMM_CONFIG_TEXT; f++) {
    char text[32] = "";
    const char *space = used ? " " : "";
    uint64_t address;
    int number, length = 0;
    if (nt_config_number(config, f, &number)) {
      length = snprintf(out + used, NT_COMM_CONFIG_TEXT - used, "%s%s=%d", space, nt_config_name(f),
                        number);
    } else if (nt_config_text(config, f, &address)) {
      copy_text(address, text, sizeof(text));
      length = snprintf(out + used, NT_COMM_CONFIG_TEXT - used, "%s%s=%s", space, nt_config_name(f),
                        text);
    }
    used += (size_t)length;
  }
}

void nt_comm_config_read(const void *config, struct nt_comm_def *def) {
  int saved_errno = errno;
  struct nt_config copy;
  struct note note = {.comm = def->number};
  uint64_t name;
  int blocking;
  if (!copy_config(config, &copy))
    goto out;
  if (nt_config_number(&copy, NT_CONFIG_blocking, &blocking))
    def->blocking = blocking == 0 || blocking == 1 ? blocking : -1;
  if (nt_config_text(&copy, NT_CONFIG_commName, &name))
    copy_text(name, def->name, sizeof(def->name));
  describe(&copy, note.text);
  if (!note.text[0])
    goto out;
  nt_fork_lock(&lock);
  uint32_t count = atomic_load_explicit(&noted, memory_order_relaxed);
  notes[count % NOTES] = note;
  atomic_store_explicit(&noted, count + 1, memory_order_release);
  nt_fork_unlock(&lock);
out:
  errno = saved_errno;
}

uint32_t nt_comm_config_count(void) {
  return atomic_load_explicit(&noted, memory_order_acquire);
}

bool nt_comm_config_at(unsigned i, uint32_t *comm, char out[NT_COMM_CONFIG_TEXT]) {
  nt_fork_lock(&lock);
  uint32_t count = atomic_load_explicit(&noted, memory_order_relaxed);
  uint32_t kept = count < NOTES ? count : NOTES;
  if (i < kept) {
    const struct note *note = &notes[(count - kept + i) % NOTES];
    *comm = note->comm;
    memcpy(out, note->text, sizeof(note->text));
  }
  nt_fork_unlock(&lock);
  return i < kept;
}

void nt_comm_config_reset(void) {
  atomic_store_explicit(&noted, 0, memory_order_relaxed);
}
