/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which GPU a communicator is on: CUDA ordinal, UUID, PCI id.
 *
 * Asked of the driver that the process has loaded, in the application's thread right after NCCL has
 * created a communicator there (so a context is current). Only driver entry points are used: they
 * leave the runtime's last error alone.
 */
#ifndef NT_GPU_IDENTITY_H
#define NT_GPU_IDENTITY_H

#include "preload/comms.h"

struct nt_gpu {
  int device; /* CUDA ordinal in this process */
  char uuid[48];
  char pci[24];
  char name[96];
};

/* Fills the communicator's device and remembers the GPU for the evidence header. */
void nt_gpu_note(struct nt_comm *comm);

/* The i-th GPU noted, NULL past the end; cuDriverGetVersion's number then, 0 if unknown. Any thread. */
const struct nt_gpu *nt_gpu_at(unsigned i);
int nt_gpu_driver_version(void);

#endif
