/* SPDX-License-Identifier: Apache-2.0 */
/* The same for each of many ranks or communicators, by all processors. */
#ifndef NT_EACH_H
#define NT_EACH_H

#include <stdint.h>

/* Calls fn(ctx, i) for each i below `count`, in any order and, where there are many, by several threads: it may change nothing
 * but what is of `i` alone. Returns 0, or one of the values other than 0 that it returned; then some were left out. */
int nt_each(uint32_t count, int (*fn)(void *ctx, uint32_t i), void *ctx);

/* Processors that this process may use, 16 at most. */
unsigned nt_each_processors(void);

#endif
