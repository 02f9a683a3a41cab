/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccltrace digest: cuts the traces of this node to what a verdict needs, for tracediff to read with those of all others.
 *
 * Processes that live are looked at twice, as tracediff does: whoever reads a digest cannot look again.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/text.h"
#include "nccltrace/digest_sources.h"
#include "nccltrace/process_list.h"
#include "nccltrace/subcommands.h"
#include "trace/digest.h"

#define LOOK_MS 250
#define YOUNG_MS 1100 /* by then what is on its way has come */
#define SIZE_MAX_BYTES (UINT64_C(1) << 30)

enum { OPT_OUTPUT = 1, OPT_SIZE, OPT_CALLS, OPT_QUIET };

static const struct nt_option options[] = {
    {OPT_OUTPUT, "output", 'o', "DIR", "where the digests go: ./nccltrace-digests"},
    {OPT_SIZE, "size", 's', "BYTES", "the most that each may take, as 64K or 1M: 32K"},
    {OPT_CALLS, "calls", 'n', "N", "no more than the last N calls of each process"},
    {OPT_QUIET, "quiet", 'q', NULL, "no line for each digest"},
};
static const struct nt_usage usage = {
    .tool = "nccltrace digest",
    .synopsis = "[OPTION...] [TRACE|DIR...]",
    .summary =
        "Cuts each trace to what a verdict needs, for tracediff to read with those of other "
        "nodes.\n"
        "A directory stands for all *.trace files in it and for the processes that write there;\n"
        "without an argument it is every traced process of this user on this node, living or dead.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .after = "Exit status: 0 all were cut, 1 some trace could not be, or there is none, 2 wrong "
             "usage.\n",
};

struct order {
  const char *wanted;    /* where the digests go, as it was given */
  char output[PATH_MAX]; /* the same, resolved; "" while it is not there */
  bool made, refused;    /* it is a directory; it cannot be one, which was said */
  uint64_t size, calls;
  bool quiet;
};

static void complain(const char *name, const char *text) {
  fputs("nccltrace digest: ", stderr);
  nt_text_escape_print(stderr, name);
  fprintf(stderr, ": %s\n", text);
}

/* "65536", "64K", "1M" */
static bool parse_size(const char *text, uint64_t *out) {
  char digits[24];
  const size_t length = strlen(text);
  const char unit = length ? text[length - 1] : '\0';
  const unsigned shift = unit == 'K' || unit == 'k' ? 10 : unit == 'M' || unit == 'm' ? 20 : 0;
  if (length >= sizeof digits)
    return false;
  snprintf(digits, sizeof digits, "%.*s", (int)(length - (shift != 0)), text);
  if (!nt_options_number(digits, 1, SIZE_MAX_BYTES, out))
    return false;
  *out <<= shift;
  return *out >= NT_DIGEST_MIN && *out <= SIZE_MAX_BYTES;
}

/* 0, or why there is none: of the first that could not be made. */
static int make_directories(const char *path) {
  char part[PATH_MAX];
  int error = 0;
  snprintf(part, sizeof part, "%s", path);
  for (char *slash = part + 1; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
    *slash = '\0';
    if (mkdir(part, 0700) != 0 && errno != EEXIST && !error)
      error = errno;
  }
  if (mkdir(part, 0700) != 0 && errno != EEXIST && !error)
    error = errno;
  const int fd = open(part, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return error ? error : errno;
  close(fd);
  return 0;
}

/* The directory is made when there is something to put there. False: said why there is none. */
static bool find_output(struct order *order) {
  char why[160];
  if (order->made)
    return true;
  int error = make_directories(order->wanted);
  if (!error && realpath(order->wanted, order->output) == NULL)
    error = errno;
  order->made = !error;
  order->refused = error;
  if (error) {
    snprintf(why, sizeof why, "the directory for the digests cannot be made: %s (-o names another)",
             strerror(error));
    complain(order->wanted, why);
  }
  return order->made;
}

/* ---- one digest --------------------------------------------------------------------------------- */

/* Unique for a process, so that a later digest of the same takes the place of the first. */
static void name_of(const struct nt_process_info *info, char *out, size_t size) {
  char base[32];
  if (info->world_rank >= 0)
    snprintf(base, sizeof base, "rank%d", info->world_rank);
  else
    snprintf(base, sizeof base, "pid%" PRIu32, info->pid);
  snprintf(out, size, "%s.%08" PRIx32 ".trace", base, (uint32_t)(info->nonce ^ info->nonce >> 32));
}

static int write_all(int fd, const unsigned char *bytes, size_t length) {
  for (size_t done = 0; done < length;) {
    const ssize_t wrote = write(fd, bytes + done, length - done);
    if (wrote < 0 && errno == EINTR)
      continue;
    if (wrote <= 0)
      return -1;
    done += (size_t)wrote;
  }
  return 0;
}

/* Whole under its name, or not at all. */
static bool save(const struct order *order, const char *name, const struct nt_buffer *bytes) {
  char temporary[PATH_MAX + 128], path[PATH_MAX + 128];
  snprintf(temporary, sizeof temporary, "%s/.%s.%d", order->output, name, (int)getpid());
  snprintf(path, sizeof path, "%s/%s", order->output, name);
  const int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  bool done = fd >= 0 && write_all(fd, bytes->data, bytes->length) == 0;
  if (fd >= 0 && close(fd) != 0)
    done = false;
  done = done && rename(temporary, path) == 0;
  if (!done) {
    complain(path, strerror(errno));
    if (fd >= 0)
      unlink(temporary);
  }
  return done;
}

static void tell(const struct order *order, const char *name, const struct nt_digest_tally *tally,
                 size_t length) {
  static const char *const lacks[] = {"of the dump what tells of no fault",
                                      "parts of the evidence",
                                      "running sums of communicators not used lately",
                                      "ended communicators",
                                      "the dump",
                                      "all running sums",
                                      "stacks of older calls"};
  if (order->quiet)
    return;
  printf("%s/%s: %" PRIu64 " of %" PRIu64 " calls, %zu bytes", order->output, name, tally->calls,
         tally->calls + tally->left_out, length);
  const char *before = "; left out: ";
  for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++)
    if (tally->lacks >> i & 1) {
      printf("%s%s", before, lacks[i]);
      before = ", ";
    }
  putchar('\n');
}

/* False: said why on stderr. */
static bool digest(struct order *order, const struct nt_digest_source *source) {
  struct nt_trace *trace = NULL;
  struct nt_error error = {0};
  struct nt_buffer bytes = {0};
  struct nt_digest_tally tally;
  char name[64];
  bool done = false;
  int rc = nt_trace_open(source->path, 0, &trace, &error);
  if (!rc) {
    const struct nt_digest_order how = {.size = order->size,
                                        .calls = order->calls,
                                        .moved = source->live && nt_digest_moved(source, trace)};
    rc = nt_digest_make(trace, &how, &bytes, &tally, &error);
  }
  if (rc) {
    nt_report_error(source->path, &error);
  } else {
    name_of(nt_trace_process(trace), name, sizeof name);
    done = find_output(order) && save(order, name, &bytes);
    if (done)
      tell(order, name, &tally, bytes.length);
    if (nt_trace_process(trace)->strange) /* all that can be digested is its state */
      done = false;
    for (size_t i = 0; i < nt_trace_warning_count(trace); i++)
      complain(source->path, nt_trace_warning_at(trace, i));
  }
  free(bytes.data);
  nt_trace_close(trace);
  return done;
}

/* ---- the whole ---------------------------------------------------------------------------------- */

static void pause_between(const struct nt_digest_sources *sources) {
  struct timespec now;
  int64_t ms = LOOK_MS;
  bool live = false;
  clock_gettime(CLOCK_REALTIME, &now);
  const int64_t now_ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
  for (size_t i = 0; i < sources->count; i++) {
    const struct nt_digest_source *source = &sources->items[i];
    live |= source->live;
    if (source->live && now_ns - source->last_ns < INT64_C(1000000) * YOUNG_MS)
      ms = YOUNG_MS;
  }
  struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  while (live && nanosleep(&time, &time) != 0)
    continue;
}

/* Digests among the traces that they were made from would be read together with these. */
static bool lies_in_output(const struct order *order, const struct nt_digest_source *source) {
  char directory[PATH_MAX], resolved[PATH_MAX];
  snprintf(directory, sizeof directory, "%s", source->file);
  char *slash = strrchr(directory, '/');
  if (slash == directory)
    slash++;
  if (slash)
    *slash = '\0';
  return source->file[0] && realpath(slash ? directory : ".", resolved) != NULL &&
         !strcmp(resolved, order->output);
}

static void report_none(char **paths, int count) {
  if (!count)
    fputs("nccltrace digest: no traced process of this user was found on this node: name a "
          "directory of traces\n",
          stderr);
  for (int i = 0; i < count; i++)
    complain(paths[i], "no trace was found there, nor a process that writes one there");
}

static int cut_all(struct order *order, const struct nt_digest_sources *sources) {
  int status = sources->failed ? NT_EXIT_FAILED : NT_EXIT_OK;
  for (size_t i = 0; i < sources->count; i++)
    if (lies_in_output(order, &sources->items[i]))
      return nt_options_bad(&usage, "the traces lie in %s: give another directory for the digests",
                            order->output);
  pause_between(sources);
  for (size_t i = 0; i < sources->count && !order->refused; i++)
    if (!digest(order, &sources->items[i]))
      status = NT_EXIT_FAILED;
  return status;
}

int nt_command_digest(int argc, char **argv) {
  struct order order = {.wanted = "nccltrace-digests", .size = NT_DIGEST_SIZE};
  struct nt_digest_sources sources = {0};
  struct nt_options parser;
  int id;
  nt_options_start(&parser, &usage, argc, argv);
  while ((id = nt_options_next(&parser)) > 0) {
    if (id == OPT_OUTPUT)
      order.wanted = parser.value;
    else if (id == OPT_SIZE && !parse_size(parser.value, &order.size))
      return nt_options_bad(&usage, "--size takes bytes, 8K at least, not '%s'", parser.value);
    else if (id == OPT_CALLS && !nt_options_number(parser.value, 1, UINT32_MAX, &order.calls))
      return nt_options_bad(&usage, "--calls takes a number, not '%s'", parser.value);
    order.quiet |= id == OPT_QUIET;
  }
  if (id == NT_OPTIONS_STOP)
    return parser.status;
  if (realpath(order.wanted, order.output) == NULL)
    order.output[0] = '\0';
  char **paths = argv + parser.first;
  const int count = argc - parser.first;
  int status = NT_EXIT_FAILED;
  if (nt_digest_sources_find(paths, count, &sources) != 0)
    fputs("nccltrace digest: out of memory\n", stderr);
  else if (sources.count || sources.failed)
    status = cut_all(&order, &sources);
  else
    report_none(paths, count);
  nt_digest_sources_free(&sources);
  return status;
}
