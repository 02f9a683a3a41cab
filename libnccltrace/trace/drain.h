/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Area -> frames: the one place where records leave the ring.
 *
 * Used by the helper of a running process, and by the next start or a tool for a dead one. Frames are
 * first appended to the area's spool (so that they survive a kill while a network file system is
 * spared), then written to the trace file; `drained` advances only once the frame is in the spool.
 */
#ifndef NT_DRAIN_H
#define NT_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "trace/area.h"
#include "trace/bytes.h"
#include "trace/error.h"

struct nt_drain;

struct nt_drain_config {
  char directory[768];    /* where rankN.trace goes; made if absent */
  uint64_t size;          /* bound of the whole file in bytes */
  uint32_t keep_attempts; /* earlier attempts kept beside the first */
  bool high_descriptor;   /* the table of descriptors is the application's: keep out of its way */
};

/* Opens (creates) the trace file of the area's process and takes its lock; the area's world_rank must be
 * set. Never overwrites a file of another process: picks rankN.trace, rankN.1.trace, … Fills the
 * area's file_* fields. To continue the file of a dead process give config == NULL. Not thread-safe:
 * one thread owns a drain. */
int nt_drain_open(struct nt_area *area, const struct nt_drain_config *config, struct nt_drain **out,
                  struct nt_error *err);

enum nt_drain_how {
  NT_DRAIN_LAZY,  /* a frame only when 4096 records wait or the oldest has waited a second */
  NT_DRAIN_FLUSH, /* everything closed goes to the file now, and is synced */
  NT_DRAIN_FINAL, /* the same without the sync: the process is gone or going, and must not wait */
};

/* One tick; it writes the evidence too while the file has none. Returns the records moved, or a negative enum nt_err (the job never notices; the area's
 * write_errors and last_errno are updated). */
int64_t nt_drain_tick(struct nt_drain *drain, enum nt_drain_how how);

/* Puts one section of a dump (the payload of a DUMP frame) into the spool; the next tick writes it out. */
int nt_drain_dump(struct nt_drain *drain, const struct nt_buffer *section);

/* The evidence text in the area has changed: write it anew. */
int nt_drain_evidence(struct nt_drain *drain);

/* If the file has been removed, makes another as at nt_drain_open: calls that were in the former count as overwritten.
 * Cheap when it has not. Returns 1 if there is a new file, 0 if none was needed or a negative enum nt_err. */
int nt_drain_renew(struct nt_drain *drain, const struct nt_drain_config *config);

/* Syncs if asked, closes the file and frees. Does not touch the area's existence. */
void nt_drain_close(struct nt_drain *drain, bool sync);

/* Drains what dead processes of this user have left in `directory` (see nt_area_directory) into their
 * trace files, where those still are the same files, and removes the areas. Areas whose lock is held,
 * and those without a file, stay for `grace_seconds` after their last heartbeat. Returns how many were removed. */
int nt_drain_collect(const char *directory, unsigned grace_seconds);

/* The same for a process whose own area is `own`, a path in `directory`: what the programs left that were in this process
 * before an exec is collected, too, but for the last of them. The former leaves all of them alone. */
int nt_drain_collect_beside(const char *own, const char *directory, unsigned grace_seconds);

#endif
