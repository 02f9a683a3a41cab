/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of traces only the last calls were read: would the others change the verdict?
 *
 * They would not in a plain hang: some ranks did not make a collective that the others wait in, nothing differs between
 * the calls that were read, and of those in front of them running sums and counts tell that they agree. All else is a
 * reason to read everything.
 */
#ifndef NT_WINDOW_ENOUGH_H
#define NT_WINDOW_ENOUGH_H

#include "analysis/inquiry.h"

/* Once everything is judged: sets verdict->lacks, and says in the notes what the verdict rests on. */
void nt_window_judge(struct nt_inquiry *inquiry);

/* False: calls were not read, and what is read tells already that they may matter; no verdict is needed for that. */
bool nt_window_may_suffice(const struct nt_model *model);

#endif
