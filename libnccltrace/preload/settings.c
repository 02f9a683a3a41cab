/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { DEFAULT_KEEP = 3 };
#define DEFAULT_FILE_SIZE (UINT64_C(64) << 20)
#define SMALLEST_FILE_SIZE (UINT64_C(2) << 20)
#define DEFAULT_AREA_SIZE (UINT64_C(2560) << 10)

static bool is_off(const char *text) {
  return text && (!strcmp(text, "0") || !strcasecmp(text, "off") || !strcasecmp(text, "no"));
}

uint64_t nt_settings_size(const char *text) {
  char *end;
  if (!text || *text < '0' || *text > '9')
    return 0;
  unsigned long long value = strtoull(text, &end, 10);
  unsigned shift = 0;
  if (*end == 'K' || *end == 'k')
    shift = 10, end++;
  else if (*end == 'M' || *end == 'm')
    shift = 20, end++;
  else if (*end == 'G' || *end == 'g')
    shift = 30, end++;
  if (*end || value > UINT64_MAX >> (shift + 1))
    return 0;
  return (uint64_t)value << shift;
}

static uint64_t size_or(const char *name, uint64_t fallback, uint64_t least) {
  uint64_t value = nt_settings_size(getenv(name));
  if (!value)
    return fallback;
  return value < least ? least : value;
}

/* Relative directories are fixed here: the application may change its own later. */
static void set_directory(struct nt_settings *out) {
  const char *given = getenv("NCCLTRACE_DIR");
  char here[512];
  out->directory_given = given && *given;
  const char *dir = out->directory_given ? given : "nccltrace";
  if (*dir == '/' || !getcwd(here, sizeof(here)))
    snprintf(out->directory, sizeof(out->directory), "%s", dir);
  else
    snprintf(out->directory, sizeof(out->directory), "%s/%s", here, dir);
}

void nt_settings_read(struct nt_settings *out) {
  const char *log = getenv("NCCLTRACE_LOG");
  const char *keep = getenv("NCCLTRACE_KEEP");
  memset(out, 0, sizeof(*out));
  out->enabled = !is_off(getenv("NCCLTRACE"));
  out->gpu = !is_off(getenv("NCCLTRACE_GPU"));
  out->python = !is_off(getenv("NCCLTRACE_PYTHON"));
  out->log = log && *log && !is_off(log);
  out->file_size = size_or("NCCLTRACE_SIZE", DEFAULT_FILE_SIZE, SMALLEST_FILE_SIZE);
  out->area_size = size_or("NCCLTRACE_AREA", DEFAULT_AREA_SIZE, UINT64_C(512) << 10);
  out->keep_attempts = keep && *keep >= '0' && *keep <= '9' ? (uint32_t)atoi(keep) : DEFAULT_KEEP;
  set_directory(out);
}
