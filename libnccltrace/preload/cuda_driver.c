/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/cuda_driver.h"

#include <dlfcn.h>
#include <stddef.h>

#include "preload/fork_lock.h"
#include "preload/process.h"

static struct nt_cuda_driver table;
const struct nt_cuda_driver *nt_cuda_driver_found;
static struct nt_fork_lock lock;

/* Entry points by name, the present one before its predecessor. */
static const struct {
  size_t at;
  const char *name, *older;
} entries[] = {
    {offsetof(struct nt_cuda_driver, ctx_get_device), "cuCtxGetDevice", NULL},
    {offsetof(struct nt_cuda_driver, ctx_get_current), "cuCtxGetCurrent", NULL},
    {offsetof(struct nt_cuda_driver, ctx_set_current), "cuCtxSetCurrent", NULL},
    {offsetof(struct nt_cuda_driver, event_create), "cuEventCreate", NULL},
    {offsetof(struct nt_cuda_driver, event_record), "cuEventRecord", NULL},
    {offsetof(struct nt_cuda_driver, event_query), "cuEventQuery", NULL},
    {offsetof(struct nt_cuda_driver, event_elapsed), "cuEventElapsedTime_v2", "cuEventElapsedTime"},
    {offsetof(struct nt_cuda_driver, stream_is_capturing), "cuStreamIsCapturing", NULL},
    {offsetof(struct nt_cuda_driver, stream_get_capture_info), "cuStreamGetCaptureInfo_v2",
     "cuStreamGetCaptureInfo"},
    {offsetof(struct nt_cuda_driver, exchange_capture_mode), "cuThreadExchangeStreamCaptureMode",
     NULL},
    {offsetof(struct nt_cuda_driver, device_get_uuid), "cuDeviceGetUuid_v2", "cuDeviceGetUuid"},
    {offsetof(struct nt_cuda_driver, device_get_pci), "cuDeviceGetPCIBusId", NULL},
    {offsetof(struct nt_cuda_driver, device_get_name), "cuDeviceGetName", NULL},
    {offsetof(struct nt_cuda_driver, driver_get_version), "cuDriverGetVersion", NULL},
};

static void find_entries(void *driver) {
  for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
    void *found = dlsym(driver, entries[i].name);
    if (!found && entries[i].older)
      found = dlsym(driver, entries[i].older);
    *(void **)(void *)((char *)&table + entries[i].at) = found;
  }
}

const struct nt_cuda_driver *nt_cuda_driver(void) {
  const struct nt_cuda_driver *driver = nt_cuda_driver_known();
  if (driver)
    return driver;
  nt_fork_lock(&lock);
  void *handle = nt_cuda_driver_found ? NULL : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (handle) {
    find_entries(handle);
    table.has_events = table.ctx_get_current && table.ctx_set_current && table.event_create &&
                       table.event_record && table.event_query && table.stream_is_capturing &&
                       table.exchange_capture_mode;
    if (table.ctx_get_device)
      __atomic_store_n(&nt_cuda_driver_found, &table, __ATOMIC_RELEASE);
  }
  (void)dlerror(); /* what our look-ups left is not the application's */
  driver = nt_cuda_driver_found;
  nt_fork_unlock(&lock);
  return driver;
}

struct nt_cuda_capture nt_cuda_capture_of(nt_cu_stream stream) {
  const struct nt_cuda_driver *driver = nt_cuda_driver_known();
  struct nt_cuda_capture capture = {NT_CU_NOT_CAPTURING, 0};
  int status = 0;
  unsigned long long id = 0;
  if (!driver || !driver->stream_is_capturing)
    return capture;
  if (driver->stream_is_capturing(stream, &status) != NT_CU_SUCCESS)
    capture.state = NT_CU_CAPTURE_UNKNOWN;
  else if (NT_UNLIKELY(status != 0))
    capture.state = NT_CU_CAPTURING;
  if (capture.state == NT_CU_CAPTURING && driver->stream_get_capture_info &&
      driver->stream_get_capture_info(stream, &status, &id, NULL, NULL, NULL) == NT_CU_SUCCESS)
    capture.number = (uint32_t)id;
  return capture;
}
