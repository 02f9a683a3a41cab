/* SPDX-License-Identifier: Apache-2.0 */
/* Traces that lack their end. */
#ifndef NT_DAMAGE_H
#define NT_DAMAGE_H

#include "analysis/model.h"

/* Takes out those that tell nothing of their end, adds to `lost` what the others lack, and notes both. If all are such, none is
 * taken out. */
void nt_damage_settle(struct nt_model *model);

#endif
