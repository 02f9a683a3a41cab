/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cheapest story that turns one sequence of signatures into another, told from its beginning.
 *
 * Both sequences begin at a difference. What is left over at the end of either is free, because a
 * rank that hangs simply has not got further. Matches weigh more than edits, so a story that explains
 * later calls wins over one that changes every call. Pure functions.
 */
#ifndef NT_EDIT_H
#define NT_EDIT_H

#include <stdbool.h>
#include <stdint.h>

#define NT_EDIT_WINDOW 96

enum nt_edit_how {
  NT_EDIT_CHANGED, /* another call in the same place */
  NT_EDIT_SKIPPED, /* a call of the reference is not there */
  NT_EDIT_EXTRA,   /* a call is there that the reference lacks */
  NT_EDIT_ORDER,   /* the same calls in another order */
};

struct nt_edit {
  enum nt_edit_how how; /* the first edit */
  uint32_t run;         /* how many of the same kind follow each other */
  int32_t shift;        /* calls skipped less calls added, all edits together */
  uint32_t matched;     /* calls that agree after the first edit */
};

/* Lengths of at most NT_EDIT_WINDOW; the first elements differ. */
struct nt_edit nt_edit_compare(const uint64_t *reference, uint32_t reference_count,
                               const uint64_t *other, uint32_t other_count);

#endif
