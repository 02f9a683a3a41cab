/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps forks out of what the dump thread does with the loader's locks held.
 *
 * The loader does not mend all of its locks at a fork: in a child whose parent's dump thread was just then inside
 * dl_iterate_phdr (libunwind asks it for every module) the next dlopen or C++ exception would hang for ever. So a fork
 * waits until the dump thread is out, 200 ms at most, and the dump thread does not go in while there is a fork.
 */
#ifndef NT_FORK_GATE_H
#define NT_FORK_GATE_H

#include <stdbool.h>

/* Dump thread only, not nested. false: forks have been going on for 100 ms, and it is not to go in. */
bool nt_fork_gate_enter(void);
void nt_fork_gate_leave(void);

#endif
