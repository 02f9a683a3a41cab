/* SPDX-License-Identifier: Apache-2.0 */
/* Reads many files at once, each by one of several threads. */
#ifndef NT_READ_TRACES_H
#define NT_READ_TRACES_H

#include "analysis/load_source.h"

/* One file to be read, and what came of it. */
struct nt_source {
  char *path;
  enum nt_recorder recorder;
  int status; /* 0 or a negative enum nt_err, then with `err`; what has failed already is not read */
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

/* Reads all of them; what each one tells does not depend on the others. A bar is drawn on stderr if it takes long,
 * unless `quiet`. */
void nt_sources_read(struct nt_source *list, size_t count, nt_source_known *known,
                     const void *context, bool quiet);

/* What was not taken, and the texts. */
void nt_source_free(struct nt_source *source);

#endif
