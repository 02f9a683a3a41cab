/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Self test of the simulator. The parent starts every case as sibling processes, one per rank, and
 * watches a letter per rank in shared memory. A case is over when the letters are the expected ones
 * and have not changed for a while if some rank is to hang, or when time is up. Several cases run at
 * a time: a hang costs nothing but time.
 */
#include "sim_selftest.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_RANKS 16
#define AT_ONCE 6
#define CALM 0.5   /* seconds without change after which a hang is believed */
#define LIMIT 40.0 /* seconds for a case */

struct shared {
  ncclUniqueId id[2];
  atomic_int met;
  _Atomic char letter[MAX_RANKS];
};

struct running {
  const struct st_case *c;
  struct shared *shared;
  int fd;
  pid_t pid[MAX_RANKS];
  char seen[MAX_RANKS + 1];
  double started, changed;
};

static struct shared *mine;
static int my_rank, my_size, meetings;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void st_pause(void) {
  struct timespec pause = {.tv_nsec = 1000000};
  nanosleep(&pause, NULL);
}

void st_fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "# rank %d: ", my_rank);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  atomic_store(&mine->letter[my_rank], 'F');
  _exit(1);
}

void st_meet(void) {
  meetings++;
  atomic_fetch_add(&mine->met, 1);
  ST_WAIT(atomic_load(&mine->met) >= meetings * my_size);
}

void *st_buffer(size_t bytes) {
  void *at;
  ST_CHECK(cudaMalloc(&at, bytes ? bytes : 1));
  ST_CHECK(cudaMemset(at, 0, bytes));
  return at;
}

/* One use of everything, so that no later call has to connect. */
static void warm_up(struct st_rank *t, ncclComm_t comm) {
  float *a = st_buffer(4096 * sizeof(float)), *b = st_buffer(4096 * sizeof(float));
  ST_CHECK(ncclAllReduce(a, b, 1, ncclFloat32, ncclSum, comm, t->stream));
  ST_CHECK(ncclAllReduce(a, b, 1024, ncclFloat32, ncclSum, comm, t->stream));
  ST_CHECK(ncclAlltoAll(a, b, 1, ncclFloat32, comm, t->stream));
  ST_CHECK(cudaStreamSynchronize(t->stream));
  ST_CHECK(cudaFree(a));
  ST_CHECK(cudaFree(b));
}

static void report_state(struct st_rank *t) {
  ncclResult_t error = ncclSuccess;
  bool idle = cudaStreamQuery(t->stream) == cudaSuccess && cudaStreamQuery(t->side) == cudaSuccess;
  if (t->comm)
    ncclCommGetAsyncError(t->comm, &error);
  atomic_store(&mine->letter[my_rank], idle                        ? 'D'
                                       : error == ncclRemoteError  ? 'R'
                                       : error == ncclInvalidUsage ? 'U'
                                                                   : 'H');
}

static int rank_main(const struct st_case *c, int rank, int fd) {
  mine = mmap(NULL, sizeof(*mine), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mine == MAP_FAILED)
    return 1;
  my_rank = rank;
  my_size = c->nranks;
  struct st_rank t = {
      .rank = rank, .nranks = c->nranks, .id = mine->id[0], .second_id = mine->id[1]};
  ST_CHECK(cudaSetDevice(rank % 8));
  ST_CHECK(cudaStreamCreateWithFlags(&t.stream, cudaStreamNonBlocking));
  ST_CHECK(cudaStreamCreateWithFlags(&t.side, cudaStreamNonBlocking));
  if (!c->cold) {
    ST_CHECK(ncclCommInitRank(&t.comm, c->nranks, t.id, rank));
    ST_CHECK(ncclCommInitRank(&t.other, c->nranks, t.second_id, rank));
    warm_up(&t, t.comm);
    warm_up(&t, t.other);
    st_meet();
  }
  atomic_store(&mine->letter[rank], 'C');
  c->body(&t);
  for (;;) {
    report_state(&t);
    st_pause();
  }
}

static void start_case(struct running *r, const struct st_case *c) {
  memset(r, 0, sizeof(*r));
  r->c = c;
  r->started = r->changed = now();
  r->fd = memfd_create("selftest", 0);
  if (r->fd < 0 || ftruncate(r->fd, sizeof(*r->shared)))
    exit(2);
  r->shared = mmap(NULL, sizeof(*r->shared), PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
  if (r->shared == MAP_FAILED || ncclGetUniqueId(&r->shared->id[0]) ||
      ncclGetUniqueId(&r->shared->id[1]))
    exit(2);
  for (int i = 0; i < c->nranks; i++) {
    char rank[16], fd[16];
    snprintf(rank, sizeof(rank), "%d", i);
    snprintf(fd, sizeof(fd), "%d", r->fd);
    r->pid[i] = fork();
    if (r->pid[i] == 0) {
      execl("/proc/self/exe", "sim_selftest", "--rank", c->name, rank, fd, (char *)NULL);
      _exit(127);
    }
  }
}

static bool look(struct running *r) {
  char letters[MAX_RANKS + 1] = "";
  for (int i = 0; i < r->c->nranks; i++) {
    int status;
    letters[i] = atomic_load(&r->shared->letter[i]);
    if (!letters[i])
      letters[i] = '.';
    if (r->pid[i] > 0 && waitpid(r->pid[i], &status, WNOHANG) == r->pid[i]) {
      r->pid[i] = 0;
      bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
      atomic_store(&r->shared->letter[i], clean ? 'X' : 'F');
    }
  }
  if (strcmp(letters, r->seen)) {
    strcpy(r->seen, letters);
    r->changed = now();
  }
  bool right = strcmp(letters, r->c->expect) == 0;
  bool settled = strspn(letters, "DX") == strlen(letters);
  return strchr(letters, 'F') || now() - r->started > LIMIT ||
         (right && (settled || now() - r->changed > CALM)) ||
         (!right && now() - r->changed > 10 * CALM && !strchr(letters, '.') && settled);
}

static bool end_case(struct running *r) {
  bool good = strcmp(r->seen, r->c->expect) == 0;
  for (int i = 0; i < r->c->nranks; i++) {
    if (r->pid[i] > 0)
      kill(r->pid[i], SIGKILL);
  }
  for (int i = 0; i < r->c->nranks; i++) {
    if (r->pid[i] > 0)
      waitpid(r->pid[i], NULL, 0);
  }
  munmap(r->shared, sizeof(*r->shared));
  close(r->fd);
  if (good)
    printf("ok %s\n", r->c->name);
  else
    printf("FAIL %s: expected %s, got %s\n", r->c->name, r->c->expect, r->seen);
  fflush(stdout);
  r->c = NULL;
  return good;
}

static const struct st_case *case_at(size_t index, const char *filter) {
  static const struct st_case *const lists[] = {st_data_cases, st_comm_cases, st_hang_cases};
  for (int l = 0; l < 3; l++) {
    for (const struct st_case *c = lists[l]; c->name; c++) {
      if ((!filter || strstr(c->name, filter)) && index-- == 0)
        return c;
    }
  }
  return NULL;
}

/* Every function of the interface must be a symbol of the library. */
static const void *const all_functions[] = {
#define NT_FN(id, name, shape, params, args, fields) (const void *)nccl##name,
#include "nccl/nccl_api.def"
};

static int run_cases(const char *filter) {
  struct running running[AT_ONCE] = {0};
  size_t next = 0;
  int passed = 0, failed = 0, active = 0;
  bool complete = true;
  for (size_t i = 0; i < sizeof(all_functions) / sizeof(all_functions[0]); i++)
    complete &= all_functions[i] != NULL;
  failed += !complete;
  do {
    active = 0;
    for (int i = 0; i < AT_ONCE; i++) {
      if (running[i].c && look(&running[i])) {
        if (end_case(&running[i]))
          passed++;
        else
          failed++;
      }
      const struct st_case *c = running[i].c ? NULL : case_at(next, filter);
      if (c) {
        start_case(&running[i], c);
        next++;
      }
      active += running[i].c != NULL;
    }
    st_pause();
  } while (active);
  printf("%d passed, %d failed\n", passed, failed);
  return failed ? 1 : 0;
}

int main(int argc, char **argv) {
  if (argc == 5 && strcmp(argv[1], "--rank") == 0) {
    for (size_t i = 0; case_at(i, NULL); i++) {
      if (strcmp(case_at(i, NULL)->name, argv[2]) == 0)
        return rank_main(case_at(i, NULL), atoi(argv[3]), atoi(argv[4]));
    }
    return 2;
  }
  return run_cases(argc > 1 ? argv[1] : NULL);
}
