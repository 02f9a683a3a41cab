/* SPDX-License-Identifier: Apache-2.0 */
/* Needed by a program, so that its constructor runs before those of preloaded libraries: it looks NCCL up there. */
#include <dlfcn.h>
#include <stdlib.h>

#include "nccl/nccl_types.h"

__attribute__((visibility("default"))) int early_result(void);

static int result = -1;

__attribute__((constructor)) static void look_up(void) {
  const char *path = getenv("NCCL");
  void *nccl = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  ncclResult_t (*get_id)(ncclUniqueId *) = NULL;
  ncclUniqueId id;
  if (nccl)
    *(void **)&get_id = dlsym(nccl, "ncclGetUniqueId");
  if (get_id)
    result = get_id(&id);
}

int early_result(void) {
  return result;
}
