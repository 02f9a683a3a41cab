/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits for whom at the freeze point.
 *
 * A *stuck* operation is one that some members called and others did not (or that cannot finish
 * because its calls differ). Ranks that called wait in it; it waits for the ranks that did not. Chains
 * of this end at a sink: a rank that waits for nothing, an operation that nobody can finish, or a knot
 * of ranks that wait for each other.
 *
 * Two things of a rank wait: its host, until an operation has finished, and its device, which works on a
 * stream in order. An operation that all have called waits for the devices on which it stands behind
 * another (waits_device.c).
 */
#ifndef NT_WAITS_H
#define NT_WAITS_H

#include "analysis/align.h"
#include "analysis/anchors.h"
#include "analysis/creation.h"
#include "analysis/freeze.h"
#include "analysis/p2p.h"
#include "analysis/replays.h"

enum nt_stuck_kind {
  NT_STUCK_COLLECTIVE,
  NT_STUCK_DIVERGED, /* calls differ: waits for nobody */
  NT_STUCK_SPLIT,    /* or grow, of ranks of the parent */
  NT_STUCK_SYNC,     /* suspend or resume */
  NT_STUCK_INIT,     /* of the list of creations */
  NT_STUCK_RECV,
  NT_STUCK_SEND,
  NT_STUCK_WINDOW, /* a window or a device communicator */
  NT_STUCK_UNPLACED, /* a message of a communicator whose ranks are not known: waits for nobody that is */
  NT_STUCK_TEARDOWN, /* finalize or destroy */
  NT_STUCK_REPLAY,   /* launch of a graph, `seq` counts those of the joint (replays.h) */
  NT_STUCK_DEVICE,   /* everybody called, and it does not finish; a message where `item` is set */
};

struct nt_stuck {
  enum nt_stuck_kind kind;
  uint32_t joint;
  uint32_t seq;
  uint8_t fn;
  uint32_t item; /* INIT: index of the creation; RECV, SEND, DEVICE: index of the end */
  int64_t since_ns;
  int64_t called_ns; /* the first call of it, waited in or not */
  /* Ranks, as indices. */
  uint32_t *waiters, waiter_count; /* called, and it is unfinished there */
  uint32_t *held, held_count;      /* hosts that wait for it: those, and who waits in a later one */
  uint32_t *reached, reached_count;  /* devices that are at it, as far as known */
  uint32_t *laggards, laggard_count; /* have a trace and did not call */
  uint32_t *leavers, leaver_count;   /* of these, not among the laggards: left the communicator */
  /* DEVICE, REPLAY: devices that are at another operation of NCCL, and at other work in front of it */
  uint32_t *behind, behind_count;
  uint32_t *blocked, blocked_count;
  bool alone;   /* DEVICE: these have it unfinished, while all others finished */
  bool absent;  /* a member without a trace may be among those that did not */
  bool open;    /* some waiter's host is inside the call */
  bool soft;    /* a send that may have been buffered: the rank may have gone on */
  bool moving;  /* those that are behind were seen to make calls, or it is too early to say */
  bool excused; /* `soft` or `moving`: not followed */
  /* Of kind DIVERGED: the call too many from which it is left over, if position is set. */
  struct nt_shift extra;
  uint32_t peers; /* ranks of other communicators that went on without that call; 0: not asked */
  uint32_t knot;  /* number of its strongly connected component */
};

struct nt_waits {
  struct nt_stuck *list;
  uint32_t count, room;
  uint32_t *rank_knot, *device_knot; /* by rank: of its host, of its device */
  uint32_t knot_count;
  uint32_t *knot_ranks, *knot_stuck; /* members of each knot, counted */
  bool *knot_sink;                   /* nothing leads out of it */
  struct nt_replays replays;
};

/* `divergences` by joint. Returns 0 or a negative enum nt_err; free the result either way. */
int nt_waits_find(const struct nt_job *job, const struct nt_freeze *freeze,
                  const struct nt_p2p *p2p, const struct nt_creations *creations,
                  const struct nt_divergence *divergences, struct nt_waits *out);
void nt_waits_free(struct nt_waits *waits);

/* All members had called the collective by then, longer ago than it takes, as far as this job's pauses tell: what happened at
 * `ns` is not what holds it up. */
bool nt_hung_before(const struct nt_job *job, uint32_t joint, uint32_t position, int64_t ns);

/* The member has not called the operation, one of those that are counted on a communicator. */
bool nt_stuck_lacks(const struct nt_stuck *stuck, const struct nt_member *member);
/* Does the process that did not call wait in the operation too, by another of its ranks? */
bool nt_stuck_has_sibling(const struct nt_stuck *stuck, uint32_t rank);

#endif
