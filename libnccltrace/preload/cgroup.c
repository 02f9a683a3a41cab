/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/self/cgroup says which group, /proc/self/mountinfo where its tree is mounted and which part of it:
 * in a container without a namespace of its own the mount shows the container's group as its root.
 * Formats: cgroups(7), proc_pid_mountinfo(5).
 */
#include "preload/cgroup.h"
#include "trace/read_text.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Is `word` one of the words of a comma-separated list? */
static bool lists(const char *list, const char *word) {
  const size_t length = strlen(word);
  for (const char *at = list; at; at = strchr(at, ',')) {
    at += *at == ',';
    if (!strncmp(at, word, length) && (!at[length] || at[length] == ','))
      return true;
  }
  return false;
}

static FILE *open_proc(const char *root, const char *name) {
  char path[NT_CGROUP_PATH];
  int n = snprintf(path, sizeof path, "%s/proc/self/%s", root, name);
  return n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
}

/* The path of lines "ID:controllers:path". Version 1 where a tree of that version has the controller. */
static int find_path(const char *root, const char *controller, char *out, size_t size) {
  FILE *file = open_proc(root, "cgroup");
  char *line = NULL;
  size_t room = 0;
  int version = 0;
  while (file && version != 1 && getline(&line, &room, file) > 0) {
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
      continue;
    *controllers++ = *path++ = 0;
    path[strcspn(path, "\n")] = 0;
    const int found = !*controllers ? 2 : lists(controllers, controller) ? 1 : 0;
    if (!found || strlen(path) >= size)
      continue;
    version = found;
    strcpy(out, path);
  }
  free(line);
  if (file)
    fclose(file);
  return version ? version : -1;
}

/* Octal escapes of blanks and backslashes in mountinfo. */
static void unescape(char *text) {
  char *to = text;
  for (const char *at = text; *at; to++) {
    unsigned byte = 0;
    if (*at == '\\' && sscanf(at + 1, "%3o", &byte) == 1) {
      *to = (char)byte;
      at += strnlen(at, 4);
    } else {
      *to = *at++;
    }
  }
  *to = 0;
}

struct mount {
  char *tree, *point, *type, *options; /* in the line */
};

/* "ID parent major:minor TREE POINT options [optional ...] - TYPE source OPTIONS" */
static bool parse_mount(char *line, struct mount *mount) {
  char *tail = strstr(line, " - "), *save = NULL;
  if (!tail)
    return false;
  *tail = 0;
  line[strcspn(line, "\n")] = 0;
  char *field = strtok_r(line, " ", &save);
  for (int i = 0; field && i < 3; i++)
    field = strtok_r(NULL, " ", &save);
  mount->tree = field;
  mount->point = field ? strtok_r(NULL, " ", &save) : NULL;
  tail[3 + strcspn(tail + 3, "\n")] = 0;
  mount->type = strtok_r(tail + 3, " ", &save);
  if (mount->type)
    strtok_r(NULL, " ", &save);
  mount->options = mount->type ? strtok_r(NULL, " ", &save) : NULL;
  if (!mount->point || !mount->options)
    return false;
  unescape(mount->tree);
  unescape(mount->point);
  return true;
}

/* What of the group's path lies below the mount: a group outside of what is mounted is seen as its root. */
static const char *below(const char *path, const char *tree) {
  const size_t length = strcmp(tree, "/") ? strlen(tree) : 0;
  if (strstr(path, "/.."))
    return "";
  if (strncmp(path, tree, length) || (path[length] && path[length] != '/'))
    return "";
  return strcmp(path + length, "/") ? path + length : "";
}

static bool exists(const char *dir, const char *file) {
  char path[NT_CGROUP_PATH + 64];
  snprintf(path, sizeof path, "%s/%s", dir, file);
  return access(path, F_OK) == 0;
}

/* A version 2 group need not have the controller; the next around it that has accounts for it then. */
static void settle(struct nt_cgroup *group, const char *controller) {
  static const char *const marks[][2] = {
      {"memory", "memory.current"}, {"pids", "pids.current"}, {"cpu", "cpu.max"}};
  struct nt_cgroup at = *group;
  for (size_t i = 0; group->version == 2 && i < sizeof marks / sizeof *marks; i++) {
    if (strcmp(marks[i][0], controller))
      continue;
    do {
      if (exists(at.dir, marks[i][1])) {
        *group = at;
        return;
      }
    } while (nt_cgroup_up(&at));
  }
}

int nt_cgroup_find(const char *root, const char *controller, struct nt_cgroup *group) {
  char path[NT_CGROUP_PATH];
  *group = (struct nt_cgroup){.version = find_path(root, controller, path, sizeof path)};
  FILE *file = group->version < 0 ? NULL : open_proc(root, "mountinfo");
  char *line = NULL;
  size_t room = 0;
  bool found = false;
  while (file && !found && getline(&line, &room, file) > 0) {
    struct mount mount;
    if (!parse_mount(line, &mount) ||
        strcmp(mount.type, group->version == 2 ? "cgroup2" : "cgroup"))
      continue;
    if (group->version == 1 && !lists(mount.options, controller))
      continue;
    const char *rest = below(path, mount.tree);
    int n = snprintf(group->dir, sizeof group->dir, "%s%s%s", root, mount.point, rest);
    if (n <= 0 || (size_t)n >= sizeof group->dir)
      continue;
    group->top = strlen(root) + strlen(mount.point);
    found = exists(group->dir, "");
  }
  free(line);
  if (file)
    fclose(file);
  if (found)
    settle(group, controller);
  return found ? 0 : -1;
}

bool nt_cgroup_up(struct nt_cgroup *group) {
  char *slash = strrchr(group->dir, '/');
  if (strlen(group->dir) <= group->top || !slash || slash < group->dir + group->top)
    return false;
  *slash = 0;
  return true;
}

int nt_cgroup_memory(char *dir, size_t size, int *version) {
  struct nt_cgroup group;
  if (nt_cgroup_find("", "memory", &group) != 0 || strlen(group.dir) >= size)
    return -1;
  strcpy(dir, group.dir);
  *version = group.version;
  return 0;
}

static bool number(const char *text, uint64_t *value) {
  char *end;
  if (!strncmp(text, "max", 3)) {
    *value = NT_CGROUP_UNLIMITED;
    return true;
  }
  if (*text < '0' || *text > '9')
    return false;
  *value = strtoull(text, &end, 10);
  return !*end || *end == '\n' || *end == ' ';
}

bool nt_cgroup_read(const char *dir, const char *file, const char *key, uint64_t *value) {
  char text[8192];
  if (nt_read_text_at(text, sizeof text, "%s/%s", dir, file) <= 0)
    return false;
  if (!key)
    return number(text, value);
  const size_t length = strlen(key);
  for (const char *at = text; at; at = strchr(at, '\n')) {
    at += *at == '\n';
    if (!strncmp(at, key, length) && at[length] == ' ')
      return number(at + length + 1, value);
  }
  return false;
}
