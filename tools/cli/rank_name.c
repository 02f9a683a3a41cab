/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/rank_name.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/text.h"

char *nt_gpu_name_text(char *out, size_t size, const struct nt_rank_name *name) {
  if (name->gpu_index >= 0 && name->cuda_device >= 0)
    snprintf(out, size, "GPU %" PRId32 " = cuda:%" PRId32, name->gpu_index, name->cuda_device);
  else if (name->gpu_index >= 0)
    snprintf(out, size, "GPU %" PRId32, name->gpu_index);
  else if (name->cuda_device >= 0)
    snprintf(out, size, "cuda:%" PRId32, name->cuda_device);
  else
    out[0] = '\0';
  return out;
}

/* Appends ", PART", or " (PART" if it is the first; nothing for "". */
static void add(char *out, size_t size, const char *part, bool *open) {
  size_t used = strlen(out);
  if (!part || !*part)
    return;
  snprintf(out + used, size - used, "%s%s", *open ? ", " : " (", part);
  *open = true;
}

char *nt_rank_name_text(char *out, size_t size, const struct nt_rank_name *name) {
  char part[256];
  bool open = false;
  if (name->rank >= 0)
    snprintf(out, size, "rank %" PRId32, name->rank);
  else
    snprintf(out, size, "rank unknown");
  add(out, size, name->host ? nt_text_escape(part, sizeof part, name->host) : NULL, &open);
  snprintf(part, sizeof part, "pid %" PRIu32, name->pid);
  add(out, size, name->pid ? part : NULL, &open);
  add(out, size, nt_gpu_name_text(part, sizeof part, name), &open);
  add(out, size, name->pci ? nt_text_escape(part, sizeof part, name->pci) : NULL, &open);
  size_t used = strlen(out);
  if (open)
    snprintf(out + used, size - used, ")");
  return out;
}

void nt_rank_name_gpu(struct nt_rank_name *name, const struct nt_trace *trace, int32_t device) {
  char key[48], *end;
  name->gpu_index = -1;
  name->cuda_device = device;
  snprintf(key, sizeof key, "gpu.%" PRId32 ".pci", device);
  name->pci = device >= 0 ? nt_trace_evidence(trace, key) : NULL;
  snprintf(key, sizeof key, "gpu.%" PRId32 ".index", device);
  const char *index = device >= 0 ? nt_trace_evidence(trace, key) : NULL;
  long number = index ? strtol(index, &end, 10) : -1;
  if (index && *index && !*end && number >= 0 && number <= 4096)
    name->gpu_index = (int32_t)number;
}
