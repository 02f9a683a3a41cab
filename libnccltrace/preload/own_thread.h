/* SPDX-License-Identifier: Apache-2.0 */
/* A thread of ours in somebody else's process: detached, small, and deaf to the application's signals. */
#ifndef NT_OWN_THREAD_H
#define NT_OWN_THREAD_H

#include <stdbool.h>

/* Starts `body` with all signals blocked. 0, or -1 if no thread could be had. */
int nt_own_thread_start(void *(*body)(void *));

/* Gives the calling thread a descriptor table of its own with nothing of the application's, whose descriptors it can then
 * neither meet nor keep open: a copy of its pipes would keep their other ends from ever seeing an end of file. False
 * where the kernel refuses. */
bool nt_own_descriptors(void);

#endif
