/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of cases share: each runs the case that its command line names, for a script that checks the trace. */
#ifndef CASES_H
#define CASES_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cuda_runtime.h"
#include "nccl.h"

/* Ends the process with 99 and a word to the script if something failed. */
static inline void check(int failed, const char *what) {
  if (!failed)
    return;
  printf("unexpected in process %d: %s: %d, %s\n", (int)getpid(), what, failed, strerror(errno));
  fflush(stdout);
  _exit(99);
}

/* The script looks now, and answers with a line. */
static inline void pause_for_script(const char *what) {
  char line[16];
  printf("%s\n", what);
  fflush(stdout);
  check(!fgets(line, sizeof line, stdin), "the script's answer");
}

/* On the device, made with the first communicator. */
enum { BUFFER_FLOATS = 1 << 18 };
__attribute__((unused)) static float *buffer;

/* A new communicator of this process alone. */
static inline ncclComm_t one_rank(void) {
  ncclUniqueId id;
  ncclComm_t comm;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  check(ncclCommInitRank(&comm, 1, id, 0), "ncclCommInitRank");
  if (!buffer)
    check(cudaMalloc((void **)&buffer, BUFFER_FLOATS * sizeof *buffer), "cudaMalloc");
  return comm;
}

struct named_case {
  const char *name;
  int (*run)(void); /* returns the exit status */
};

/* Its exit status, or 2 with a word on stderr. `name` may be NULL. */
static inline int run_case(const struct named_case *cases, size_t count, const char *name) {
  for (size_t i = 0; name && i < count; i++)
    if (!strcmp(name, cases[i].name))
      return cases[i].run();
  fprintf(stderr, "no case %s; there are:\n", name ? name : "is named");
  for (size_t i = 0; i < count; i++)
    fprintf(stderr, "  %s\n", cases[i].name);
  return 2;
}

#define RUN_CASE(cases, name) run_case(cases, sizeof(cases) / sizeof *(cases), name)

#endif
