/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of a build for another processor run in an emulator (make check-aarch64), which is not Linux in all things. */
#ifndef NT_TEST_EMULATED_H
#define NT_TEST_EMULATED_H

#include <stdio.h>
#include <stdlib.h>

/* Skips the rest of a test that rests on what `reason` says that the emulator lacks. After cmocka.h. */
#define SKIP_IF_EMULATED(reason)                                                                   \
  do {                                                                                             \
    const char *emulator = getenv("EMULATOR");                                                     \
    if (emulator && *emulator) {                                                                   \
      printf("# %s\n", reason);                                                                    \
      skip();                                                                                      \
    }                                                                                              \
  } while (0)

#endif
