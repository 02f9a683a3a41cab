/* SPDX-License-Identifier: Apache-2.0 */
/* What the mappings of a process say about libnccltrace.so in it. */
#ifndef NT_PROCESS_MAPS_H
#define NT_PROCESS_MAPS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define NT_AREA_PATH 512

struct nt_maps {
  uint32_t uid;
  bool loaded;             /* libnccltrace.so is mapped */
  bool private_area;       /* its area is an anonymous memory file, or was removed */
  char area[NT_AREA_PATH]; /* the process's own area, as it can be opened from here, or empty */
  char nccl[NT_AREA_PATH]; /* a libnccl.so that is mapped, as its process names it, or empty */
  bool nccl_memory;        /* memory that NCCL shares with other processes is mapped */
  dev_t device;            /* of the area's file */
  ino_t inode;
};

/* Returns false if the process is gone, of another user, or has nothing to do with the library. */
bool nt_maps_read(uint32_t pid, struct nt_maps *out);

/* The pid in the name of an area, PID-START-PIDNS-RANDOM.area: as its process knows itself. */
uint32_t nt_maps_area_pid(const char *path);

#endif
