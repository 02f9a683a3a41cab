/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values that make no sense never stop a job: the default is used, and with NCCLTRACE_LOG it is said. NCCLTRACE_LOG
 * is read before all others for that reason.
 */
#include "preload/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "preload/log.h"

enum { DEFAULT_KEEP = 3, LARGEST_KEEP = 1000000 };
#define DEFAULT_FILE_SIZE (UINT64_C(64) << 20)
#define SMALLEST_FILE_SIZE (UINT64_C(2) << 20)
#define DEFAULT_AREA_SIZE (UINT64_C(2560) << 10)
#define SMALLEST_AREA_SIZE (UINT64_C(512) << 10)

static bool is_one_of(const char *text, const char *const words[], size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!strcasecmp(text, words[i]))
      return true;
  return false;
}

static bool switch_or(const char *name, bool fallback) {
  static const char *const on[] = {"1", "on", "yes", "true"};
  static const char *const off[] = {"0", "off", "no", "false"};
  const char *text = getenv(name);
  if (!text || !*text)
    return fallback;
  if (is_one_of(text, off, sizeof(off) / sizeof(*off)))
    return false;
  if (is_one_of(text, on, sizeof(on) / sizeof(*on)))
    return true;
  nt_log("%s=%s is neither on nor off: using %s", name, text, fallback ? "on" : "off");
  return fallback;
}

static bool is_off(const char *text) {
  static const char *const off[] = {"off", "no", "false"};
  return is_one_of(text, off, sizeof(off) / sizeof(*off));
}

/* A real-time signal's number, -1 for off; 0, any that is free, if it is not set or makes no sense. */
static int signal_or_any(const char *name) {
  const char *text = getenv(name);
  char *end;
  if (!text || !*text)
    return 0;
  if (is_off(text) || !strcmp(text, "0"))
    return -1;
  long value = strtol(text, &end, 10);
  if (!*end && value >= SIGRTMIN && value <= SIGRTMAX)
    return (int)value;
  nt_log("%s=%s is neither off nor a real-time signal (%d to %d): using one that is free", name,
         text, SIGRTMIN, SIGRTMAX);
  return 0;
}

/* Seconds, as nanoseconds; -1 for off; 0, learned, if it is not set or makes no sense. */
static int64_t seconds_or_learned(const char *name) {
  enum { LONGEST_S = 1000000 };
  const char *text = getenv(name);
  char *end;
  if (!text || !*text)
    return 0;
  if (is_off(text) || !strcmp(text, "0"))
    return -1;
  double value = strtod(text, &end);
  if (!*end && value > 0 && value <= LONGEST_S)
    return (int64_t)(value * 1e9);
  nt_log("%s=%s is neither off nor a number of seconds: using what the job shows", name, text);
  return 0;
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

/* "64M", in the largest unit that divides it. */
static const char *size_text(uint64_t size, char out[32]) {
  static const char units[] = {0, 'K', 'M', 'G', 0};
  int unit = 0;
  for (; size && size % 1024 == 0 && unit < 3; unit++)
    size /= 1024;
  snprintf(out, 32, "%" PRIu64 "%s", size, (const char[]){units[unit], 0});
  return out;
}

static uint64_t size_or(const char *name, uint64_t fallback, uint64_t least) {
  const char *text = getenv(name);
  char used[32];
  if (!text || !*text)
    return fallback;
  uint64_t value = nt_settings_size(text);
  if (!value)
    nt_log("%s=%s is not a size: using %s", name, text, size_text(fallback, used));
  else if (value < least)
    nt_log("%s=%s is too small: using %s", name, text, size_text(least, used));
  return !value ? fallback : value < least ? least : value;
}

static uint32_t count_or(const char *name, uint32_t fallback) {
  const char *text = getenv(name);
  char *end;
  if (!text || !*text)
    return fallback;
  unsigned long value = strtoul(text, &end, 10);
  if (*text >= '0' && *text <= '9' && !*end && value <= LARGEST_KEEP)
    return (uint32_t)value;
  nt_log("%s=%s is not a number up to %d: using %u", name, text, LARGEST_KEEP, fallback);
  return fallback;
}

/* Relative directories are meant as of the program's start: by its first communicator it may have gone elsewhere. */
static char started_in[512];

__attribute__((constructor)) static void remember_directory(void) {
  int saved_errno = errno;
  if (!getcwd(started_in, sizeof(started_in)) || *started_in != '/')
    *started_in = 0;
  errno = saved_errno;
}

static void set_directory(struct nt_settings *out) {
  const char *given = getenv("NCCLTRACE_DIR"), *tmp = getenv("TMPDIR");
  out->directory_given = given && *given;
  const char *dir = out->directory_given ? given : "nccltrace";
  int length;
  if (*dir == '/' || !*started_in)
    length = snprintf(out->directory, sizeof(out->directory), "%s", dir);
  else
    length = snprintf(out->directory, sizeof(out->directory), "%s/%s", started_in, dir);
  /* A name cut short would be somebody else's directory. */
  if (length < 0 || (size_t)length >= sizeof(out->directory))
    out->directory[0] = 0;
  if (out->directory_given)
    return;
  length = snprintf(out->fallback, sizeof(out->fallback), "%s/nccltrace-%u",
                    tmp && *tmp ? tmp : "/tmp", (unsigned)geteuid());
  if (length < 0 || (size_t)length >= sizeof(out->fallback))
    out->fallback[0] = 0;
}

/* A name that is mistyped is not understood either. */
static void tell_unknown(void) {
  static const char *const known[] = {"DIR",      "SIZE",  "AREA", "SHM",    "KEEP",
                                      "NATIVE",   "GPU",   "LOG",  "PYTHON", "SIGNAL",
                                      "WATCHDOG", "DLSYM", "NCCL"};
  for (char **entry = environ; entry && *entry; entry++) {
    const char *name = *entry + strlen("NCCLTRACE_");
    if (strncmp(*entry, "NCCLTRACE_", strlen("NCCLTRACE_")) != 0)
      continue;
    const size_t length = strcspn(name, "=");
    bool found = false;
    for (size_t i = 0; i < sizeof(known) / sizeof(*known) && !found; i++)
      found = strlen(known[i]) == length && !strncmp(name, known[i], length);
    if (!found)
      nt_log("NCCLTRACE_%.*s is no setting of this version, and is ignored", (int)length, name);
  }
}

bool nt_settings_dlsym(void) {
  return switch_or("NCCLTRACE", true) && switch_or("NCCLTRACE_DLSYM", true);
}

void nt_settings_read(struct nt_settings *out) {
  memset(out, 0, sizeof(*out));
  out->log = switch_or("NCCLTRACE_LOG", false);
  nt_log_enable(out->log);
  out->enabled = switch_or("NCCLTRACE", true);
  out->gpu = switch_or("NCCLTRACE_GPU", true);
  out->python = switch_or("NCCLTRACE_PYTHON", true);
  (void)switch_or("NCCLTRACE_DLSYM", true); /* nt_settings_dlsym was asked when there was no log */
  out->native = switch_or("NCCLTRACE_NATIVE", false);
  out->signal = signal_or_any("NCCLTRACE_SIGNAL");
  out->watchdog_ns = seconds_or_learned("NCCLTRACE_WATCHDOG");
  out->file_size = size_or("NCCLTRACE_SIZE", DEFAULT_FILE_SIZE, SMALLEST_FILE_SIZE);
  out->area_size = size_or("NCCLTRACE_AREA", DEFAULT_AREA_SIZE, SMALLEST_AREA_SIZE);
  out->keep_attempts = count_or("NCCLTRACE_KEEP", DEFAULT_KEEP);
  set_directory(out);
  if (out->log)
    tell_unknown();
}
