/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where variables go that every call reads and that are hardly ever written, and the code that every call runs: next to
 * each other.
 *
 * A call that comes after work which emptied the caches waits for each line and each page that it reads. Apart from each
 * other these few words would be one of each.
 */
#ifndef NT_CALL_DATA_H
#define NT_CALL_DATA_H

#define NT_CALL_DATA __attribute__((section(".data.nt_calls")))

/* The same for the code of calls that are made all the time. */
#define NT_CALL_CODE __attribute__((section(".text.hot.nt_calls")))

/* One piece with who calls it, however large the file is by which GCC decides. */
#define NT_IN_LINE static inline __attribute__((always_inline))

#endif
