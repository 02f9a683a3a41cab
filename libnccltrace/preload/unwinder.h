/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libunwind, as far as it is used here: opened when first needed, never linked.
 *
 * It must not get into the global scope: there its _Unwind_* functions take the place of the compiler's for modules
 * that are loaded later, and C++ exceptions and pthread_exit break. RTLD_LOCAL keeps it out.
 *
 * How it reads memory that it is not sure of is replaced. It would ask the kernel by way of a pipe in the
 * application's descriptor table, whose numbers it goes on using when the application has closed them and given them
 * to a file of its own: a byte read from it, a byte written to it. The pipe is still made, and nothing uses it.
 */
#ifndef NT_UNWINDER_H
#define NT_UNWINDER_H

#include <stdbool.h>
#include <stdint.h>

#include <ucontext.h>

struct nt_unwinder {
  int (*backtrace)(void **pcs, int count);
  int (*init)(void *cursor, ucontext_t *context, int flags);
  int (*step)(void *cursor);
  int (*get_reg)(void *cursor, int reg, uintptr_t *value);
  int (*is_signal_frame)(void *cursor);
  void (*flush_cache)(void *space, uintptr_t low, uintptr_t high);
  void *space;
};

#define NT_UNWINDER_SIGNAL_FRAME 1 /* flag of init: the context is a signal handler's */
#define NT_UNWINDER_CURSOR (64 * 1024)

#if defined(__x86_64__)
#define NT_UNWINDER_PC 16
#elif defined(__aarch64__)
#define NT_UNWINDER_PC 32
#endif

/* The library, opened if need be; NULL if it cannot be had, and *reason tells why, for ever. Takes the loader's lock;
 * any thread. errno is undefined. In a child of the process that opened it, NULL: another thread may have held one of
 * its locks at the fork. */
const struct nt_unwinder *nt_unwinder_open(const char **reason);

/* The calling thread's reads through libunwind begin anew: pages that were found readable are asked for again.
 * `foreign`: what is read is another thread's, which may go away at any moment. */
void nt_unwinder_begin(bool foreign);

#endif
