/* SPDX-License-Identifier: Apache-2.0 */
/* What the two parts of the search for the freeze point share. Included by freeze*.c only. */
#ifndef NT_FREEZE_PARTS_H
#define NT_FREEZE_PARTS_H

#include "analysis/freeze.h"
#include "analysis/sequence.h"
#include "nccl/nccl_api.h"

#define NT_WAIT_NS INT64_C(500000000) /* shorter is no wait: ranks are never quite in step */

struct nt_end {
  int64_t ns;
  uint32_t rank;
  enum nt_freeze_why why;
};

struct nt_joint_facts {
  uint32_t everyone;   /* last position that all members with a trace have called */
  int64_t everyone_ns; /* when the last of them called it */
  bool balanced;       /* none has called more, and nothing differs */
};

/* What of a rank can have been a wait at all, so that each of its ends need not look at every call. */
struct nt_rank_facts {
  uint32_t *calls, call_count; /* that took long, or did not return */
  uint32_t *views, view_count; /* on which not everybody called the same */
  int64_t outstanding_ns;      /* its first operation known to be unfinished; INT64_MAX */
  int64_t everyone_ns;         /* when the last position was complete on any of the other views */
};

struct nt_search {
  const struct nt_job *job;
  const uint32_t *divergences;
  const struct nt_p2p *p2p;
  bool silence; /* some are gone, and nobody is known to live */
  struct nt_joint_facts *facts;
  struct nt_rank_facts *ranks;
  int64_t *message_ns; /* by rank: its first receive that nobody answered; INT64_MAX */
  int64_t wait_ns;     /* what is shorter is no wait */
  uint8_t *first;      /* by rank: what tells that it was gone while others lived on; 0: nothing */
  bool *late;          /* by rank: it died while it waited for what was merely late */
};

/* ---- freeze_waits.c: had somebody been waiting? */

/* Fills s->facts and s->ranks. Returns 0 or -NT_ERR_MEMORY. */
int nt_freeze_facts(struct nt_search *s);
/* It may be a reaction to a wait. */
bool nt_freeze_reacts(const struct nt_end *end);
/* Had the rank that ended been waiting by then? */
bool nt_freeze_had_waited(const struct nt_search *s, const struct nt_end *end);
/* Its last call was refused because a member of that communicator had ended before: however short it waited, what it did then is
 * the consequence. */
bool nt_freeze_is_echo(const struct nt_search *s, const struct nt_end *event);
/* Had others waited for this rank, much longer than they ever did before, when it ended at `ns`? Then what it did
 * instead is the cause, and its end but a consequence: somebody gave up on it. */
bool nt_freeze_was_awaited_long(const struct nt_search *s, uint32_t rank, int64_t ns);
/* Calls in which the host waits for what other ranks do. */
bool nt_freeze_waits_for_others(enum nt_shape shape);

/* ---- freeze_late.c */

/* Did all come that the rank waited for when it ended, only later, while others still waited? Then that is no reaction to a
 * wait but a cause. Returns 0 or -NT_ERR_MEMORY. */
int nt_freeze_was_late(const struct nt_search *s, const struct nt_end *end, bool *late);

#endif
