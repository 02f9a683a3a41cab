/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/world.h"

#include <stdio.h>
#include <stdlib.h>

struct launcher {
  const char *rank, *size, *local_rank;
};

/* A launcher counts only when it gives rank and size: RANK alone is anybody's variable. */
static const struct launcher launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};

static const char *const run_ids[] = {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE",
                                      "LSB_JOBID", "PBS_JOBID"};

static int number(const char *name) {
  const char *text = getenv(name);
  char *end;
  if (!text || !*text)
    return -1;
  long value = strtol(text, &end, 10);
  return *end || value < 0 || value > 0x7fffffff ? -1 : (int)value;
}

void nt_world_read(struct nt_world *out) {
  *out = (struct nt_world){.rank = -1, .size = -1, .local_rank = -1};
  for (size_t i = 0; i < sizeof(launchers) / sizeof(*launchers); i++) {
    int rank = number(launchers[i].rank), size = number(launchers[i].size);
    if (rank < 0 || size <= rank)
      continue;
    out->rank = rank;
    out->size = size;
    out->local_rank = number(launchers[i].local_rank);
    break;
  }
  int restart = number("TORCHELASTIC_RESTART_COUNT");
  if (restart < 0)
    restart = number("SLURM_RESTART_COUNT");
  out->restart = restart > 0 ? (uint32_t)restart : 0;
  for (size_t i = 0; i < sizeof(run_ids) / sizeof(*run_ids) && !out->run_id[0]; i++) {
    const char *id = getenv(run_ids[i]);
    if (id)
      snprintf(out->run_id, sizeof(out->run_id), "%s", id);
  }
}
