/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile dumps of the flight recorder, pickled or JSON, from the bytes to the verdict.
 *
 * The input is loaded as the dumps of two ranks, so that what only several dumps together tell is tried too.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/load_flight_recorder.h"
#include "analysis/load_source.h"
#include "analysis/verdict.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const sources[] = {"/nowhere/dump_0", "/nowhere/dump_1"};
  struct nt_trace_loader loader = {0};
  struct nt_model model = {0};
  struct nt_verdict verdict;
  if (size > 1 << 20)
    return 0;
  for (int i = 0; i < 2; i++) {
    struct nt_error err = {0};
    int status = nt_load_flight_recorder(&loader, sources[i], data, size, &err);
    if (status &&
        (err.code != status || !err.reason[0] || !memchr(err.reason, 0, sizeof err.reason)))
      abort();
  }
  if (loader.model.rank_count && nt_source_finish(&loader.model, NT_RECORDER_FLIGHT) == 0 &&
      nt_trace_loader_finish(&loader, 0, &model) == 0) {
    nt_verdict_make(&model, &verdict);
    nt_verdict_free(&verdict);
  }
  nt_model_free(&model);
  nt_trace_loader_free(&loader);
  return 0;
}
