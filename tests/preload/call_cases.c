/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls in unusual places: of threads that end, in the middle of other calls, with arguments that cannot be read. One per
 * sub-command, run by tests/cli/library.sh with libnccltrace.so preloaded, on the simulator.
 */
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

static ncclResult_t allreduce(ncclComm_t comm, size_t count) {
  return ncclAllReduce(buffer, buffer, count, ncclFloat, ncclSum, comm, NULL);
}

/* More devices than the list has: whatever NCCL makes of it. */
static int short_list(void) {
  enum { LISTED = 2, CLAIMED = 5000 };
  static ncclComm_t comms[CLAIMED];
  long page = sysconf(_SC_PAGESIZE);
  char *pages =
      mmap(NULL, 2 * (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(pages == MAP_FAILED || mprotect(pages + page, (size_t)page, PROT_NONE), "pages");
  int *list = (int *)(void *)(pages + page) - LISTED;
  list[0] = 0;
  list[1] = 99;
  one_rank();
  printf("refused with %d\n", ncclCommInitAll(comms, CLAIMED, list));
  return 0;
}

/* Threads come and go faster than anybody looks, each with a group. */
static void *one_group(void *comm) {
  check(ncclGroupStart(), "start");
  check(allreduce(comm, 1), "call");
  check(ncclGroupEnd(), "end");
  return NULL;
}

static long mapped_pages(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  check(!file || fscanf(file, "%ld", &pages) != 1, "statm");
  fclose(file);
  return pages;
}

static int short_threads(void) {
  enum { THREADS = 300, FIRST = 50 };
  ncclComm_t comm = one_rank();
  long before = 0;
  for (int i = 0; i < THREADS; i++) {
    pthread_t thread;
    if (i == FIRST)
      before = mapped_pages();
    check(pthread_create(&thread, NULL, one_group, comm), "thread");
    check(pthread_join(thread, NULL), "join");
    usleep(5000);
  }
  check(cudaStreamSynchronize(NULL), "sync");
  printf("left behind %s\n", mapped_pages() - before < (THREADS - FIRST) / 2 ? "nothing" : "pages");
  return 0;
}

/* A destructor that comes after ours still calls NCCL. */
static ncclComm_t destroyed_late;
static pthread_key_t late_key;

static void call_late(void *rounds) {
  check(allreduce(destroyed_late, 7), "call");
  if ((uintptr_t)rounds > 1)
    pthread_setspecific(late_key, (void *)((uintptr_t)rounds - 1));
}

static void *ends_with_calls(void *unused) {
  (void)unused;
  check(allreduce(destroyed_late, 6), "call");
  pthread_setspecific(late_key, (void *)3);
  return NULL;
}

static int late_destructors(void) {
  pthread_t thread;
  destroyed_late = one_rank();
  check(pthread_key_create(&late_key, call_late), "key");
  check(pthread_create(&thread, NULL, ends_with_calls, NULL), "thread");
  check(pthread_join(thread, NULL), "join");
  check(allreduce(destroyed_late, 8), "call");
  check(cudaStreamSynchronize(NULL), "sync");
  return 0;
}

/* A forked child's threads end with what their parent's thread had. */
static int child_ends_thread(void) {
  ncclComm_t comm = one_rank();
  one_group(comm);
  pid_t child = fork();
  if (child == 0)
    pthread_exit(NULL);
  int status;
  check(child < 0 || waitpid(child, &status, 0) != child || status, "child");
  for (int i = 0; i < 10; i++)
    check(allreduce(comm, 5), "call");
  check(cudaStreamSynchronize(NULL), "sync");
  return 0;
}

/* An NCCL that calls others in the middle of a call: a handler of signals, a plug-in that waits by the CUDA runtime or
 * makes calls of its own, and code of its caller that is taken for a call after one that never returned. */
struct calling {
  ncclResult_t (*init)(ncclComm_t *, int, ncclUniqueId, int);
  ncclResult_t (*allreduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                            cudaStream_t);
  ncclResult_t (*async_error)(ncclComm_t, ncclResult_t *);
  ncclResult_t (*unique_id)(ncclUniqueId *);
  void (**hook)(void);
};
static struct calling calling;
static ncclComm_t calling_comm;

static void asks(void) {
  ncclResult_t error;
  check(calling.async_error(calling_comm, &error), "ncclCommGetAsyncError");
}

static void waits(void) {
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

static void plugs_in(void) {
  int (*use)(void);
  void *plugin = dlopen(getenv("PLUGIN"), RTLD_NOW);
  check(!plugin, "plug-in");
  *(void **)&use = dlsym(plugin, "plugin_use");
  check(use(), "plugin_use");
}

static void calls_again(void) {
  ncclUniqueId id;
  check(calling.unique_id(&id), "ncclGetUniqueId");
}

static int calls_inside(void) {
  void (*const hooks[])(void) = {asks, waits, plugs_in, calls_again};
  ncclUniqueId id = {{0}};
  void *nccl = dlopen(getenv("CALLING_NCCL"), RTLD_NOW);
  check(!nccl, "the calling NCCL");
  *(void **)&calling.init = dlsym(nccl, "ncclCommInitRank");
  *(void **)&calling.allreduce = dlsym(nccl, "ncclAllReduce");
  *(void **)&calling.async_error = dlsym(nccl, "ncclCommGetAsyncError");
  *(void **)&calling.unique_id = dlsym(nccl, "ncclGetUniqueId");
  *(void **)&calling.hook = dlsym(nccl, "calling_hook");
  check(calling.init(&calling_comm, 1, id, 0), "ncclCommInitRank");
  for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++) {
    *calling.hook = hooks[i];
    check(calling.allreduce(NULL, NULL, 101 + i, ncclFloat, ncclSum, calling_comm, NULL), "call");
  }
  return 0;
}

/* Where the system call by which a process reads its own memory is refused, NCCL's handle is found all the same. */
static int no_peeking(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog code = {sizeof filter / sizeof *filter, filter};
  check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges");
  check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &code), "seccomp");
  ncclComm_t comm = one_rank(), child = NULL;
  check(ncclGroupStart(), "start");
  check(ncclCommSplit(comm, 0, 0, &child, NULL), "split");
  check(ncclGroupEnd(), "end");
  check(allreduce(child, 3), "child");
  check(cudaStreamSynchronize(NULL), "sync");
  return 0;
}

static const struct named_case cases[] = {
    {"short-list", short_list},
    {"short-threads", short_threads},
    {"late-destructors", late_destructors},
    {"child-ends-thread", child_ends_thread},
    {"calls-inside", calls_inside},
    {"no-peeking", no_peeking},
};

int main(int argc, char **argv) {
  return RUN_CASE(cases, argc == 2 ? argv[1] : NULL);
}
