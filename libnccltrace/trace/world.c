/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct launcher {
  const char *rank, *size, *local_rank;
};

/* A launcher counts only when it gives rank and size: RANK alone is anybody's variable. Those within others come first:
 * torchrun is started by mpirun or srun, and mpirun within a job of Slurm's. In a batch script Slurm has set SLURM_PROCID=0
 * and SLURM_NTASKS to the size of the whole job, though it has launched nothing; the size of the step is srun's alone. */
static const struct launcher launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"}, /* torchrun, and what sets the same */
    {"PADDLE_GLOBAL_RANK", "PADDLE_GLOBAL_SIZE", "PADDLE_LOCAL_RANK"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"}, /* Open MPI */
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"},    /* MVAPICH2 */
    {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK"},       /* jsrun */
    {"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"}, /* MPICH, Intel MPI; Cray: PMI_LOCAL_RANK */
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
};

static const char *const run_ids[] = {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE",
                                      "FLUX_JOB_ID",         "LSB_JOBID",    "PBS_JOBID"};

static int number(char *(*get)(const char *name), const char *name) {
  const char *text = get(name);
  char *end;
  if (!text || !*text)
    return -1;
  long value = strtol(text, &end, 10);
  return *end || value < 0 || value > 0x7fffffff ? -1 : (int)value;
}

void nt_world_read(char *(*get)(const char *name), struct nt_world *out) {
  *out = (struct nt_world){.rank = -1, .size = -1, .local_rank = -1};
  for (size_t i = 0; i < sizeof(launchers) / sizeof(*launchers); i++) {
    int rank = number(get, launchers[i].rank), size = number(get, launchers[i].size);
    if (rank < 0 || size <= rank)
      continue;
    out->rank = rank;
    out->size = size;
    out->local_rank = number(get, launchers[i].local_rank);
    if (out->local_rank < 0 && !strcmp(launchers[i].rank, "PMI_RANK"))
      out->local_rank = number(get, "PMI_LOCAL_RANK");
    break;
  }
  int restart = number(get, "TORCHELASTIC_RESTART_COUNT");
  if (restart < 0)
    restart = number(get, "SLURM_RESTART_COUNT");
  out->restart = restart > 0 ? (uint32_t)restart : 0;
  for (size_t i = 0; i < sizeof(run_ids) / sizeof(*run_ids) && !out->run_id[0]; i++) {
    const char *id = get(run_ids[i]);
    if (id && strcmp(id, "none") != 0) /* what torchrun calls every run that was given no name */
      snprintf(out->run_id, sizeof(out->run_id), "%s", id);
  }
}
