/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Python stack of the calling thread, as a number.
 *
 * Taken without the GIL: a thread's frames, and the code objects that they hold, are changed by that
 * thread alone, and it is here. So nothing needs to be locked, and a thread that has released the GIL, or
 * never had a Python state, is no special case.
 */
#ifndef NT_PYTHON_STACK_H
#define NT_PYTHON_STACK_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/python_layout.h"

/* Whether stacks are taken: only after nt_intern_start, which says where they go. Off at first. */
void nt_python_stack_enable(bool on);

/*
 * Id of the calling thread's stack: the same frames at the same instructions give the same id. 0 if there
 * is none - no interpreter, one that is ending, a thread without a Python state - and 0 with
 * NT_CALL_NO_STACK added to *flags if there is one for which the regions have no room (counted there).
 * No lock, no allocation, no system call, no Python function that could need the GIL; errno is kept.
 */
uint32_t nt_python_stack_of(const struct nt_python *python, uint16_t *flags);

static inline uint32_t nt_python_stack(uint16_t *flags) {
  const struct nt_python *python = nt_python_get();
  return python ? nt_python_stack_of(python, flags) : 0;
}

#endif
