/* SPDX-License-Identifier: Apache-2.0 */
/* Words in the area on which this process and tools sleep for each other. Async-signal-safe; errno is undefined. */
#ifndef NT_FUTEX_H
#define NT_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleeps while the word is `seen`, at most `milliseconds`. */
static inline void nt_futex_wait(_Atomic uint32_t *word, uint32_t seen, int milliseconds) {
  struct timespec timeout = {milliseconds / 1000, (milliseconds % 1000) * 1000000L};
  syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, 0);
}

static inline void nt_futex_wake(_Atomic uint32_t *word) {
  syscall(SYS_futex, word, FUTEX_WAKE, 64, NULL, NULL, 0);
}

#endif
