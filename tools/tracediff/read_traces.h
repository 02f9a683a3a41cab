/* SPDX-License-Identifier: Apache-2.0 */
/* Reads many files at once, each by one of several threads. */
#ifndef NT_READ_TRACES_H
#define NT_READ_TRACES_H

#include <stdio.h>

#include "analysis/load_source.h"

/* One file to be read, and what came of it. */
struct nt_source {
  char *path;
  enum nt_recorder recorder;
  int status; /* 0 or a negative enum nt_err, then with `err`; what has failed already is not read */
  bool again;      /* it is read for the second time */
  bool known;      /* of a process that was read before: nothing is loaded */
  int64_t live_ns; /* it lived then: now, or when its digest was made; 0 if it did not */
  struct nt_error err;
  char **warnings;
  size_t warning_count;
  /* If status is 0 and it is not known; the caller may take it. */
  struct nt_loaded_trace loaded;  /* of a trace */
  struct nt_trace_loader foreign; /* of any other file */
};

/* Is the process one that was read before? Called by any thread. */
typedef bool nt_source_known(const struct nt_process_info *process, const void *context);

/* How much is read, and whether it is shown. */
struct nt_look {
  uint32_t window;      /* calls of each trace, its last ones; 0: all */
  uint64_t small_bytes; /* all in any case where the files have no more on disk together */
  uint64_t idle_most; /* calls of those that wait for nothing: all of them, if there are no more */
  char **whole;       /* files of which all is read in any case, sorted */
  size_t whole_count;
  bool bounded; /* all would be more than memory is meant for */
  FILE *
      complaints; /* what cannot be read, a line each; NULL: not told, and no bar on stderr if it takes long */
  int64_t began_ns; /* CLOCK_MONOTONIC: a bar is drawn a second later */
};

/*
 * Reads all of them; what each one tells does not depend on the others. Of a trace of which only the last calls are
 * wanted more are read where the device has not finished older ones, and all where its process waits for nothing or
 * has a live area.
 */
void nt_sources_read(struct nt_source *list, size_t count, nt_source_known *known,
                     const void *context, const struct nt_look *look);

/* What was not taken, and the texts. */
void nt_source_free(struct nt_source *source);

#endif
