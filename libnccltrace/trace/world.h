/* SPDX-License-Identifier: Apache-2.0 */
/* What launchers put into the environment: world rank, sizes, run, attempt. */
#ifndef NT_WORLD_H
#define NT_WORLD_H

#include <stddef.h>
#include <stdint.h>

struct nt_world {
  int rank, size, local_rank; /* -1 if no launcher says */
  uint32_t restart;           /* attempt, 0 for the first */
  char run_id[64];            /* empty if unknown */
};

/* Reads the variables of torchrun, of kinds of MPI and of schedulers; the first that make sense count. `get` answers as
 * getenv does, of the own process or of another; what it returns is not kept. */
void nt_world_read(char *(*get)(const char *name), struct nt_world *out);

#endif
