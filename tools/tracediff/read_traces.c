/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads take the next file that nobody has, and fill its entry; nothing else is shared. So the entries are the same
 * whoever fills them, and whoever joins them in the order of the list gets the same model every time. The calling thread
 * reads as well, and draws the bar between two traces.
 */
#include "tracediff/read_traces.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <uthash.h>

#include "analysis/each.h"
#include "analysis/window_whole.h"
#include "cli/progress_bar.h"

enum { THREADS_MAX = 16, EACH_MIN = 4 }; /* a thread for fewer traces costs more than it gains */
enum { WIDER = 8 };

struct reading {
  struct nt_source *list;
  size_t count;
  nt_source_known *known;
  const void *context;
  const struct nt_look *look;
  uint32_t window;
  bool again; /* those of which more is wanted, and nothing else */
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

static void drop_warnings(struct nt_source *source) {
  for (size_t i = 0; i < source->warning_count; i++)
    free(source->warnings[i]);
  free(source->warnings);
  source->warnings = NULL;
  source->warning_count = 0;
}

/* False if the window is too short; then nothing is loaded. */
static bool read_trace(const struct reading *reading, struct nt_source *source,
                       struct nt_read_room *room, uint32_t window) {
  struct nt_trace *trace;
  if (room)
    nt_read_room_window(room, window);
  source->status = nt_trace_open_in(room, source->path, 0, &trace, &source->err);
  if (source->status)
    return true;
  source->known = reading->known(nt_trace_process(trace), reading->context);
  source->live_ns = nt_trace_process(trace)->live ? nt_trace_process(trace)->seen_ns : 0;
  if (!source->known)
    source->status = nt_trace_load(trace, source->path, &source->loaded, &source->err);
  const bool is_short = !source->known && !source->status && nt_trace_is_short(trace);
  if (is_short) {
    nt_loaded_trace_free(&source->loaded);
  } else if (!source->known && !source->status) { /* loading warns too */
    source->status = keep_warnings(source, trace);
    if (source->status)
      nt_loaded_trace_free(&source->loaded);
  }
  nt_trace_close(trace);
  return !is_short;
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_whole(const struct nt_look *look, const char *path) {
  return look->whole_count &&
         bsearch(&path, look->whole, look->whole_count, sizeof *look->whole, by_name);
}

static void read_one(const struct reading *reading, struct nt_source *source,
                     struct nt_read_room *room) {
  uint32_t window = reading->again ? 0 : reading->window;
  if (source->status || (reading->again && !source->again))
    return;
  if (source->recorder != NT_RECORDER_TRACE) {
    source->status = nt_source_load(&source->foreign, source->recorder, source->path, &source->err);
    return;
  }
  if (is_whole(reading->look, source->path))
    window = 0;
  while (!read_trace(reading, source, room, window))
    window = window < UINT32_MAX / WIDER ? WIDER * window : 0;
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

static void read_all(struct reading *reading) {
  const bool quiet = !reading->look->complaints;
  struct nt_progress_bar progress = {0};
  pthread_t threads[THREADS_MAX];
  size_t wanted = nt_each_processors(), started = 0;
  if (wanted > reading->count / EACH_MIN + 1)
    wanted = reading->count / EACH_MIN + 1;
  if (!quiet) {
    nt_progress_bar_start(&progress, stderr, "reading", reading->count);
    nt_progress_bar_since(&progress, reading->look->began_ns);
  }
  while (started + 1 < wanted && pthread_create(&threads[started], NULL, help, reading) == 0)
    started++;
  work(reading, quiet ? NULL : &progress);
  for (size_t i = 0; i < started; i++)
    pthread_join(threads[i], NULL);
  nt_progress_bar_end(&progress);
}

static bool is_small(const struct nt_source *list, size_t count, uint64_t most) {
  uint64_t bytes = 0;
  struct stat file;
  for (size_t i = 0; i < count && bytes <= most; i++)
    if (stat(list[i].path, &file) == 0)
      bytes += (uint64_t)file.st_blocks * 512; /* the files have holes */
  return bytes <= most;
}

/* ---- who is read as a whole ---------------------------------------------------------------------- */

/* A communicator of one who waits for nothing, and the member that got furthest: the two are compared call by call. */
struct front {
  uint8_t id[16];
  uint32_t least, most; /* collectives: of those who wait for nothing, of all */
  struct nt_source *furthest;
  const struct nt_model_view *view;
  UT_hash_handle hh;
};

static bool is_loaded(const struct nt_source *source) {
  return source->recorder == NT_RECORDER_TRACE && !source->status && !source->known;
}

/* In the order of the communicator's ranks, as far as each knows its own. */
static bool is_before(const struct nt_model_view *a, const struct nt_model_view *b) {
  if (a->rank != b->rank)
    return a->rank < b->rank;
  return a->key != b->key ? a->key < b->key : a->parent_rank < b->parent_rank;
}

static bool add_fronts(struct front **fronts, const struct nt_model_rank *rank) {
  for (uint32_t v = 0; v < rank->view_count; v++) {
    const struct nt_model_view *view = &rank->views[v];
    struct front *front;
    HASH_FIND(hh, *fronts, view->id, sizeof view->id, front);
    if (!front) {
      front = calloc(1, sizeof *front);
      if (!front)
        return false;
      memcpy(front->id, view->id, sizeof front->id);
      front->least = view->collectives;
      HASH_ADD(hh, *fronts, id, sizeof front->id, front);
    }
    front->least = view->collectives < front->least ? view->collectives : front->least;
  }
  return true;
}

static void find_furthest(struct front *fronts, struct nt_source *source) {
  for (uint32_t v = 0; v < source->loaded.rank.view_count; v++) {
    const struct nt_model_view *view = &source->loaded.rank.views[v];
    struct front *front;
    HASH_FIND(hh, fronts, view->id, sizeof view->id, front);
    if (front &&
        (!front->view || view->collectives > front->view->collectives ||
         (view->collectives == front->view->collectives && is_before(view, front->view)))) {
      front->furthest = source;
      front->view = view;
      front->most = view->collectives;
    }
  }
}

static void want_and_free(struct front *fronts) {
  struct front *front, *following;
  for (front = fronts; front; front = front->hh.next) {
    if (front->furthest && front->most > front->least && front->furthest->loaded.rank.unread)
      front->furthest->again = true;
  }
  HASH_ITER(hh, fronts, front, following) {
    HASH_DEL(fronts, front);
    free(front);
  }
}

/* False where there is no memory. */
static bool want_furthest(struct nt_source *list, size_t count) {
  struct front *fronts = NULL;
  bool enough = true;
  for (size_t i = 0; i < count && enough; i++)
    if (list[i].again)
      enough = add_fronts(&fronts, &list[i].loaded.rank);
  for (size_t i = 0; i < count && fronts; i++)
    if (is_loaded(&list[i]))
      find_furthest(fronts, &list[i]);
  want_and_free(fronts);
  return enough;
}

/* Whoever waits for nothing is perhaps to blame: what it did before tells what it should have done, compared with whoever
 * got furthest. True if there are any, and no more of them than memory is meant for. */
static bool want_whole(struct nt_source *list, size_t count, uint64_t most) {
  uint64_t calls = 0;
  for (size_t i = 0; i < count; i++)
    list[i].again =
        is_loaded(&list[i]) && list[i].loaded.rank.unread && !nt_model_waits(&list[i].loaded.rank);
  if (!want_furthest(list, count))
    return false;
  for (size_t i = 0; i < count; i++)
    calls += list[i].again ? nt_window_there(&list[i].loaded.rank) : 0;
  return calls && calls <= most;
}

/* For the second time. */
static void forget(struct nt_source *list, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (list[i].again) {
      nt_loaded_trace_free(&list[i].loaded);
      drop_warnings(&list[i]);
    }
}

void nt_sources_read(struct nt_source *list, size_t count, nt_source_known *known,
                     const void *context, const struct nt_look *look) {
  struct reading reading = {
      .list = list, .count = count, .known = known, .context = context, .look = look};
  if (look->window && !is_small(list, count, look->small_bytes))
    reading.window = look->window;
  read_all(&reading);
  if (!reading.window || !want_whole(list, count, look->idle_most))
    return;
  forget(list, count);
  reading.again = true;
  atomic_store_explicit(&reading.next, 0, memory_order_relaxed);
  atomic_store_explicit(&reading.done, 0, memory_order_relaxed);
  read_all(&reading);
}

void nt_source_free(struct nt_source *source) {
  if (!source->status && !source->known)
    nt_loaded_trace_free(&source->loaded);
  nt_trace_loader_free(&source->foreign);
  drop_warnings(source);
  free(source->path);
  memset(source, 0, sizeof *source);
}
