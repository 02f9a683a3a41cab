/* SPDX-License-Identifier: Apache-2.0 */
/* How much of the traces is read, and how often. */
#ifndef NT_LOOK_H
#define NT_LOOK_H

#include "analysis/verdict.h"

struct nt_looking {
  char **paths;
  int count;
  uint32_t window;      /* calls of each trace that are read first */
  uint64_t small_bytes; /* traces that are not larger together are read as a whole at once */
  uint64_t most;        /* calls that memory is meant for */
  bool full;            /* all calls are wanted even if the last ones decide */
};

/*
 * Reads the last calls of each trace, and if these do not decide as many as memory is meant for; then only, in the
 * second reading, what cannot be read is told on standard error. A live job is looked at twice: what seems to be
 * outstanding may just be on its way.
 *
 * Returns how many traces were loaded, or a negative enum nt_err; free model and verdict either way.
 */
int nt_look(const struct nt_looking *looking, struct nt_model *model, struct nt_verdict *verdict);

#endif
