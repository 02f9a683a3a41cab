/* SPDX-License-Identifier: Apache-2.0 */
/* The part of native stacks that runs in the threads they are taken of. */
#ifndef NT_DUMP_NATIVE_H
#define NT_DUMP_NATIVE_H

#include <signal.h>
#include <stdbool.h>

/*
 * In the handler of the dump signal. True if the signal was sent by this library to look at this very thread: the thread
 * has been held for that, for 100 ms at most. False: it was somebody else's signal, nothing was done. errno is kept.
 */
bool nt_native_on_signal(const siginfo_t *info, void *context);

#endif
