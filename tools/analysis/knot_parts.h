/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts that judge knots share: judge_knots.c, and knot_*.c. */
#ifndef NT_KNOT_PARTS_H
#define NT_KNOT_PARTS_H

#include "analysis/inquiry.h"

struct nt_knot {
  struct nt_inquiry *inquiry;
  uint32_t number;
  uint32_t *stuck, stuck_count; /* operations in it, as indices of waits.list */
  uint32_t *ranks, rank_count;
  /* Members that a communicator lacks may have called: who has a whole trace and made no view has not. */
  bool may_lack_members;
};

static inline bool nt_ranks_list(const uint32_t *list, uint32_t count, uint32_t value) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == value)
      return true;
  return false;
}

static inline const struct nt_stuck *nt_knot_stuck(const struct nt_knot *knot, uint32_t i) {
  return &knot->inquiry->waits.list[knot->stuck[i]];
}

static inline bool nt_stuck_is_message(const struct nt_stuck *stuck) {
  return stuck->kind == NT_STUCK_SEND || stuck->kind == NT_STUCK_RECV ||
         (stuck->kind == NT_STUCK_DEVICE && stuck->item != NT_NONE);
}

static inline bool nt_stuck_is_collective(const struct nt_stuck *stuck) {
  return stuck->kind == NT_STUCK_COLLECTIVE || stuck->kind == NT_STUCK_REPLAY ||
         (stuck->kind == NT_STUCK_DEVICE && stuck->item == NT_NONE);
}

/* When the rank called the operation, 0 if it did not or that is not known. */
int64_t nt_knot_issued_ns(const struct nt_knot *knot, const struct nt_stuck *stuck, uint32_t rank);
/* The rank's own end of a message, NULL if it has none in it. */
const struct nt_p2p_end *nt_knot_end_of(const struct nt_knot *knot, const struct nt_stuck *stuck,
                                        uint32_t rank);
/* A message that both sides have called, and that waits for others of the rank's own group (waits_device.c). */
bool nt_knot_holds_itself(const struct nt_knot *knot, const struct nt_stuck *stuck, uint32_t rank);
/* Which operation of the knot the rank issued first, as an index into knot->stuck: by its calls where there are
 * collectives, else the one that it waits in. NT_NONE if that is not one. */
uint32_t nt_knot_waits_in(const struct nt_knot *knot, uint32_t rank);

/* By its own past, would the rank have called `first` before the one it waits in? */
bool nt_knot_has_skipped(const struct nt_knot *knot, uint32_t rank, const struct nt_stuck *first,
                         const struct nt_stuck *second);
/* The same, by several turns of its past, of all that it called since the kind of `first`, and up to `second`. */
bool nt_knot_has_passed(const struct nt_knot *knot, uint32_t rank, const struct nt_stuck *first,
                        const struct nt_stuck *second);
/* Did the rank call at this moment from a line that it had called from before, or in a group with such a call? In a new
 * place its turns may have ended. */
bool nt_knot_is_used_line(const struct nt_knot *knot, uint32_t rank, int64_t at);
struct nt_last_turn; /* knot_turns.h */
/* Blames those who by their past have skipped an operation, and returns that, the oldest; NULL if there is none. Its
 * place in the sequence goes to *seq where an earlier one than it was skipped, which looks alike. */
const struct nt_stuck *nt_knot_blame_by_past(const struct nt_knot *knot, struct nt_last_turn *last,
                                             struct nt_finding *finding, uint32_t *seq,
                                             int *status);
/* The same by what ranks of other communicators did at the same place of the program (witnesses.h). */
const struct nt_stuck *nt_knot_blame_by_witnesses(const struct nt_knot *knot,
                                                  struct nt_finding *finding, uint32_t *seq,
                                                  int *status);
/* The same by the lines from which they went to others (passages.h): who left a message out, or made one too many, if it is one
 * rank. */
const struct nt_stuck *nt_knot_blame_by_passages(const struct nt_knot *knot,
                                                 struct nt_finding *finding, int *status);
/* The same by what the groups of all others hold that belong to the same collective (knot_groups.c): who left a message out of
 * its group, or made one too many in it. */
const struct nt_stuck *nt_knot_blame_by_groups(const struct nt_knot *knot,
                                               struct nt_finding *finding, int *status);
/* Where messages, of one communicator or of several of one size, and a collective wait for each other: blames those who took the other order than a
 * strict majority, those without a trace counted against it, and returns the operation that they owe, or their own message
 * if that is one too many. NULL if there is no majority. True in *skipped: their past says so. */
const struct nt_stuck *nt_knot_vote_on_messages(const struct nt_knot *knot,
                                                struct nt_finding *finding, bool *skipped,
                                                int *status);
/* Where no rank is in all collectives of the knot: blames those who called two of them in another order than a strict majority
 * of those that are in both (knot_pairs.c), or, true in *tied, all of these, and returns the operation that the majority called first, as an
 * index into knot->stuck; NT_NONE if that does not tell. */
uint32_t nt_knot_vote_in_pairs(const struct nt_knot *knot, struct nt_finding *finding, bool *tied,
                               int *status);
/* The message with which one of them turned to a wrong peer, NULL if there is none, or several ranks did: the circle is closed
 * by the one that it should have turned to. */
const struct nt_stuck *nt_knot_wrong_peer(const struct nt_knot *knot);
/* The only message of the circle that begins a queue, and lacks its other side: made in a group that had twice been without, while its partner and
 * all others do as before. NULL if it is not so. */
const struct nt_stuck *nt_knot_message_too_many(const struct nt_knot *knot);
/* The first message without other side of a rank that made steps in this turn that are new to it, while all others go on as
 * before; NULL if it is not so. */
const struct nt_stuck *nt_knot_added_message(const struct nt_knot *knot,
                                             const struct nt_last_turn *last);
/* Where most have gone on with the call `common` of a communicator, and the others launch once more a graph of it that
 * they had launched over and over, with no call in between: that launch. NULL else. */
const struct nt_stuck *nt_knot_extra_launch(const struct nt_knot *knot, uint32_t common);

#endif
