/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/torch_object.h"

#include <string.h>

#include "preload/modules.h"

_Atomic uintptr_t nt_torch_low, nt_torch_high;

void nt_torch_find(void) {
  static const char name[] = "/libtorch_cuda.so";
  struct nt_modules modules = {0};
  nt_modules_load(&modules);
  for (size_t i = 0; i < modules.count; i++) {
    const struct nt_module *module = &modules.list[i];
    size_t length = strlen(module->path);
    if (length < sizeof name || strcmp(module->path + length - (sizeof name - 1), name) != 0)
      continue;
    atomic_store_explicit(&nt_torch_low, module->low, memory_order_relaxed);
    atomic_store_explicit(&nt_torch_high, module->high, memory_order_release);
    break;
  }
  nt_modules_free(&modules);
}
