/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/torch_object.h"

#include <string.h>

#include "preload/modules.h"

_Atomic uintptr_t nt_torch_low, nt_torch_high;

static int look(struct dl_phdr_info *info, size_t size, void *unused) {
  static const char name[] = "/libtorch_cuda.so";
  const size_t length = info->dlpi_name ? strlen(info->dlpi_name) : 0, tail = sizeof name - 1;
  uintptr_t low, high;
  (void)size;
  (void)unused;
  if (length < tail || strcmp(info->dlpi_name + length - tail, name) != 0)
    return 0;
  nt_module_span(info, &low, &high);
  atomic_store_explicit(&nt_torch_low, low, memory_order_relaxed);
  atomic_store_explicit(&nt_torch_high, high, memory_order_release);
  return 1;
}

void nt_torch_find(void) {
  if (!atomic_load_explicit(&nt_torch_high, memory_order_relaxed))
    nt_modules_each(look, NULL);
}
