/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of the trace library: numbers for code, one line for people. */
#ifndef NT_ERROR_H
#define NT_ERROR_H

#include <stdint.h>

enum nt_err {
  NT_OK = 0,
  NT_ERR_IO = 1,        /* the system refused; errno says why */
  NT_ERR_FOREIGN = 2,   /* not one of our files */
  NT_ERR_VERSION = 3,   /* written by a newer major version */
  NT_ERR_TRUNCATED = 4, /* ends before what it announces */
  NT_ERR_CORRUPT = 5,   /* a checksum or a length is wrong */
  NT_ERR_MEMORY = 6,
  NT_ERR_BUSY = 7,   /* another process holds it */
  NT_ERR_SPACE = 8,  /* no room */
  NT_ERR_UNSAFE = 9, /* a directory or file that is not ours, or a symbolic link */
};

/* Where and why, for a message "FILE: at byte OFFSET: REASON". Filled by the failing function. */
struct nt_error {
  int code; /* negative enum nt_err, 0 if none */
  uint64_t offset;
  char reason[160];
};

#endif
