/* SPDX-License-Identifier: Apache-2.0 */
/* Which traces belong to one run of a job, and which run is judged. */
#ifndef NT_RUNS_H
#define NT_RUNS_H

#include "analysis/model.h"

/* Removes what is not of the newest run and attempt, with a note on what was left out. World ranks must
 * be guessed before. Returns 0 or a negative enum nt_err. */
int nt_runs_keep_newest(struct nt_model *model);

#endif
