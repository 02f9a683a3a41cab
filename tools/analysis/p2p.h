/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends and receives: first in, first out per communicator, source and destination.
 *
 * Signals of one-sided operations are messages, too, that nobody has to take: a wait stands for the last of those that
 * it is for. NCCL knows no tags, so the k-th send of a queue meets the k-th receive. Positions are the trace's, in
 * which AlltoAll, Gather and Scatter have taken one each.
 */
#ifndef NT_P2P_H
#define NT_P2P_H

#include "analysis/identify.h"

struct nt_p2p_end {
  uint32_t joint;
  int32_t source, destination; /* communicator ranks */
  uint32_t signal; /* which of those between the two, each a queue of its own; 0: a message */
  uint32_t seq;
  uint32_t rank;      /* whose */
  uint32_t call : 30; /* which of its calls */
  bool is_send : 1;
  bool shifted : 1; /* without counterpart, since its queue's sides stopped agreeing before it */
};
_Static_assert(sizeof(struct nt_p2p_end) == 28, "memory of large jobs");

/* Sizes of a queue differ from one pair on, and agree again once one end is left out. */
struct nt_p2p_shift {
  uint32_t uneven; /* index of the send of that pair */
  uint32_t lonely; /* index of the end to leave out: it has no counterpart */
  uint32_t agree;  /* later calls that agree without it */
};

struct nt_p2p {
  struct nt_p2p_end *ends; /* all up to the cut, sorted by queue, position and direction */
  uint32_t count;
  /* Indices of ends without counterpart, be it in a collective, whose partner has a trace that would show it. */
  uint32_t *unmatched;
  uint32_t unmatched_count;
  uint32_t *uneven; /* indices of sends whose receive, the next end, has another size */
  uint32_t uneven_count;
  struct nt_p2p_shift *shifts; /* of queues, by `uneven` */
  uint32_t shift_count;
};

/* The shift that begins with this uneven pair, NULL if there is none. */
const struct nt_p2p_shift *nt_p2p_shift_at(const struct nt_p2p *p2p, uint32_t uneven);

/* Ends of one communicator, source and destination. */
bool nt_p2p_same_queue(const struct nt_p2p_end *a, const struct nt_p2p_end *b);
/* A send and the receive that it meets. */
bool nt_p2p_is_pair(const struct nt_p2p_end *send, const struct nt_p2p_end *recv);

/* Returns 0 or a negative enum nt_err; free the result either way. */
int nt_p2p_match(const struct nt_job *job, struct nt_p2p *out);
void nt_p2p_free(struct nt_p2p *p2p);

/* The member that the end's rank is talking to, NULL if it has no trace, or one without its last calls. */
const struct nt_member *nt_p2p_partner(const struct nt_job *job, const struct nt_p2p_end *end);
const struct nt_model_call *nt_p2p_call(const struct nt_job *job, const struct nt_p2p_end *end);

#endif
