/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches of captured graphs, as each communicator sees them.
 *
 * A captured call moves nothing; what the ranks of a communicator must do alike are the launches of graphs that hold
 * collectives on it. These have no number in the trace, so they are counted here, which needs traces with all
 * calls, of members that have all captured something: of other communicators nothing is known.
 */
#ifndef NT_REPLAYS_H
#define NT_REPLAYS_H

#include "analysis/align.h"

struct nt_replay {
  int64_t enter_ns;
  uint64_t sig;  /* of the graph's collectives on the communicator, in their order */
  uint32_t call; /* cudaGraphLaunch, of the rank's calls */
};

/* Of one member, by position from 1. */
struct nt_replay_row {
  struct nt_replay *list;
  uint32_t count, room;
  bool captures; /* it has captured collectives on the communicator */
};

/* A collective that all members called alike behind unequal numbers of launches, all of which had finished: so one was too many,
 * left out or made at another time, and paired up with something else. */
struct nt_uneven {
  uint32_t seq;    /* of the collective; 0: there is none */
  uint32_t common; /* launches in front of it on most members */
  bool decided; /* that is a majority, also if all members without a trace were of another mind */
  bool swapped; /* with those behind it the members launched as often */
};

struct nt_replays {
  struct nt_replay_row **rows; /* by joint and member; NULL where nothing is known */
  uint32_t *members;           /* by joint: their number */
  uint32_t *diverged; /* by joint: first position at which members replay different graphs, or 0 */
  struct nt_uneven *uneven; /* by joint */
  uint32_t joint_count;
};

/* Up to the cut. Returns 0 or -NT_ERR_MEMORY; free the result either way. */
int nt_replays_find(const struct nt_job *job, struct nt_replays *out);
void nt_replays_free(struct nt_replays *replays);

/* NULL if the member has launched less, or nothing is known. */
const struct nt_replay *nt_replay_at(const struct nt_replays *replays, uint32_t joint,
                                     uint32_t member, uint32_t position);

/* Of the operations of a graph up to this one, by the signature of its call (sequence.h); 0 in front of the first. */
uint64_t nt_replay_sig(uint64_t sig, uint64_t operation);

/* Part of nt_replays_find (replays_uneven.c): fills out->uneven of a joint whose launches are all known. */
int nt_replays_find_uneven(const struct nt_job *job, struct nt_replays *out, uint32_t joint);
/* Of a joint whose calls agree; NULL: there is no such collective, or what its calls differ in tells more. */
const struct nt_uneven *nt_uneven_at(const struct nt_replays *replays, uint32_t joint,
                                     const struct nt_divergence *divergence);
/* How many launches the member made in front of its collective at `seq`, which is there. */
uint32_t nt_replays_before(const struct nt_job *job, const struct nt_replays *replays,
                           uint32_t joint, uint32_t member, uint32_t seq);

/* Operations that the graph of a rank holds, as indices of its calls: the collectives on a communicator or, with NT_NONE,
 * all, messages included. The caller frees it. */
uint32_t *nt_graph_operations(const struct nt_job *job, uint32_t rank, uint32_t graph,
                              uint32_t joint, uint32_t *count);

#endif
