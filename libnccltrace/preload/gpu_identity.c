/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/gpu_identity.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "preload/cuda_driver.h"
#include "preload/fork_lock.h"

enum { GPUS = 16 };

static struct nt_gpu gpus[GPUS];
static unsigned gpu_count;
static int driver_version;
static struct nt_fork_lock lock;

static void format_uuid(const nt_cu_uuid *id, char *out, size_t size) {
  const unsigned char *b = id->bytes;
  snprintf(out, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
           b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
           b[14], b[15]);
}

static bool is_known(int device) {
  for (unsigned i = 0; i < __atomic_load_n(&gpu_count, __ATOMIC_ACQUIRE); i++)
    if (gpus[i].device == device)
      return true;
  return false;
}

static void ask(const struct nt_cuda_driver *driver, int device, struct nt_gpu *out) {
  nt_cu_uuid id;
  out->device = device;
  if (driver->device_get_uuid && driver->device_get_uuid(&id, device) == NT_CU_SUCCESS)
    format_uuid(&id, out->uuid, sizeof(out->uuid));
  if (driver->device_get_pci)
    driver->device_get_pci(out->pci, sizeof(out->pci), device);
  for (char *c = out->pci; *c; c++)
    *c = (char)tolower((unsigned char)*c); /* as the kernel writes it */
  if (driver->device_get_name)
    driver->device_get_name(out->name, sizeof(out->name) - 1, device);
}

static void remember(const struct nt_gpu *gpu, int version) {
  nt_fork_lock(&lock);
  if (!is_known(gpu->device) && gpu_count < GPUS) {
    gpus[gpu_count] = *gpu;
    __atomic_store_n(&driver_version, version, __ATOMIC_RELAXED);
    __atomic_store_n(&gpu_count, gpu_count + 1, __ATOMIC_RELEASE);
  }
  nt_fork_unlock(&lock);
}

/* The driver is asked under no lock of ours: it may ask the loader. */
void nt_gpu_note(struct nt_comm *comm) {
  const struct nt_cuda_driver *driver = nt_cuda_driver();
  struct nt_gpu gpu = {0};
  int device = -1, version = nt_gpu_driver_version();
  if (!driver || driver->ctx_get_device(&device) != NT_CU_SUCCESS || device < 0)
    return;
  if (comm->slot->def.device < 0)
    comm->slot->def.device = comm->device = device;
  if (is_known(device))
    return;
  ask(driver, device, &gpu);
  if (driver->driver_get_version)
    driver->driver_get_version(&version);
  remember(&gpu, version);
}

const struct nt_gpu *nt_gpu_at(unsigned i) {
  return i < __atomic_load_n(&gpu_count, __ATOMIC_ACQUIRE) ? &gpus[i] : NULL;
}

int nt_gpu_driver_version(void) {
  return __atomic_load_n(&driver_version, __ATOMIC_RELAXED);
}
