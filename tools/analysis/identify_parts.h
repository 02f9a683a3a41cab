/* SPDX-License-Identifier: Apache-2.0 */
/* What identify.c and identify_views.c share. */
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

/* How many ranks of the parent below `rank` a shrink left out; -1 if it is not known. */
int32_t nt_excluded_below(const struct nt_model_view *view, int32_t rank);

#endif
