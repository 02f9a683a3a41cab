/* SPDX-License-Identifier: Apache-2.0 */
/* Loads a plug-in that brings NCCL along, uses and unloads it, four times. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
  for (int turn = 0; turn < 4 && argc == 2; turn++) {
    void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    int (*use)(void) = NULL;
    if (plugin)
      *(void **)&use = dlsym(plugin, "plugin_use");
    if (!use || use() != 0)
      return 1;
    dlclose(plugin);
  }
  puts("done");
  return 0;
}
