/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes on this node that carry libnccltrace.so, living or dead.
 *
 * Found in two places: areas in shared memory (of this user; of all users for root), and
 * /proc/PID/maps for processes whose area lies in a directory that only they were told of, and for those
 * that have loaded the library but made no communicator, and so have no area. With NCCLTRACE_SHM in the
 * tool's own environment only areas in that directory count.
 */
#ifndef NT_PROCESS_LIST_H
#define NT_PROCESS_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "cli/process_maps.h"
#include "trace/reader.h"

enum nt_presence {
  NT_PRESENT_AREA,    /* `area` is there; `trace` too, unless `error` says why not */
  NT_PRESENT_IDLE,    /* library loaded, no communicator yet */
  NT_PRESENT_PRIVATE, /* its area has no name, or not any more: only the process itself reaches it */
};

struct nt_process {
  enum nt_presence presence;
  uint32_t pid; /* as the process knows itself */
  uint32_t uid;
  char area[NT_AREA_PATH];
  dev_t device; /* of the area's file */
  ino_t inode;
  char nccl
      [NT_AREA_PATH]; /* of one without a communicator: a copy of NCCL that it uses unseen, or empty */
  bool job_lives;     /* a process of the same job is alive: nt_process_sort */
  struct nt_trace *trace; /* owned */
  struct nt_error error;  /* code 0, or why the area could not be read */
};

struct nt_process_list {
  struct nt_process *items; /* by job, state of life, world rank, pid */
  size_t count;
};

#define NT_LIST_AREAS 1u
#define NT_LIST_LOADED 2u

/* Returns 0 or a negative enum nt_err; single areas that cannot be read are items with an error, but for
 * those that are just being made, which are left out. The caller frees the list in any case. */
int nt_process_list_read(unsigned what, struct nt_process_list *list);
void nt_process_list_free(struct nt_process_list *list);

/*
 * Jobs: processes with the same directory of trace files and the same run id. Jobs with a living process
 * come first, then by directory and run; within a job living ranks, then what dead ones have left.
 * Processes without a readable trace belong to none and come last.
 */
void nt_process_sort(struct nt_process_list *list);
bool nt_process_same_job(const struct nt_process *a, const struct nt_process *b);
/* More than one job, so that it matters to which a process belongs. */
bool nt_process_has_jobs(const struct nt_process_list *list);
/* "/job/nccltrace" or "" if it has no trace file; returns `out`. */
const char *nt_process_directory(const struct nt_process *process, char *out, size_t size);
/* The line above the processes of a job: its directory, and its run if it has a name. Escaped. */
void nt_process_print_job(const struct nt_process *process, FILE *out);
/* Drops all whose trace file does not lie in `directory` or below it. */
void nt_process_keep_directory(struct nt_process_list *list, const char *directory);

/* The item with this pid that has an area; a living one before left-overs; NULL if there is none. */
const struct nt_process *nt_process_by_pid(const struct nt_process_list *list, uint32_t pid);

/* The NCCL call that the process is in, or was in last: an open call before any other, else the one that
 * returned last. NULL if it made none. Belongs to the trace. */
const struct nt_call *nt_process_last_call(struct nt_trace *trace);
/* The CUDA synchronisation that a host thread is in; NULL if none is. */
const struct nt_call *nt_process_host_wait(struct nt_trace *trace);

/* The label of a call's communicator (call_text.h), "comm N" if its definition is lost; NULL if the
 * call has none. Returns `out` or NULL. */
const char *nt_process_comm_label(const struct nt_trace *trace, uint32_t number, char *out,
                                  size_t size);

/* "nccltrace: FILE: at byte OFFSET: REASON" on stderr. */
void nt_report_error(const char *file, const struct nt_error *error);

#endif
