/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From model to findings, first the one that comes first.
 *
 *   identify -> sequences -> align, p2p -> freeze -> (the same up to the freeze point) ->
 *   creations -> waits -> findings
 *
 * The result does not depend on the order in which traces were loaded.
 */
#ifndef NT_VERDICT_H
#define NT_VERDICT_H

#include "analysis/finding.h"
#include "analysis/freeze.h"

struct nt_verdict {
  struct nt_job job;
  struct nt_freeze freeze;
  struct nt_finding *findings;
  uint32_t count, room;
  struct nt_finding *warnings; /* never set the verdict */
  uint32_t warning_count;
  struct nt_rank_set present, missing; /* world ranks with and without a trace */
  struct nt_lines notes;
  bool moving; /* something is outstanding, but those that are behind are on their way */
  const char
      *lacks; /* why calls in front of the window that was read may matter; NULL: they do not */
  bool over;  /* nobody is left, and all went within a moment: what was under way tells nothing */
};

/* The model must outlive the verdict. Returns 0 or a negative enum nt_err; free the result either way. */
int nt_verdict_make(const struct nt_model *model, struct nt_verdict *out);
/* The same; before each of its NT_VERDICT_STEPS steps, which take longer or shorter, step(ctx, which) is called, from 0 on. */
#define NT_VERDICT_STEPS 7
int nt_verdict_make_watched(const struct nt_model *model, void (*step)(void *ctx, uint32_t which),
                            void *ctx, struct nt_verdict *out);
void nt_verdict_free(struct nt_verdict *verdict);

/* Class of the first finding, or NT_CLASS_CONSISTENT. */
/* What was looked at: "4 ranks, 3 communicators, 3000 calls; the job moves". */
#define NT_COVERAGE 160
char *nt_verdict_coverage(char *out, size_t size, const struct nt_verdict *verdict);
enum nt_class nt_verdict_class(const struct nt_verdict *verdict);

#endif
