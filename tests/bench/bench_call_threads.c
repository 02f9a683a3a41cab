/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a traced call costs over the bare call when eight threads make calls at the same time, each on a communicator of
 * its own, beside what it costs in eight processes of one thread each, which share nothing.
 *
 * Measured is the processor time of each thread: it does not grow where threads wait for a processor, and does where one
 * processor waits for a cache line that another one writes. What processors share in any case, as two threads of one core
 * do, is the same for processes. How much that would be is shown by eight threads that
 * call on one communicator, and so count in the same words.
 *
 *   bench_call_threads                  prints NAME VALUE UNIT target VALUE ok|MISS lines
 *   bench_call_threads THREADS COMMS    prints the median nanoseconds of a call, and of a reading of the clock; COMMS 0:
 *                                     of so many processes
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"
#include "nccl/nccl_types.h"

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

/* So long a batch that threads are at it together, and so many calls a second that the helper keeps up. */
enum { MOST = 8, BATCH = 2000, ROUNDS = 20, TURNS = 5, A_SECOND = 200000 };

static int threads, comms;
static ncclComm_t handles[MOST];
static struct shared {
  double samples[MOST * ROUNDS];
  pthread_barrier_t together;
} * shared;

static double thread_ns(void) {
  struct timespec ts;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
  return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static void batch(ncclComm_t comm) {
  char *buffer = (char *)0x1000;
  for (int i = 0; i < BATCH; i++)
    ncclAllReduce(buffer, buffer + 4096 * (i % 200), 1024, ncclFloat32, ncclSum, comm, NULL);
}

static void *run_thread(void *word) {
  const int self = (int)(intptr_t)word;
  const ncclComm_t comm = handles[comms ? self % comms : 0];
  const long pause = 1000000000L / A_SECOND * BATCH * threads;
  for (int round = 0; round < ROUNDS; round++) {
    pthread_barrier_wait(&shared->together);
    const double start = thread_ns();
    batch(comm);
    shared->samples[self * ROUNDS + round] = (thread_ns() - start) / BATCH;
    pthread_barrier_wait(&shared->together);
    if (self == 0)
      nanosleep(&(struct timespec){0, pause}, NULL);
  }
  return NULL;
}

static bool make_comms(int count) {
  for (int i = 0; i < count; i++) {
    const ncclUniqueId id = {{(char)(i + 1)}};
    if (ncclCommInitRank(&handles[i], 8, id, i) != ncclSuccess)
      return false;
  }
  return true;
}

static bool run_all(void) {
  pthread_t started[MOST];
  if (!make_comms(comms))
    return false;
  for (intptr_t i = 0; i < threads; i++)
    if (pthread_create(&started[i], NULL, run_thread, (void *)i))
      return false;
  for (int i = 0; i < threads; i++)
    pthread_join(started[i], NULL);
  return true;
}

/* The same by processes. */
static bool fork_all(void) {
  for (intptr_t i = 0; i < threads; i++) {
    const pid_t pid = fork();
    if (pid < 0)
      return false;
    if (pid)
      continue;
    if (!make_comms(1))
      _exit(1);
    run_thread((void *)i);
    exit(0);
  }
  bool ran = true;
  for (int i = 0, status; i < threads; i++)
    ran &= wait(&status) > 0 && status == 0;
  return ran;
}

static int child(void) {
  pthread_barrierattr_t attributes;
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED)
    return 1;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->together, &attributes, (unsigned)threads);
  if (!(comms ? run_all() : fork_all()))
    return 1;
  printf("%.3f\n%.3f\n", median(shared->samples, threads * ROUNDS), clock_reading_ns());
  return 0;
}

enum mode { APART, EIGHT, SHARED, MODES };

static const char *const words[MODES] = {"8 0", "8 8", "8 1"};

/* The median of all turns, and of the clock's readings; false if a child did not run. */
static bool measure(const char *self, const char *library, const char *directory,
                    double over[MODES], double *reading) {
  double times[2][MODES][TURNS], readings[TURNS], values[2];
  char command[2048];
  for (int run = 0; run < TURNS * MODES * 2; run++) {
    const int traced = run % 2, mode = run / 2 % MODES, turn = run / 2 / MODES;
    snprintf(command, sizeof command, "NCCLTRACE_DIR='%s' LD_PRELOAD='%s' '%s' %s", directory,
             traced ? library : "", self, words[mode]);
    if (!numbers_of(command, values, 2))
      return false;
    times[traced][mode][turn] = values[0];
    readings[turn] = values[1];
  }
  for (int mode = 0; mode < MODES; mode++)
    over[mode] = median(times[1][mode], TURNS) - median(times[0][mode], TURNS);
  *reading = median(readings, TURNS);
  return true;
}

int main(int argc, char **argv) {
  double over[MODES], reading;
  char directory[] = "/tmp/nccltrace-bench-XXXXXX";
  if (argc == 3) {
    threads = atoi(argv[1]), comms = atoi(argv[2]);
    return threads < 1 || threads > MOST || comms < 0 || comms > MOST ? 2 : child();
  }
  const char *library = measured_library("bench_call_threads");
  if (!library)
    return 1;
  if (!mkdtemp(directory)) {
    perror("bench_call_threads: no temporary directory in /tmp");
    return 1;
  }
  const bool ran = measure(argv[0], library, directory, over, &reading);
  remove_tree(directory);
  if (!ran) {
    fprintf(stderr, "bench_call_threads: the measured program did not run\n");
    return 1;
  }
  int missed =
      report("call_allreduce_8_threads_over_bare", over[EIGHT], "ns", call_target_ns(reading));
  missed |=
      report("call_allreduce_8_threads_over_8_processes", over[EIGHT] / over[APART], "times", 1.25);
  printf("call_allreduce_8_threads_one_comm_over_bare %.2f ns target - ok\n", over[SHARED]);
  return missed;
}
