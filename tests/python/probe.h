/* SPDX-License-Identifier: Apache-2.0 */
/* The stack walk for tests to call; see probe.c. */
#ifndef NT_PROBE_H
#define NT_PROBE_H

#pragma GCC visibility push(default)

/* Begins anew with regions of these sizes. 1 if there is an interpreter that can be walked. */
int probe_start(unsigned code_bytes, unsigned nodes);
/* "on", "off: reason", or "none". */
const char *probe_state(void);
/* The calling thread's stack: its id; 0 none, 0xffffffff lost, 0xeeeeeeee errno was changed. */
unsigned probe_id(void);
unsigned long probe_lost(void);
/* The frames of a stack, innermost first, a line `LINE\tFUNCTION\tFILE` each; returns their number. */
int probe_text(unsigned id, char *out, unsigned size);
/* Both in one; a number below 0 if there is none. */
int probe_stack(char *out, unsigned size);
/* Id of the stack of a thread that Python knows nothing of. */
unsigned probe_foreign_thread(void);
int probe_line(unsigned format, const unsigned char *table, unsigned length, int first, int offset);
double probe_cost(void);
double probe_instructions(void);

#pragma GCC visibility pop

#endif
