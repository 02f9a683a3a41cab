/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated devices and their memory. One process sees NTSIM_DEVICES of them. Errors: CUresult. */
#ifndef SIM_DEVICE_H
#define SIM_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda.h"

#define SIM_EXPORT __attribute__((visibility("default")))
#define SIM_MAX_DEVICES 64
#define SIM_PAGE ((size_t)4096)

SIM_EXPORT int sim_device_count(void);
/* The calling thread's device; every thread starts on device 0. */
SIM_EXPORT int sim_device_current(void);
SIM_EXPORT CUresult sim_device_select(int device);
/* Contexts exist once per device, and have no state beyond their device. */
SIM_EXPORT CUcontext sim_device_context(int device);
SIM_EXPORT int sim_device_of_context(CUcontext ctx);
SIM_EXPORT CUresult sim_device_uuid(CUuuid *uuid, int device);
SIM_EXPORT CUresult sim_device_pci(char *id, int len, int device);

/* Device and pinned memory are both ordinary host memory; `pinned` only decides what blocks. */
SIM_EXPORT CUresult sim_memory_alloc(void **ptr, size_t size);
SIM_EXPORT CUresult sim_memory_free(void *ptr);
/* Marks foreign memory as pinned, and back. */
SIM_EXPORT CUresult sim_memory_register(void *ptr, size_t size);
SIM_EXPORT CUresult sim_memory_unregister(void *ptr);
/* True if ptr lies in device, pinned or registered memory. */
SIM_EXPORT bool sim_memory_is_known(const void *ptr);

#endif
