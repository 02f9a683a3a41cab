/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several equal calls a rank has skipped. */
#ifndef NT_REFINE_H
#define NT_REFINE_H

#include "analysis/identify.h"

/* The position at which `laggard` skipped a call of `reference`, told by the order in which both use their
 * buffers; 0 if the buffers do not tell exactly this. */
uint32_t nt_refine_skip(const struct nt_job *job, const struct nt_member *reference,
                        const struct nt_member *laggard);

#endif
