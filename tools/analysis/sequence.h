/* SPDX-License-Identifier: Apache-2.0 */
/* Each member's collectives by position, up to the cut; and what one call asks for. */
#ifndef NT_SEQUENCE_H
#define NT_SEQUENCE_H

#include "analysis/identify.h"

/* Fills the sequence fields of every member with what began no later than job->cut_ns. May be called
 * again with another cut. Returns 0 or a negative enum nt_err. */
int nt_sequences_build(struct nt_job *job);

/* What all ranks must pass alike, as one number, never 0. */
uint64_t nt_call_signature(const struct nt_model_call *call);
/* A send, a receive, or a one-sided operation, in which the signal is the message: WaitSignal receives. */
bool nt_call_is_message(const struct nt_model_call *call);
bool nt_call_sends(const struct nt_model_call *call);
/* Which of the signals between two ranks, from 1; 0: it is none. */
uint32_t nt_call_signal(const struct nt_model_call *call);
/* Bytes that the call moves or reduces; elements where the type is not known, 0 of a signal. */
uint64_t nt_call_bytes(const struct nt_model_call *call);
/* Counts for its communicator: not refused, and its group was ended. */
bool nt_call_counts(const struct nt_model_call *call);
/* Ends what runs on the communicator: an abort, a revoke, a shrink that is told to. */
bool nt_call_aborts(const struct nt_model_call *call);
/* An abort, a destroy or a finalize. */
bool nt_call_ends(const struct nt_model_call *call);
/* The view of the same rank that an init, shrink or grow made or was to make; NT_NONE. */
uint32_t nt_call_made(const struct nt_job *job, uint32_t rank, uint32_t call);
/* Has a root that all ranks must pass alike. */
bool nt_call_has_root(const struct nt_model_call *call);

/* The rank's calls of one NCCL group with this call, as indices: from *first on, in front of *end. A call outside of groups
 * is alone. */
void nt_call_group(const struct nt_model_rank *rank, uint32_t call, uint32_t *first, uint32_t *end);
/* The first position of which both members have the call, or `from`, if that comes later; 0: neither has any. */
static inline uint32_t nt_members_begin(const struct nt_member *a, const struct nt_member *b,
                                        uint32_t from) {
  const uint32_t first = a->first > b->first ? a->first : b->first;
  return first && first < from ? from : first;
}
/* First and last position of the group on this communicator that the call at `position` is in. */
void nt_member_group(const struct nt_job *job, const struct nt_member *member, uint32_t position,
                     uint32_t *begin, uint32_t *end);

#endif
