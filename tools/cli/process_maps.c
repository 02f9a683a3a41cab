/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading /proc/PID/maps.
 *
 * A traced process maps its own area for as long as it lives, and for moments those of its neighbours;
 * tools map any. The name tells the owner, in the numbers of the owner's pid namespace. A path there is one of the
 * owner's mount namespace: where it does not lead to the same file from here, the way through
 * /proc/PID/root is taken.
 */
#include "cli/process_maps.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

uint32_t nt_maps_area_pid(const char *path) {
  const char *slash = strrchr(path, '/');
  return (uint32_t)strtoul(slash != NULL ? slash + 1 : path, NULL, 10);
}

/* The number of the process in its innermost pid namespace; its own where the kernel does not tell. */
static uint32_t inner_pid(uint32_t pid) {
  char path[64], line[256];
  uint32_t inner = pid;
  snprintf(path, sizeof path, "/proc/%" PRIu32 "/status", pid);
  FILE *status = fopen(path, "re");
  if (status == NULL)
    return pid;
  while (fgets(line, sizeof line, status) != NULL) {
    const char *last = strrchr(line, '\t');
    if (strncmp(line, "NSpid:", 6) == 0 && last != NULL)
      inner = (uint32_t)strtoul(last + 1, NULL, 10);
  }
  fclose(status);
  return inner;
}

static bool ends_with(const char *path, const char *end) {
  const size_t length = strlen(path), tail = strlen(end);
  return length > tail && strcmp(path + length - tail, end) == 0;
}

/* `inode` is what the mapping has: a file of the same name in another mount namespace is not it. */
static bool find_area(uint32_t pid, const char *path, ino_t inode, struct nt_maps *out) {
  struct stat status;
  int n = snprintf(out->area, sizeof out->area, "%s", path);
  if (n > 0 && (size_t)n < sizeof out->area && stat(out->area, &status) == 0 &&
      status.st_ino == inode)
    goto found;
  n = snprintf(out->area, sizeof out->area, "/proc/%" PRIu32 "/root%s", pid, path);
  if (n > 0 && (size_t)n < sizeof out->area && stat(out->area, &status) == 0 &&
      status.st_ino == inode)
    goto found;
  out->area[0] = '\0';
  return false;
found:
  out->device = status.st_dev;
  out->inode = status.st_ino;
  return true;
}

/* "from-to perms offset device inode   /path". */
static void read_mapping(uint32_t pid, char *line, struct nt_maps *out) {
  char *name = strchr(line, '/');
  unsigned long inode = 0;
  if (name == NULL)
    return;
  line[strcspn(line, "\n")] = '\0';
  const char *file = strrchr(name, '/');
  if (strncmp(file, "/libnccltrace.so", 16) == 0)
    out->loaded = true;
  else if (strncmp(name, "/memfd:nccltrace", 16) == 0 ||
           (ends_with(name, ".area (deleted)") && nt_maps_area_pid(name) == inner_pid(pid)))
    out->private_area = true;
  else if (strncmp(file, "/libnccl.so", 11) == 0)
    snprintf(out->nccl, sizeof out->nccl, "%s", name);
  else if (strncmp(name, "/dev/shm/nccl-", 14) == 0)
    out->nccl_memory = true;
  else if (out->area[0] == '\0' && ends_with(name, ".area") &&
           sscanf(line, "%*s %*s %*s %*s %lu", &inode) == 1 &&
           nt_maps_area_pid(name) == inner_pid(pid))
    find_area(pid, name, (ino_t)inode, out);
}

bool nt_maps_read(uint32_t pid, struct nt_maps *out) {
  char path[64], *line = NULL;
  size_t room = 0;
  struct stat status;
  *out = (struct nt_maps){0};
  snprintf(path, sizeof path, "/proc/%" PRIu32 "/maps", pid);
  FILE *maps = fopen(path, "re");
  if (maps == NULL)
    return false;
  out->uid = fstat(fileno(maps), &status) == 0 ? status.st_uid : 0;
  while (getline(&line, &room, maps) > 0)
    read_mapping(pid, line, out);
  free(line);
  fclose(maps);
  return out->loaded || out->private_area;
}
