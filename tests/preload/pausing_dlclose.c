/* SPDX-License-Identifier: Apache-2.0 */
/* dlclose, as the next in line behind the library: lets the program do something when an object has just gone. */
#include <dlfcn.h>
#include <stddef.h>

__attribute__((visibility("default"))) int dlclose(void *handle) {
  int (*next)(void *) = NULL;
  void (*unloaded)(void) = NULL;
  *(void **)&next = dlsym(RTLD_NEXT, "dlclose");
  *(void **)&unloaded = dlsym(RTLD_DEFAULT, "resolve_unloaded");
  int result = next(handle);
  if (unloaded)
    unloaded();
  return result;
}
