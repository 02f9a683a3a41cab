/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/syscall_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

enum { SHOWN = 3 };

static const struct {
  const char *name;
  int16_t x86_64, aarch64;
  const char *arguments;
} calls[] = {
#define X(name, x86_64, aarch64, arguments) {#name, x86_64, aarch64, arguments},
#include "cli/syscall_names.def"
#undef X
};

enum nt_machine nt_machine_of(const char *name) {
  struct utsname here;
  if (name == NULL && uname(&here) == 0)
    name = here.machine;
  if (name != NULL && strcmp(name, "x86_64") == 0)
    return NT_MACHINE_X86_64;
  if (name != NULL && strcmp(name, "aarch64") == 0)
    return NT_MACHINE_AARCH64;
  return NT_MACHINE_OTHER;
}

/* Index into `calls`, -1 if it is not there. */
static int find(enum nt_machine machine, int64_t number) {
  if (machine == NT_MACHINE_OTHER || number < 0)
    return -1;
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
    if ((machine == NT_MACHINE_X86_64 ? calls[i].x86_64 : calls[i].aarch64) == number)
      return (int)i;
  return -1;
}

const char *nt_syscall_name(enum nt_machine machine, int64_t number) {
  int i = find(machine, number);
  return i < 0 ? NULL : calls[i].name;
}

/* What a futex is asked for, without its flags (FUTEX_CMD_MASK). */
static const char *futex_text(uint64_t operation) {
  static const char *const names[] = {
      "wait",   "wake",    "fd",          "requeue",     "cmp requeue",  "wake op",     "lock",
      "unlock", "trylock", "wait bitset", "wake bitset", "wait requeue", "cmp requeue", "lock"};
  operation &= 0x7f;
  return operation < sizeof names / sizeof names[0] ? names[operation] : "?";
}

/* Descriptors and counts are 32 bits wide, whatever stands above them in the register. */
static void argument_text(char *out, size_t size, char kind, uint64_t value) {
  if (kind == 'd' && (int32_t)value == -100)
    snprintf(out, size, "AT_FDCWD");
  else if (kind == 'd')
    snprintf(out, size, "fd %" PRId32, (int32_t)value);
  else if (kind == 'i')
    snprintf(out, size, "%" PRId32, (int32_t)value);
  else if (kind == 'u')
    snprintf(out, size, "%" PRIu64, value);
  else if (kind == 'f')
    snprintf(out, size, "%s", futex_text(value));
  else
    snprintf(out, size, "0x%" PRIx64, value);
}

char *nt_syscall_text(char *out, size_t size, enum nt_machine machine, int64_t number,
                      const uint64_t arguments[6], bool whole) {
  int i = find(machine, number);
  char text[NT_SYSCALL_TEXT], one[32];
  size_t used = 0;
  if (i < 0) {
    snprintf(out, size, "system call %" PRId64, number);
    return out;
  }
  text[0] = '\0';
  for (int k = 0; k < SHOWN && calls[i].arguments[k]; k++) {
    char kind = calls[i].arguments[k];
    if (!whole && kind != 'd' && kind != 'f')
      continue;
    argument_text(one, sizeof one, kind, arguments[k]);
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? ", " : "", one);
  }
  snprintf(out, size, used || whole ? "%s(%s)" : "%s", calls[i].name, text);
  return out;
}
