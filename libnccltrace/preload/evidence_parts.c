/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/evidence_parts.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "trace/read_text.h"

void nt_evidence_put(struct nt_evidence_text *out, const char *key, const char *format, ...) {
  char value[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(value, sizeof(value), format, args);
  va_end(args);
  for (char *c = value; *c; c++)
    if ((unsigned char)*c < 32)
      *c = ' ';
  size_t room = (size_t)(out->end - out->at);
  int n = snprintf(out->at, room, "%s=%s\n", key, value);
  if (n > 0 && (size_t)n < room)
    out->at += n;
}

/* Year, month and day of a day since 1970, by years that begin in March. gmtime_r takes a lock, which a fork may
 * leave held for ever. */
static void put_day(struct nt_evidence_text *out, int64_t seconds) {
  const int64_t days = seconds / 86400 + 719468, era = days / 146097, in_era = days % 146097;
  const int64_t year = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
  const int64_t in_year = in_era - (365 * year + year / 4 - year / 100);
  const int64_t month = (5 * in_year + 2) / 153, day = in_year - (153 * month + 2) / 5 + 1;
  const int second = (int)(seconds % 86400);
  nt_evidence_put(out, "started", "%04d-%02d-%02d %02d:%02d:%02d UTC",
                  (int)(year + era * 400 + (month >= 10)),
                  (int)(month < 10 ? month + 3 : month - 9), (int)day, second / 3600,
                  second / 60 % 60, second % 60);
}

void nt_evidence_start(struct nt_evidence_text *out, uint64_t ticks) {
  struct timespec now, up;
  const long per_second = sysconf(_SC_CLK_TCK);
  if (!ticks || per_second <= 0 || clock_gettime(CLOCK_REALTIME, &now) != 0 ||
      clock_gettime(CLOCK_BOOTTIME, &up) != 0)
    return;
  put_day(out, now.tv_sec - up.tv_sec + (int64_t)(ticks / (uint64_t)per_second));
}

static bool is_python(const char *program) {
  const char *slash = strrchr(program, '/');
  const char *base = slash ? slash + 1 : program;
  return !strncmp(base, "python", 6) || !strncmp(base, "pypy", 4);
}

/* Walks a word of letters, of which some take what follows in the same word or the next one (Python's command
 * line). What is run goes into `out`. */
static void read_options(const char *word, const char *next, char out[256], bool *takes_next) {
  for (const char *letter = word + 1; *letter; letter++) {
    const char *rest = letter[1] ? letter + 1 : next;
    *takes_next = !letter[1] && strchr("cmWXQ", *letter);
    if (*letter == 'c' || *letter == 'm') {
      snprintf(out, 256, "-%c%s%s", *letter, *letter == 'm' ? " " : "",
               *letter == 'm' && rest ? rest : "");
      return;
    }
    if (strchr("WXQ", *letter))
      return;
  }
}

void nt_evidence_script(struct nt_evidence_text *out, const char *arguments, size_t length) {
  const char *end = arguments + length, *word = arguments;
  char script[256] = "";
  if (!length || end[-1] || !is_python(word))
    return;
  for (word += strlen(word) + 1; word < end && !*script; word += strlen(word) + 1) {
    const char *next = word + strlen(word) + 1;
    bool takes_next = !strcmp(word, "--check-hash-based-pycs");
    if (word[0] != '-')
      snprintf(script, sizeof script, "%s", word);
    else if (word[1] && word[1] != '-')
      read_options(word, next < end ? next : NULL, script, &takes_next);
    if (takes_next && next < end)
      word = next;
  }
  if (*script)
    nt_evidence_put(out, "script", "%s", script);
}

void nt_evidence_infiniband(struct nt_evidence_text *out, const char *root) {
  char path[512];
  snprintf(path, sizeof path, "%s/sys/class/infiniband", root);
  DIR *dir = opendir(path);
  for (struct dirent *entry; dir && (entry = readdir(dir));) {
    char key[80], state[64], rate[64];
    if (entry->d_name[0] == '.' || strlen(entry->d_name) >= 64)
      continue;
    nt_read_text_at(state, sizeof state, "%s/%s/ports/1/state", path, entry->d_name);
    nt_read_text_at(rate, sizeof rate, "%s/%s/ports/1/rate", path, entry->d_name);
    const char *word = strstr(state, ": "); /* "4: ACTIVE" */
    snprintf(key, sizeof key, "ib.%.64s", entry->d_name);
    nt_evidence_put(out, key, "%s%s%s", word ? word + 2 : "unknown", *rate ? ", " : "", rate);
  }
  if (dir)
    closedir(dir);
}

int nt_evidence_gpu_index(const char *root, const char *pci) {
  char path[512];
  int index = 0;
  bool found = false;
  snprintf(path, sizeof path, "%s/proc/driver/nvidia/gpus", root);
  DIR *dir = *pci ? opendir(path) : NULL;
  for (struct dirent *entry; dir && (entry = readdir(dir));) {
    if (entry->d_name[0] == '.')
      continue;
    const int order = strcasecmp(entry->d_name, pci);
    index += order < 0;
    found = found || order == 0;
  }
  if (dir)
    closedir(dir);
  return found ? index : -1;
}
