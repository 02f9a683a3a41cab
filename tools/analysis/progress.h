/* SPDX-License-Identifier: Apache-2.0 */
/* How far a call got on the device, and what stands in front of it there. */
#ifndef NT_PROGRESS_H
#define NT_PROGRESS_H

#include "analysis/identify.h"

/* The call was not seen to finish: its host is inside it, or its device is not known to be done. */
bool nt_call_unfinished(const struct nt_job *job, uint32_t rank, uint32_t call);
/* The same, where it is known to be unfinished. */
bool nt_call_outstanding(const struct nt_job *job, uint32_t rank, uint32_t call);

struct nt_front {
  uint32_t call;  /* operation of NCCL that is in front; NT_NONE: other work, or it is not known */
  uint32_t event; /* the cudaStreamWaitEvent that links the two; NT_NONE: same stream */
  bool
      unseen; /* with no `call`: what was called right in front is not there, or not how far it came, so nothing tells */
};

/* What an enqueued call of the rank waits for on its device. */
struct nt_front nt_front_of(const struct nt_job *job, uint32_t rank, uint32_t call);

/* The host wait (cudaStreamSynchronize …) in which a thread of the rank is at the cut, NT_NONE if in none;
 * the newest if there are several. */
uint32_t nt_host_wait_of(const struct nt_job *job, uint32_t rank);
/* The same of one thread, 0: of any. */
uint32_t nt_host_wait_in(const struct nt_job *job, uint32_t rank, uint32_t thread);

#endif
