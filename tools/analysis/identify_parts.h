/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the identification share: identify.c, and identify_*.c. */
#ifndef NT_IDENTIFY_PARTS_H
#define NT_IDENTIFY_PARTS_H

#include "analysis/identify.h"

struct nt_keyed {
  const uint8_t *id; /* of the joint that it is a view of */
  const struct nt_model_view *view;
  uint32_t rank, index;
};

/* All views that count, in no order; free the list. Views of unknown identity are counted in the job. Returns 0 or a
 * negative enum nt_err. */
int nt_identify_keys(struct nt_job *job, struct nt_keyed **out, uint32_t *count);

/* Places of members of splits whose parent lacks some, as far as their messages tell, and sizes that follow. Needs the
 * joints' sizes. Returns 0 or -NT_ERR_MEMORY. */
int nt_identify_peers(struct nt_job *job);

/* How many ranks of the parent below `rank` a shrink left out; -1 if it is not known. */
int32_t nt_excluded_below(const struct nt_model_view *view, int32_t rank);

#endif
