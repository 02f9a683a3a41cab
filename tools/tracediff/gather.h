/* SPDX-License-Identifier: Apache-2.0 */
/* From the command line's files and directories to a model. */
#ifndef NT_GATHER_H
#define NT_GATHER_H

#include "analysis/model.h"
#include "tracediff/read_traces.h"

/*
 * Opens every FILE, every *.trace in a DIR, and the areas on this node that belong to a DIR (their file
 * lies in it, or they have none yet), and loads them. A FILE, and any file in a DIR, may
 * also be a flight-recorder dump or an NCCL log; what is found is judged from one source, and the rest is noted.
 * Files that cannot be read are told among the complaints of `look`, and in the model. Returns how many traces were
 * loaded, or a negative enum nt_err.
 */
int nt_gather(char **paths, int count, const struct nt_look *look, struct nt_model *out);

/* Is it meant as a file: one that is there, or that has the name of a trace? */
bool nt_gather_is_file(const char *path);

#endif
