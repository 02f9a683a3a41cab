/* SPDX-License-Identifier: Apache-2.0 */
/* A thread of ours in somebody else's process: detached, small, and deaf to the application's signals. */
#ifndef NT_OWN_THREAD_H
#define NT_OWN_THREAD_H

/* Starts `body` with all signals blocked. 0, or -1 if no thread could be had. */
int nt_own_thread_start(void *(*body)(void *));

#endif
