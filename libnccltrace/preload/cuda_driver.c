/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/cuda_driver.h"

#include <dlfcn.h>
#include <stddef.h>

#include "preload/call_data.h"
#include "preload/fork_lock.h"
#include "preload/process.h"

static struct nt_cuda_driver table;
NT_CALL_DATA const struct nt_cuda_driver *nt_cuda_driver_found;
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

static void find_entries(void *driver, struct nt_cuda_driver *out) {
  for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
    void *found = dlsym(driver, entries[i].name);
    if (!found && entries[i].older)
      found = dlsym(driver, entries[i].older);
    *(void **)(void *)((char *)out + entries[i].at) = found;
  }
}

/* The loader is asked before the lock is taken: whoever holds its lock, in a constructor, may wait for ours. */
const struct nt_cuda_driver *nt_cuda_driver(void) {
  const struct nt_cuda_driver *driver = nt_cuda_driver_known();
  struct nt_cuda_driver fresh = {0};
  if (driver)
    return driver;
  // cppcheck-suppress resourceLeak ; the reference keeps the entries where they are
  void *handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (handle)
    find_entries(handle, &fresh);
  (void)dlerror(); /* what our look-ups left is not the application's */
  if (!fresh.ctx_get_device)
    return NULL;
  fresh.has_events = fresh.ctx_get_current && fresh.ctx_set_current && fresh.event_create &&
                     fresh.event_record && fresh.event_query && fresh.stream_is_capturing &&
                     fresh.exchange_capture_mode;
  nt_fork_lock(&lock);
  if (!nt_cuda_driver_found) {
    table = fresh;
    __atomic_store_n(&nt_cuda_driver_found, &table, __ATOMIC_RELEASE);
  }
  nt_fork_unlock(&lock);
  return nt_cuda_driver_known();
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
