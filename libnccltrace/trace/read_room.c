/* SPDX-License-Identifier: Apache-2.0 */
/* Made when first needed, kept until the room is freed: a tool that reads a thousand traces makes it once a thread. */
#include <stdlib.h>

#include "trace/read_parts.h"

struct nt_read_room *nt_read_room_new(void) {
  struct nt_read_room *room = calloc(1, sizeof *room);
  if (!room)
    return NULL;
  room->unpacker = nt_unpacker_new();
  if (!room->unpacker) {
    free(room);
    return NULL;
  }
  return room;
}

void nt_read_room_free(struct nt_read_room *room) {
  if (!room)
    return;
  nt_unpacker_free(room->unpacker);
  nt_codec_free(room->codec);
  free(room->calls);
  free(room);
}

void nt_read_room_window(struct nt_read_room *room, uint32_t calls) {
  room->window = calls;
}

struct nt_codec *nt_read_room_codec(struct nt_read_room *room) {
  if (!room->codec)
    room->codec = nt_codec_new();
  return room->codec;
}

struct nt_call *nt_read_room_calls(struct nt_read_room *room, uint64_t count) {
  if (room->calls && count <= room->call_room) {
    memset(room->calls, 0, (count + 1) * sizeof *room->calls);
    return room->calls;
  }
  free(room->calls);
  /* Ranks of one job differ by a little. Fresh from the kernel it is zero and, where a file lies about how many calls
   * it has, not there before it is used. */
  const uint64_t wanted = count + count / 8;
  room->calls = calloc(wanted + 1, sizeof *room->calls);
  room->call_room = room->calls ? wanted : 0;
  return room->calls;
}
