/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far the clocks of hosts are apart, from the collectives in which their processes meet.
 *
 * Nobody has finished such an operation before everybody has entered it, which bounds the difference of two clocks from
 * one side. The other side, where the same rank is always last, comes from a second rule: no member finishes an
 * operation later than another by more than the shortest time that any member was in it.
 */
#ifndef NT_CLOCKS_H
#define NT_CLOCKS_H

#include "analysis/identify.h"

struct nt_clock {
  uint32_t rank;    /* the first on this host, an index */
  bool known;       /* else nothing bounds it, or it jumped */
  int64_t ahead_ns; /* of the first host's */
  int64_t error_ns; /* at most, either way */
};

struct nt_clocks {
  uint32_t *host; /* by rank: index into `list` */
  struct nt_clock *list;
  uint32_t count;
};

/* How far an undisciplined clock runs off in so long a time: 50 ppm. */
#define NT_CLOCK_DRIFT(ns) ((ns) / 20000)

/* Needs the sequences. Returns 0 or -NT_ERR_MEMORY; free it either way. */
int nt_clocks_find(const struct nt_job *job, struct nt_clocks *out);
void nt_clocks_free(struct nt_clocks *clocks);

#endif
