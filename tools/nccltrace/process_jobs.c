/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To which job a process belongs. Nobody numbers jobs across launchers: what their processes share is the
 * directory of the traces, and the run id where the launcher gives one.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/text.h"
#include "nccltrace/process_list.h"

const char *nt_process_directory(const struct nt_process *process, char *out, size_t size) {
  const char *path = process->trace ? nt_trace_process(process->trace)->file_path : NULL;
  const char *slash = path != NULL ? strrchr(path, '/') : NULL;
  if (slash == NULL)
    snprintf(out, size, "%s", path != NULL ? "." : "");
  else
    snprintf(out, size, "%.*s", slash == path ? 1 : (int)(slash - path), path);
  return out;
}

static const char *run_of(const struct nt_process *process) {
  const char *run = process->trace ? nt_trace_process(process->trace)->run_id : NULL;
  return run != NULL ? run : "";
}

static int compare_jobs(const struct nt_process *a, const struct nt_process *b) {
  char left[PATH_MAX], right[PATH_MAX];
  if ((a->trace == NULL) != (b->trace == NULL))
    return a->trace == NULL ? 1 : -1;
  int order = strcmp(nt_process_directory(a, left, sizeof left),
                     nt_process_directory(b, right, sizeof right));
  return order != 0 ? order : strcmp(run_of(a), run_of(b));
}

bool nt_process_same_job(const struct nt_process *a, const struct nt_process *b) {
  return compare_jobs(a, b) == 0;
}

/* Living ranks first, then what is left of dead ones, then what cannot be read, then those without an area. */
static int place_of(const struct nt_process *process) {
  if (process->presence != NT_PRESENT_AREA)
    return 3;
  if (process->trace == NULL)
    return 2;
  return nt_trace_process(process->trace)->live ? 0 : 1;
}

static int compare_within(const struct nt_process *a, const struct nt_process *b) {
  int place_a = place_of(a), place_b = place_of(b);
  if (place_a != place_b)
    return place_a < place_b ? -1 : 1;
  int rank_a = a->trace != NULL ? nt_trace_process(a->trace)->world_rank : -1;
  int rank_b = b->trace != NULL ? nt_trace_process(b->trace)->world_rank : -1;
  if (rank_a != rank_b)
    return rank_a < rank_b ? -1 : 1;
  return a->pid < b->pid ? -1 : a->pid > b->pid;
}

static int by_job(const void *left, const void *right) {
  const struct nt_process *a = left, *b = right;
  int order = compare_jobs(a, b);
  return order != 0 ? order : compare_within(a, b);
}

static int by_life(const void *left, const void *right) {
  const struct nt_process *a = left, *b = right;
  if (a->job_lives != b->job_lives)
    return a->job_lives ? -1 : 1;
  return by_job(left, right);
}

void nt_process_sort(struct nt_process_list *list) {
  if (list->count == 0)
    return;
  qsort(list->items, list->count, sizeof *list->items, by_job);
  /* The living come first in their job, so the first of each job knows. */
  for (size_t i = 0; i < list->count; i++) {
    struct nt_process *process = &list->items[i];
    process->job_lives = i > 0 && nt_process_same_job(process - 1, process)
                             ? process[-1].job_lives
                             : place_of(process) == 0;
  }
  qsort(list->items, list->count, sizeof *list->items, by_life);
}

bool nt_process_has_jobs(const struct nt_process_list *list) {
  for (size_t i = 1; i < list->count; i++)
    if (list->items[i].trace != NULL && !nt_process_same_job(&list->items[i - 1], &list->items[i]))
      return true;
  return false;
}

void nt_process_print_job(const struct nt_process *process, FILE *out) {
  char directory[PATH_MAX];
  if (process->trace == NULL) {
    fputs("no trace:\n", out);
    return;
  }
  nt_process_directory(process, directory, sizeof directory);
  nt_text_escape_print(out, directory[0] ? directory : "no trace file");
  if (run_of(process)[0] != '\0') {
    fputs(", run ", out);
    nt_text_escape_print(out, run_of(process));
  }
  fputs(":\n", out);
}

/* Symbolic links are resolved where the directory can be reached; one of another mount namespace cannot. */
static void resolve(const char *path, char out[PATH_MAX]) {
  char own[PATH_MAX];
  if (realpath(path, out) == NULL && (*path == '/' || getcwd(own, sizeof own) == NULL ||
                                      snprintf(out, PATH_MAX, "%s/%s", own, path) >= PATH_MAX))
    snprintf(out, PATH_MAX, "%s", path);
  size_t length = strlen(out);
  while (length > 1 && out[length - 1] == '/')
    out[--length] = '\0';
}

static bool lies_in(const char *path, const char *directory) {
  size_t length = strlen(directory);
  if (strcmp(directory, "/") == 0)
    return path[0] == '/';
  return strncmp(path, directory, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

static bool lies_resolved(const char *path, const char *directory) {
  char own[PATH_MAX];
  if (path == NULL || path[0] == '\0')
    return false;
  resolve(path, own);
  return lies_in(own, directory);
}

void nt_process_keep_directory(struct nt_process_list *list, const char *directory) {
  char wanted[PATH_MAX], given[PATH_MAX];
  size_t kept = 0;
  resolve(directory, wanted);
  for (size_t i = 0; i < list->count; i++) {
    struct nt_process *process = &list->items[i];
    const char *told = process->trace ? nt_trace_evidence(process->trace, "directory") : NULL;
    if (lies_resolved(nt_process_directory(process, given, sizeof given), wanted) ||
        lies_resolved(told, wanted))
      list->items[kept++] = *process;
    else
      nt_trace_close(process->trace);
  }
  list->count = kept;
}
