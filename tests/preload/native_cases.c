/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs whose native stacks are taken, or that taking them could harm; one per sub-command. Run by
 * tests/cli/native_stacks.sh with the library preloaded, on the simulator.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl/nccl_types.h"

#define NT_FN(id, name, shape, params, args, fields) ncclResult_t nccl##name params;
#include "nccl/nccl_api.def"
int cudaMalloc(void **pointer, size_t size);
int cudaStreamSynchronize(cudaStream_t stream);

void train(void);
void train_step(void);
void call_without_unwind_info(void (*fn)(void));

static ncclComm_t comm;
static float *buffer;

static void check(int failed, const char *what) {
  if (!failed)
    return;
  printf("unexpected: %s\n", what);
  fflush(stdout);
  _exit(99);
}

static void begin(void) {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  check(ncclCommInitRank(&comm, 1, id, 0), "ncclCommInitRank");
  check(cudaMalloc((void **)&buffer, 4096), "cudaMalloc");
}

/* Frames that no optimisation folds into one. */
#define KEEP __asm__ volatile("" ::: "memory")

__attribute__((noinline)) void train_step(void) {
  check(ncclAllReduce(buffer, buffer, 16, ncclFloat32, ncclSum, comm, NULL), "ncclAllReduce");
  KEEP;
}

__attribute__((noinline)) void train(void) {
  for (int i = 0; i < 5; i++)
    train_step();
  KEEP;
}

/* A frame pointer and no word in .eh_frame: what code made at run time looks like. */
#if defined(__x86_64__)
__asm__(".text\n.globl call_without_unwind_info\n.type call_without_unwind_info,@function\n"
        "call_without_unwind_info: push %rbp\nmov %rsp, %rbp\ncall *%rdi\npop %rbp\nret\n"
        ".size call_without_unwind_info, . - call_without_unwind_info\n");
#else
__asm__(".text\n.globl call_without_unwind_info\n.type call_without_unwind_info,%function\n"
        "call_without_unwind_info: stp x29, x30, [sp, -16]!\nmov x29, sp\nblr x0\n"
        "ldp x29, x30, [sp], 16\nret\n"
        ".size call_without_unwind_info, . - call_without_unwind_info\n");
#endif

static __attribute__((noinline)) int stacks(void) {
  begin();
  train();
  check(cudaStreamSynchronize(NULL), "sync");
  return 0;
}

static void set_flag(void *flag) {
  *(int *)flag = 1;
}

static void *leaves_by_pthread_exit(void *flag) {
  pthread_cleanup_push(set_flag, flag);
  train_step();
  pthread_exit(NULL);
  pthread_cleanup_pop(0);
  return NULL;
}

static void *is_cancelled(void *flag) {
  pthread_cleanup_push(set_flag, flag);
  train_step();
  for (;;)
    pause();
  pthread_cleanup_pop(0);
  return NULL;
}

/* C++ exceptions through a module that is loaded after the stacks were begun, and threads that unwind. */
static int unwinds(void) {
  int exited = 0, cancelled = 0, caught = 0;
  pthread_t thread;
  begin();
  train();
  void *module = dlopen(getenv("NATIVE_THROWS"), RTLD_NOW | RTLD_LOCAL);
  int (*throw_and_catch)(void (*)(void)) = NULL;
  if (module)
    *(void **)&throw_and_catch = dlsym(module, "throw_and_catch");
  check(!throw_and_catch, "the module was not loaded");
  for (int i = 0; i < 200; i++)
    caught += throw_and_catch(train_step);
  check(pthread_create(&thread, NULL, leaves_by_pthread_exit, &exited), "pthread_create");
  pthread_join(thread, NULL);
  check(pthread_create(&thread, NULL, is_cancelled, &cancelled), "pthread_create");
  pthread_cancel(thread);
  pthread_join(thread, NULL);
  void *found = dlsym(RTLD_DEFAULT, "_Unwind_RaiseException");
  Dl_info info = {0};
  printf("caught %d exited %d cancelled %d unwinder %s\n", caught, exited, cancelled,
         !found || !dladdr(found, &info) || !strstr(info.dli_fname, "libunwind") ? "own" : "ours");
  return 0;
}

/* libunwind makes itself a pipe; an application that closes all descriptors opens files with the same numbers. */
static __attribute__((noinline)) int closes_descriptors(void) {
  enum { FILES = 32 };
  int files[FILES];
  char name[32], text[64] = "", wanted[] = "model of the application";
  begin();
  train();
  for (int fd = 3; fd < 1024; fd++)
    close(fd);
  for (int i = 0; i < FILES; i++) {
    snprintf(name, sizeof(name), "file%d", i);
    files[i] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    check(files[i] < 0 || write(files[i], wanted, sizeof(wanted)) < 0, "write");
    lseek(files[i], 3, SEEK_SET);
  }
  call_without_unwind_info(train_step);
  for (int i = 0; i < FILES; i++) {
    check(lseek(files[i], 0, SEEK_CUR) != 3, "a byte was read or written");
    check(lseek(files[i], 0, SEEK_END) != sizeof(wanted), "the length changed");
    check(pread(files[i], text, sizeof(text), 0) != sizeof(wanted) || strcmp(text, wanted),
          "the content changed");
  }
  check(cudaStreamSynchronize(NULL), "sync");
  puts("intact");
  return 0;
}

__attribute__((noinline)) static void *waits_for_bytes(void *unused) {
  static int pipes[2];
  char byte;
  check(pipe(pipes), "pipe");
  while (read(pipes[0], &byte, 1) < 0)
    ;
  return unused;
}

__attribute__((noinline)) static void *spins(void *unused) {
  static volatile int go_on = 1;
  while (go_on)
    ;
  return unused;
}

__attribute__((noinline)) static void *blocks_all_signals(void *unused) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
  for (;;)
    pause();
  return unused;
}

static void their_handler(int unused) {
  static const char text[] = "their handler was called\n";
  (void)unused;
  check(write(STDOUT_FILENO, text, sizeof(text) - 1) < 0, "write");
}

/* Takes all signals for itself once it is traced. Stays until it is killed. */
static int takes_signals(void (*handler)(int)) {
  begin();
  train();
  for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
    signal(number, handler);
  puts("ready");
  fflush(stdout);
  while (pause() < 0)
    ;
  return 0;
}

/* Stays until it is killed. */
static int threads(void) {
  void *(*const bodies[])(void *) = {waits_for_bytes, spins, blocks_all_signals};
  pthread_t thread;
  begin();
  train();
  check(cudaStreamSynchronize(NULL), "sync");
  for (int i = 0; i < 3; i++)
    check(pthread_create(&thread, NULL, bodies[i], NULL), "pthread_create");
  puts("ready");
  fflush(stdout);
  while (pause() < 0)
    ;
  return 0;
}

int main(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "";
  int status = 2;
  if (!strcmp(name, "stacks"))
    status = stacks();
  else if (!strcmp(name, "unwinds"))
    status = unwinds();
  else if (!strcmp(name, "closes-descriptors"))
    status = closes_descriptors();
  else if (!strcmp(name, "threads"))
    status = threads();
  else if (!strcmp(name, "resets-signals"))
    status = takes_signals(SIG_DFL);
  else if (!strcmp(name, "handles-signals"))
    status = takes_signals(their_handler);
  else
    fprintf(stderr, "usage: native_cases stacks|unwinds|closes-descriptors|threads|resets-signals|"
                    "handles-signals\n");
  KEEP;
  return status;
}
