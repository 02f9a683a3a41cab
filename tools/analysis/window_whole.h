/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of a job with more calls than memory is meant for: which ranks have to be read as a whole?
 *
 * Where the running sums of all members of a communicator agree, what they called before is equal and need not be read.
 * Where they do not, the members whose sums are another are read, and of the others more than of these, so that votes
 * among those that were read go as they would go among all.
 */
#ifndef NT_WINDOW_WHOLE_H
#define NT_WINDOW_WHOLE_H

#include "analysis/identify.h"

/* The calls that its trace has, read or not. */
uint64_t nt_window_there(const struct nt_model_rank *rank);

/* Marks them in `whole`, by rank: no more than have `most` calls together. The job is one of which the last calls were
 * read, and its sequences have been built. Returns 0 or -NT_ERR_MEMORY. */
int nt_window_whole(const struct nt_job *job, uint64_t most, bool *whole);

#endif
