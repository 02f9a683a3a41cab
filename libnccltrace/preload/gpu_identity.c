/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/gpu_identity.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { GPUS = 16 };

/* CUDA driver API, in the ABI of every driver since CUDA 11. */
typedef struct {
  unsigned char bytes[16];
} cu_uuid;

static struct {
  int (*ctx_get_device)(int *);
  int (*device_get_uuid)(cu_uuid *, int);
  int (*device_get_pci)(char *, int, int);
  int (*device_get_name)(char *, int, int);
  int (*driver_get_version)(int *);
} cu;

static struct nt_gpu gpus[GPUS];
static unsigned gpu_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *entry(void *driver, const char *name, const char *older) {
  void *found = dlsym(driver, name);
  return found || !older ? found : dlsym(driver, older);
}

static bool find_driver(void) {
  if (cu.ctx_get_device)
    return true;
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!driver) {
    (void)dlerror();
    return false;
  }
  *(void **)&cu.device_get_uuid = entry(driver, "cuDeviceGetUuid_v2", "cuDeviceGetUuid");
  *(void **)&cu.device_get_pci = entry(driver, "cuDeviceGetPCIBusId", NULL);
  *(void **)&cu.device_get_name = entry(driver, "cuDeviceGetName", NULL);
  *(void **)&cu.driver_get_version = entry(driver, "cuDriverGetVersion", NULL);
  *(void **)&cu.ctx_get_device = entry(driver, "cuCtxGetDevice", NULL);
  (void)dlerror();
  return cu.ctx_get_device != NULL;
}

static void format_uuid(const cu_uuid *id, char *out, size_t size) {
  const unsigned char *b = id->bytes;
  snprintf(out, size,
           "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
           b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
           b[15]);
}

static void remember(int device) {
  for (unsigned i = 0; i < gpu_count; i++)
    if (gpus[i].device == device)
      return;
  if (gpu_count == GPUS)
    return;
  struct nt_gpu *gpu = &gpus[gpu_count];
  cu_uuid id;
  gpu->device = device;
  if (cu.device_get_uuid && cu.device_get_uuid(&id, device) == 0)
    format_uuid(&id, gpu->uuid, sizeof(gpu->uuid));
  if (cu.device_get_pci)
    cu.device_get_pci(gpu->pci, sizeof(gpu->pci), device);
  if (cu.device_get_name)
    cu.device_get_name(gpu->name, sizeof(gpu->name) - 1, device);
  __atomic_store_n(&gpu_count, gpu_count + 1, __ATOMIC_RELEASE);
}

void nt_gpu_note(struct nt_comm *comm) {
  int device = -1;
  pthread_mutex_lock(&lock);
  if (find_driver() && cu.ctx_get_device(&device) == 0 && device >= 0) {
    if (comm->slot->def.device < 0)
      comm->slot->def.device = device;
    remember(device);
  }
  pthread_mutex_unlock(&lock);
}

const struct nt_gpu *nt_gpu_at(unsigned i) {
  return i < __atomic_load_n(&gpu_count, __ATOMIC_ACQUIRE) ? &gpus[i] : NULL;
}

int nt_gpu_driver_version(void) {
  int version = 0;
  return cu.driver_get_version && cu.driver_get_version(&version) == 0 ? version : 0;
}
