/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Python stacks of all threads, without the GIL and without stopping anybody: in a stuck process the thread that
 * holds the GIL may be the one that is stuck.
 */
#include <stdlib.h>

#include "preload/dump_thread.h"
#include "preload/python_walk.h"
#include "preload/python_layout.h"
#include "preload/python_threads.h"

/* A state without frames whose thread has another state: that of a thread about to be started by it, or of another
 * interpreter. */
static bool is_spare(const struct nt_python_threads *threads, uint32_t i) {
  const uint32_t tid = threads->thread[i].tid;
  for (uint32_t j = 0; tid && j < threads->count; j++)
    if (j != i && threads->thread[j].tid == tid)
      return true;
  return false;
}

static void put_facts(struct nt_buffer *out, const struct nt_python *python,
                      const struct nt_python_threads *threads, uint32_t walked, uint32_t nameless) {
  char gil[512];
  if (threads->count)
    nt_dump_add_fact(out, "python.threads", "%u of %s%u thread states walked", walked,
                     threads->broken ? "at least " : "", threads->count);
  if (nameless)
    nt_dump_add_fact(out, "python.unknown", "the thread of %u stacks cannot be told", nameless);
  if (nt_python_gil_holders(python, threads, gil, sizeof(gil)))
    nt_dump_add_fact(out, "python.gil", "%s", gil);
  if (python->is_finalizing())
    nt_dump_add_fact(out, "python.finalizing", "the interpreter is ending or has ended");
  if (threads->interpreters && !threads->count && !python->is_finalizing())
    nt_dump_add_fact(out, "missing.python", "no thread states where this release has them");
}

static void walk_all(struct nt_buffer *out, const struct nt_python *python,
                     struct nt_python_threads *threads, struct nt_python_walk *walk) {
  uint32_t walked = 0, nameless = 0;
  nt_python_threads_read(python, threads);
  for (uint32_t i = 0; i < threads->count; i++) {
    const struct nt_python_thread *thread = &threads->thread[i];
    if (!nt_python_walk_thread(python, thread->state, walk) ||
        !nt_python_thread_lives(python, thread))
      continue;
    walked++;
    if (!walk->count && (!thread->tid || is_spare(threads, i)))
      continue;
    nameless += !thread->tid;
    nt_dump_add_stack(out, thread->tid, NT_DUMP_STACK_PYTHON, walk->flags, walk->frame,
                      walk->count);
  }
  put_facts(out, python, threads, walked, nameless);
}

void nt_dump_python(struct nt_buffer *out) {
  const char *version, *state;
  const struct nt_python *python = nt_python_get();
  if (!nt_python_allowed()) {
    nt_dump_add_fact(out, "missing.python", "NCCLTRACE_PYTHON=off");
    return;
  }
  if (!python) {
    if (nt_python_describe(&version, &state))
      nt_dump_add_fact(out, "missing.python", "Python %s: %s", version, state);
    return;
  }
  if (!python->lists.version || !python->first_interpreter) {
    nt_dump_add_fact(out, "missing.python", "where this release keeps its threads is not known");
    return;
  }
  struct nt_python_threads *threads = malloc(sizeof(*threads));
  struct nt_python_walk *walk = malloc(sizeof(*walk));
  if (threads && walk)
    walk_all(out, python, threads, walk);
  else
    nt_dump_add_fact(out, "missing.python", "no memory");
  free(threads);
  free(walk);
}
