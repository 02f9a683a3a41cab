/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long tracediff takes, and how much memory, for a job of 1,024 ranks that hangs after 2,000 operations.
 *
 * Two layouts (tensor, pipeline and data parallelism; the same with experts), traces in the page cache, two
 * processors. The best of some turns is the time, the most of all is the memory, and the verdict must be right. On a
 * machine that does other things the processor time tells more than the time that passed.
 */
#include <fcntl.h>
#include <libgen.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

enum { LAYOUTS = 2, TURNS = 7, PROCESSORS = 2 };

static const char *const layouts[LAYOUTS][4] = {{"8", "8", "16", "1"}, {"8", "4", "32", "4"}};
static const char operations[] = "2000", culprit[] = "37", fault[] = "stop=37";

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
static int make_traces(const char *tools, const char *const layout[4], const char *directory,
                       const char *file, char *seq, size_t size) {
  char tool[600];
  snprintf(tool, sizeof tool, "%s/gen_job", tools);
  char *argv[] = {tool,
                  (char *)directory,
                  (char *)layout[0],
                  (char *)layout[1],
                  (char *)layout[2],
                  (char *)layout[3],
                  (char *)operations,
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

static int measure(const char *tools, const char *root, const char *const layout[4],
                   struct result *worst, int *right) {
  char traces[600], file[600], tool[600], seq[32] = "";
  snprintf(traces, sizeof traces, "%s/traces", root);
  snprintf(file, sizeof file, "%s/out", root);
  snprintf(tool, sizeof tool, "%s/../tracediff", tools);
  if (mkdir(traces, 0700) || make_traces(tools, layout, traces, file, seq, sizeof seq))
    return -1;
  double best = 1e9, least = 1e9;
  char *argv[] = {tool, "--json", traces, NULL};
  for (int turn = 0; turn < TURNS; turn++) {
    const struct result result = run(argv, file);
    best = result.seconds < best ? result.seconds : best;
    least = result.busy < least ? result.busy : least;
    worst->megabytes = result.megabytes > worst->megabytes ? result.megabytes : worst->megabytes;
    if (result.exit_code != 1)
      return -1;
  }
  worst->seconds = best > worst->seconds ? best : worst->seconds;
  worst->busy = least > worst->busy ? least : worst->busy;
  *right += is_right(file, seq);
  remove_directory(traces);
  return 0;
}

static int say(const char *name, double value, const char *unit, double target, int ok) {
  printf("tracediff_1024x2000_%s %.4g %s target %g %s\n", name, value, unit, target,
         ok ? "ok" : "MISS");
  return ok ? 0 : 1;
}

int main(int argc, char **argv) {
  char root[] = "/tmp/bench_tracediff-XXXXXX", own[512];
  struct result worst = {0};
  int right = 0, status = 0;
  (void)argc;
  snprintf(own, sizeof own, "%s", argv[0]);
  const char *tools = dirname(own);
  if (!mkdtemp(root)) {
    perror("bench_tracediff");
    return 1;
  }
  for (int i = 0; i < LAYOUTS && !status; i++)
    status = measure(tools, root, layouts[i], &worst, &right);
  remove_directory(root);
  if (status) {
    fprintf(stderr, "bench_tracediff: gen_job or tracediff failed\n");
    return 1;
  }
  status = say("s", worst.seconds, "s", 2, worst.seconds <= 2);
  status |= say("cpu_s", worst.busy, "s", 3, worst.busy <= 3);
  status |= say("mb", worst.megabytes, "MB", 256, worst.megabytes <= 256);
  status |= say("right", right, "verdicts", LAYOUTS, right == LAYOUTS);
  return status;
}
