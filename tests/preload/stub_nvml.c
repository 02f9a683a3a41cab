/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An NVML with one sound GPU, one that is lost and no others, which lacks some functions as versions do, and which
 * can be made to hang as it does with a driver that does not answer.
 */
#include <semaphore.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, LOST = 15 };

struct device {
  int lost;
};
static struct device sound, lost = {1};

EXPORT _Atomic int stub_users, stub_hangs;
EXPORT sem_t stub_gate;

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT const char *nvmlErrorString(int error);
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, struct device **device);
EXPORT int nvmlDeviceGetTemperature(struct device *device, int sensor, unsigned *value);
EXPORT int nvmlDeviceGetPowerUsage(struct device *device, unsigned *value);
EXPORT int nvmlDeviceGetEnforcedPowerLimit(struct device *device, unsigned *value);
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *device,
                                                     unsigned long long *bits);
EXPORT int nvmlDeviceGetTotalEccErrors(struct device *device, int kind, int counter,
                                       unsigned long long *count);
EXPORT int nvmlDeviceGetRetiredPagesPendingStatus(struct device *device, unsigned *pending);
EXPORT int nvmlDeviceGetRemappedRows(struct device *device, unsigned *corrected,
                                     unsigned *uncorrected, unsigned *pending, unsigned *failed);
EXPORT int nvmlDeviceGetMemoryInfo(struct device *device, unsigned long long *bytes);
EXPORT int nvmlDeviceGetComputeRunningProcesses(struct device *device, unsigned *count,
                                                void *infos);
EXPORT int nvmlDeviceGetCurrPcieLinkGeneration(struct device *device, unsigned *value);
EXPORT int nvmlDeviceGetCurrPcieLinkWidth(struct device *device, unsigned *value);
EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(struct device *device, unsigned *value);
EXPORT int nvmlDeviceGetMaxPcieLinkWidth(struct device *device, unsigned *value);
EXPORT int nvmlDeviceGetNvLinkState(struct device *device, unsigned link, unsigned *active);
EXPORT int nvmlDeviceGetNvLinkErrorCounter(struct device *device, unsigned link, int counter,
                                           unsigned long long *count);

__attribute__((constructor)) static void make_gate(void) {
  sem_init(&stub_gate, 0, 0);
}

int nvmlInit_v2(void) {
  if (stub_hangs)
    while (sem_wait(&stub_gate) != 0)
      ;
  stub_users++;
  return SUCCESS;
}

int nvmlShutdown(void) {
  stub_users--;
  return SUCCESS;
}

const char *nvmlErrorString(int error) {
  return error == LOST ? "GPU is lost" : error == NOT_FOUND ? "Not Found" : "Unknown Error";
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, struct device **device) {
  *device = !strcmp(pci, "0000:4e:00.0") ? &sound : !strcmp(pci, "0000:5f:00.0") ? &lost : NULL;
  return *device ? SUCCESS : NOT_FOUND;
}

static int answer(const struct device *device, unsigned *out, unsigned value) {
  *out = value;
  return device->lost ? LOST : SUCCESS;
}

int nvmlDeviceGetTemperature(struct device *device, int sensor, unsigned *value) {
  return sensor ? INVALID : answer(device, value, 71);
}

int nvmlDeviceGetPowerUsage(struct device *device, unsigned *value) {
  return answer(device, value, 312400);
}

int nvmlDeviceGetEnforcedPowerLimit(struct device *device, unsigned *value) {
  return answer(device, value, 700000);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *device, unsigned long long *bits) {
  *bits = 0x48;
  return device->lost ? LOST : SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(struct device *device, int kind, int counter,
                                unsigned long long *count) {
  *count = kind == 1 && counter == 0 ? 2 : 40;
  return device->lost ? LOST : SUCCESS;
}

int nvmlDeviceGetRetiredPagesPendingStatus(struct device *device, unsigned *pending) {
  (void)device;
  (void)pending;
  return NOT_SUPPORTED;
}

int nvmlDeviceGetRemappedRows(struct device *device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed) {
  *corrected = *pending = 1;
  *uncorrected = 2;
  *failed = 0;
  return device->lost ? LOST : SUCCESS;
}

int nvmlDeviceGetMemoryInfo(struct device *device, unsigned long long *bytes) {
  bytes[0] = 1000;
  bytes[1] = 100;
  bytes[2] = 900;
  return device->lost ? LOST : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses(struct device *device, unsigned *count, void *infos) {
  *count = 3;
  return device->lost ? LOST : infos ? SUCCESS : SMALL;
}

int nvmlDeviceGetCurrPcieLinkGeneration(struct device *device, unsigned *value) {
  return answer(device, value, 5);
}

int nvmlDeviceGetCurrPcieLinkWidth(struct device *device, unsigned *value) {
  return answer(device, value, 8);
}

int nvmlDeviceGetMaxPcieLinkGeneration(struct device *device, unsigned *value) {
  return answer(device, value, 5);
}

int nvmlDeviceGetMaxPcieLinkWidth(struct device *device, unsigned *value) {
  return answer(device, value, 16);
}

int nvmlDeviceGetNvLinkState(struct device *device, unsigned link, unsigned *active) {
  return link >= 18 ? INVALID : answer(device, active, link != 3 && link != 7);
}

int nvmlDeviceGetNvLinkErrorCounter(struct device *device, unsigned link, int counter,
                                    unsigned long long *count) {
  *count = link == 5 && counter == 2 ? 6 : 0;
  return device->lost ? LOST : SUCCESS;
}
