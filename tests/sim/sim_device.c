/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices are names: a number per thread, a UUID and a PCI address per device. Memory of a device is
 * host memory in a table, because cudaFree must recognise what it frees and because a copy from
 * pageable memory behaves differently from one between known ranges. Any thread; one lock.
 */
#include "sim_device.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_range {
  char *base;
  size_t size;
  bool owned;
};

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_range *ranges;
static size_t range_count, range_room;
static _Thread_local int current_device;
static char contexts[SIM_MAX_DEVICES];

int sim_device_count(void) {
  const char *text = getenv("NTSIM_DEVICES");
  int n = text ? atoi(text) : 8;
  return n < 0 ? 0 : n > SIM_MAX_DEVICES ? SIM_MAX_DEVICES : n;
}

int sim_device_current(void) {
  return current_device;
}

CUresult sim_device_select(int device) {
  if (device < 0 || device >= sim_device_count())
    return CUDA_ERROR_INVALID_DEVICE;
  current_device = device;
  return CUDA_SUCCESS;
}

CUcontext sim_device_context(int device) {
  return (CUcontext)(void *)&contexts[device];
}

int sim_device_of_context(CUcontext ctx) {
  uintptr_t at = (uintptr_t)ctx - (uintptr_t)contexts;
  return at < SIM_MAX_DEVICES ? (int)at : -1;
}

CUresult sim_device_uuid(CUuuid *uuid, int device) {
  if (!uuid || device < 0 || device >= sim_device_count())
    return CUDA_ERROR_INVALID_DEVICE;
  /* A fixed pattern: the same device must have the same name in every process of the machine. */
  for (int i = 0; i < 16; i++)
    uuid->bytes[i] = (char)(0x51 + 0x1d * i);
  uuid->bytes[15] = (char)device;
  return CUDA_SUCCESS;
}

CUresult sim_device_pci(char *id, int len, int device) {
  if (!id || len < 13)
    return CUDA_ERROR_INVALID_VALUE;
  if (device < 0 || device >= sim_device_count())
    return CUDA_ERROR_INVALID_DEVICE;
  snprintf(id, (size_t)len, "0000:%02X:00.0", 0x10 + 3 * device);
  return CUDA_SUCCESS;
}

static CUresult range_add(void *ptr, size_t size, bool owned) {
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&memory_lock);
  if (range_count == range_room) {
    size_t room = range_room ? 2 * range_room : 64;
    struct sim_range *grown = realloc(ranges, room * sizeof(*grown));
    if (!grown) {
      result = CUDA_ERROR_OUT_OF_MEMORY;
      goto out;
    }
    ranges = grown;
    range_room = room;
  }
  ranges[range_count++] = (struct sim_range){.base = ptr, .size = size, .owned = owned};
out:
  pthread_mutex_unlock(&memory_lock);
  return result;
}

static CUresult range_remove(const void *ptr, bool owned) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&memory_lock);
  for (size_t i = 0; i < range_count; i++) {
    if (ranges[i].base == ptr && ranges[i].owned == owned) {
      ranges[i] = ranges[--range_count];
      result = CUDA_SUCCESS;
      break;
    }
  }
  pthread_mutex_unlock(&memory_lock);
  return result;
}

CUresult sim_memory_alloc(void **ptr, size_t size) {
  void *memory = NULL;
  if (!ptr)
    return CUDA_ERROR_INVALID_VALUE;
  *ptr = NULL;
  if (size == 0)
    return CUDA_SUCCESS;
  /* Whole pages where it is more than one: a window may take their place. */
  size_t align = size < SIM_PAGE ? 512 : SIM_PAGE;
  if (size > SIZE_MAX / 4 || posix_memalign(&memory, align, (size + align - 1) & ~(align - 1)))
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (range_add(memory, size, true)) {
    free(memory);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *ptr = memory;
  return CUDA_SUCCESS;
}

CUresult sim_memory_free(void *ptr) {
  CUresult result = range_remove(ptr, true);
  if (result == CUDA_SUCCESS)
    free(ptr);
  return result;
}

CUresult sim_memory_register(void *ptr, size_t size) {
  return ptr && size ? range_add(ptr, size, false) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_memory_unregister(void *ptr) {
  return range_remove(ptr, false);
}

bool sim_memory_is_known(const void *ptr) {
  bool known = false;
  pthread_mutex_lock(&memory_lock);
  for (size_t i = 0; i < range_count && !known; i++)
    known = (const char *)ptr >= ranges[i].base &&
            (size_t)((const char *)ptr - ranges[i].base) < ranges[i].size;
  pthread_mutex_unlock(&memory_lock);
  return known;
}
