/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread states of all interpreters, read while their owners run on.
 *
 * Nothing is trusted: a state counts only if it names the interpreter whose list it is on and the state in front of it,
 * and a list that changes underneath is read again from its start. Dump thread only.
 */
#ifndef NT_PYTHON_THREADS_H
#define NT_PYTHON_THREADS_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/python_layout.h"

enum { NT_PYTHON_THREADS_MAX = 4096, NT_PYTHON_INTERPRETERS_MAX = 256 };

struct nt_python_thread {
  uint64_t state, interpreter, previous; /* addresses */
  uint32_t tid;                          /* 0: it cannot be told, or the thread is gone */
};

struct nt_python_threads {
  uint32_t count, interpreters;
  bool broken; /* a list did not hold still, or is not where it should be: there may be more */
  uint64_t interpreter[NT_PYTHON_INTERPRETERS_MAX];
  struct nt_python_thread thread[NT_PYTHON_THREADS_MAX];
};

/* Newest interpreter first, in it the newest thread first. */
void nt_python_threads_read(const struct nt_python *python, struct nt_python_threads *out);

/* The thread still has this state. */
bool nt_python_thread_lives(const struct nt_python *python, const struct nt_python_thread *thread);

/* The holders of the GILs there are, as text: thread ids, "none" for a GIL that nobody holds. False if it cannot be told
 * of each. */
bool nt_python_gil_holders(const struct nt_python *python, const struct nt_python_threads *threads,
                           char *out, size_t size);

#endif
