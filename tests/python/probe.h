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

/* The Python section of a dump, taken by a thread that Python knows nothing of, as lines: `stack TID FLAGS`, then
 * its frames `LINE\tFUNCTION\tFILE`, and `KEY=VALUE`. Returns its bytes. */
int probe_dump(char *out, unsigned size);
/* Many of them: only what is different of their frames, each once. Returns how many stacks there were; below 0: more
 * than fits. */
int probe_dump_many(unsigned dumps, char *out, unsigned size);
/* Shortest of so many, in ns. */
double probe_dump_cost(unsigned dumps);
/* Holds the caller where it is until another thread releases it. */
void probe_block(void);
void probe_unblock(void);
/* Calls this on a thread of C that nobody joins. */
void probe_call_on_thread(void (*function)(void));
/* A thread of C that has a state in Python but runs nothing, and blocks; its id. */
int probe_bare_thread(void);

#pragma GCC visibility pop

#endif
