/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native stack of the calling thread, in front of its Python stack (NCCLTRACE_NATIVE=1).
 *
 * One number names both: the chain of nodes goes from the outermost Python frame inwards, and on through the native
 * frames that lie inside the interpreter's innermost one, to the caller of NCCL. The interpreter's own frames are left
 * out where there is a Python stack, since they say nothing that it does not. A native frame is a node whose code
 * entry is the module (NT_LINES_MODULE) and whose offset is that of the call instruction's last byte.
 *
 * Addresses and modules. What is known of an address holds while its module stays loaded. That modules have gone
 * is noticed when a stack is new, and everything known is forgotten then. Not noticed is a module at the place
 * of another whose calls on this stack return to exactly the same addresses: it is taken for the old one.
 */
#ifndef NT_NATIVE_STACK_H
#define NT_NATIVE_STACK_H

#include <stdbool.h>
#include <stdint.h>

extern bool nt_native_on; /* written where recording starts, before any call is recorded */

/* Opens libunwind if `wanted`. Where recording starts, after nt_intern_start. errno is undefined. */
void nt_native_start(bool wanted);

/* For the evidence: "on", or "off: reason"; NULL if native stacks were not asked for. */
const char *nt_native_describe(void);

/*
 * Id of the stack that has the calling thread's native frames inside `python`, its Python stack (0: none). If there
 * is no room for it (counted), `python`, and NT_CALL_NO_STACK is added to *flags if that is 0. Only while
 * nt_native_on. A stack that is new, and a thread's first, may take the loader's lock and allocate; errno is kept.
 */
uint32_t nt_native_stack(uint32_t python, uint16_t *flags);

#endif
