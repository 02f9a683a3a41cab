/* SPDX-License-Identifier: Apache-2.0 */
/* What verdict.c hands to the parts that turn facts into findings. */
#ifndef NT_INQUIRY_H
#define NT_INQUIRY_H

#include "analysis/clocks.h"
#include "analysis/verdict.h"
#include "analysis/waits.h"

struct nt_inquiry {
  struct nt_verdict *verdict;
  struct nt_job *job;
  struct nt_freeze *freeze;
  struct nt_divergence *divergences; /* by joint */
  struct nt_divergence *past; /* by joint: the first difference that the job went past, if any */
  struct nt_p2p p2p;
  struct nt_creations creations;
  struct nt_waits waits;
  struct nt_clocks clocks;
};

/* Appends an empty finding; NULL when there is no memory. */
struct nt_finding *nt_inquiry_add(struct nt_inquiry *inquiry, enum nt_class class, uint32_t joint);
/* The same among the warnings. */
struct nt_finding *nt_inquiry_warn(struct nt_inquiry *inquiry, enum nt_class class, uint32_t joint);
/* Something was found that holds the job up: a difference that it went past does not. */
bool nt_inquiry_explains(const struct nt_inquiry *inquiry);
/* Sets the summary. */
void nt_finding_say(struct nt_finding *finding, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds the ranks of a list (indices) to a set of world ranks. */
int nt_inquiry_ranks(const struct nt_inquiry *inquiry, struct nt_rank_set *set,
                     const uint32_t *ranks, uint32_t count);
/* "; ranks 0-1,3 wait in it since 02:41:17.120 UTC", of a log "; ranks 0-1,3 called it", or "" if nobody does. */
char *nt_inquiry_waiting(char *out, size_t size, const struct nt_finding *finding);
/* The same, or "; ranks 0-1,3 now wait in #18 since …, because every later call paired up with the wrong one" where the
 * finding names an earlier call than the one they wait in, or "; ranks 1-2 wait in a later call, AllReduce #4 on A" where the
 * one that it names is finished on them. */
char *nt_inquiry_waiting_in(char *out, size_t size, const struct nt_inquiry *inquiry,
                            const struct nt_finding *finding, const struct nt_stuck *stuck);
/* "rank 2 is running, its last call was AllReduce #6 on A" */
char *nt_inquiry_rank(char *out, size_t size, const struct nt_inquiry *inquiry, uint32_t rank);

/* An error that NCCL returned to this rank and that nothing earlier explains: index of the call, or
 * NT_NONE. */
uint32_t nt_error_of(const struct nt_inquiry *inquiry, uint32_t rank);
/* Does that error follow a call of the rank at which its communicator's members differ? Messages that do not fit are one,
 * and innocent ranks get it as well. */
bool nt_error_is_echo(const struct nt_inquiry *inquiry, uint32_t rank);

/* The last that is known of the rank is that NCCL lost a peer: somebody else's end had come before, and that it
 * calls no more follows from it. Only where no fate tells (a log). */
bool nt_echoes_an_end(const struct nt_inquiry *inquiry, uint32_t rank);
/* Nobody is to blame if that is true of all that are behind; a finding then. Returns 0 or a negative enum nt_err. */
int nt_judge_echoes(struct nt_inquiry *inquiry, const struct nt_stuck *stuck);

/* How far each waiter of an operation got with it, as evidence. */
void nt_say_progress(struct nt_inquiry *inquiry, struct nt_finding *finding,
                     const struct nt_stuck *stuck);

/* The function that a finding about it names. */
uint8_t nt_stuck_function(const struct nt_inquiry *inquiry, const struct nt_stuck *stuck);
/* Among calls that look alike, anchors may tell which one the rank skipped: the finding names that, or, of one that left, has it as
 * evidence. */
void nt_refine_missing(struct nt_inquiry *inquiry, struct nt_finding *finding, uint32_t rank,
                       const struct nt_stuck *stuck);

/* Each returns 0 or a negative enum nt_err. */
int nt_judge_operations(struct nt_inquiry *inquiry);
int nt_judge_extras(struct nt_inquiry *inquiry);
int nt_judge_stalls(struct nt_inquiry *inquiry);
int nt_judge_outside(struct nt_inquiry *inquiry);
/* Ranks whose last calls cannot be read, where nothing else was found. */
int nt_judge_damaged(struct nt_inquiry *inquiry);
int nt_judge_settings(struct nt_inquiry *inquiry);
int nt_judge_slow(struct nt_inquiry *inquiry);
/* Operations that take longer than they did, or than they do elsewhere. */
int nt_judge_durations(struct nt_inquiry *inquiry);
int nt_judge_divergences(struct nt_inquiry *inquiry);
int nt_judge_waits(struct nt_inquiry *inquiry);
int nt_judge_knots(struct nt_inquiry *inquiry);
int nt_judge_replays(struct nt_inquiry *inquiry);
/* Of one joint. */
int nt_judge_uneven(struct nt_inquiry *inquiry, uint32_t joint);
int nt_judge_messages(struct nt_inquiry *inquiry);
/* Messages that nobody took in a job that has ended. */
int nt_judge_lost_messages(struct nt_inquiry *inquiry);
int nt_judge_send_cycles(struct nt_inquiry *inquiry);
int nt_judge_deaths(struct nt_inquiry *inquiry);
int nt_judge_errors(struct nt_inquiry *inquiry);
/* Before deaths and errors: what was refused because a peer was gone is that peer's doing. */
int nt_judge_refusals(struct nt_inquiry *inquiry);
/* Creations that all have called, and in which somebody died. */
int nt_judge_creations(struct nt_inquiry *inquiry);
/* The rank lacks a call of the operation that it waits in by another of its communicator ranks, and the thread that
 * should make it waits in nothing, or in that operation itself. */
bool nt_is_idle_sibling(const struct nt_inquiry *inquiry, const struct nt_stuck *stuck,
                        uint32_t rank);
/* Which of the process's ranks have not called, as evidence; the finding is of the first one's thread. */
void nt_say_siblings(struct nt_inquiry *inquiry, struct nt_finding *finding,
                     const struct nt_stuck *stuck, uint32_t rank);
/* "communicator ranks 2-3": the places that nobody took. */
char *nt_unclaimed_text(char *out, size_t size, const struct nt_creation *creation);
/* "communicator rank 2 (cuda:2, thread 3) of rank 0": of one that holds several, those that have not called. */
char *nt_sibling_text(char *out, size_t size, const struct nt_inquiry *inquiry,
                      const struct nt_stuck *stuck, uint32_t rank);
/* What the graphs hold that findings speak of. */
void nt_say_replays(struct nt_inquiry *inquiry);
/* A call of the rank in words; a launch of a graph as "cudaGraphLaunch #4 on A", if it is counted (replays.h). */
char *nt_launch_text(char *out, size_t size, const struct nt_inquiry *inquiry, uint32_t rank,
                     uint32_t call);
/* The rank's first launch of a graph that is known to be unfinished; NT_NONE. */
uint32_t nt_outstanding_launch(const struct nt_inquiry *inquiry, uint32_t rank);
/* What that launch replays, and its place among those of its graph. */
void nt_say_launch(struct nt_inquiry *inquiry, struct nt_finding *finding, uint32_t rank,
                   uint32_t call);
/* Who waits for those that wait, and further. Returns 0 or a negative enum nt_err. */
int nt_say_chain(struct nt_inquiry *inquiry, struct nt_finding *finding);
/* Lines that say the same of several ranks become one. */
void nt_group_evidence(struct nt_lines *lines);
/* Findings, sorted, that only follow from an earlier one become its evidence. */
void nt_fold_consequences(struct nt_verdict *verdict);
/* What the clocks of hosts mean for the times and the order of the findings, which are sorted. */
void nt_note_clocks(struct nt_inquiry *inquiry);
/* Who is blamed, in detail. Returns 0 or -NT_ERR_MEMORY. */
int nt_fill_culprits(struct nt_inquiry *inquiry, struct nt_finding *finding);
/* A log without any call is no sign of health: a finding then. Returns 0 or a negative enum nt_err. */
int nt_judge_silence(struct nt_inquiry *inquiry);
/* Of jobs without traces: what the findings cannot know, and what can be done instead. */
void nt_say_limits(struct nt_inquiry *inquiry);
/* How far digests reach back, where a finding is undecided. */
void nt_say_digests(struct nt_inquiry *inquiry);
/* Where every rank stands is evidence. */
static inline bool nt_class_is_of_all(enum nt_class class) {
  return class == NT_CLASS_STALLED || class == NT_CLASS_OUTSIDE;
}
/* What to do next; the finding's culprits are there. */
void nt_say_next(struct nt_inquiry *inquiry, struct nt_finding *finding);
/* Culprits and next steps of all findings. */
int nt_complete_findings(struct nt_inquiry *inquiry);

/* Is the rank to blame for a message without counterpart, because another waits for it? */
bool nt_is_wrong_peer(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end,
                      enum nt_confidence *confidence);
/* The same of one in a circle, whom its partner waits for by way of others: it has gone on, or they are in one group, and in a
 * first turn both made as many messages as the rest; or the rest talk over the distance at which another waits for it. */
bool nt_turned_away(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end);
/* Its partner owes nothing, the two had never talked, and whom the rank should have turned to instead may be without a
 * trace. */
bool nt_may_be_wrong_peer(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end);
/* Adds the sides to blame for a message without counterpart: whoever deviates from what other ranks do
 * alike or from what it did before, both if that cannot be told. Sets confidence, and "peer" as the field
 * for a wrong peer. */
int nt_blame_unmatched(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end,
                       struct nt_finding *finding);
/* The rank made this message, or one before it in the queue, as it always had, where ranks of other communicators all went on
 * without. How many; 0 if it is not so. */
uint32_t nt_witnesses_without(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end);
/* Of the numbers of messages that the two sides made, is each what most others made? 1 yes, 0 no, -1 there are no others.
 * Returns 0 or -NT_ERR_MEMORY. */
struct nt_votes {
  int own, theirs;
};
int nt_count_votes(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end, uint32_t partner,
                   struct nt_votes *votes);
/* The other side ended well, and went past the place where it should have called and owes nothing else, or made its last call
 * together with one that lacks nothing: a message left out, and no early end. Which of the queue that was; 0 if it is not so. */
uint32_t nt_went_past(const struct nt_inquiry *inquiry, const struct nt_p2p_end *end);
/* Where the other side went past its place, as evidence, if it did. */
void nt_say_passed(const struct nt_inquiry *inquiry, struct nt_finding *finding,
                   const struct nt_p2p_end *end);
/* "rank 2 never sent what rank 3 waits for (Recv #4 on A from rank 2)": who to whom, and what is known of it. */
#define NT_UNMATCHED_TEXT 512
char *nt_unmatched_text(char *out, size_t size, const struct nt_inquiry *inquiry,
                        const struct nt_p2p_end *end, const struct nt_finding *finding);

#endif
