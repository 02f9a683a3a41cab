/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the library takes beside the calls: its loading, memory, its threads' processor time, and what pace they keep.
 *
 *   bench_footprint                     prints NAME VALUE UNIT target VALUE ok|MISS lines
 *   bench_footprint load LIBRARY        opens the library, prints the microseconds that took
 *   bench_footprint pace CALLS SECONDS  CALLS a second with marks; prints resident KiB and what its own threads took of
 *                                       a processor, in percent
 *
 * Calls go to an NCCL that does nothing and a driver whose events have always happened, as in bench_call.c.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <inttypes.h>
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

enum { TURNS = 21, PACE_TURNS = 3, PACE_SECONDS = 5 };

/* ---- children ----------------------------------------------------------------------------------- */

static int load(const char *library) {
  double start = now_ns();
  if (!dlopen(library, RTLD_NOW))
    return 1;
  printf("%.1f\n", (now_ns() - start) / 1e3);
  return 0;
}

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

/* Calls come as a training step's do, some at once and then none for a while: a millisecond here. */
static int pace(double calls, double seconds) {
  static char buffers[1 << 20];
  ncclUniqueId id = {{1}};
  ncclComm_t comm;
  if (!dlopen("libcuda.so.1", RTLD_NOW) || ncclCommInitRank(&comm, 8, id, 0) != ncclSuccess)
    return 1;
  double start = now_ns(), done = 0;
  uint64_t before = own_threads_ns();
  while (now_ns() - start < seconds * 1e9) {
    for (; done < (now_ns() - start) * calls * 1e-9; done++)
      ncclAllReduce(buffers, buffers + ((size_t)done % 64) * 4096, 1024, ncclFloat32, ncclSum, comm,
                    NULL);
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  }
  double took = (double)(own_threads_ns() - before) / (now_ns() - start);
  printf("%" PRIu64 " %.3f\n", first_number("/proc/self/status", "VmRSS:"), 100 * took);
  return 0;
}

/* ---- parent ------------------------------------------------------------------------------------- */

static const char *self, *library;
static char directory[] = "/tmp/nccltrace-bench-XXXXXX";
static char areas[] = "/dev/shm/nccltrace-bench-XXXXXX"; /* no other job's */

static bool ask(const char *words, bool traced, double *a, double *b) {
  char command[2048], line[128];
  snprintf(command, sizeof command, "NCCLTRACE_DIR='%s' NCCLTRACE_SHM='%s' LD_PRELOAD='%s' '%s' %s",
           directory, areas, traced ? library : "", self, words);
  FILE *pipe = popen(command, "r");
  bool got = pipe && fgets(line, sizeof line, pipe);
  if (pipe)
    pclose(pipe);
  *a = *b = 0;
  return got && sscanf(line, "%lf %lf", a, b) >= 1;
}

/* Opening it, mapping and relocation included; without it in the page cache this would be the disk's time. */
static int loading(void) {
  char words[1100];
  double times[TURNS], unused;
  snprintf(words, sizeof words, "load '%s'", library);
  for (int i = 0; i < TURNS; i++)
    if (!ask(words, false, &times[i], &unused))
      return 1;
  return report("library_load", median(times, TURNS), "us", 1000);
}

/* What is mapped of the file: symbols and debug information are not. */
static int size(void) {
  Elf64_Ehdr header;
  double bytes = 0;
  FILE *file = fopen(library, "rb");
  if (!file || fread(&header, sizeof header, 1, file) != 1)
    return 1;
  for (int i = 0; i < header.e_phnum; i++) {
    Elf64_Phdr segment;
    fseek(file, (long)(header.e_phoff + (uint64_t)i * header.e_phentsize), SEEK_SET);
    if (fread(&segment, sizeof segment, 1, file) != 1)
      return 1;
    bytes += segment.p_type == PT_LOAD ? (double)segment.p_filesz : 0;
  }
  fclose(file);
  return report("library_size", bytes / (1 << 20), "MiB", 1.5);
}

/* Calls that the newest trace counts as lost; -1 if there is none. */
static double lost_calls(void) {
  char path[sizeof directory + 32];
  struct nt_trace *trace;
  struct nt_error err;
  snprintf(path, sizeof path, "%s/rank0.trace", directory);
  if (nt_trace_open(path, NT_OPEN_NO_AREA, &trace, &err))
    return -1;
  const struct nt_process_info *info = nt_trace_process(trace);
  double lost = info ? (double)info->lost : -1;
  nt_trace_close(trace);
  unlink(path);
  return lost;
}

static int paces(void) {
  static const struct {
    int calls;
    double percent;
  } rates[] = {{1000, 0.5}, {10000, 2}, {200000, 0}};
  double bare, unused, rss = 0, percent[PACE_TURNS], lost = 0;
  char words[64], name[64];
  int missed = 0;
  for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
    snprintf(words, sizeof words, "pace %d %d", rates[i].calls, PACE_SECONDS);
    for (int turn = 0; turn < PACE_TURNS; turn++) {
      if (!ask(words, true, &rss, &percent[turn]))
        return 1;
      const double gone = lost_calls();
      if (gone < 0)
        return 1;
      lost += rates[i].percent <= 0 ? gone : 0;
    }
    snprintf(name, sizeof name, "threads_at_%d_calls_a_second", rates[i].calls);
    if (rates[i].percent > 0)
      missed |= report(name, median(percent, PACE_TURNS), "%", rates[i].percent);
  }
  missed |= report("lost_at_200000_calls_a_second", lost, "calls", 0);
  if (!ask("pace 200000 1", false, &bare, &unused))
    return 1;
  return missed | report("resident", (rss - bare) / 1024, "MiB", 16);
}

int main(int argc, char **argv) {
  if (argc == 3 && !strcmp(argv[1], "load"))
    return load(argv[2]);
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
  int missed = loading() | size() | paces();
  remove_tree(directory);
  remove_tree(areas);
  return missed;
}
