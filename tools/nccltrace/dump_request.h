/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request to one process to write its trace out, or to dump itself: asking, waiting, and what came of it.
 *
 * It goes through the area: bits and a number in `request`, and a futex wake. The helper answers with the number of the
 * newest request whose flush is done; to requests for a dump with the number of the dump that began after them. Where the
 * area cannot be written, a signal does the same. Who cannot answer (stopped, dead, helper gone) loses nothing by it: its area is read as it is by nccltrace
 * show and by tracediff.
 */
#ifndef NT_DUMP_REQUEST_H
#define NT_DUMP_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/json_output.h"
#include "nccltrace/process_list.h"

enum nt_outcome {
  NT_WRITTEN,
  NT_NOT_ASKED,
  NT_NO_ANSWER,
  NT_NO_FILE,
  NT_WRITE_FAILED,
  NT_NO_ACCESS,
  NT_NO_DUMP,   /* the trace is written, but without a dump */
  NT_NO_NATIVE, /* with a dump, but without the native stacks that were asked for */
};
/* "written", "not asked" … */
const char *nt_outcome_name(enum nt_outcome outcome);

/* Zero-initialise but for `process` and `first`; release with nt_dump_request_free. */
struct nt_dump_request {
  const struct nt_process *process;
  const struct nt_dump_request
      *first; /* of an array with this one: reasons that are told of those in front are not told
                                          again, so they are freed after this one; NULL: all are told */
  struct nt_area area;
  bool open, asked, dump, native;
  uint32_t number;       /* that the answer must reach */
  uint32_t answer;       /* number of the dump that answers it, NT_DUMP_NONE or NT_DUMP_NO_THREAD */
  uint64_t write_errors; /* before */
  enum nt_outcome outcome;
  char *text;             /* what happened, escaped; NULL: no memory */
  struct nt_trace *trace; /* read after the answer, NULL if it cannot be */
  int found;              /* index of the dump there, -1: none */
  uint32_t section;       /* that the dump going on works on, 0: none goes on */
  uint32_t going;         /* number of that dump */
};

/* Asks with the kinds NT_REQUEST_*; or by the signal that the process has for it. */
void nt_dump_request_ask(struct nt_dump_request *request, uint32_t kinds, bool by_signal);

/* Waits until `deadline_ns` (CLOCK_MONOTONIC) for the answer and fills outcome and text. */
void nt_dump_request_await(struct nt_dump_request *request, int64_t deadline_ns,
                           int64_t timeout_ns);

/* The dump as an object, null if there is none. */
json_t *nt_dump_request_json(const struct nt_dump_request *request);

void nt_dump_request_free(struct nt_dump_request *request);

#endif
