/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps forks out of what we do with the loader's locks held.
 *
 * The loader does not mend all of its locks at a fork: in a child of which another thread was just then inside
 * dl_iterate_phdr (libunwind asks it for every module) the next dlopen or C++ exception would hang for ever. So a fork
 * waits until our threads are out, 200 ms at most, and none goes in while there is a fork.
 */
#ifndef NT_FORK_GATE_H
#define NT_FORK_GATE_H

#include <stdbool.h>

enum { NT_GATE_DUMP_MS = 100, NT_GATE_CALL_MS = 1000 };

/* Any thread. false: forks have been going on for so long, and nobody is to go in. */
bool nt_fork_gate_enter(unsigned wait_ms);
void nt_fork_gate_leave(void);

#endif
