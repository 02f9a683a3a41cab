/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads take the next file that nobody has, and fill its entry; nothing else is shared. So the entries are the same
 * whoever fills them, and whoever joins them in the order of the list gets the same model every time. The calling thread
 * reads as well, and draws the bar between two traces.
 */
#include "tracediff/read_traces.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/progress_bar.h"

enum { THREADS_MAX = 16, EACH_MIN = 4 }; /* a thread for fewer traces costs more than it gains */

struct reading {
  struct nt_source *list;
  size_t count;
  nt_source_known *known;
  const void *context;
  _Atomic size_t next, done;
};

static int keep_warnings(struct nt_source *source, const struct nt_trace *trace) {
  size_t count = nt_trace_warning_count(trace);
  if (!count)
    return 0;
  source->warnings = calloc(count, sizeof *source->warnings);
  for (size_t i = 0; source->warnings && i < count; i++) {
    char *line = strdup(nt_trace_warning_at(trace, i));
    if (!line)
      return -NT_ERR_MEMORY;
    source->warnings[source->warning_count++] = line;
  }
  return source->warnings ? 0 : -NT_ERR_MEMORY;
}

static void read_one(const struct reading *reading, struct nt_source *source,
                     struct nt_read_room *room) {
  struct nt_trace *trace;
  if (source->status)
    return;
  if (source->recorder != NT_RECORDER_TRACE) {
    source->status = nt_source_load(&source->foreign, source->recorder, source->path, &source->err);
    return;
  }
  source->status = nt_trace_open_in(room, source->path, 0, &trace, &source->err);
  if (source->status)
    return;
  source->known = reading->known(nt_trace_process(trace), reading->context);
  source->live_ns = nt_trace_process(trace)->live ? nt_trace_process(trace)->seen_ns : 0;
  if (!source->known)
    source->status = keep_warnings(source, trace);
  if (!source->known && !source->status)
    source->status = nt_trace_load(trace, source->path, &source->loaded, &source->err);
  nt_trace_close(trace);
}

static void work(struct reading *reading, struct nt_progress_bar *progress) {
  struct nt_read_room *room = nt_read_room_new(); /* NULL: each trace makes its own */
  for (;;) {
    size_t i = atomic_fetch_add_explicit(&reading->next, 1, memory_order_relaxed);
    if (i >= reading->count)
      break;
    read_one(reading, &reading->list[i], room);
    size_t done = atomic_fetch_add_explicit(&reading->done, 1, memory_order_relaxed) + 1;
    if (progress)
      nt_progress_bar_at(progress, done);
  }
  nt_read_room_free(room);
}

static void *help(void *reading) {
  work(reading, NULL);
  return NULL;
}

static size_t processors(void) {
  cpu_set_t set;
  int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return count < 1 ? 1 : (size_t)count;
}

void nt_sources_read(struct nt_source *list, size_t count, nt_source_known *known,
                     const void *context, bool quiet) {
  struct reading reading = {.list = list, .count = count, .known = known, .context = context};
  struct nt_progress_bar progress = {0};
  pthread_t threads[THREADS_MAX];
  size_t wanted = processors(), started = 0;
  if (wanted > THREADS_MAX)
    wanted = THREADS_MAX;
  if (wanted > count / EACH_MIN + 1)
    wanted = count / EACH_MIN + 1;
  if (!quiet)
    nt_progress_bar_start(&progress, stderr, "reading", count);
  while (started + 1 < wanted && pthread_create(&threads[started], NULL, help, &reading) == 0)
    started++;
  work(&reading, quiet ? NULL : &progress);
  for (size_t i = 0; i < started; i++)
    pthread_join(threads[i], NULL);
  nt_progress_bar_end(&progress);
}

void nt_source_free(struct nt_source *source) {
  if (!source->status && !source->known)
    nt_loaded_trace_free(&source->loaded);
  nt_trace_loader_free(&source->foreign);
  for (size_t i = 0; i < source->warning_count; i++)
    free(source->warnings[i]);
  free(source->warnings);
  free(source->path);
  memset(source, 0, sizeof *source);
}
