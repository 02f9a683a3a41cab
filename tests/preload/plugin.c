/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in that links NCCL; library_cases loads and unloads it. It does not stay loaded by itself. */
#include "nccl/nccl_types.h"

ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
__attribute__((visibility("default"))) int plugin_use(void);

int plugin_use(void) {
  ncclUniqueId id;
  return ncclGetUniqueId(&id);
}
