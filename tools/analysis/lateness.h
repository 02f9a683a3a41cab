/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who comes late to the rounds of a communicator, how late, and what the others lose by it.
 *
 * Two measures. By clocks: when each member came, between hosts as far as their clocks are bounded. By durations: a member
 * that is late spends the less time in the operation; that needs no clock, but only one launch in 64 has one. Time is
 * lost once: what a member comes late to, while it was waited for already, is not counted again.
 */
#ifndef NT_LATENESS_H
#define NT_LATENESS_H

#include "analysis/clocks.h"
#include "analysis/rounds.h"

struct nt_late_member {
  int64_t late_ns;        /* that the others waited for it, outliers cut */
  int64_t lost_ns;        /* that it waited for others */
  int64_t from_ns, to_ns; /* its first and last round, its own clock */
  uint32_t rounds;        /* in which it was among the late ones */
  uint32_t first, last;   /* positions of these, 0 if none */
  bool device;            /* in the last one its host was in time */
};

struct nt_lateness {
  bool measured;                 /* else nothing can be said */
  bool sampled;                  /* by durations */
  uint8_t fn;                    /* of all rounds, NT_FN_NONE if they differ */
  uint32_t rounds, waited;       /* looked at; in which the others waited for somebody */
  int64_t late_ns;               /* all that was waited, outliers cut */
  int64_t gap_ns;                /* median of these waits */
  int64_t spread_ns;             /* median, from the first to the last of those that were in time */
  int64_t error_ns;              /* of clocks */
  int64_t span_ns;               /* from the first round to the last */
  uint32_t positions;            /* that many operations lie in it */
  struct nt_late_member *member; /* by the joint's members */
};

/* How many rounds of waiting it takes. */
#define NT_LATE_ROUNDS 10
#define NT_LATE_ROUNDS_OF_TWO 16

/* By durations if `sampled`, else by clocks. Returns 0 or -NT_ERR_MEMORY; free it either way. */
int nt_lateness_measure(const struct nt_job *job, const struct nt_clocks *clocks, uint32_t joint,
                        bool sampled, struct nt_lateness *out);
void nt_lateness_free(struct nt_lateness *lateness);

/* Share of the time, 0 … 1, of so many nanoseconds in the measured rounds. */
double nt_lateness_share(const struct nt_lateness *lateness, int64_t ns);

#endif
