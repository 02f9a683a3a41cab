/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/process_words.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/text.h"
#include "cli/process_maps.h"
#include "trace/read_text.h"

/* ---- the program -------------------------------------------------------------------------------- */

static size_t read_file(uint32_t pid, const char *name, char *out, size_t size) {
  ssize_t length = nt_read_text_at(out, size, "/proc/%" PRIu32 "/%s", pid, name);
  return length > 0 ? (size_t)length : 0;
}

/* "-u", "-X dev": of those before the script only these take the next word. */
static bool takes_next(const char *option) {
  return strcmp(option, "-X") == 0 || strcmp(option, "-W") == 0;
}

/* Of the words of a Python command line, each NUL-terminated; NULL: there is no script. */
static const char *find_script(const char *words, size_t length) {
  const char *end = words + length, *word = words + strlen(words) + 1;
  for (; word < end && *word != '\0'; word += strlen(word) + 1) {
    if (strcmp(word, "-c") == 0)
      return NULL;
    if (strcmp(word, "-m") == 0) {
      word += strlen(word) + 1;
      return word < end ? word : NULL;
    }
    if (*word != '-')
      return nt_base_name(word);
    if (takes_next(word))
      word += strlen(word) + 1;
    if (word >= end)
      return NULL;
  }
  return NULL;
}

char *nt_command_of_process(char out[NT_COMMAND_TEXT], uint32_t pid) {
  char words[4096];
  size_t length = read_file(pid, "cmdline", words, sizeof words);
  const char *program = nt_base_name(words), *script = NULL;
  if (strncmp(program, "python", 6) == 0)
    script = find_script(words, length);
  if (length == 0) { /* a kernel thread, or one that has ended */
    read_file(pid, "comm", words, sizeof words);
    words[strcspn(words, "\n")] = '\0';
    program = words;
  }
  snprintf(out, NT_COMMAND_TEXT, "%s", script != NULL ? script : program);
  return out;
}

/* ---- its status --------------------------------------------------------------------------------- */

/* "PPid:\t17700": false if there is no such line. */
static bool read_status(uint32_t pid, const char *key, uint32_t *out) {
  char path[64], line[256];
  bool found = false;
  snprintf(path, sizeof path, "/proc/%" PRIu32 "/status", pid);
  FILE *file = fopen(path, "re");
  while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, key, strlen(key)) == 0) {
      *out = (uint32_t)strtoul(line + strlen(key), NULL, 10);
      found = true;
    }
  if (file != NULL)
    fclose(file);
  return found;
}

uint32_t nt_parent_of_process(uint32_t pid) {
  uint32_t parent = 0;
  return read_status(pid, "PPid:", &parent) ? parent : 0;
}

static const char *user_name(char *out, size_t size, uint32_t uid) {
  // cppcheck-suppress getpwuidCalled ; the tools have one thread
  const struct passwd *entry = getpwuid(uid);
  if (entry != NULL)
    return nt_text_escape(out, size, entry->pw_name);
  snprintf(out, size, "user %" PRIu32, uid);
  return out;
}

char *nt_absence_of_process(char out[NT_ABSENCE_TEXT], uint32_t pid) {
  uint32_t uid = 0;
  struct nt_maps maps;
  char name[128];
  if (!read_status(pid, "Uid:", &uid))
    snprintf(out, NT_ABSENCE_TEXT, "there is no such process");
  else if (uid != (uint32_t)geteuid() && geteuid() != 0)
    snprintf(out, NT_ABSENCE_TEXT, "it belongs to %s: run as that user",
             user_name(name, sizeof name, uid));
  else if (!nt_maps_read(pid, &maps))
    snprintf(out, NT_ABSENCE_TEXT,
             "it is not traced: libnccltrace.so has to be in its LD_PRELOAD when it starts");
  else if (maps.private_area)
    snprintf(out, NT_ABSENCE_TEXT,
             "its area is not in shared memory (NCCLTRACE_LOG=1 says why): only its trace file can "
             "be read");
  else if (maps.area[0] != '\0')
    snprintf(out, NT_ABSENCE_TEXT, "its area lies in another directory than NCCLTRACE_SHM");
  else
    snprintf(out, NT_ABSENCE_TEXT,
             "it has made no communicator, so nothing records in it: py-spy dump --pid %" PRIu32
             ", gdb -p %" PRIu32 " or /proc/%" PRIu32 "/stack tell what it does",
             pid, pid, pid);
  return out;
}
