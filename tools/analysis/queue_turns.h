/* SPDX-License-Identifier: Apache-2.0 */
/* Which side of a queue made another number of messages in one turn than in all others. */
#ifndef NT_QUEUE_TURNS_H
#define NT_QUEUE_TURNS_H

#include "analysis/p2p.h"

enum nt_queue_side { NT_QUEUE_UNTOLD, NT_QUEUE_OWN, NT_QUEUE_OTHER };

/* NT_QUEUE_OWN: the rank of the end; NT_QUEUE_OTHER: its partner. Both must have all their calls. */
enum nt_queue_side nt_queue_departs(const struct nt_job *job, const struct nt_p2p *p2p,
                                    const struct nt_p2p_end *end, uint32_t partner);

#endif
