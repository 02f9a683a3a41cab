/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long tracediff takes, and how much memory, for jobs that hang: by the last calls of each rank, which is what a user waits
 * for, and with all calls read.
 *
 * Layouts of tensor, pipeline and data parallelism, and the same with experts; traces in the page cache, two
 * processors. The best of some turns is the time, the most of all is the memory, and the verdict must be right. On a
 * machine that does other things the processor time tells more than the time that passed. Once more the time is taken with
 * traces that are not in the page cache.
 *
 * With the word "large": a job whose calls do not fit into memory, one of which differs half-way. Its traces are 2.4 GB in
 * $TMPDIR.
 */
#include <dirent.h>
#include <fcntl.h>
#include <libgen.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
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

static const char culprit[] = "37", fault[] = "stop=37", other[] = "1234", differs[] = "other=1234";

/* One line for each number: NAME_s and so on. */
struct job {
  const char *name, *layout[4], *operations;
  int turns;
  bool full;                       /* all calls are read */
  bool differs;                    /* rank `other` passes another count half-way */
  bool digests;                    /* what is read are digests of the traces */
  double seconds, busy, megabytes; /* targets */
};

static const struct job jobs[] = {
    {.name = "tracediff_first_1024",
     .layout = {"8", "8", "16", "1"},
     .operations = "2000",
     .turns = SEVERAL,
     .seconds = 0.3,
     .busy = 0.6,
     .megabytes = 1024},
    {.name = "tracediff_first_1024_experts",
     .layout = {"8", "4", "32", "4"},
     .operations = "2000",
     .turns = SEVERAL,
     .seconds = 0.3,
     .busy = 0.6,
     .megabytes = 1024},
    {.name = "tracediff_first_4096",
     .layout = {"8", "8", "64", "1"},
     .operations = "2000",
     .turns = FEW,
     .seconds = 1,
     .busy = 2,
     .megabytes = 1024},
    {.name = "tracediff_first_16384",
     .layout = {"8", "8", "256", "1"},
     .operations = "600",
     .turns = FEW,
     .seconds = 4,
     .busy = 8,
     .megabytes = 1024},
    {.name = "tracediff_1024x2000",
     .layout = {"8", "8", "16", "1"},
     .operations = "2000",
     .turns = SEVERAL,
     .full = true,
     .seconds = 2,
     .busy = 3,
     .megabytes = 256},
    {.name = "tracediff_1024x2000_experts",
     .layout = {"8", "4", "32", "4"},
     .operations = "2000",
     .turns = SEVERAL,
     .full = true,
     .seconds = 2,
     .busy = 3,
     .megabytes = 256},
    {.name = "tracediff_digests_1024",
     .layout = {"8", "8", "16", "1"},
     .operations = "2000",
     .turns = SEVERAL,
     .digests = true,
     .seconds = 0.3,
     .busy = 0.6,
     .megabytes = 1024},
    {.name = "tracediff_first_1024x600",
     .layout = {"8", "8", "16", "1"},
     .operations = "600",
     .turns = SEVERAL,
     .seconds = 0.3,
     .busy = 0.6,
     .megabytes = 1024},
};
enum { JOBS = sizeof jobs / sizeof *jobs };
/* Of which one is compared with another: digests with traces, many ranks with few that make as many calls. */
enum { TRACES = 0, DIGESTS = 6, MANY = 3, FEWER = 7 };

static const struct job large = {.name = "tracediff_full_4096x100000",
                                 .layout = {"8", "8", "64", "1"},
                                 .operations = "100000",
                                 .turns = FEW,
                                 .full = true,
                                 .differs = true,
                                 .seconds = 60,
                                 .busy = 120,
                                 .megabytes = 2048};

struct result {
  double seconds, busy, megabytes; /* busy: processor time */
  double cold;                     /* seconds */
  uint32_t ranks;
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

/* Does the finding at `index` name the call at `seq` of the tensor-parallel communicator of `rank`? */
static int names(const json_t *report, size_t index, const char *of, const char *rank,
                 const char *seq) {
  json_t *finding = json_array_get(json_object_get(report, "findings"), index);
  const char *class = json_string_value(json_object_get(finding, "class"));
  const char *blame = json_string_value(json_object_get(finding, "blame"));
  const char *comm = json_string_value(json_object_get(json_object_get(finding, "comm"), "name"));
  return class && blame && comm && !strcmp(class, of) && !strcmp(blame, rank) &&
         !strcmp(comm, "tp") &&
         json_integer_value(json_object_get(finding, "seq")) == atoll(seq + 1);
}

struct positions {
  char stopped[32], differs[32]; /* "#12" */
};

static int is_right(const struct job *job, const char *file, const struct positions *at) {
  json_t *report = json_load_file(file, 0, NULL);
  const int right = names(report, job->differs, "missing", culprit, at->stopped) &&
                    (!job->differs || names(report, 0, "mismatch", other, at->differs));
  json_decref(report);
  return right;
}

static int make_traces(const char *tools, const struct job *job, const char *directory,
                       const char *file, struct positions *at) {
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
                  job->differs ? (char *)differs : NULL,
                  NULL};
  if (run(argv, file).exit_code != 0)
    return -1;
  FILE *in = fopen(file, "r");
  const int read = in && fgets(at->stopped, sizeof at->stopped, in) &&
                   (!job->differs || fgets(at->differs, sizeof at->differs, in));
  if (in)
    fclose(in);
  return read ? 0 : -1;
}

/* Writes the files back and takes them out of the page cache. Returns how many there are. */
static uint32_t cool(const char *directory) {
  char path[1024];
  uint32_t count = 0;
  DIR *dir = opendir(directory);
  if (dir)
    syncfs(dirfd(dir));
  for (const struct dirent *entry; dir && (entry = readdir(dir));) {
    snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
    const int fd = entry->d_name[0] == '.' ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
      continue;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    count++;
  }
  if (dir)
    closedir(dir);
  return count;
}

static void remove_directory(const char *directory) {
  char *argv[] = {"/bin/rm", "-rf", (char *)directory, NULL};
  run(argv, "/dev/null");
}

/* In the place of the traces. */
static int make_digests(const char *tools, const char *root, const char *traces) {
  char tool[600], digests[600];
  snprintf(tool, sizeof tool, "%s/../nccltrace", tools);
  snprintf(digests, sizeof digests, "%s/digests", root);
  char *argv[] = {tool, "digest", "-q", "-o", digests, (char *)traces, NULL};
  if (run(argv, "/dev/null").exit_code != 0)
    return -1;
  remove_directory(traces);
  return rename(digests, traces);
}

/* `job` is measured on traces of its own: those of the largest take a minute and 500 MB. */
static int measure(const char *tools, const char *root, const struct job *job, struct result *out,
                   int *right) {
  char traces[600], file[600], tool[600];
  struct positions at = {"", ""};
  snprintf(traces, sizeof traces, "%s/traces", root);
  snprintf(file, sizeof file, "%s/out", root);
  snprintf(tool, sizeof tool, "%s/../tracediff", tools);
  if (mkdir(traces, 0700) || make_traces(tools, job, traces, file, &at))
    return -1;
  if (job->digests && make_digests(tools, root, traces))
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
  *right += is_right(job, file, &at);
  out->ranks = cool(traces);
  out->cold = run(argv, file).seconds;
  remove_directory(traces);
  return 0;
}

static int say(const char *name, const char *what, double value, const char *unit, double target,
               bool ok) {
  printf("%s_%s %.4g %s target %g %s\n", name, what, value, unit, target, ok ? "ok" : "MISS");
  fflush(stdout);
  return ok ? 0 : 1;
}

/* Returns 1 if a target is missed, -1 if there is no result. */
static int measure_and_say(const char *tools, const char *root, const struct job *job,
                           struct result *result, int *right) {
  int missed = 0;
  if (measure(tools, root, job, result, right))
    return -1;
  missed |=
      say(job->name, "s", result->seconds, "s", job->seconds, result->seconds <= job->seconds);
  missed |= say(job->name, "cpu_s", result->busy, "s", job->busy, result->busy <= job->busy);
  missed |= say(job->name, "mb", result->megabytes, "MB", job->megabytes,
                result->megabytes <= job->megabytes);
  printf("%s_cold_s %.4g s\n", job->name, result->cold);
  fflush(stdout);
  return missed;
}

/* Processor time for a rank. */
static int say_growth(const struct result *results) {
  const double target = 1.3;
  const double growth =
      results[MANY].busy / results[MANY].ranks / (results[FEWER].busy / results[FEWER].ranks);
  return say("tracediff_first", "16384_over_1024_a_rank", growth, "times", target,
             growth <= target);
}

/* A digest is for a first look as much as a trace is: the processor time of one over that of the other. */
static int say_digests(const struct result *results) {
  const double target = 1.1, ratio = results[DIGESTS].busy / results[TRACES].busy;
  return say("tracediff_digests", "1024_over_traces", ratio, "times", target, ratio <= target);
}

int main(int argc, char **argv) {
  char root[512], own[512];
  const char *directory = getenv("TMPDIR");
  int right = 0, missed = 0, status = 0;
  const bool is_large = argc > 1 && !strcmp(argv[1], "large");
  if (argc > 1 + is_large) {
    fprintf(stderr, "bench_tracediff: unknown argument '%s': only \"large\" is one\n",
            argv[argc - 1]);
    return 2;
  }
  const struct job *list = is_large ? &large : jobs;
  const int count = is_large ? 1 : JOBS;
  struct result results[JOBS];
  snprintf(root, sizeof root, "%s/bench_tracediff-XXXXXX", directory ? directory : "/tmp");
  snprintf(own, sizeof own, "%s", argv[0]);
  const char *tools = dirname(own);
  if (!mkdtemp(root)) {
    perror("bench_tracediff");
    return 1;
  }
  for (int i = 0; i < count && status >= 0; i++) {
    status = measure_and_say(tools, root, &list[i], &results[i], &right);
    missed |= status;
  }
  remove_directory(root);
  if (status < 0) {
    fprintf(stderr, "bench_tracediff: gen_job or tracediff failed\n");
    return 1;
  }
  if (!is_large)
    missed |= say_growth(results) | say_digests(results);
  return missed | say(is_large ? "tracediff_full" : "tracediff", "right", right, "verdicts", count,
                      right == count);
}
