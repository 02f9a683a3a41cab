/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The freeze point, and who was gone by then.
 *
 * The job is judged as it stood before the first abort, revoke, fatal signal, failed exit or teardown that
 * followed a wait in an unfinished operation: what comes after a wait is a consequence of it. Processes
 * that all vanish together were ended from outside.
 */
#ifndef NT_FREEZE_H
#define NT_FREEZE_H

#include "analysis/identify.h"
#include "analysis/p2p.h"

enum nt_fate_kind {
  NT_FATE_ALIVE,
  NT_FATE_DEAD, /* vanished or ended with a non-zero code, and not because of a wait */
  NT_FATE_LEFT, /* ended with code 0, became another program, or is on its way out */
};

struct nt_fate {
  enum nt_fate_kind kind;
  int64_t ns; /* when; 0 for ALIVE */
  bool
      likely; /* all ended within a moment, and only one thing tells that it was first; or it ended in a wait for what came late */
  bool lives; /* on its way out: it calls nothing more, but what it had called goes on */
  bool echo;  /* it ended, then or later, since NCCL had refused it a call for another one's end */
};

enum nt_freeze_why {
  NT_FREEZE_NEVER,    /* nothing ended after a wait: the job is judged as it is now */
  NT_FREEZE_TOGETHER, /* all that were left vanished at once */
  NT_FREEZE_ABORT,    /* abort or revoke */
  NT_FREEZE_TEARDOWN, /* finalize, destroy, or a normal exit */
  NT_FREEZE_DEATH,    /* a failed exit or a signal */
  NT_FREEZE_GIVEN_UP, /* the same of a rank that others had long waited for */
};

struct nt_freeze {
  enum nt_freeze_why why;
  int64_t ns;            /* INT64_MAX for NEVER */
  uint32_t rank;         /* whose; NT_NONE for NEVER */
  int64_t cut_ns;        /* calls count that were entered up to then */
  struct nt_fate *fates; /* by rank, as they stood then */
};

/* Needs the sequences and messages of the whole traces (no cut). `divergences` holds a position per
 * joint, 0 for none. Returns 0 or a negative enum nt_err; free the result either way. */
int nt_freeze_find(const struct nt_job *job, const struct nt_p2p *p2p, const uint32_t *divergences,
                   struct nt_freeze *out);
void nt_freeze_free(struct nt_freeze *freeze);

/* The call had not returned at the cut: neither it nor the end of its group. */
bool nt_call_is_open(const struct nt_job *job, uint32_t rank, uint32_t call);

#endif
