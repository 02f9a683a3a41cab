/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are not ours: what each is, by its content and never by its name, and into the model.
 *
 * Of a flight recorder and a log less is known than of a trace; the model holds what is, and the report says
 * what is not.
 */
#ifndef NT_LOAD_SOURCE_H
#define NT_LOAD_SOURCE_H

#include "analysis/load_trace.h"

/* What the regular file at `path` is. `named`: the user named it, so that anything which begins like a dump is
 * one, if a damaged one; else it must look like one. Of a log, the first lines of NCCL must stand in its first 64 KiB,
 * or `deep`, for which more is read, in its first 4 MiB. NT_RECORDER_TRACE: nothing that is known here. */
enum nt_recorder nt_source_detect(const char *path, bool named, bool deep);

/* Why a regular file that is nothing of this is none: "empty", "compressed (gzip): uncompress it first" …; NULL if it is no
 * regular file, or begins like one of our traces. */
const char *nt_source_refusal(const char *path);
/* Is that all that the reason says: it is none of these? */
bool nt_source_is_unknown(const char *reason);

/* Reads the whole file and adds what it tells to the loader. On failure (a negative enum nt_err, err filled)
 * the loader is as before. */
int nt_source_load(struct nt_trace_loader *loader, enum nt_recorder recorder, const char *path,
                   struct nt_error *err);

/* "flight-recorder dump", "NCCL log" or "trace", as many of them as there are. */
const char *nt_source_name(enum nt_recorder recorder, int count);

/* Once all are loaded: what only all of them together tell, and a note of what such files do not. Returns 0 or a
 * negative enum nt_err. */
int nt_source_finish(struct nt_model *model, enum nt_recorder recorder);

#endif
