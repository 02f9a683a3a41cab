/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process whose main thread never comes back from a CUDA call, because a stream is blocked for ever.
 *
 *   blocked_driver cudaFree|cudaDeviceSynchronize|cuModuleLoadData|cuLaunchKernel
 *
 * One rank warms up a communicator, blocks its stream with a wait for a value that nobody writes, enqueues
 * an all-reduce behind it, prints "stuck in CALL", and makes the call. Links to NCCL and the CUDA runtime;
 * needs no header of theirs, the declarations below are their ABI. Ends with 1 if the call returns or anything fails
 * before it.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct {
  char internal[128];
} ncclUniqueId;

enum { FLOAT32 = 7, SUM = 0, NON_BLOCKING = 1, MAPPED = 2, WAIT_GEQ = 0, COUNT = 1024 };

int ncclGetUniqueId(ncclUniqueId *);
int ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
int ncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t);
int cudaSetDevice(int);
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaHostAlloc(void **, size_t, unsigned);
int cudaDeviceSynchronize(void);
int cudaStreamSynchronize(cudaStream_t);
int cudaStreamCreateWithFlags(cudaStream_t *, unsigned);

typedef int wait_value_fn(cudaStream_t, unsigned long long, uint32_t, unsigned);
typedef int load_fn(void **, const void *);
typedef int find_fn(void **, void *, const char *);
typedef int launch_fn(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      cudaStream_t, void **, void **);

static const char kernel[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                             ".visible .entry nothing()\n{\n  ret;\n}\n";

static ncclComm_t comm;
static cudaStream_t stream;
static void *from, *to, *spare, *word, *function;

/* Ends the caller's function with 1. */
#define TRY(call)                                                                                  \
  do {                                                                                             \
    int tried = (call);                                                                            \
    if (tried) {                                                                                   \
      fprintf(stderr, "blocked_driver: %s: error %d\n", #call, tried);                             \
      return 1;                                                                                    \
    }                                                                                              \
  } while (0)

static void *entry(const char *name) {
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
  return driver ? dlsym(driver, name) : NULL;
}

/* One rank, out of place: NCCL copies on the stream. */
static int reduce(void) {
  return ncclAllReduce(from, to, COUNT, FLOAT32, SUM, comm, stream);
}

static int set_up(void) {
  ncclUniqueId id;
  TRY(cudaSetDevice(0));
  TRY(cudaMalloc(&from, COUNT * 4));
  TRY(cudaMalloc(&to, COUNT * 4));
  TRY(cudaMalloc(&spare, COUNT * 4));
  TRY(cudaHostAlloc(&word, 64, MAPPED));
  memset(word, 0, 64);
  TRY(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
  TRY(ncclGetUniqueId(&id));
  TRY(ncclCommInitRank(&comm, 1, id, 0));
  TRY(reduce());
  TRY(cudaStreamSynchronize(stream));
  return 0;
}

static int block_stream(void) {
  wait_value_fn *wait_value;
  *(void **)&wait_value = entry("cuStreamWaitValue32_v2");
  TRY(!wait_value);
  TRY(wait_value(stream, (uintptr_t)word, 1, WAIT_GEQ));
  return 0;
}

static int load_module(void) {
  load_fn *load;
  find_fn *find;
  void *module;
  *(void **)&load = entry("cuModuleLoadData");
  *(void **)&find = entry("cuModuleGetFunction");
  TRY(!load || !find);
  TRY(load(&module, kernel));
  TRY(find(&function, module, "nothing"));
  return 0;
}

/* More launches than any queue holds. */
static int fill_queue(void) {
  launch_fn *launch;
  *(void **)&launch = entry("cuLaunchKernel");
  TRY(!launch);
  for (int i = 0; i < 1000000; i++)
    TRY(launch(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  return 0;
}

int main(int argc, char **argv) {
  const char *how = argc > 1 ? argv[1] : "cudaFree";
  TRY(set_up());
  if (!strcmp(how, "cuLaunchKernel"))
    TRY(load_module());
  TRY(block_stream());
  TRY(reduce());
  printf("stuck in %s\n", how);
  fflush(stdout);
  if (!strcmp(how, "cudaFree"))
    TRY(cudaFree(spare));
  else if (!strcmp(how, "cudaDeviceSynchronize"))
    TRY(cudaDeviceSynchronize());
  else if (!strcmp(how, "cuModuleLoadData"))
    TRY(load_module());
  else if (!strcmp(how, "cuLaunchKernel"))
    TRY(fill_queue());
  printf("%s returned\n", how);
  return 1;
}
