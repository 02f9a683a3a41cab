/* SPDX-License-Identifier: Apache-2.0 */
/* A hook of dlsym that answers with functions of its own, as layers that count calls do. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "nccl/nccl_types.h"

#define PUBLIC __attribute__((visibility("default")))
static int counted;

#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#else
#define OLDEST "GLIBC_2.17"
#endif

static ncclResult_t (*real_get_id)(ncclUniqueId *);
static ncclResult_t (*real_all_reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                                       ncclComm_t, cudaStream_t);
static ncclResult_t (*real_destroy)(ncclComm_t);

static ncclResult_t count_get_id(ncclUniqueId *id) {
  counted++;
  return real_get_id(id);
}

static ncclResult_t count_all_reduce(const void *send, void *recv, size_t count,
                                     ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                     cudaStream_t stream) {
  counted++;
  return real_all_reduce(send, recv, count, type, op, comm, stream);
}

static ncclResult_t count_destroy(ncclComm_t comm) {
  counted++;
  return real_destroy(comm);
}

static const struct {
  const char *name;
  void **real;
  void *count;
} hooks[] = {{"ncclGetUniqueId", (void **)&real_get_id, (void *)count_get_id},
             {"ncclAllReduce", (void **)&real_all_reduce, (void *)count_all_reduce},
             {"ncclCommDestroy", (void **)&real_destroy, (void *)count_destroy}};

PUBLIC void *dlsym(void *handle, const char *name) {
  void *(*next)(void *, const char *);
  *(void **)&next = dlvsym(RTLD_NEXT, "dlsym", OLDEST);
  void *found = next(handle, name);
  for (size_t i = 0; found && i < sizeof(hooks) / sizeof(*hooks); i++)
    if (!strcmp(name, hooks[i].name)) {
      *hooks[i].real = found;
      return hooks[i].count;
    }
  return found;
}

__attribute__((destructor)) static void say(void) {
  printf("counted %d\n", counted);
  fflush(stdout);
}
