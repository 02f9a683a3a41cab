/* SPDX-License-Identifier: Apache-2.0 */
/* Looks again at what could not be used, to say what is wrong with it. */
#include "tracediff/unusable.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/load_source.h"
#include "cli/text.h"
#include "tracediff/gather.h"

#define KINDS "no traces, flight-recorder dumps or NCCL logs"
#define STARTED "was the job started with LD_PRELOAD=.../libnccltrace.so and NCCLTRACE_DIR?"

enum { LOOKS_MAX = 64, NAMED_MAX = 4, DEPTH_MAX = 1 };

/* Up to the extensions that tell nothing of whose file it is. */
static size_t stem_length(const char *name) {
  static const char *const extensions[] = {".gz",   ".zst", ".bz2",    ".xz",  ".zip",
                                           ".json", ".pkl", ".pickle", ".log", ".txt"};
  size_t length = strlen(name);
  for (bool cut = true; cut;) {
    cut = false;
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions && !cut; i++) {
      const size_t size = strlen(extensions[i]);
      cut = length > size && !strncmp(name + length - size, extensions[i], size);
      length -= cut ? size : 0;
    }
  }
  return length;
}

bool nt_unusable_is_meant(const char *path) {
  static const char *const words[] = {"nccl", "trace", "dump", "rank", "flight"};
  const char *name = nt_base_name(path);
  const size_t length = stem_length(name);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcasestr(name, words[i]))
      return true;
  return length && isdigit((unsigned char)name[length - 1]);
}

bool nt_unusable_is_alike(const char *a, const char *b) {
  const char *x = nt_base_name(a), *y = nt_base_name(b);
  if (x - a != y - b || strncmp(a, b, (size_t)(x - a)) != 0)
    return false;
  const char *end_x = x + stem_length(x), *end_y = y + stem_length(y);
  while (x < end_x || y < end_y) {
    const bool digit_x = x < end_x && isdigit((unsigned char)*x);
    const bool digit_y = y < end_y && isdigit((unsigned char)*y);
    if (digit_x || digit_y) {
      x += digit_x;
      y += digit_y;
    } else if (x < end_x && y < end_y && *x == *y) {
      x++;
      y++;
    } else {
      return false;
    }
  }
  return true;
}

static bool is_named_trace(const char *path) {
  const size_t length = strlen(path);
  return length > 6 && !strcmp(path + length - 6, ".trace");
}

static bool is_usable(const char *path) {
  return is_named_trace(path) || nt_source_detect(path, false, false) != NT_RECORDER_TRACE;
}

static bool has_usable(const char *path) {
  bool found = false;
  DIR *directory = opendir(path);
  const struct dirent *entry;
  for (int looks = 0; directory && !found && looks < LOOKS_MAX && (entry = readdir(directory));) {
    char *file;
    if (entry->d_name[0] == '.' || asprintf(&file, "%s/%s", path, entry->d_name) < 0)
      continue;
    looks++;
    found = is_usable(file);
    free(file);
  }
  if (directory)
    closedir(directory);
  return found;
}

struct survey {
  uint32_t files, usable, looks; /* usable: subdirectories that have something */
  FILE *names;
};

/* Subdirectories, and theirs. */
static void survey(const char *path, uint32_t depth, struct survey *out) {
  struct dirent **entries;
  int count = scandir(path, &entries, NULL, alphasort);
  for (int i = 0; i < count; i++) {
    char *file = NULL;
    struct stat status;
    if (entries[i]->d_name[0] != '.' && asprintf(&file, "%s/%s", path, entries[i]->d_name) >= 0 &&
        stat(file, &status) == 0) {
      out->files += !depth && S_ISREG(status.st_mode);
      if (S_ISDIR(status.st_mode) && out->looks++ < LOOKS_MAX) {
        if (!has_usable(file) && depth < DEPTH_MAX)
          survey(file, depth + 1, out);
        else if (has_usable(file) && out->usable++ < NAMED_MAX)
          fprintf(out->names, "%s%s", out->usable > 1 ? ", " : "", file);
      }
    }
    free(file);
    free(entries[i]);
  }
  if (count >= 0)
    free(entries);
}

static char *directory_text(const char *path, bool implied) {
  char *names = NULL, *text = NULL;
  size_t size = 0;
  struct survey found = {.names = open_memstream(&names, &size)};
  if (!found.names)
    return NULL;
  survey(path, 0, &found);
  if (fclose(found.names) != 0) {
    free(names);
    return NULL;
  }
  int length;
  if (found.usable)
    length = asprintf(&text,
                      KINDS " in %s itself; its subdirectories have some: name one of them "
                            "(%s%s)",
                      path, names, found.usable > NAMED_MAX ? ", ..." : "");
  else if (!found.files || implied)
    length = asprintf(&text, KINDS " in %s%s: " STARTED, path,
                      found.files ? "" : ", which has no files");
  else
    length = asprintf(&text, KINDS " in %s: %s", path,
                      found.files == 1 ? "its only file is of another kind"
                                       : "all its files are of other kinds");
  free(names);
  return length < 0 ? NULL : text;
}

/* Where traces lie if the directory of the job's start could not be written; false if there are none. */
static bool find_fallback(char *out, size_t size) {
  const char *tmp = getenv("TMPDIR");
  const int length = snprintf(out, size, "%s/nccltrace-%u", tmp && *tmp ? tmp : "/tmp", geteuid());
  return length > 0 && (size_t)length < size && has_usable(out);
}

/* Of a path that is not there; -1: no memory. */
static int absence_text(const char *path, bool implied, char **text) {
  char fallback[PATH_MAX];
  if (implied && has_usable("."))
    return asprintf(text, "%s does not exist; what can be read lies here: tracediff .", path);
  if (implied && find_fallback(fallback, sizeof fallback))
    return asprintf(text,
                    "%s does not exist; where a job could not make it its traces lie in %s: "
                    "tracediff %s",
                    path, fallback, fallback);
  if (implied)
    return asprintf(text, "%s does not exist: " STARTED, path);
  if (!strcmp(path, "-"))
    return asprintf(text, "- does not exist: standard input is not read, name a file");
  if (!*path)
    return asprintf(text, "the name of a file or directory is empty");
  if (strspn(path, "0123456789") == strlen(path))
    return asprintf(text,
                    "%s does not exist: files and directories are named here; of a process "
                    "nccltrace show %s tells",
                    path, path);
  return asprintf(text, "%s does not exist; if it was to hold traces: " STARTED, path);
}

static char *path_text(const char *path, bool implied) {
  struct stat status;
  char *text;
  int length;
  if (stat(path, &status) == 0) {
    DIR *directory = opendir(path);
    if (directory) {
      closedir(directory);
      return directory_text(path, implied);
    }
    length = asprintf(&text, "%s: %s", path, strerror(errno));
  } else if (errno == ENOENT) {
    length = absence_text(path, implied, &text);
  } else {
    length = asprintf(&text, "%s: %s", path, strerror(errno));
  }
  return length < 0 ? NULL : text;
}

char *nt_unusable_beside(const char *path) {
  char *directory = NULL;
  const char *name = nt_base_name(path);
  uint32_t traces = 0;
  if (nt_gather_is_file(path) && asprintf(&directory, "%.*s", name > path ? (int)(name - path) : 1,
                                          name > path ? path : ".") < 0)
    return NULL;
  DIR *stream = directory ? opendir(directory) : NULL;
  const struct dirent *entry;
  while (stream && (entry = readdir(stream)))
    traces += is_named_trace(entry->d_name);
  if (stream)
    closedir(stream);
  if (traces > 1)
    return directory;
  free(directory);
  return NULL;
}

char *nt_unusable_text(char **paths, int count, bool implied) {
  struct stat status;
  for (int i = 0; i < count; i++) /* of several, those that are not there were named already */
    if (!nt_gather_is_file(paths[i]) && (count == 1 || stat(paths[i], &status) == 0))
      return path_text(paths[i], implied);
  return strdup(count == 1 ? "the file could not be used" : "nothing of this could be used");
}
