/* SPDX-License-Identifier: Apache-2.0 */
/* How a rank is introduced: which process on which host, and which GPU by each of its names. */
#ifndef NT_CLI_RANK_NAME_H
#define NT_CLI_RANK_NAME_H

#include "trace/reader.h"

struct nt_rank_name {
  int32_t rank;        /* in the world; -1: not known */
  uint32_t pid;        /* 0: not known */
  const char *host;    /* NULL or "": not known */
  int32_t gpu_index;   /* on the machine, as nvidia-smi counts; -1: not known */
  int32_t cuda_device; /* in the process; -1: not known */
  const char *pci;     /* NULL or "": not known */
};

#define NT_RANK_NAME 512

/* "rank 3 (gpu-07, pid 8123, GPU 3 = cuda:0, 0000:4e:00.0)"; what is not known is left out. Escaped. */
char *nt_rank_name_text(char *out, size_t size, const struct nt_rank_name *name);
/* "GPU 3 = cuda:0", "GPU 3", "cuda:0", or "". */
char *nt_gpu_name_text(char *out, size_t size, const struct nt_rank_name *name);

/* What the evidence of a trace has on one of its devices: sets the last three. */
void nt_rank_name_gpu(struct nt_rank_name *name, const struct nt_trace *trace, int32_t device);

#endif
