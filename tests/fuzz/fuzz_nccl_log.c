/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile logs, up to the verdict. The input's first byte says into how many files the rest is cut.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/load_nccl_log.h"
#include "analysis/verdict.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_rank(const struct nt_model_rank *rank) {
  for (uint32_t i = 0; i < rank->call_count; i++) {
    const struct nt_model_call *call = &rank->calls[i];
    if (call->view != NT_NONE && call->view >= rank->view_count)
      abort();
    if (i && call->thread == call[-1].thread && call->enter_ns < call[-1].enter_ns)
      abort();
    if (call->enter_ns <= 0 || call->progress != NT_PROGRESS_UNKNOWN)
      abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct nt_trace_loader loader = {0};
  struct nt_model model = {0};
  struct nt_verdict verdict;
  const size_t files = size ? data[0] % 4 + 1u : 1, rest = size ? size - 1 : 0;
  if (size > 1 << 16)
    return 0;
  for (size_t i = 0; i < files; i++) {
    const size_t from = rest * i / files, to = rest * (i + 1) / files;
    struct nt_error err = {0};
    uint8_t *bytes = malloc(to - from + 1);
    char name[16];
    if (!bytes)
      break;
    memcpy(bytes, data + (size != 0) + from, to - from);
    snprintf(name, sizeof name, "log.%zu", i);
    const uint32_t before = loader.model.rank_count;
    nt_is_nccl_log(bytes, to - from);
    if (nt_load_nccl_log(&loader, name, bytes, to - from, &err) != 0 &&
        (err.code >= 0 || !err.reason[0] || loader.model.rank_count != before))
      abort();
    free(bytes);
  }
  for (uint32_t i = 0; i < loader.model.rank_count; i++)
    check_rank(&loader.model.ranks[i]);
  if (nt_number_log_ranks(&loader.model) == 0 && nt_trace_loader_finish(&loader, 0, &model) == 0) {
    if (nt_verdict_make(&model, &verdict) == 0 && verdict.moving)
      abort(); /* nobody knows that */
    nt_verdict_free(&verdict);
  }
  nt_model_free(&model);
  return 0;
}
