/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another interposer in front of NCCL: it leaves an all-reduce of 666 elements by longjmp, as an
 * exception thrown through C code would, and one of 555 with the thread that makes it; it forks inside one of 777, and
 * the child returns with an error. It leaves the end of a group by longjmp when NCCL has ended it, if that is asked for.
 * Everything else it passes on.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl/nccl_types.h"

__attribute__((visibility("default"))) jmp_buf *jumping_target;

__attribute__((visibility("default"))) int jumping_from_groups;
__attribute__((visibility("default"))) ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupEnd(void) {
  ncclResult_t (*next)(void);
  *(void **)&next = dlsym(RTLD_NEXT, "ncclGroupEnd");
  const ncclResult_t result = next();
  if (jumping_from_groups && jumping_target)
    longjmp(*jumping_target, 1);
  return result;
}

__attribute__((visibility("default"))) ncclResult_t ncclAllReduce(const void *send, void *recv,
                                                                  size_t count, ncclDataType_t type,
                                                                  ncclRedOp_t op, ncclComm_t comm,
                                                                  cudaStream_t stream);

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t (*next)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                       cudaStream_t);
  if (count == 666 && jumping_target)
    longjmp(*jumping_target, 1);
  if (count == 555)
    pthread_exit(NULL);
  pid_t child = count == 777 ? fork() : -1;
  if (child == 0)
    return ncclInternalError;
  if (child > 0)
    waitpid(child, NULL, 0);
  *(void **)&next = dlsym(RTLD_NEXT, "ncclAllReduce");
  return next(send, recv, count, type, op, comm, stream);
}
