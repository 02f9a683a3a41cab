/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of comm_cases: several devices, ranks and threads in one process; ids; many communicators. */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm_cases.h"

static ncclComm_t comms[DEVICES];

/* One operation on each device but `skipped`, in one group. */
static void round_of(int count, int skipped) {
  check(ncclGroupStart(), "start");
  for (int d = 0; d < count; d++)
    if (d != skipped)
      allreduce(comms[d], d);
  check(ncclGroupEnd(), "end");
}

static void destroy(int count) {
  for (int d = 0; d < count; d++)
    check(ncclCommDestroy(comms[d]), "destroy");
}

/* ---- one process is all ranks -------------------------------------------------------------------- */

static void all_devices(void) {
  check(ncclCommInitAll(comms, DEVICES, NULL), "init all");
  for (int i = 0; i < 3; i++)
    round_of(DEVICES, -1);
  for (int d = 0; d < DEVICES; d++)
    wait_for(d);
  destroy(DEVICES);
}

static void all_devices_skip(void) {
  check(ncclCommInitAll(comms, DEVICES, NULL), "init all");
  round_of(DEVICES, -1);
  round_of(DEVICES, -1);
  round_of(DEVICES, 2);
  for (int d = 0; d < DEVICES; d++)
    wait_for(d);
}

static void *of_one_device(void *arg) {
  int d = (int)(size_t)arg;
  for (int i = 0; i < 3; i++) {
    allreduce(comms[d], d);
    wait_for(d);
  }
  return NULL;
}

static void thread_a_device(void) {
  check(ncclCommInitAll(comms, 3, NULL), "init all");
  in_threads(3, of_one_device);
  destroy(3);
}

static void *of_one_device_skip(void *arg) {
  int d = (int)(size_t)arg;
  for (int i = 0; i < 3; i++) {
    if (i == 2 && d == 1)
      stay();
    allreduce(comms[d], d);
    wait_for(d);
  }
  return NULL;
}

static void thread_a_device_skip(void) {
  check(ncclCommInitAll(comms, 3, NULL), "init all");
  in_threads(3, of_one_device_skip);
}

/* Ranks of one communicator in one process, all of it excluded or split off by its own ranks. */
static void all_devices_derive(void) {
  ncclComm_t half[DEVICES], rest[DEVICES] = {NULL};
  int without[] = {1};
  check(ncclCommInitAll(comms, DEVICES, NULL), "init all");
  check(ncclGroupStart(), "start");
  for (int d = 0; d < DEVICES; d++)
    check(ncclCommSplit(comms[d], d % 2, -d, &half[d], NULL), "split");
  check(ncclGroupEnd(), "end");
  check(ncclGroupStart(), "start");
  for (int d = 0; d < DEVICES; d++)
    if (d != 1)
      check(ncclCommShrink(comms[d], without, 1, &rest[d], NULL, 0), "shrink");
  check(ncclGroupEnd(), "end");
  for (int i = 0; i < 2; i++) {
    check(ncclGroupStart(), "start");
    for (int d = 0; d < DEVICES; d++) {
      allreduce(half[d], d);
      if (rest[d])
        allreduce(rest[d], d);
    }
    check(ncclGroupEnd(), "end");
  }
  for (int d = 0; d < DEVICES; d++)
    wait_for(d);
}

/* ---- two ranks a process ------------------------------------------------------------------------- */

static void init_pair(int which) {
  ncclUniqueId id = same_id(which);
  check(ncclGroupStart(), "start");
  for (int d = 0; d < 2; d++) {
    check(cudaSetDevice(d), "device");
    check(ncclCommInitRank(&comms[d], 2 * procs, id, 2 * proc + d), "init");
  }
  check(ncclGroupEnd(), "end");
}

static void two_ranks(void) {
  init_pair(0);
  for (int i = 0; i < 3; i++)
    round_of(2, -1);
  wait_for(0);
  wait_for(1);
  destroy(2);
}

static void two_ranks_skip(void) {
  init_pair(0);
  round_of(2, -1);
  round_of(2, -1);
  wait_for(0);
  wait_for(1);
  meet();
  round_of(2, proc == 1 ? 1 : -1);
  wait_for(0);
  wait_for(1);
}

static void two_ranks_one_inits(void) {
  ncclUniqueId id = same_id(0);
  if (proc == 0)
    init_pair(0);
  else
    check(ncclCommInitRank(&comms[0], 2 * procs, id, 2), "init");
}

/* ---- threads ------------------------------------------------------------------------------------- */

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t next_turn = PTHREAD_COND_INITIALIZER;
static int turns;

static void *takes_turns(void *arg) {
  int own = (int)(size_t)arg;
  for (int i = 0; i < 25; i++) {
    pthread_mutex_lock(&turn);
    while (turns % 4 != own)
      pthread_cond_wait(&next_turn, &turn);
    float *buffer = buffer_of(0);
    check(ncclAllReduce(buffer, buffer + COUNT, (size_t)(turns + 1), ncclFloat, ncclSum, comms[0],
                        stream_of(0)),
          "allreduce");
    turns++;
    pthread_cond_broadcast(&next_turn);
    pthread_mutex_unlock(&turn);
  }
  return NULL;
}

static void threads_in_turns(void) {
  comms[0] = init_rank(0, procs, proc);
  in_threads(4, takes_turns);
  wait_for(0);
}

static void *with_its_own(void *arg) {
  int own = (int)(size_t)arg;
  ncclComm_t comm = init_rank(own, procs, proc);
  for (int i = 0; i < 10 + own; i++)
    allreduce(comm, own);
  wait_for(own);
  check(ncclCommDestroy(comm), "destroy");
  return NULL;
}

static void threads_of_their_own(void) {
  for (int i = 0; i < DEVICES; i++)
    same_id(i);
  in_threads(DEVICES, with_its_own);
}

/* One thread made it, another calls, a third destroys it while the second is in a call. */
static pthread_barrier_t step;

static void *calls_elsewhere(void *unused) {
  (void)unused;
  allreduce(comms[0], 0);
  wait_for(0);
  pthread_barrier_wait(&step);
  ncclResult_t state;
  for (int i = 0; i < 20000; i++)
    ncclCommGetAsyncError(comms[0], &state);
  return NULL;
}

static void destroyed_elsewhere(void) {
  for (int i = 0; i < 20; i++) {
    pthread_t thread;
    pthread_barrier_init(&step, NULL, 2);
    comms[0] = init_rank(0, 1, 0);
    check(pthread_create(&thread, NULL, calls_elsewhere, NULL), "thread");
    pthread_barrier_wait(&step);
    check(ncclCommDestroy(comms[0]), "destroy");
    check(pthread_join(thread, NULL), "join");
  }
}

/* ---- pointers and ids ---------------------------------------------------------------------------- */

static void pointer_reused(void) {
  ncclComm_t first = init_rank(0, procs, proc);
  allreduce(first, 0);
  wait_for(0);
  check(ncclCommDestroy(first), "destroy");
  meet();
  ncclComm_t second = init_rank(1, procs, proc);
  check(first != second, "another pointer");
  for (int i = 0; i < 2; i++)
    allreduce(second, 0);
  wait_for(0);
}

/* NCCL_COMM_ID: all ids are equal. */
static void equal_ids(void) {
  ncclUniqueId a = same_id(0), b = same_id(1);
  check(memcmp(&a, &b, sizeof(a)) != 0, "different ids");
  ncclComm_t first = init_rank(0, procs, proc), second = init_rank(1, procs, proc);
  allreduce(first, 0);
  allreduce(second, 0);
  allreduce(second, 0);
  wait_for(0);
}

/* Process 1 repeats what was refused, with the same id, while process 0 waits. */
static void init_repeated(void) {
  ncclUniqueId id = same_id(0);
  ncclComm_t comm;
  if (proc == 1) {
    check(ncclCommInitRank(&comm, procs, id, procs) != ncclInvalidArgument, "a rank too high");
    check(cudaSetDevice(0), "device");
    check(ncclCommInitRank(&comm, procs, id, -1) != ncclInvalidArgument, "a negative rank");
    check(ncclGroupStart(), "start");
    ncclCommInitRank(&comm, procs, id, 1);
    ncclCommInitRank(&comm, procs, id, -1);
    check(ncclGroupEnd() == ncclSuccess, "a group with a refused call");
  }
  check(ncclCommInitRank(&comm, procs, id, proc), "init");
  for (int i = 0; i < 2; i++)
    allreduce(comm, 0);
  wait_for(0);
}

/* Device 1 of process 1 claims the number of process 0's. */
static void rank_claimed_twice(void) {
  ncclUniqueId id = same_id(0);
  check(ncclCommInitRank(&comms[0], procs, id, proc == 2 ? 0 : proc), "init");
}

/* ---- many ---------------------------------------------------------------------------------------- */

static long rss_kb(void) {
  long pages = 0, resident = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  check(!f || fscanf(f, "%ld %ld", &pages, &resident) != 2, "statm");
  fclose(f);
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static int descriptors(void) {
  int count = 0;
  DIR *dir = opendir("/proc/self/fd");
  while (readdir(dir))
    count++;
  closedir(dir);
  return count;
}

static void one_cycle(ncclComm_t parent, int i) {
  ncclComm_t comm;
  if (i % 2)
    check(ncclCommSplit(parent, 0, 0, &comm, NULL), "split");
  else
    comm = alone();
  allreduce(comm, 0);
  wait_for(0);
  check(ncclCommDestroy(comm), "destroy");
}

static void cycles(void) {
  const char *text = getenv("CYCLES");
  int count = text ? atoi(text) : 10000;
  ncclComm_t parent = init_rank(0, 1, 0);
  for (int i = 0; i < count / 10; i++)
    one_cycle(parent, i);
  long before = rss_kb();
  int open_before = descriptors();
  for (int i = count / 10; i < count; i++)
    one_cycle(parent, i);
  printf("grown %ld kB, %d descriptors\n", rss_kb() - before, descriptors() - open_before);
}

/* More than have a slot, all alive; then others in the place of those that are gone. */
static void many_alive(void) {
  enum { ALIVE = 700 };
  static ncclComm_t alive[ALIVE];
  for (int turn_number = 0; turn_number < 2; turn_number++) {
    for (int i = 0; i < ALIVE; i++)
      alive[i] = init_rank(0, 1, 0);
    for (int k = 0; k < 2; k++)
      for (int i = 0; i < ALIVE; i++)
        allreduce(alive[i], 0);
    wait_for(0);
    for (int i = 0; i < ALIVE; i++)
      check(ncclCommDestroy(alive[i]), "destroy");
  }
  for (int i = 0; i < 50; i++)
    one_cycle(NULL, 0);
}

const struct comm_case comm_device_cases[] = {
    {"all-devices", all_devices, 1},
    {"all-devices-skip", all_devices_skip, 1},
    {"all-devices-derive", all_devices_derive, 1},
    {"thread-a-device", thread_a_device, 1},
    {"thread-a-device-skip", thread_a_device_skip, 1},
    {"two-ranks", two_ranks, 2},
    {"two-ranks-skip", two_ranks_skip, 2},
    {"two-ranks-one-inits", two_ranks_one_inits, 2},
    {"threads-in-turns", threads_in_turns, 2},
    {"threads-of-their-own", threads_of_their_own, 2},
    {"destroyed-elsewhere", destroyed_elsewhere, 1},
    {"pointer-reused", pointer_reused, 2},
    {"equal-ids", equal_ids, 2},
    {"init-repeated", init_repeated, 2},
    {"rank-claimed-twice", rank_claimed_twice, 3},
    {"cycles", cycles, 1},
    {"many-alive", many_alive, 1},
    {NULL, NULL, 0},
};
