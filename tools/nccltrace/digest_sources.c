/* SPDX-License-Identifier: Apache-2.0 */
/* A process may be found by its file and by its area: it is opened from the first of them, and the reader joins both. */
#include "nccltrace/digest_sources.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/text.h"
#include "nccltrace/process_list.h"

#define JITTER_NS INT64_C(10000000) /* each look translates the clock anew */

void nt_digest_sources_free(struct nt_digest_sources *sources) {
  for (size_t i = 0; i < sources->count; i++) {
    free(sources->items[i].path);
    free(sources->items[i].file);
  }
  free(sources->items);
  memset(sources, 0, sizeof *sources);
}

static int64_t last_call_ns(const struct nt_trace *trace) {
  int64_t last = 0;
  for (size_t i = 0; i < nt_trace_comm_count(trace); i++) {
    const int64_t enter = nt_trace_comm_at(trace, i)->last_enter_ns;
    last = enter > last ? enter : last;
  }
  return last;
}

static uint64_t gpu_steps(const struct nt_trace *trace) {
  uint64_t steps = 0;
  for (size_t i = 0; i < nt_trace_stream_count(trace); i++) {
    const struct nt_trace_stream stream = nt_trace_stream_at(trace, i);
    steps += (uint64_t)stream.reached + stream.finished;
  }
  return steps;
}

bool nt_digest_moved(const struct nt_digest_source *source, const struct nt_trace *trace) {
  return last_call_ns(trace) - source->last_ns > JITTER_NS || gpu_steps(trace) != source->gpu_steps;
}

static bool is_known(const struct nt_digest_sources *sources, const struct nt_process_info *info) {
  for (size_t i = 0; i < sources->count; i++) {
    const struct nt_digest_source *known = &sources->items[i];
    if (known->pid == info->pid && known->start_time == info->start_time &&
        known->nonce == info->nonce)
      return true;
  }
  return false;
}

static int add(struct nt_digest_sources *sources, const char *path, const struct nt_trace *trace) {
  const struct nt_process_info *info = nt_trace_process(trace);
  if (is_known(sources, info))
    return 0;
  if (sources->count == sources->room) {
    const size_t room = sources->room ? 2 * sources->room : 16;
    struct nt_digest_source *grown = realloc(sources->items, room * sizeof *grown);
    if (!grown)
      return -NT_ERR_MEMORY;
    sources->items = grown;
    sources->room = room;
  }
  struct nt_digest_source *source = &sources->items[sources->count];
  *source = (struct nt_digest_source){.path = strdup(path),
                                      .file = strdup(info->file_path ? info->file_path : ""),
                                      .pid = info->pid,
                                      .start_time = info->start_time,
                                      .nonce = info->nonce,
                                      .live = info->live && !info->digest_ns,
                                      .last_ns = last_call_ns(trace),
                                      .gpu_steps = gpu_steps(trace)};
  sources->count++;
  return source->path && source->file ? 0 : -NT_ERR_MEMORY;
}

static int add_file(struct nt_digest_sources *sources, const char *path) {
  struct nt_trace *trace;
  struct nt_error error = {0};
  int rc = nt_trace_open(path, 0, &trace, &error);
  if (rc) {
    if (*path && access(path, F_OK) != 0 && path[strspn(path, "0123456789")] == '\0')
      snprintf(error.reason, sizeof error.reason,
               "no such file: trace files and directories are named here, not processes (without "
               "arguments all of this node are cut)");
    nt_report_error(path, &error);
    sources->failed = true;
    return rc == -NT_ERR_MEMORY ? rc : 0;
  }
  rc = add(sources, path, trace);
  nt_trace_close(trace);
  return rc;
}

/* Those whose trace file lies right in the directory; all of the node if it is NULL. */
static int add_processes(struct nt_digest_sources *sources, const char *directory) {
  struct nt_process_list list;
  char own[PATH_MAX], *wanted = directory ? realpath(directory, NULL) : NULL;
  int rc = nt_process_list_read(NT_LIST_AREAS, &list);
  for (size_t i = 0; i < list.count && !rc; i++) {
    const struct nt_process *process = &list.items[i];
    if (!process->trace)
      continue;
    nt_process_directory(process, own, sizeof own);
    if (!own[0]) /* it has no file yet: where it is meant to be */
      snprintf(own, sizeof own, "%s",
               nt_trace_evidence(process->trace, "directory")
                   ? nt_trace_evidence(process->trace, "directory")
                   : "");
    char *real = wanted ? realpath(own, NULL) : NULL;
    if (!directory || (real && !strcmp(real, wanted)))
      rc = add(sources, process->area, process->trace);
    free(real);
  }
  nt_process_list_free(&list);
  free(wanted);
  return rc;
}

static int is_trace(const struct dirent *entry) {
  const size_t length = strlen(entry->d_name);
  return length > 6 && !strcmp(entry->d_name + length - 6, ".trace");
}

static int add_directory(struct nt_digest_sources *sources, const char *path) {
  struct dirent **entries;
  char file[PATH_MAX + 256];
  const int count = scandir(path, &entries, is_trace, alphasort);
  int rc = 0;
  if (count < 0) {
    fprintf(stderr, "nccltrace digest: ");
    nt_text_escape_print(stderr, path);
    fprintf(stderr, ": %s\n", strerror(errno));
    sources->failed = true;
    return 0;
  }
  for (int i = 0; i < count; i++) {
    snprintf(file, sizeof file, "%s/%s", path, entries[i]->d_name);
    if (!rc)
      rc = add_file(sources, file);
    free(entries[i]);
  }
  free(entries);
  return rc ? rc : add_processes(sources, path);
}

int nt_digest_sources_find(char **paths, int count, struct nt_digest_sources *out) {
  struct stat status;
  int rc = count ? 0 : add_processes(out, NULL);
  for (int i = 0; i < count && !rc; i++)
    rc = stat(paths[i], &status) == 0 && S_ISDIR(status.st_mode) ? add_directory(out, paths[i])
                                                                 : add_file(out, paths[i]);
  return rc;
}
