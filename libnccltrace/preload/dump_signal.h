/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signal that asks for a dump, for those who have nothing but kill(1).
 *
 * A real-time signal whose disposition is the default, so that nobody's is taken away; never one that
 * schedulers or debuggers use. Its handler adds to the request's words and wakes the helper. Where native stacks of all
 * threads are wanted, the dump thread sends the same signal to one thread after another.
 */
#ifndef NT_DUMP_SIGNAL_H
#define NT_DUMP_SIGNAL_H

#include <stdbool.h>

/* Installs the handler on `wanted`, or on any number that is free if it is 0; -1: on none. Once per process, where
 * recording starts; after a fork the handler is there already. What became of it is in the area's dump_signal. */
void nt_dump_signal_install(int wanted);

/* The handler is still ours: the program may have taken any signal for itself since. Whoever sends it asks before. */
bool nt_dump_signal_is_ours(int number);

/* The signal, if its handler is still ours; 0: none was to be had; negative: the number that the program has taken for
 * itself since. The area's dump_signal says the same afterwards. Any thread. */
int nt_dump_signal_check(void);

#endif
