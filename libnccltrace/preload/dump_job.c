/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of the job beyond this process. One process of a node asks for all of them. */
#include <stdlib.h>

#include "preload/dump_parts.h"
#include "preload/dump_thread.h"
#include "preload/evidence.h"
#include "preload/process.h"

enum { RAS_MS = 700 };

void nt_dump_job(struct nt_buffer *out) {
  char value[256];
  if (nt_process.area.header->local_rank > 0) {
    nt_dump_add_fact(out, "ras", "the process with local rank 0 asks it");
    return;
  }
  if (nt_evidence_variable("NCCL_RAS_ENABLE", value, sizeof value) && !atoi(value)) {
    nt_dump_add_fact(out, "missing.RAS", "NCCL_RAS_ENABLE=%s", value);
    return;
  }
  const bool given = nt_evidence_variable("NCCL_RAS_ADDR", value, sizeof value);
  nt_dump_ras(out, given ? value : NULL, RAS_MS);
}
