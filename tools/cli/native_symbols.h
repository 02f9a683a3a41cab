/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Function and source line of a native frame, from the module's file on this machine and the debug file that belongs
 * to it (/usr/lib/debug/.build-id). A file whose build id is not that of the traced process is not asked.
 */
#ifndef NT_CLI_NATIVE_SYMBOLS_H
#define NT_CLI_NATIVE_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "trace/reader.h"

struct nt_native_symbol {
  char function[512]; /* C++ names as in the source, without parameters; cut if too long */
  uint64_t offset;    /* of the frame from the function's start */
  char file[512];     /* source file, "" if not known */
  int line;           /* 0 if not known */
};

/* False: nothing is known of the frame, or it is not native. Any thread; files stay open until the program ends. */
bool nt_native_symbol(const struct nt_stack_frame *frame, struct nt_native_symbol *out);

#endif
