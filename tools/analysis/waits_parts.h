/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the search for stuck operations share: waits.c, and waits_*.c. */
#ifndef NT_WAITS_PARTS_H
#define NT_WAITS_PARTS_H

#include "analysis/waits.h"

/* A live rank that is behind for less may be on its way. Of one that has ended it is known that it never
 * called; the shorter time allows for ranks that were not quite in step when they were ended. */
#define NT_YOUNG_NS INT64_C(1000000000)
#define NT_YOUNG_ENDED_NS INT64_C(300000000)

struct nt_finder {
  const struct nt_job *job;
  const struct nt_freeze *freeze;
  struct nt_waits *out;
  const struct nt_unfinished *unfinished; /* by joint */
};

/* Positions of a joint that is not over. */
struct nt_unfinished {
  uint32_t first; /* that is known to be unfinished on some member; 0 if none is */
  uint32_t low;   /* that all members have called, the last of these */
};
/* Of each joint, by all processors: the caller frees it. NULL when there is no memory. */
struct nt_unfinished *nt_stuck_unfinished(const struct nt_finder *f);

/* Appends an empty one with room for that many ranks in each list; NULL when there is no memory. */
struct nt_stuck *nt_stuck_add(struct nt_finder *f, enum nt_stuck_kind kind, uint32_t joint,
                              uint32_t room);
/* Takes the last one out again. */
void nt_stuck_drop(struct nt_finder *f);
/* It waits for what it has called, itself or its device. */
bool nt_stuck_is_alive(const struct nt_finder *f, uint32_t rank);
/* The rank called, by this call of its: a waiter if it is unfinished there. Returns whether it is. */
bool nt_stuck_note(struct nt_finder *f, struct nt_stuck *stuck, uint32_t rank, uint32_t call);
/* The member called the operation at `position`; lists it among the waiters or the held. */
void nt_stuck_note_member(struct nt_finder *f, struct nt_stuck *stuck,
                          const struct nt_member *member, uint32_t position);

/* Its host waits for the first of its operations behind `position`, up to `last`, that is unfinished there, if one is. */
void nt_stuck_note_later(struct nt_finder *f, struct nt_stuck *stuck,
                         const struct nt_member *member, uint32_t position, uint32_t last);

/* What the member's record lacks in between is finished: a flight recorder's dump may leave that out, and what it has
 * overwritten is older than all that it holds. */
bool nt_member_left_out(const struct nt_job *job, const struct nt_member *member);

/* The member did not call: a laggard, or it has left. */
void nt_stuck_note_laggard(struct nt_stuck *stuck, const struct nt_member *member);
/* In a live job those that are behind may be on their way: sets `moving`. */
void nt_stuck_note_movement(struct nt_finder *f, struct nt_stuck *stuck);
/* Behind what the device of one that called is, if it is not at the operation. */
void nt_stuck_note_device(struct nt_finder *f, struct nt_stuck *stuck, uint32_t rank,
                          uint32_t call);
/* Somebody who is gone in the middle of it. One whose own part was done may leave; one that died then may have been
 * needed, unless a device that holds the others up explains more, or it had hung for long by then. */
void nt_stuck_note_gone(struct nt_finder *f, struct nt_stuck *stuck, uint32_t rank, uint32_t call,
                        bool hung);
/* All with a trace have called it: if the device of one of them is at another operation of NCCL, that is what it waits for,
 * whatever those without a trace did. */
void nt_stuck_note_front(struct nt_finder *f, struct nt_stuck *stuck, const struct nt_joint *joint);
/* What the rank called at `ns` may just not have finished yet. */
bool nt_stuck_is_young(const struct nt_finder *f, uint32_t rank, int64_t ns);

/* Creation and end of communicators, and their suspension. */
int nt_stuck_split(struct nt_finder *f, uint32_t joint);
int nt_stuck_init(struct nt_finder *f, const struct nt_creations *creations, uint32_t item);
int nt_stuck_teardown(struct nt_finder *f, uint32_t joint);

/* Where the joint's calls differ, be it in some that are gone. */
/* Whether positions behind the difference still correspond, so that who has not called the one behind `low`, up to which all
 * have, is behind. */
bool nt_stuck_counts_behind(const struct nt_divergence *divergence, uint32_t low);
/* The first position that is part of the difference, be it that calls of equal arguments had paired up there; 0: none. */
uint32_t nt_stuck_differs_from(const struct nt_divergence *divergence);
/* They differ in calls that are gone, and what is unfinished now comes long after these: NCCL pairs it up by its position. */
bool nt_stuck_is_past_hidden(const struct nt_finder *f, uint32_t joint,
                             const struct nt_divergence *divergence);
int nt_stuck_divergence(struct nt_finder *f, uint32_t joint,
                        const struct nt_divergence *divergence);

/* Windows and device communicators, of all joints. */
int nt_stuck_windows(struct nt_finder *f);

/* Messages whose other side may be any member without a trace. */
int nt_stuck_unplaced(struct nt_finder *f);

/* Operations behind unequal numbers of launches (replays.h). */
int nt_stuck_uneven(struct nt_finder *f, uint32_t joint);
/* Launches of captured graphs. */
int nt_stuck_replay(struct nt_finder *f, uint32_t joint, const struct nt_divergence *divergence);

/* Operations of a joint, and messages, that all have called and that do not finish. */
int nt_stuck_device(struct nt_finder *f, uint32_t joint, const struct nt_divergence *divergence);
int nt_stuck_pairs(struct nt_finder *f, const struct nt_p2p *p2p);
/* What is in one group with an operation that lacks somebody waits for that; once all are listed. */
int nt_stuck_groups(struct nt_finder *f, const struct nt_p2p *p2p);

#endif
