/* SPDX-License-Identifier: Apache-2.0 */
/* Who of the ranks around a knot left something out of its turn, while all others kept theirs. */
#ifndef NT_KNOT_TURNS_H
#define NT_KNOT_TURNS_H

#include "analysis/knot_parts.h"
#include "analysis/turns.h"

struct nt_departure {
  uint32_t rank;
  struct nt_turn turn;
};

struct nt_departures {
  /* Those who left something out; none if that does not tell: a rank of the knot has no turns or differs otherwise, or
   * they are not fewer than those who are known to have kept theirs. Of two ranks one is enough: what it did is new to
   * it, what the other did is not. */
  struct nt_departure *list;
  uint32_t count;
  bool
      common; /* most have left something out, even where nobody waits for it, or others the same: a branch of the program */
};

/* Returns 0 or a negative enum nt_err; the caller frees out->list. */
int nt_knot_departures(const struct nt_knot *knot, struct nt_departures *out);

/* The present turn, since all around the knot made a collective together, against the one before. */
struct nt_last_turn {
  bool told;                     /* all of them go on as before, line by line, but at most one */
  struct nt_departure departure; /* that one; rank NT_NONE: none */
};

int nt_knot_last_turn(const struct nt_knot *knot, struct nt_last_turn *out);

#endif
