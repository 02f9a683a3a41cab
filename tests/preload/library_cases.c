/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that a preloaded library could harm or misread, one per sub-command.
 *
 * Run by tests/cli/library.sh with and without libnccltrace.so preloaded, on the simulator. Each prints what
 * the script compares, and exits with 0 unless the case is about its exit.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl/nccl_types.h"

/* NCCL and the CUDA runtime, as far as the cases go. */
#define NT_FN(id, name, shape, params, args, fields) ncclResult_t nccl##name params;
#include "nccl/nccl_api.def"
int cudaSetDevice(int device);
int cudaMalloc(void **pointer, size_t size);
int cudaStreamCreate(cudaStream_t *stream);
int cudaStreamSynchronize(cudaStream_t stream);
int cudaMemcpy(void *to, const void *from, size_t size, int kind);

enum { COUNT = 16 };

static float *buffer;

static void check(int failed, const char *what) {
  if (!failed)
    return;
  printf("unexpected: %s\n", what);
  fflush(stdout);
  _exit(99);
}

static ncclComm_t one_rank(void) {
  ncclUniqueId id;
  ncclComm_t comm;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  check(ncclCommInitRank(&comm, 1, id, 0), "ncclCommInitRank");
  if (!buffer)
    check(cudaMalloc((void **)&buffer, COUNT * 16 * sizeof(float)), "cudaMalloc");
  return comm;
}

static ncclResult_t allreduce(ncclComm_t comm, size_t count) {
  return ncclAllReduce(buffer, buffer, count, ncclFloat32, ncclSum, comm, NULL);
}

/* No communicator: no thread, no area, no file. */
static int inert(void) {
  ncclUniqueId id;
  int threads = 0;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  DIR *dir = opendir("/proc/self/task");
  for (struct dirent *entry; (entry = readdir(dir));)
    threads += entry->d_name[0] != '.';
  closedir(dir);
  printf("threads %d\n", threads);
  return 0;
}

/* A refused call returns NCCL's own answer, leaves errno alone and takes no number. */
static int refused(void) {
  ncclComm_t comm = one_rank();
  check(allreduce(comm, 1), "first");
  errno = 77;
  ncclResult_t result = ncclAllReduce(buffer, buffer, 1, (ncclDataType_t)99, ncclSum, comm, NULL);
  printf("refused with %d errno %d\n", result, errno);
  check(allreduce(comm, 2), "second");
  check(cudaStreamSynchronize(NULL), "sync");
  return 0;
}

/* A group that NCCL refuses takes no numbers at all. */
static int discarded_group(void) {
  ncclComm_t comm = one_rank();
  check(ncclGroupStart(), "start");
  allreduce(comm, 3);
  ncclAllReduce(buffer, buffer, 1, (ncclDataType_t)99, ncclSum, comm, NULL);
  printf("group %s\n", ncclGroupEnd() == ncclSuccess ? "accepted" : "refused");
  check(allreduce(comm, 4), "after the group");
  check(cudaStreamSynchronize(NULL), "sync");
  return 0;
}

/* A group that is only simulated launches nothing, and takes no numbers. */
static int simulated_group(void) {
  ncclComm_t comm = one_rank();
  check(allreduce(comm, 1), "before the group");
  check(ncclGroupStart(), "start");
  check(allreduce(comm, 3), "in the group");
  check(ncclGroupSimulateEnd(NULL), "simulate");
  check(allreduce(comm, 4), "after the group");
  check(cudaStreamSynchronize(NULL), "sync");
  return 0;
}

/* The depth of groups is each thread's own: what another one calls meanwhile is in no group. */
static void *calls_alone(void *data) {
  check(allreduce(*(ncclComm_t *)data, 5), "another thread");
  return NULL;
}

static int nested_groups(void) {
  ncclComm_t comm = one_rank(), other = one_rank();
  pthread_t thread;
  check(ncclGroupStart(), "outer start");
  check(ncclGroupStart(), "inner start");
  check(allreduce(comm, 1), "inner");
  check(ncclGroupEnd(), "inner end");
  check(allreduce(comm, 2), "outer");
  check(pthread_create(&thread, NULL, calls_alone, &other), "create");
  pthread_join(thread, NULL);
  check(allreduce(comm, 3), "outer again");
  check(ncclGroupEnd(), "outer end");
  check(cudaStreamSynchronize(NULL), "sync");
  return 0;
}

/* ncclBcast calls ncclBroadcast inside NCCL: one call of the application's. */
static int nested(void) {
  ncclComm_t comm = one_rank();
  check(ncclBcast(buffer, COUNT, ncclFloat32, 0, comm, NULL), "bcast");
  check(cudaStreamSynchronize(NULL), "sync");
  return 0;
}

/* An application that closes every descriptor and opens others must find only its own bytes there. */
static int closes_descriptors(void) {
  ncclComm_t comm = one_rank();
  check(allreduce(comm, 1), "before");
  for (int fd = 3; fd < 1024; fd++)
    close(fd);
  int files[32];
  for (int i = 0; i < 32; i++) {
    char name[32];
    snprintf(name, sizeof(name), "checkpoint%d", i);
    files[i] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    check(write(files[i], "model", 5) != 5, "write");
  }
  for (int i = 0; i < 1000; i++)
    check(allreduce(comm, 1), "after");
  check(cudaStreamSynchronize(NULL), "sync");
  return 0;
}

/* A forked child is silent, and its end is not its parent's. */
static int forks(void) {
  ncclComm_t comm = one_rank();
  check(allreduce(comm, 1), "parent");
  pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 10; i++) {
      ncclGroupStart();
      ncclGroupEnd();
    }
    exit(5);
  }
  int status;
  check(waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 5, "child");
  pid_t quick = vfork();
  if (quick == 0)
    _exit(6);
  check(waitpid(quick, &status, 0) != quick || WEXITSTATUS(status) != 6, "vfork child");
  check(allreduce(comm, 2), "parent again");
  check(cudaStreamSynchronize(NULL), "sync");
  return 0;
}

/* A child that makes a communicator of its own is traced as a process of its own. */
static int fork_then_init(void) {
  pid_t child = fork();
  if (child == 0) {
    ncclComm_t comm = one_rank();
    check(allreduce(comm, 1), "child");
    check(cudaStreamSynchronize(NULL), "sync");
    exit(0);
  }
  int status;
  check(waitpid(child, &status, 0) != child || status, "child");
  return 0;
}

/* Calls of several threads, one of which ends while the process goes on. */
static void *thread_main(void *data) {
  ncclComm_t *comm = data;
  for (int i = 0; i < 10; i++)
    check(allreduce(*comm, 1), "thread");
  return NULL;
}

static int threads(void) {
  ncclComm_t comms[3];
  pthread_t ids[3];
  for (int i = 0; i < 3; i++)
    comms[i] = one_rank();
  for (int i = 0; i < 3; i++)
    check(pthread_create(&ids[i], NULL, thread_main, &comms[i]), "create");
  for (int i = 0; i < 3; i++)
    pthread_join(ids[i], NULL);
  check(allreduce(comms[0], 2), "main");
  check(cudaStreamSynchronize(NULL), "sync");
  return 0;
}

/* One process that is all ranks: its communicators are one, with a rank each. */
static int init_all(void) {
  ncclComm_t comms[2];
  float *buffers[2];
  cudaStream_t streams[2];
  check(ncclCommInitAll(comms, 2, NULL), "ncclCommInitAll");
  for (int i = 0; i < 2; i++) {
    check(cudaSetDevice(i), "device");
    check(cudaMalloc((void **)&buffers[i], 64 * sizeof(float)), "cudaMalloc");
    check(cudaStreamCreate(&streams[i]), "stream");
  }
  for (int turn = 0; turn < 3; turn++) {
    check(ncclGroupStart(), "start");
    for (int i = 0; i < 2; i++) {
      check(cudaSetDevice(i), "device");
      check(ncclAllReduce(buffers[i], buffers[i], 64, ncclFloat32, ncclSum, comms[i], streams[i]),
            "call");
    }
    check(ncclGroupEnd(), "end");
  }
  for (int i = 0; i < 2; i++) {
    check(cudaSetDevice(i), "device");
    check(cudaStreamSynchronize(streams[i]), "sync");
  }
  return 0;
}

/* A child communicator whose handle NCCL stores only at the end of the group is known all the same. */
static int split_in_group(void) {
  ncclComm_t comm = one_rank(), child = NULL;
  check(ncclGroupStart(), "start");
  check(ncclCommSplit(comm, 0, 0, &child, NULL), "split");
  check(ncclGroupEnd(), "end");
  check(allreduce(child, 3), "child");
  check(allreduce(comm, 1), "parent");
  check(cudaStreamSynchronize(NULL), "sync");
  return 0;
}

/* Communicators come and go without using up slots. */
static int many_comms(void) {
  for (int i = 0; i < 600; i++) {
    ncclComm_t comm = one_rank();
    check(allreduce(comm, 1), "call");
    check(cudaStreamSynchronize(NULL), "sync");
    check(ncclCommDestroy(comm), "destroy");
  }
  return 0;
}

/* A call left by longjmp is noted as such, and the thread's later calls are recorded. */
static int jumps(void) {
  ncclComm_t comm = one_rank();
  jmp_buf target;
  jmp_buf **jumping_target = dlsym(RTLD_DEFAULT, "jumping_target");
  check(!jumping_target, "the jumping interposer is not there");
  *jumping_target = &target;
  if (setjmp(target) == 0)
    allreduce(comm, 666);
  check(allreduce(comm, 5), "after the jump");
  check(cudaStreamSynchronize(NULL), "sync");
  return 0;
}

static __attribute__((noinline)) int end_from_below(int depth) {
  volatile char room[256];
  room[0] = (char)depth;
  return (depth > 0 ? end_from_below(depth - 1) : (int)ncclGroupEnd()) + room[0] - (char)depth;
}

/* The end of a group that is left so ends the group all the same. */
static int jumps_from_group(void) {
  ncclComm_t comm = one_rank();
  jmp_buf target;
  jmp_buf **jumping_target = dlsym(RTLD_DEFAULT, "jumping_target");
  int *from_groups = dlsym(RTLD_DEFAULT, "jumping_from_groups");
  check(!jumping_target || !from_groups, "the jumping interposer is not there");
  *jumping_target = &target;
  *from_groups = 1;
  check(ncclGroupStart(), "start");
  check(allreduce(comm, 4), "in the group");
  if (setjmp(target) == 0)
    end_from_below(4);
  *from_groups = 0;
  check(allreduce(comm, 5), "after the jump");
  check(cudaStreamSynchronize(NULL), "sync");
  return 0;
}

/* The same when the later calls come from deeper on the stack than the one that was left. */
static __attribute__((noinline)) int from_below(ncclComm_t comm, int depth) {
  volatile char room[256];
  room[0] = (char)depth;
  if (depth > 0)
    return from_below(comm, depth - 1) + room[0] - (char)depth;
  for (int i = 0; i < 100; i++)
    check(allreduce(comm, 5), "after the jump");
  return 0;
}

static int jumps_from_above(void) {
  ncclComm_t comm = one_rank();
  jmp_buf target;
  jmp_buf **jumping_target = dlsym(RTLD_DEFAULT, "jumping_target");
  check(!jumping_target, "the jumping interposer is not there");
  *jumping_target = &target;
  if (setjmp(target) == 0)
    allreduce(comm, 666);
  from_below(comm, 4);
  check(cudaStreamSynchronize(NULL), "sync");
  return 0;
}

/* Threads create communicators while the process forks: the children's own work. */
static _Atomic int stop_creating;

static void *create_for_ever(void *unused) {
  (void)unused;
  while (!stop_creating)
    check(ncclCommDestroy(one_rank()), "destroy");
  return NULL;
}

static int fork_while_creating(void) {
  pthread_t ids[3];
  one_rank();
  for (int i = 0; i < 3; i++)
    check(pthread_create(&ids[i], NULL, create_for_ever, NULL), "create");
  int bad = 0;
  for (int i = 0; i < 40; i++) {
    pid_t child = fork();
    if (child == 0) {
      alarm(20);
      ncclUniqueId id;
      ncclComm_t comm;
      _exit(ncclGetUniqueId(&id) != ncclSuccess ||
            ncclCommInitRank(&comm, 1, id, 0) != ncclSuccess);
    }
    int status;
    check(waitpid(child, &status, 0) != child, "wait");
    bad += status != 0;
  }
  stop_creating = 1;
  for (int i = 0; i < 3; i++)
    pthread_join(ids[i], NULL);
  printf("bad children %d\n", bad);
  return 0;
}

/* Another thread is inside the loader's list, whose lock a fork leaves locked in the child for ever. */
static _Atomic int inside_list;

static int stay_inside(struct dl_phdr_info *info, size_t size, void *unused) {
  (void)info;
  (void)size;
  (void)unused;
  inside_list = 1;
  while (inside_list)
    usleep(1000);
  return 1;
}

static void *read_list(void *unused) {
  dl_iterate_phdr(stay_inside, unused);
  return NULL;
}

static int fork_inside_list(void) {
  pthread_t reader;
  int status;
  one_rank();
  check(pthread_create(&reader, NULL, read_list, NULL), "create");
  while (!inside_list)
    usleep(1000);
  pid_t child = fork();
  if (child == 0) {
    alarm(10);
    allreduce(one_rank(), 5);
    _exit(0);
  }
  check(waitpid(child, &status, 0) != child, "wait");
  inside_list = 0;
  pthread_join(reader, NULL);
  printf("child ended with %x\n", (unsigned)status);
  return 0;
}

/* The other end of a pipe that the application closes sees its end, though the process lives on. */
static int closes_output(void) {
  check(allreduce(one_rank(), 1), "call");
  for (int fd = 0; fd < 3; fd++)
    close(fd);
  sleep(20);
  return 0;
}

/* Results with and without the library are compared bit by bit by the script. */
static int results(void) {
  ncclComm_t comm = one_rank();
  float host[COUNT];
  for (int i = 0; i < COUNT; i++)
    host[i] = 1.0f / (float)(i + 3);
  check(cudaMemcpy(buffer, host, sizeof(host), 1), "copy");
  check(allreduce(comm, COUNT), "allreduce");
  check(cudaStreamSynchronize(NULL), "sync");
  check(cudaMemcpy(host, buffer, sizeof(host), 2), "copy back");
  for (int i = 0; i < COUNT; i++)
    printf("%a\n", (double)host[i]);
  return 0;
}

/* A second copy of NCCL lies in the process, and nobody calls it. The first call is not NCCL's. */
static int other_copy(void) {
  check(cudaStreamSynchronize(NULL), "sync");
  check(!dlopen(getenv("OTHER_NCCL"), RTLD_NOW | RTLD_LOCAL), "open the other copy");
  check(allreduce(one_rank(), 1), "call");
  return 0;
}

static int leaves_by_exit(void) {
  check(allreduce(one_rank(), 1), "call");
  exit(3);
}

static int leaves_by_fast_exit(void) {
  check(allreduce(one_rank(), 1), "call");
  _exit(4);
}

static int leaves_by_quick_exit(void) {
  check(allreduce(one_rank(), 1), "call");
  quick_exit(7);
}

static int leaves_by_abort(void) {
  check(allreduce(one_rank(), 1), "call");
  abort();
}

/* The same again and again, while dumps are made. */
static int closes_while_dumped(void) {
  check(allreduce(one_rank(), 1), "call");
  for (int round = 0; round < 150; round++) {
    for (int fd = 3; fd < 128; fd++)
      close(fd);
    for (int i = 0; i < 8; i++) {
      char name[32], text[8] = "";
      snprintf(name, sizeof(name), "checkpoint%d", i);
      int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
      check(fd != 3 + i, "another's descriptor");
      check(write(fd, "model", 5) != 5, "write");
      usleep(2000);
      check(pread(fd, text, 5, 0) != 5 || strcmp(text, "model") != 0, "what was written");
    }
  }
  puts("own files only");
  return 0;
}

static const struct {
  const char *name;
  int (*run)(void);
} cases[] = {
    {"inert", inert},
    {"refused", refused},
    {"discarded-group", discarded_group},
    {"simulated-group", simulated_group},
    {"nested-groups", nested_groups},
    {"nested", nested},
    {"closes-descriptors", closes_descriptors},
    {"closes-while-dumped", closes_while_dumped},
    {"forks", forks},
    {"fork-then-init", fork_then_init},
    {"threads", threads},
    {"init-all", init_all},
    {"split-in-group", split_in_group},
    {"many-comms", many_comms},
    {"jumps", jumps},
    {"jumps-from-above", jumps_from_above},
    {"jumps-from-group", jumps_from_group},
    {"fork-while-creating", fork_while_creating},
    {"fork-inside-list", fork_inside_list},
    {"closes-output", closes_output},
    {"results", results},
    {"other-copy", other_copy},
    {"exit", leaves_by_exit},
    {"fast-exit", leaves_by_fast_exit},
    {"quick-exit", leaves_by_quick_exit},
    {"abort", leaves_by_abort},
};

int main(int argc, char **argv) {
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
    if (argc == 2 && !strcmp(argv[1], cases[i].name))
      return cases[i].run();
  fprintf(stderr, "library_cases: which case?\n");
  return 98;
}
