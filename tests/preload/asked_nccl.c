/* SPDX-License-Identifier: Apache-2.0 */
/* Counts how often NCCL is asked about a communicator, by the application, by NCCL itself and by whoever else. */
#include <dlfcn.h>
#include <stdio.h>

#include "nccl/nccl_types.h"

#define PUBLIC __attribute__((visibility("default")))
static int asked;

#define QUESTION(name, type)                                                                       \
  PUBLIC ncclResult_t name(ncclComm_t comm, type *answer);                                         \
  ncclResult_t name(ncclComm_t comm, type *answer) {                                               \
    ncclResult_t (*next)(ncclComm_t, type *);                                                      \
    asked++;                                                                                       \
    *(void **)&next = dlsym(RTLD_NEXT, #name);                                                     \
    return next ? next(comm, answer) : ncclSystemError;                                            \
  }
QUESTION(ncclCommCount, int)
QUESTION(ncclCommUserRank, int)
QUESTION(ncclCommCuDevice, int)
QUESTION(ncclCommGetAsyncError, ncclResult_t)

__attribute__((destructor)) static void say(void) {
  printf("asked %d\n", asked);
  fflush(stdout);
}
