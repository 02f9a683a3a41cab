/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of NVML, the library behind nvidia-smi, is used: one table of entry points, any of which a version may lack.
 * Types, values and meanings are those of nvml.h, which keeps them between versions.
 */
#ifndef NT_NVML_H
#define NT_NVML_H

#include "preload/gpu_identity.h"
#include "trace/dump_frames.h"

enum {
  NT_NVML_SUCCESS = 0,
  NT_NVML_INSUFFICIENT_SIZE = 7,
  NT_NVML_GPU_IS_LOST = 15,
  NT_NVML_RESET_REQUIRED = 16,
};

typedef struct nvmlDevice_st *nt_nvml_device;
typedef int (*nt_nvml_number)(nt_nvml_device device, unsigned *value);

/* Asks NVML in `library`, opened if it can be, for everything about these GPUs. It may block for as long as the
 * driver does. The library stays open; NVML's count of its users is the same afterwards. */
void nt_nvml_ask(struct nt_buffer *out, const char *library, const struct nt_gpu *gpus,
                 unsigned count);

#endif
