/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long tracediff takes, and how much memory, for jobs that hang: by the last calls of each rank, which is what a user waits
 * for, and with all calls read.
 *
 * Layouts of tensor, pipeline and data parallelism, and the same with experts; traces in the page cache, two
 * processors. The best of some turns is the time, the most of all is the memory, and the verdict must be right. On a
 * machine that does other things the processor time tells more than the time that passed.
 */
#include <fcntl.h>
#include <libgen.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

enum { PROCESSORS = 2, SEVERAL = 7, FEW = 3 };

static const char culprit[] = "37", fault[] = "stop=37";

/* One line for each number: NAME_s and so on. */
struct job {
  const char *name, *layout[4], *operations;
  int turns;
  bool full;                       /* all calls are read */
  double seconds, busy, megabytes; /* targets */
};

static const struct job jobs[] = {
    {"tracediff_first_1024", {"8", "8", "16", "1"}, "2000", SEVERAL, false, 0.3, 0.6, 1024},
    {"tracediff_first_1024_experts", {"8", "4", "32", "4"}, "2000", SEVERAL, false, 0.3, 0.6, 1024},
    {"tracediff_first_4096", {"8", "8", "64", "1"}, "2000", FEW, false, 1, 2, 1024},
    {"tracediff_first_16384", {"8", "8", "256", "1"}, "600", FEW, false, 4, 8, 1024},
    {"tracediff_1024x2000", {"8", "8", "16", "1"}, "2000", SEVERAL, true, 2, 3, 256},
    {"tracediff_1024x2000_experts", {"8", "4", "32", "4"}, "2000", SEVERAL, true, 2, 3, 256},
};
enum { JOBS = sizeof jobs / sizeof *jobs };

struct result {
  double seconds, busy, megabytes; /* busy: processor time */
  int exit_code;
};

static void use_processors(int wanted) {
  cpu_set_t all, some;
  CPU_ZERO(&some);
  if (sched_getaffinity(0, sizeof all, &all) != 0)
    return;
  for (int i = 0, count = 0; i < CPU_SETSIZE && count < wanted; i++)
    if (CPU_ISSET(i, &all)) {
      CPU_SET(i, &some);
      count++;
    }
  sched_setaffinity(0, sizeof some, &some);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Runs a program with its output in `file`. */
static struct result run(char *const argv[], const char *file) {
  struct result result = {.exit_code = -1};
  struct rusage usage;
  int status;
  const double start = now();
  const pid_t child = fork();
  if (child == 0) {
    const int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    use_processors(PROCESSORS);
    if (fd >= 0 && dup2(fd, STDOUT_FILENO) >= 0)
      execv(argv[0], argv);
    _exit(127);
  }
  if (child < 0 || wait4(child, &status, 0, &usage) != child)
    return result;
  result.seconds = now() - start;
  result.busy = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  result.megabytes = (double)usage.ru_maxrss / 1024;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

/* The first finding: `culprit` never made the call at `seq` of its tensor-parallel communicator. */
static int is_right(const char *file, const char *seq) {
  json_t *report = json_load_file(file, 0, NULL);
  json_t *finding = json_array_get(json_object_get(report, "findings"), 0);
  const char *class = json_string_value(json_object_get(finding, "class"));
  const char *blame = json_string_value(json_object_get(finding, "blame"));
  const char *comm = json_string_value(json_object_get(json_object_get(finding, "comm"), "name"));
  const int right = class && blame && comm && !strcmp(class, "missing") &&
                    !strcmp(blame, culprit) && !strcmp(comm, "tp") &&
                    json_integer_value(json_object_get(finding, "seq")) == atoll(seq);
  json_decref(report);
  return right;
}

/* Makes the traces in `directory`; `seq` receives the position of the call that is left out. */
static int make_traces(const char *tools, const struct job *job, const char *directory,
                       const char *file, char *seq, size_t size) {
  char tool[600];
  snprintf(tool, sizeof tool, "%s/gen_job", tools);
  char *argv[] = {tool,
                  (char *)directory,
                  (char *)job->layout[0],
                  (char *)job->layout[1],
                  (char *)job->layout[2],
                  (char *)job->layout[3],
                  (char *)job->operations,
                  (char *)fault,
                  NULL};
  if (run(argv, file).exit_code != 0)
    return -1;
  FILE *in = fopen(file, "r");
  const int read = in && fgets(seq, (int)size, in) && seq[0] == '#';
  if (in)
    fclose(in);
  memmove(seq, seq + 1, strlen(seq));
  return read ? 0 : -1;
}

static void remove_directory(const char *directory) {
  char *argv[] = {"/bin/rm", "-rf", (char *)directory, NULL};
  run(argv, "/dev/null");
}

/* `job` is measured on traces of its own: those of the largest take a minute and 500 MB. */
static int measure(const char *tools, const char *root, const struct job *job, struct result *out,
                   int *right) {
  char traces[600], file[600], tool[600], seq[32] = "";
  snprintf(traces, sizeof traces, "%s/traces", root);
  snprintf(file, sizeof file, "%s/out", root);
  snprintf(tool, sizeof tool, "%s/../tracediff", tools);
  if (mkdir(traces, 0700) || make_traces(tools, job, traces, file, seq, sizeof seq))
    return -1;
  *out = (struct result){.seconds = 1e9, .busy = 1e9};
  char *argv[] = {tool, "--json", traces, job->full ? "--full" : NULL, NULL};
  for (int turn = 0; turn < job->turns; turn++) {
    const struct result result = run(argv, file);
    out->seconds = result.seconds < out->seconds ? result.seconds : out->seconds;
    out->busy = result.busy < out->busy ? result.busy : out->busy;
    out->megabytes = result.megabytes > out->megabytes ? result.megabytes : out->megabytes;
    if (result.exit_code != 1)
      return -1;
  }
  *right += is_right(file, seq);
  remove_directory(traces);
  return 0;
}

static int say(const char *name, const char *what, double value, const char *unit, double target,
               bool ok) {
  printf("%s_%s %.4g %s target %g %s\n", name, what, value, unit, target, ok ? "ok" : "MISS");
  fflush(stdout);
  return ok ? 0 : 1;
}

int main(int argc, char **argv) {
  char root[] = "/tmp/bench_tracediff-XXXXXX", own[512];
  int right = 0, missed = 0, failed = 0;
  (void)argc;
  snprintf(own, sizeof own, "%s", argv[0]);
  const char *tools = dirname(own);
  if (!mkdtemp(root)) {
    perror("bench_tracediff");
    return 1;
  }
  for (int i = 0; i < JOBS && !failed; i++) {
    struct result result;
    failed = measure(tools, root, &jobs[i], &result, &right);
    if (failed)
      break;
    missed |= say(jobs[i].name, "s", result.seconds, "s", jobs[i].seconds,
                  result.seconds <= jobs[i].seconds);
    missed |=
        say(jobs[i].name, "cpu_s", result.busy, "s", jobs[i].busy, result.busy <= jobs[i].busy);
    missed |= say(jobs[i].name, "mb", result.megabytes, "MB", jobs[i].megabytes,
                  result.megabytes <= jobs[i].megabytes);
  }
  remove_directory(root);
  if (failed) {
    fprintf(stderr, "bench_tracediff: gen_job or tracediff failed\n");
    return 1;
  }
  return missed | say("tracediff", "right", right, "verdicts", JOBS, right == JOBS);
}
