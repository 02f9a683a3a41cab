/* SPDX-License-Identifier: Apache-2.0 */
/*
 * renumber ORDER FILE...: gives processes other world ranks, in place. ORDER is "2,0,1": rank 0 becomes 2.
 * ORDER "elsewhere" moves them to another machine instead, on which nobody can see what became of them. ORDER "collect"
 * puts what copies of areas hold into the copies of their files, which lie in the directory above, and removes the areas.
 *
 * A FILE is a copy of a trace or of an area. The rank stands in the superblock or the area's header, and in the
 * notes that processes keep of each other. Nothing else of a trace may decide by it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/area.h"
#include "trace/drain.h"
#include "trace/frame.h"
#include "trace/trace_file.h"

enum { RANKS_MAX = 4096 };

static int32_t order[RANKS_MAX];
static int32_t ranks;
static bool elsewhere;

static int fail(const char *path, const char *what) {
  fprintf(stderr, "renumber: %s: %s\n", path, what);
  return -1;
}

static int32_t renumbered(int32_t rank) {
  return rank >= 0 && rank < ranks ? order[rank] : rank;
}

static int read_order(const char *text) {
  char *end;
  do {
    long rank = strtol(text, &end, 10);
    if (end == text || rank < 0 || rank >= RANKS_MAX || ranks == RANKS_MAX)
      return -1;
    order[ranks++] = (int32_t)rank;
    text = end + (*end == ',');
  } while (*text);
  return 0;
}

/* The notes in an unpacked state; how many were changed. */
static uint32_t change_notes(unsigned char *payload, size_t length) {
  struct nt_cursor cursor = {payload, length, false};
  const size_t field = offsetof(struct nt_peer_note, world_rank);
  const unsigned char *at;
  uint32_t size, changed = 0;
  uint16_t kind;
  while (nt_entry_next(&cursor, &kind, &at, &size))
    if (kind == NT_ENTRY_PEER && size >= NT_ENTRY_PEER_SIZE) {
      nt_put_u32(payload + (at - payload) + field,
                 (uint32_t)renumbered((int32_t)nt_get_u32(at + field)));
      changed++;
    }
  return changed;
}

/* One copy of the state, rewritten if there is something in it to change. */
static int change_state(int fd, uint64_t offset, uint32_t room) {
  unsigned char *slot = malloc(room), *payload = NULL;
  struct nt_packer *packer = nt_packer_new();
  struct nt_buffer out = {0};
  struct nt_frame frame;
  ssize_t count = slot ? pread(fd, slot, room, (off_t)offset) : -1;
  int status = 0;
  if (packer && count > 0 && nt_frame_parse(slot, (size_t)count, &frame) == 0 &&
      nt_frame_unpack(&frame, slot + NT_FRAME_HEADER, &payload) == 0 &&
      change_notes(payload, frame.raw)) {
    struct nt_frame again = {.type = frame.type,
                             .version = frame.version,
                             .epoch = frame.epoch,
                             .records = frame.records,
                             .first = frame.first,
                             .last = frame.last};
    status = nt_frame_write(packer, &again, slot + NT_FRAME_HEADER, frame.index, payload, frame.raw,
                            &out);
    if (!status && (out.length > room ||
                    pwrite(fd, out.data, out.length, (off_t)offset) != (ssize_t)out.length))
      status = -1;
  }
  free(out.data);
  free(payload);
  free(slot);
  nt_packer_free(packer);
  return status;
}

static int change_trace(const char *path) {
  unsigned char page[NT_SUPER_SIZE];
  struct nt_super super;
  struct nt_error err;
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  int status = fd < 0 ? fail(path, strerror(errno)) : 0;
  ssize_t count = status ? 0 : pread(fd, page, sizeof page, 0);
  if (!status && nt_super_parse(page, count > 0 ? (uint64_t)count : 0, &super, &err) != 0)
    status = fail(path, err.reason);
  for (uint32_t i = 0; !status && i < super.layout.state_count; i++)
    if (change_state(fd, super.layout.state_offset + (uint64_t)i * super.layout.state_size,
                     super.layout.state_size))
      status = fail(path, "its state cannot be written again");
  if (!status) {
    super.world_rank = renumbered(super.world_rank);
    if (elsewhere)
      memset(super.boot_id, 'f', sizeof super.boot_id - 1);
    nt_super_write(&super, page);
    if (pwrite(fd, page, sizeof page, 0) != (ssize_t)sizeof page)
      status = fail(path, strerror(errno));
  }
  if (fd >= 0)
    close(fd);
  return status;
}

static int open_area(const char *path, struct nt_area *area) {
  const int rc = nt_area_open(path, 1, area);
  return !rc ? 0
             : fail(path, rc == -NT_ERR_VERSION ? "an area of another version: make scenario"
                                                : "not an area");
}

static int change_area(const char *path) {
  struct nt_area area;
  if (open_area(path, &area))
    return -1;
  area.header->world_rank = renumbered(area.header->world_rank);
  for (uint32_t i = 0; i < NT_PEER_NOTES; i++)
    area.header->peers[i].world_rank = renumbered(area.header->peers[i].world_rank);
  nt_area_close(&area);
  return 0;
}

/* The area's file is the copy above its directory from now on. */
static int adopt(const char *path) {
  struct nt_area area;
  struct stat file;
  char copy[sizeof area.header->file_path];
  if (open_area(path, &area))
    return -1;
  const char *slash = strrchr(path, '/'), *name = strrchr(area.header->file_path, '/');
  const int length = snprintf(copy, sizeof copy, "%.*s/..%s", slash ? (int)(slash - path) : 1,
                              slash ? path : ".", name ? name : "/");
  const bool found = length > 0 && (size_t)length < sizeof copy && stat(copy, &file) == 0;
  if (found) {
    memcpy(area.header->file_path, copy, sizeof copy);
    area.header->file_dev = (uint64_t)file.st_dev;
    area.header->file_ino = (uint64_t)file.st_ino;
  }
  nt_area_close(&area);
  return found ? 0 : fail(path, "there is no copy of its file");
}

static int collect(char **areas, int count) {
  const char *slash = strrchr(areas[0], '/');
  char directory[1024];
  int status = 0;
  for (int i = 0; i < count; i++)
    status |= adopt(areas[i]);
  snprintf(directory, sizeof directory, "%.*s", slash ? (int)(slash - areas[0]) : 1,
           slash ? areas[0] : ".");
  return status |
         (nt_drain_collect(directory, 0) < count ? fail(directory, "was not collected") : 0);
}

int main(int argc, char **argv) {
  if (argc > 2 && !strcmp(argv[1], "collect"))
    return collect(argv + 2, argc - 2) ? 1 : 0;
  elsewhere = argc > 2 && !strcmp(argv[1], "elsewhere");
  if (argc < 3 || (!elsewhere && read_order(argv[1]) != 0)) {
    fputs("usage: renumber ORDER FILE...\n", stderr);
    return 2;
  }
  int status = 0;
  for (int i = 2; i < argc; i++) {
    const size_t length = strlen(argv[i]);
    const bool area = length > 5 && !strcmp(argv[i] + length - 5, ".area");
    status |= area ? change_area(argv[i]) : change_trace(argv[i]);
  }
  return status ? 1 : 0;
}
