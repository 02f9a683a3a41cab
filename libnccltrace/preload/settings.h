/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCLTRACE_* variables, read once when recording starts. README.md has their table. */
#ifndef NT_SETTINGS_H
#define NT_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

struct nt_settings {
  bool enabled;        /* NCCLTRACE: 0 or off turns everything off */
  bool log;            /* NCCLTRACE_LOG: say on stderr what is done and what goes wrong */
  char directory[768]; /* NCCLTRACE_DIR: where trace files go; empty if the name is too long */
  bool directory_given;
  char
      fallback[512]; /* where they go if that cannot be written and was not given; empty: nowhere */
  bool gpu;          /* NCCLTRACE_GPU: how far the GPU has come; off turns it off */
  bool native;       /* NCCLTRACE_NATIVE: native stacks of calls; off unless asked for */
  int signal; /* NCCLTRACE_SIGNAL: number that asks for a dump; 0 any that is free, -1 none */
  int64_t
      watchdog_ns; /* NCCLTRACE_WATCHDOG: silence after which a dump is made; 0 learned, -1 never */
  bool python;     /* NCCLTRACE_PYTHON: Python stacks of calls; off turns them off */
  uint64_t file_size;     /* NCCLTRACE_SIZE: bound of one trace file, bytes */
  uint64_t area_size;     /* NCCLTRACE_AREA: size of the live area, bytes */
  uint32_t keep_attempts; /* NCCLTRACE_KEEP: attempts kept between the first and this one */
};

/* Turns the log on if it is asked for; with it, names each value that is not understood, and what is used
 * instead. */
void nt_settings_read(struct nt_settings *out);

/* NCCLTRACE_DLSYM, and NCCLTRACE itself: look-ups by name are answered by us. Says nothing, whatever it finds. */
bool nt_settings_dlsym(void);

/* "64M" -> 67108864; K, M, G and plain bytes. 0 if it is not a size. */
uint64_t nt_settings_size(const char *text);

#endif
