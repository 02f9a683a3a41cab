/* SPDX-License-Identifier: Apache-2.0 */
/* Not read yet. */
#include "analysis/load_nccl_log.h"

#include <stdio.h>

bool nt_is_nccl_log(const uint8_t *bytes, size_t size) {
  (void)bytes, (void)size;
  return false;
}

int nt_load_nccl_log(struct nt_trace_loader *loader, const char *source, const uint8_t *bytes,
                     size_t size, struct nt_error *err) {
  (void)loader, (void)source, (void)bytes, (void)size;
  err->code = -NT_ERR_FOREIGN;
  err->offset = 0;
  snprintf(err->reason, sizeof err->reason, "logs of NCCL are not read yet");
  return err->code;
}
