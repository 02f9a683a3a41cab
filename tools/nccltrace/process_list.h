/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes on this node that carry libnccltrace.so, living or dead.
 *
 * Found in two places: areas in shared memory (of this user; of all users for root), and
 * /proc/PID/maps for processes that have loaded the library but made no communicator, and so have
 * no area.
 */
#ifndef NT_PROCESS_LIST_H
#define NT_PROCESS_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "trace/reader.h"

enum nt_presence {
  NT_PRESENT_AREA,    /* `area` is there; `trace` too, unless `error` says why not */
  NT_PRESENT_IDLE,    /* library loaded, no communicator yet */
  NT_PRESENT_PRIVATE, /* its area is an anonymous memory file: only the process itself reaches it */
};

struct nt_process {
  enum nt_presence presence;
  uint32_t pid; /* as the process knows itself */
  uint32_t uid;
  char area[512];
  struct nt_trace *trace; /* owned */
  struct nt_error error;  /* code 0, or why the area could not be read */
};

struct nt_process_list {
  struct nt_process *items; /* by state of life, world rank, pid */
  size_t count;
};

#define NT_LIST_AREAS 1u
#define NT_LIST_LOADED 2u

/* Returns 0 or a negative enum nt_err; single areas that cannot be read are items with an error. The
 * caller frees the list in any case. */
int nt_process_list_read(unsigned what, struct nt_process_list *list);
void nt_process_list_free(struct nt_process_list *list);

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
