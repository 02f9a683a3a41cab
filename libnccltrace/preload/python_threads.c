/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/python_threads.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/dump_thread.h"
#include "preload/python_code.h"

enum { TRIES = 16 };

/* ---- from what Python notes to a thread of the kernel -------------------------------------------- */

static bool is_thread(uint64_t tid) {
  return tid > 0 && tid <= INT32_MAX && syscall(SYS_tgkill, getpid(), (int)tid, 0) == 0;
}

/*
 * pthread_t of glibc and musl is the address of a structure that holds the thread id, at a place that differs by
 * version. It is where this thread's structure has this thread's id, if what other structures have there is
 * a thread of the process too. The kernel clears the field when the thread ends.
 */
static uint32_t tid_of_pthread(uint64_t pthread) {
  enum { BYTES = 1024 };
  char ours[BYTES], theirs[BYTES];
  const uint32_t self = (uint32_t)syscall(SYS_gettid);
  if (pthread == (uint64_t)(uintptr_t)pthread_self())
    return self;
  if (!nt_dump_read((uint64_t)(uintptr_t)pthread_self(), ours, BYTES) ||
      !nt_dump_read(pthread, theirs, BYTES))
    return 0;
  for (unsigned at = 0; at < BYTES; at += 4)
    if ((uint32_t)nt_python_int(ours, at) == self) {
      uint32_t tid = (uint32_t)nt_python_int(theirs, at);
      if (tid != self && is_thread(tid))
        return tid;
    }
  return 0;
}

static uint32_t find_tid(const struct nt_python_lists *lists, const char *state) {
  uint64_t native = lists->thread_native ? nt_python_word(state, lists->thread_native) : 0;
  if (is_thread(native))
    return (uint32_t)native;
  return tid_of_pthread(nt_python_word(state, lists->thread_id));
}

/* ---- lists --------------------------------------------------------------------------------------- */

/* Up to the last of the fields that are looked at. */
static unsigned state_bytes(const struct nt_python_lists *lists) {
  unsigned last = lists->thread_id > lists->thread_native ? lists->thread_id : lists->thread_native;
  last = lists->thread_prev > last ? lists->thread_prev : last;
  last = lists->thread_next > last ? lists->thread_next : last;
  last = lists->thread_interp > last ? lists->thread_interp : last;
  return last + 8 <= NT_PYTHON_THREAD_BYTES ? last + 8 : NT_PYTHON_THREAD_BYTES;
}

static bool read_state(const struct nt_python *python, const struct nt_python_thread *thread,
                       char *state) {
  const struct nt_python_lists *lists = &python->lists;
  return nt_dump_read(thread->state, state, state_bytes(lists)) &&
         nt_python_word(state, lists->thread_interp) == thread->interpreter &&
         nt_python_word(state, lists->thread_prev) == thread->previous;
}

bool nt_python_thread_lives(const struct nt_python *python, const struct nt_python_thread *thread) {
  char state[NT_PYTHON_THREAD_BYTES];
  const struct nt_python_lists *lists = &python->lists;
  /* A new thread may have been put in front of it. */
  return nt_dump_read(thread->state, state, state_bytes(lists)) &&
         nt_python_word(state, lists->thread_interp) == thread->interpreter &&
         (nt_python_word(state, lists->thread_prev) == thread->previous ||
          find_tid(lists, state) == thread->tid);
}

/* False if the list changed meanwhile, or is none; `out` has what was read up to there. */
static bool read_list(const struct nt_python *python, uint64_t interpreter,
                      struct nt_python_threads *out) {
  char state[NT_PYTHON_THREAD_BYTES];
  struct nt_python_thread thread = {.interpreter = interpreter};
  if (!nt_dump_read(interpreter + python->lists.interp_threads, &thread.state, 8))
    return false;
  while (thread.state) {
    if (!read_state(python, &thread, state))
      return false;
    if (out->count == NT_PYTHON_THREADS_MAX) {
      out->broken = true;
      return true;
    }
    thread.tid = find_tid(&python->lists, state);
    out->thread[out->count++] = thread;
    thread.previous = thread.state;
    thread.state = nt_python_word(state, python->lists.thread_next);
  }
  return true;
}

void nt_python_threads_read(const struct nt_python *python, struct nt_python_threads *out) {
  uint64_t interpreter = (uint64_t)(uintptr_t)python->first_interpreter();
  out->count = out->interpreters = 0;
  out->broken = false;
  while (interpreter) {
    const uint32_t before = out->count;
    bool whole = false;
    if (out->interpreters == NT_PYTHON_INTERPRETERS_MAX) {
      out->broken = true;
      return;
    }
    for (int i = 0; i < TRIES && !whole; i++) {
      out->count = before;
      whole = read_list(python, interpreter, out);
    }
    out->broken |= !whole;
    out->interpreter[out->interpreters++] = interpreter;
    if (!nt_dump_read(interpreter + python->lists.interp_next, &interpreter, 8)) {
      out->broken = true;
      return;
    }
  }
}

/* ---- the GIL ------------------------------------------------------------------------------------- */

static const struct nt_python_thread *find_state(const struct nt_python_threads *threads,
                                                 uint64_t state) {
  for (uint32_t i = 0; i < threads->count; i++)
    if (threads->thread[i].state == state)
      return &threads->thread[i];
  return NULL;
}

/* The GIL of an interpreter; 0: it has none. */
static uint64_t find_gil(const struct nt_python *python, uint64_t interpreter) {
  const struct nt_python_lists *lists = &python->lists;
  uint64_t gil = 0;
  if (!lists->interp_gil)
    return (uint64_t)(uintptr_t)python->runtime + lists->runtime_gil;
  return nt_dump_read(interpreter + lists->interp_gil, &gil, 8) ? gil : 0;
}

/* The GIL counts as found only if who held it last is a state that is known. */
static bool put_holder(const struct nt_python *python, const struct nt_python_threads *threads,
                       uint64_t gil, char *out, size_t size) {
  uint64_t holder;
  int32_t locked;
  const size_t used = strlen(out);
  const struct nt_dump_part parts[] = {{gil + python->lists.gil_locked, &locked, 4},
                                       {gil + python->lists.gil_holder, &holder, 8}};
  if (nt_dump_read_parts(parts, 2) != 2)
    return false;
  const struct nt_python_thread *thread = find_state(threads, holder);
  if (!thread || (locked != 0 && locked != 1) || (locked && !thread->tid))
    return false;
  if (locked)
    snprintf(out + used, size - used, "%s%u", used ? " " : "", thread->tid);
  else
    snprintf(out + used, size - used, "%snone", used ? " " : "");
  return true;
}

bool nt_python_gil_holders(const struct nt_python *python, const struct nt_python_threads *threads,
                           char *out, size_t size) {
  uint64_t seen[NT_PYTHON_INTERPRETERS_MAX];
  uint32_t count = 0;
  out[0] = 0;
  if (!python->runtime)
    return false;
  for (uint32_t i = 0; i < threads->interpreters; i++) {
    uint64_t gil = find_gil(python, threads->interpreter[i]);
    bool again = false;
    for (uint32_t j = 0; j < count; j++)
      again |= seen[j] == gil;
    if (again)
      continue;
    seen[count++] = gil;
    if (!gil || !put_holder(python, threads, gil, out, size))
      return false;
  }
  return count > 0;
}
