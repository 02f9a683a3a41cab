/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where an interpreter keeps its lists: of interpreters, of their thread states, and who holds the lock.
 *
 * Apart from python_layout.h, which is what a walk of the calling thread needs: a release that moved one of these
 * fields costs dumps, not the stacks of calls.
 */
#ifndef NT_PYTHON_LISTS_H
#define NT_PYTHON_LISTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Offsets in bytes. */
struct nt_python_lists {
  uint16_t version; /* 0x030b for 3.11; 0: not known */
  uint16_t interp_next, interp_threads;
  uint16_t interp_gil;  /* from 3.12 on: pointer to the GIL */
  uint16_t runtime_gil; /* to 3.11: the GIL itself, in _PyRuntime */
  uint16_t gil_holder, gil_locked;
  uint16_t thread_prev, thread_next, thread_interp;
  uint16_t thread_id;     /* what pthread_self() was */
  uint16_t thread_native; /* from 3.11 on: what gettid() was */
};

/* What 3.8 to 3.12 have (as their headers say), or what 3.13 and 3.14 publish in the first NT_PYTHON_OFFSETS bytes
 * of _PyRuntime, which `offsets` need not be for the others. False if it is not known or not possible. */
bool nt_python_read_lists(const void *offsets, uint32_t hex, struct nt_python_lists *out);

#endif
