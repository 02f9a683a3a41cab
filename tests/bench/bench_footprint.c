/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the library takes beside the calls: memory, its threads' processor time, and what pace they keep.
 *
 *   bench_footprint                     prints NAME VALUE UNIT target VALUE ok|MISS lines
 *   bench_footprint pace CALLS SECONDS  CALLS a second with marks; prints resident KiB, what its own threads took of a
 *                                       processor, in percent, and how many calls that were
 *
 * Calls go to an NCCL that does nothing and a driver whose events have always happened, as in bench_call.c.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"
#include "nccl/nccl_types.h"
#include "trace/reader.h"

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

enum { PACE_TURNS = 3, PACE_SECONDS = 5, HIGHEST = 200000 };

/* ---- children ----------------------------------------------------------------------------------- */

static uint64_t first_number(const char *path, const char *key) {
  char line[256];
  uint64_t value = 0;
  FILE *file = fopen(path, "r");
  while (file && !value && fgets(line, sizeof line, file))
    if (!strncmp(line, key, strlen(key)))
      value = strtoull(line + strlen(key), NULL, 10);
  if (file)
    fclose(file);
  return value;
}

/* Nanoseconds on a processor of the threads that the library has started. */
static uint64_t own_threads_ns(void) {
  uint64_t sum = 0;
  DIR *tasks = opendir("/proc/self/task");
  for (struct dirent *entry; tasks && (entry = readdir(tasks));) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
    FILE *file = fopen(path, "r");
    bool own = file && fgets(name, sizeof name, file) && !strncmp(name, "nccltrace", 9);
    if (file)
      fclose(file);
    snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", entry->d_name);
    sum += own ? first_number(path, "") : 0;
  }
  if (tasks)
    closedir(tasks);
  return sum;
}

/* Calls come as a training step's do, some at once and then none for a while: a millisecond here. At a pace that cannot
 * be kept they are all made at once. A second more is made first, which is not measured: threads start then. */
static int pace(double calls, double seconds) {
  static char buffers[1 << 20];
  ncclUniqueId id = {{1}};
  ncclComm_t comm;
  if (!dlopen("libcuda.so.1", RTLD_NOW) || ncclCommInitRank(&comm, 8, id, 0) != ncclSuccess)
    return 1;
  double start = now_ns(), settled = 0, done = 0;
  uint64_t before = 0;
  while (now_ns() - start < (seconds + 1) * 1e9) {
    for (; done < fmin((now_ns() - start) * 1e-9, seconds + 1) * calls; done++)
      ncclAllReduce(buffers, buffers + ((size_t)done % 64) * 4096, 1024, ncclFloat32, ncclSum, comm,
                    NULL);
    nanosleep(&(struct timespec){0, 1000000}, NULL);
    if (!settled && now_ns() - start > 1e9) {
      before = own_threads_ns();
      settled = now_ns();
    }
  }
  double took = settled ? (double)(own_threads_ns() - before) / (now_ns() - settled) : 0;
  printf("%" PRIu64 " %.3f %.0f\n", first_number("/proc/self/status", "VmRSS:"), 100 * took, done);
  return 0;
}

/* ---- parent ------------------------------------------------------------------------------------- */

static const char *self, *library;
static char directory[] = "/tmp/nccltrace-bench-XXXXXX";
static char areas[] = "/dev/shm/nccltrace-bench-XXXXXX"; /* no other job's */

static bool ask(const char *words, bool traced, double *a, double *b, double *c) {
  char command[2048], line[128];
  snprintf(command, sizeof command, "NCCLTRACE_DIR='%s' LD_PRELOAD='%s' '%s' %s", directory,
           traced ? library : "", self, words);
  FILE *pipe = popen(command, "r");
  bool got = pipe && fgets(line, sizeof line, pipe);
  if (pipe)
    pclose(pipe);
  *a = *b = *c = 0;
  return got && sscanf(line, "%lf %lf %lf", a, b, c) >= 1;
}

/* Of the newest trace, which is removed: the calls that it counts as lost, and those that it has (with what was not drained
 * when its process ended). False if there is none. */
static bool count_calls(double *lost, double *recorded) {
  char path[sizeof directory + 32];
  struct nt_trace *trace;
  struct nt_error err;
  const struct nt_call *calls;
  snprintf(path, sizeof path, "%s/rank0.trace", directory);
  if (nt_trace_open(path, 0, &trace, &err))
    return false;
  const struct nt_process_info *info = nt_trace_process(trace);
  const int64_t count = nt_trace_calls(trace, &calls, &err);
  const bool counted = info && count >= 0;
  *lost = counted ? (double)info->lost : 0;
  *recorded = (double)count;
  nt_trace_close(trace);
  unlink(path);
  return counted;
}

static int paces(void) {
  static const struct {
    int calls;
    double percent;
  } rates[] = {{1000, 0.5}, {10000, 2}, {HIGHEST, 0}};
  double bare, unused, rss = 0, percent[PACE_TURNS], made, lost, recorded, lost_at_highest = 0;
  char words[64], name[64];
  int missed = 0;
  for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
    snprintf(words, sizeof words, "pace %d %d", rates[i].calls, PACE_SECONDS);
    for (int turn = 0; turn < PACE_TURNS; turn++) {
      if (!ask(words, true, &rss, &percent[turn], &made) || !count_calls(&lost, &recorded))
        return 1;
      lost_at_highest += rates[i].calls == HIGHEST ? lost : 0;
    }
    snprintf(name, sizeof name, "threads_at_%d_calls_a_second", rates[i].calls);
    if (rates[i].percent > 0)
      missed |= report(name, median(percent, PACE_TURNS), "%", rates[i].percent);
  }
  missed |= report("lost_at_200000_calls_a_second", lost_at_highest, "calls", 0);
  if (!ask("pace 200000 1", false, &bare, &unused, &unused))
    return 1;
  return missed | report("resident", (rss - bare) / 1024, "MiB", 16);
}

/* Above the pace that can be kept each call is in the trace or counted, and none is both. */
static int losses(void) {
  double unused, made, lost, recorded;
  setenv("NCCLTRACE_SIZE", "64M", 1); /* so that nothing is overwritten */
  if (!ask("pace 10000000 1", true, &unused, &unused, &made) || !count_calls(&lost, &recorded))
    return 1;
  printf("lost_at_full_speed %.1f %% target - ok\n", 100 * lost / made);
  const double creations = 1;
  return report("lost_at_full_speed_not_counted", fabs(made + creations - recorded - lost), "calls",
                0);
}

int main(int argc, char **argv) {
  if (argc == 4 && !strcmp(argv[1], "pace"))
    return pace(atof(argv[2]), atof(argv[3]));
  self = argv[0];
  library = getenv("NCCLTRACE_LIBRARY");
  if (!library || !mkdtemp(directory) || !mkdtemp(areas)) {
    fprintf(stderr,
            "bench_footprint: NCCLTRACE_LIBRARY must name the library, and /tmp and /dev/shm "
            "be writable\n");
    return 1;
  }
  setenv("NCCLTRACE_SHM", areas, 1);
  int missed = paces() | losses();
  remove_tree(directory);
  remove_tree(areas);
  return missed;
}
