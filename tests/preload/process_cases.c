/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that fork, exec, spawn, limit themselves and end in every way, for tests/cli/processes.sh and limits.sh, on
 * the simulator.
 *
 *     process_cases CASE [ARGUMENT]
 *
 * Each prints what the script compares, and exits with 0 unless the case is about its exit.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"

extern char **environ;

enum { COUNT = 1024 };

static char *program, *argument;

static ncclResult_t allreduce(ncclComm_t comm, size_t count) {
  return ncclAllReduce(buffer, buffer, count, ncclFloat, ncclSum, comm, NULL);
}

static void call_and_wait(ncclComm_t comm, size_t count) {
  check(allreduce(comm, count), "allreduce");
  check(cudaStreamSynchronize(NULL), "sync");
}

static int wait_for(pid_t child) {
  int status;
  check(child < 0, "no child");
  check(waitpid(child, &status, 0) != child, "wait");
  return status;
}

/* ---- children -------------------------------------------------------------------------------------- */

/* What a child does with what it has inherited, before it ends in one of seven ways. */
static void be_a_child(ncclComm_t comm, int way) {
  ncclResult_t error;
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclGroupStart();
  ncclGroupEnd();
  ncclCommGetAsyncError(comm, &error);
  allreduce(comm, 99);
  switch (way) {
  case 0:
    exit(0);
  case 1:
    _exit(0);
  case 2:
    quick_exit(0);
  case 3:
    abort();
  case 4:
    kill(getpid(), SIGKILL);
    break;
  case 5:
    execl("/bin/true", "true", (char *)NULL);
    break;
  default:
    syscall(SYS_exit_group, 0);
  }
  _exit(1);
}

static int children(void) {
  ncclComm_t comm = one_rank();
  call_and_wait(comm, 1);
  for (int way = 0; way < 7; way++) {
    pid_t child = fork();
    if (child == 0)
      be_a_child(comm, way);
    wait_for(child);
    call_and_wait(comm, 2);
  }
  pid_t quick = vfork();
  if (quick == 0) {
    execl("/bin/true", "true", (char *)NULL);
    _exit(1);
  }
  check(wait_for(quick), "vfork and exec");
  quick = vfork();
  if (quick == 0)
    _exit(0);
  check(wait_for(quick), "vfork and _exit");
  char *arguments[] = {"true", NULL};
  check(posix_spawn(&quick, "/bin/true", NULL, NULL, arguments, environ), "posix_spawn");
  check(wait_for(quick), "spawned");
  check(system("true"), "system");
  FILE *pipe = popen("true", "r");
  check(!pipe || pclose(pipe), "popen");
  call_and_wait(comm, 3);
  return 0;
}

/* As many as a data loader has workers, and more. */
static int fork_storm(void) {
  enum { CHILDREN = 300 };
  ncclComm_t comm = one_rank();
  pid_t child[CHILDREN];
  for (int i = 0; i < CHILDREN; i++) {
    child[i] = fork();
    if (child[i] == 0) {
      ncclGroupStart();
      ncclGroupEnd();
      exit(0);
    }
    check(allreduce(comm, 1), "allreduce");
  }
  for (int i = 0; i < CHILDREN; i++)
    check(wait_for(child[i]), "child");
  check(cudaStreamSynchronize(NULL), "sync");
  return 0;
}

static void *make_communicators(void *stop) {
  while (!*(_Atomic int *)stop) {
    ncclUniqueId id;
    ncclComm_t comm;
    check(ncclGetUniqueId(&id) || ncclCommInitRank(&comm, 1, id, 0) || ncclCommDestroy(comm),
          "comm");
  }
  return NULL;
}

/* Opens and closes a library, so that there are other objects for the next communicator. */
static void change_objects(void) {
  void *plugin = dlopen(argument, RTLD_NOW);
  check(!plugin || dlclose(plugin), argument);
}

/* A thread makes communicators while another one starts workers, each of which loads a library, as Python's do. */
static int workers_load(void) {
  static _Atomic int stop;
  pthread_t threads[2];
  for (int i = 0; i < 2; i++)
    check(pthread_create(&threads[i], NULL, make_communicators, &stop), "create");
  for (int i = 0; i < 200; i++) {
    change_objects();
    pid_t child = fork();
    if (child == 0) {
      alarm(10);
      change_objects();
      _exit(0);
    }
    check(wait_for(child), "a worker hangs in its dlopen");
  }
  stop = 1;
  for (int i = 0; i < 2; i++)
    check(pthread_join(threads[i], NULL), "join");
  return 0;
}

/* The group that NCCL refuses is the parent's and the child's. */
static int fork_in_group(void) {
  ncclComm_t comm = one_rank();
  check(ncclGroupStart(), "start");
  allreduce(comm, 3);
  ncclAllReduce(buffer, buffer, 1, (ncclDataType_t)99, ncclSum, comm, NULL);
  pid_t child = fork();
  if (child == 0)
    _exit(ncclGroupEnd() == ncclSuccess);
  check(wait_for(child), "the child's group was accepted");
  check(ncclGroupEnd() == ncclSuccess, "the group was accepted");
  call_and_wait(comm, 4);
  return 0;
}

/* A child that was forked in a group, ends it, and makes its own communicator in it. */
static int init_in_parents_group(void) {
  ncclComm_t comm = one_rank(), own;
  ncclUniqueId id;
  check(ncclGroupStart(), "start");
  check(allreduce(comm, 3), "allreduce");
  pid_t child = fork();
  if (child == 0) {
    alarm(20);
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    check(ncclCommInitRank(&own, 1, id, 0), "ncclCommInitRank");
    ncclGroupEnd();
    exit(0);
  }
  printf("child ended with %x\n", (unsigned)wait_for(child));
  check(ncclGroupEnd(), "end");
  call_and_wait(comm, 4);
  return 0;
}

/* An interposer forks inside a call of NCCL, and the call fails in the child. */
static int fork_in_call(void) {
  ncclComm_t comm = one_rank();
  call_and_wait(comm, 1);
  if (allreduce(comm, 777) != ncclSuccess)
    _exit(0);
  call_and_wait(comm, 2);
  return 0;
}

/* The same of a call for which there is no room: so many threads have a chunk of records each. */
static _Atomic unsigned held;

static void *holds_a_chunk(void *comm) {
  check(allreduce(comm, 1), "allreduce");
  held++;
  for (;;)
    pause();
  return NULL;
}

static void *forks_inside(void *comm) {
  if (allreduce(comm, 777) != ncclSuccess)
    _exit(0);
  return NULL;
}

static int fork_without_room(void) {
  enum { THREADS = 1500, STACK = 65536 };
  ncclComm_t comm = one_rank();
  pthread_attr_t small;
  pthread_t thread;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, STACK);
  for (unsigned i = 0; i < THREADS; i++) {
    check(pthread_create(&thread, &small, holds_a_chunk, comm), "create");
    while (held <= i)
      sched_yield();
  }
  check(pthread_create(&thread, NULL, forks_inside, comm), "create");
  check(pthread_join(thread, NULL), "join");
  call_and_wait(comm, 2);
  return 0;
}

/* A daemon: it outlives who started it, and makes its first communicator then. Its parent has one. */
static int daemonises(void) {
  int ends[2];
  char byte;
  call_and_wait(one_rank(), 1);
  check(pipe(ends), "pipe");
  if (fork() == 0) {
    setsid();
    if (fork() != 0)
      _exit(0);
    close(ends[1]);
    check(read(ends[0], &byte, 1) != 0, "the parent's end");
    call_and_wait(one_rank(), 2);
    exit(0);
  }
  wait(NULL);
  return 0;
}

/* Another program in this process, at once: the helper may not have made a file yet. */
static int execs(void) {
  ncclComm_t comm = one_rank();
  check(allreduce(comm, 5), "allreduce");
  if (argument)
    pause_for_script("called");
  execl(program, program, "calls-twice", (char *)NULL);
  return 99;
}

/* Itself again, as often as the argument says, each time when there is a file of it. */
static int execs_again(void) {
  const int left = atoi(argument);
  const char *turn = getenv("NT_TEST_TURN"), *directory = getenv("NCCLTRACE_DIR");
  const int now = turn ? atoi(turn) : 0;
  char path[4096], next[16], name[32] = "rank0.trace";
  call_and_wait(one_rank(), 5);
  if (!left)
    return 0;
  if (now)
    snprintf(name, sizeof name, "rank0.%d.trace", now);
  snprintf(path, sizeof path, "%s/%s", directory, name);
  while (access(path, F_OK) != 0)
    sched_yield();
  snprintf(next, sizeof next, "%d", now + 1);
  setenv("NT_TEST_TURN", next, 1);
  snprintf(next, sizeof next, "%d", left - 1);
  execl(program, program, "execs-again", next, (char *)NULL);
  return 99;
}

static int calls_twice(void) {
  ncclComm_t comm = one_rank();
  call_and_wait(comm, 6);
  call_and_wait(comm, 7);
  if (argument)
    pause_for_script("called");
  return 0;
}

/* In a pid namespace of its own a child can have its parent's number. */
static int same_number(void) {
  check(unshare(CLONE_NEWPID), "unshare");
  pid_t first = fork();
  if (first == 0) {
    check(getpid() != 1, "number");
    ncclComm_t comm = one_rank();
    call_and_wait(comm, 1);
    check(unshare(CLONE_NEWPID), "unshare");
    pid_t second = fork();
    if (second == 0) {
      check(getpid() != 1, "number");
      check(allreduce(one_rank(), 2),
            "allreduce"); /* the simulator takes this child for its parent */
      exit(0);
    }
    check(wait_for(second), "second");
    call_and_wait(comm, 3);
    exit(0);
  }
  check(wait_for(first), "first");
  return 0;
}

/* ---- threads that are cancelled or end inside ------------------------------------------------------- */

/* The first cancellation point that the thread meets is in the making of a communicator. */
static void *cancelled_while_creating(void *unused) {
  ncclUniqueId id;
  ncclComm_t comm;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  pthread_cancel(pthread_self());
  ncclCommInitRank(&comm, 1, id, 0);
  pthread_testcancel();
  return unused;
}

static int cancelled(void) {
  pthread_t thread;
  void *result;
  alarm(20);
  check(pthread_create(&thread, NULL, cancelled_while_creating, NULL), "create");
  check(pthread_join(thread, &result), "join");
  printf("%s\n", result == PTHREAD_CANCELED ? "cancelled" : "went on");
  buffer = NULL;
  call_and_wait(one_rank(), 1);
  return 0;
}

static void *ends_inside(void *comm) {
  allreduce(comm, 555);
  return NULL;
}

static int thread_ends_inside(void) {
  pthread_t thread;
  ncclComm_t comm = one_rank();
  check(pthread_create(&thread, NULL, ends_inside, comm), "create");
  check(pthread_join(thread, NULL), "join");
  call_and_wait(comm, 1);
  return 0;
}

/* ---- ends ------------------------------------------------------------------------------------------- */

static void *exits_from_thread(void *comm) {
  call_and_wait(comm, 2);
  exit(5);
}

static int thread_exits(void) {
  pthread_t thread;
  ncclComm_t comm = one_rank();
  call_and_wait(comm, 1);
  check(pthread_create(&thread, NULL, exits_from_thread, comm), "create");
  pthread_join(thread, NULL);
  return 99;
}

static _Atomic int calls_made;

static void *calls_for_ever(void *comm) {
  while (allreduce(comm, 1) == ncclSuccess)
    calls_made++;
  return NULL;
}

/* main returns, handlers and destructors run, and threads go on calling NCCL until they are gone. */
static int returns_while_called(void) {
  pthread_t thread;
  for (int i = 0; i < 3; i++)
    check(pthread_create(&thread, NULL, calls_for_ever, one_rank()), "create");
  while (calls_made < 100)
    sched_yield();
  return 6;
}

static ncclComm_t kept;

static void calls_at_the_end(void) {
  call_and_wait(kept, 8);
  check(ncclCommDestroy(kept), "destroy");
}

/* Registered before the first communicator: it runs after all of ours. */
static int handler_calls(void) {
  atexit(calls_at_the_end);
  kept = one_rank();
  call_and_wait(kept, 1);
  return 0;
}

static int quick_handler_calls(void) {
  at_quick_exit(calls_at_the_end);
  kept = one_rank();
  call_and_wait(kept, 1);
  quick_exit(0);
}

static int throws(void) {
  void *module = dlopen(argument, RTLD_NOW);
  void (*leave)(void) = NULL;
  call_and_wait(one_rank(), 1);
  if (module)
    *(void **)&leave = dlsym(module, "throw_uncaught");
  check(!leave, "module");
  leave();
  return 0;
}

static int crashes(void) {
  call_and_wait(one_rank(), 1);
  raise(SIGSEGV);
  return 0;
}

/* ---- limits ----------------------------------------------------------------------------------------- */

/* No descriptor is left when the first communicator is made. */
static int no_descriptors(void) {
  struct rlimit before, none;
  check(getrlimit(RLIMIT_NOFILE, &before), "getrlimit");
  check(cudaMalloc((void **)&buffer, COUNT * sizeof(float)), "cudaMalloc");
  ncclUniqueId id;
  ncclComm_t comm;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  int next = dup(0);
  close(next);
  none = before;
  none.rlim_cur = (rlim_t)next + (argument ? (rlim_t)atoi(argument) : 0);
  check(setrlimit(RLIMIT_NOFILE, &none), "setrlimit");
  ncclResult_t result = ncclCommInitRank(&comm, 1, id, 0);
  check(setrlimit(RLIMIT_NOFILE, &before), "setrlimit");
  printf("%s\n", result == ncclSuccess ? "created" : "refused");
  if (result == ncclSuccess)
    call_and_wait(comm, 1);
  return 0;
}

/* The library begins while files may have next to no size: with a call that NCCL refuses, since the simulator has files of
 * its own. */
static int small_files(void) {
  struct rlimit before, small;
  ncclUniqueId id;
  ncclComm_t comm;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  check(getrlimit(RLIMIT_FSIZE, &before), "getrlimit");
  small = before;
  small.rlim_cur = (rlim_t)atoi(argument) * 1024;
  check(setrlimit(RLIMIT_FSIZE, &small), "setrlimit");
  check(ncclCommInitRank(&comm, 1, id, 7) == ncclSuccess, "a rank beyond the size was accepted");
  check(setrlimit(RLIMIT_FSIZE, &before), "setrlimit");
  for (int i = 0; i < 100; i++)
    call_and_wait(one_rank(), 1);
  return 0;
}

/* System calls with these numbers fail with `error` from here on; of clone, only for threads; of madvise, only the
 * advice that a fork wipe the page. */
static void forbid(int error, long first, long second) {
  enum { NR = offsetof(struct seccomp_data, nr), ARG0 = offsetof(struct seccomp_data, args[0]) };
  enum { ARG2 = offsetof(struct seccomp_data, args[2]) };
  const unsigned refuse = SECCOMP_RET_ERRNO | (unsigned)error;
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NR),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)first, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)second, 0, 8),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARG2),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_WIPEONFORK, 4, 5),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARG0),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 2),
      BPF_STMT(BPF_MISC | BPF_TAX, 0),
      BPF_STMT(BPF_RET | BPF_K, refuse),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog code = {sizeof filter / sizeof *filter, filter};
  check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges");
  check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &code), "seccomp");
}

/* clone3 is not there, so that the C library asks by clone, which makes no threads. */
static int no_threads(void) {
  ncclUniqueId id;
  ncclComm_t comm;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  forbid(ENOSYS, SYS_clone3, SYS_clone3);
  forbid(EAGAIN, SYS_clone, SYS_clone);
  printf("%s\n", ncclCommInitRank(&comm, 1, id, 0) == ncclSuccess ? "created" : "refused");
  return 0;
}

/* A kernel that does not wipe pages at fork. */
static int no_wiping(void) {
  forbid(EINVAL, SYS_madvise, SYS_madvise);
  return children();
}

static int shared_descriptors(void) {
  ncclComm_t comm;
  char name[32];
  forbid(EPERM, SYS_close_range, SYS_unshare);
  comm = one_rank();
  alarm(30);
  while (fcntl(1023, F_GETFD) <
         0) /* where the helper has its file when it is done with all others */
    sched_yield();
  for (int i = 0; i < 100; i++)
    call_and_wait(comm, 1);
  for (int round = 0; round < 50; round++) {
    int files[16];
    for (int fd = 3; fd < 128; fd++)
      close(fd);
    for (int i = 0; i < 16; i++) {
      snprintf(name, sizeof name, "checkpoint%d", i);
      files[i] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
      check(write(files[i], "model", 5) != 5, "write");
    }
    for (int i = 0; i < 50; i++)
      check(allreduce(comm, 1), "allreduce");
    check(cudaStreamSynchronize(NULL), "sync");
    for (int i = 0; i < 16; i++)
      check(lseek(files[i], 0, SEEK_END) != 5, "somebody wrote into a checkpoint");
  }
  puts("own files only");
  return 0;
}

/* All descriptors go at once, and a file of the application takes the place of every one. */
static int replaces_descriptors(void) {
  ncclComm_t comm = one_rank();
  struct rlimit limit;
  call_and_wait(comm, 1);
  check(getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
  limit.rlim_cur = limit.rlim_max < 1 << 20 ? limit.rlim_max : 1 << 20;
  check(setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
  for (int fd = 3; fd < (int)limit.rlim_cur; fd++)
    close(fd);
  int file = open("checkpoint", O_RDWR | O_CREAT | O_TRUNC, 0600);
  check(write(file, "model", 5) != 5, "write");
  for (int fd = 0; fd < 1000; fd++)
    if (fd != 1 && fd != 2 && fd != file)
      check(dup2(file, fd) != fd, "dup2");
  for (int i = 0; i < 1000; i++)
    call_and_wait(comm, 1);
  check(lseek(file, 0, SEEK_END) != 5, "somebody wrote into the checkpoint");
  return 0;
}

/* Long after the start: elsewhere, with another mask, and then as another user. */
static int late(void) {
  check(chdir("/"), "chdir");
  umask(0177);
  ncclComm_t comm = one_rank();
  call_and_wait(comm, 1);
  if (geteuid() == 0) {
    check(setgid(65534), "setgid");
    check(setuid(65534), "setuid");
  }
  for (int i = 0; i < 100; i++)
    call_and_wait(comm, 2);
  return 0;
}

/* Calls while the script looks at, removes or fills what the library writes to. */
static int watched(void) {
  ncclComm_t comm = one_rank();
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 100; i++)
      call_and_wait(comm, 1);
    pause_for_script("called");
  }
  return 0;
}

/* A thread that calls seldom, for longer than the helper takes to look who is still there, beside one that calls often and
 * takes every chunk that is free. */
static _Atomic int stop_calling;

static void *calls_often(void *comm) {
  const struct timespec pause = {0, 50000};
  while (!stop_calling) {
    check(allreduce(comm, 1), "allreduce");
    nanosleep(&pause, NULL);
  }
  return NULL;
}

static int goes_on(void) {
  enum { CALLS = 130 };
  const struct timespec pause = {0, 10000000};
  pthread_t thread;
  ncclComm_t comm = one_rank();
  check(pthread_create(&thread, NULL, calls_often, one_rank()), "create");
  for (int i = 0; i < CALLS; i++) {
    check(allreduce(comm, 2), "allreduce");
    nanosleep(&pause, NULL);
  }
  stop_calling = 1;
  check(pthread_join(thread, NULL), "join");
  check(cudaStreamSynchronize(NULL), "sync");
  return 0;
}

/* A handler of its own on every signal: those stay, and each signal still comes to it. */
static volatile sig_atomic_t caught;

static void catch (int number) {
  (void)number;
  caught++;
}

static int all_signals(void) {
  int taken = 0;
  for (int number = 1; number <= SIGRTMAX; number++)
    signal(number, catch);
  ncclComm_t comm = one_rank();
  call_and_wait(comm, 1);
  for (int number = 1; number <= SIGRTMAX; number++) {
    struct sigaction now;
    if (number == SIGKILL || number == SIGSTOP || sigaction(number, NULL, &now) != 0)
      continue;
    taken += now.sa_handler != catch;
    raise(number);
  }
  printf("taken %d caught %d\n", taken, (int)caught);
  call_and_wait(comm, 2);
  return 0;
}

/* What a process shows of us: threads, signals caught, blocked and ignored, mappings that are ours, descriptors. */
static int looks_at_itself(void) {
  char line[512];
  FILE *file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file))
    if ((!strncmp(line, "Sig", 3) && line[3] != 'Q') || !strncmp(line, "Threads", 7))
      fputs(line, stdout);
  fclose(file);
  file = fopen("/proc/self/maps", "r");
  while (file && fgets(line, sizeof line, file))
    if (strstr(line, ".area") || strstr(line, "memfd"))
      fputs(line, stdout);
  fclose(file);
  int descriptors = 0;
  DIR *dir = opendir("/proc/self/fd");
  while (dir && readdir(dir))
    descriptors++;
  printf("descriptors %d\n", descriptors);
  return 0;
}

static const struct named_case cases[] = {
    {"children", children},
    {"fork-storm", fork_storm},
    {"workers-load", workers_load},
    {"fork-in-group", fork_in_group},
    {"init-in-parents-group", init_in_parents_group},
    {"fork-in-call", fork_in_call},
    {"fork-without-room", fork_without_room},
    {"daemon", daemonises},
    {"execs", execs},
    {"execs-again", execs_again},
    {"calls-twice", calls_twice},
    {"same-number", same_number},
    {"cancelled", cancelled},
    {"thread-ends-inside", thread_ends_inside},
    {"thread-exits", thread_exits},
    {"returns-while-called", returns_while_called},
    {"handler-calls", handler_calls},
    {"quick-handler-calls", quick_handler_calls},
    {"throws", throws},
    {"crashes", crashes},
    {"no-descriptors", no_descriptors},
    {"small-files", small_files},
    {"no-threads", no_threads},
    {"no-wiping", no_wiping},
    {"shared-descriptors", shared_descriptors},
    {"replaces-descriptors", replaces_descriptors},
    {"late", late},
    {"watched", watched},
    {"goes-on", goes_on},
    {"all-signals", all_signals},
    {"looks-at-itself", looks_at_itself},
};

int main(int argc, char **argv) {
  program = argv[0];
  argument = argc > 2 ? argv[2] : NULL;
  return RUN_CASE(cases, argc >= 2 ? argv[1] : NULL);
}
