/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes on clocks: times are printed as each host's clock showed them, so a reader must know where clocks are far
 * apart, and where the order of findings rests on less than that.
 */
#include <stdlib.h>

#include "analysis/inquiry.h"
#include "cli/text.h"

#define APART_NS INT64_C(1000000000)
enum { TOLD = 4 };

static int by_ahead(const void *a, const void *b) {
  const struct nt_clock *x = a, *y = b;
  if (x->ahead_ns != y->ahead_ns)
    return x->ahead_ns < y->ahead_ns ? -1 : 1;
  return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static char *host_of(const struct nt_inquiry *inquiry, const struct nt_clock *clock, char *out,
                     size_t size) {
  const char *host = inquiry->job->model->ranks[clock->rank].host;
  return nt_text_escape(out, size, host ? host : "a host");
}

static void note_apart(struct nt_inquiry *inquiry, const struct nt_clock *middle,
                       const struct nt_clock *clock) {
  char host[128], other[128], apart[NT_DURATION_TEXT], error[NT_DURATION_TEXT];
  const int64_t ahead = clock->ahead_ns - middle->ahead_ns;
  nt_lines_add(&inquiry->verdict->notes,
               "the clock of %s is %s %s that of %s (within %s); times are each host's own",
               host_of(inquiry, clock, host, sizeof host),
               nt_duration_text(apart, ahead < 0 ? -ahead : ahead),
               ahead < 0 ? "behind" : "ahead of", host_of(inquiry, middle, other, sizeof other),
               nt_duration_text(error, clock->error_ns + middle->error_ns));
}

/* Two findings that are closer in time than the clocks. */
static void note_order(struct nt_inquiry *inquiry, const struct nt_clock *list, uint32_t count) {
  const struct nt_verdict *verdict = inquiry->verdict;
  const struct nt_finding *findings = verdict->findings;
  if (verdict->count < 2 || !findings[0].since_ns || !findings[1].since_ns)
    return;
  int64_t error = 0, between = findings[1].since_ns - findings[0].since_ns;
  for (uint32_t i = 0; i < count; i++)
    error = list[i].error_ns > error ? list[i].error_ns : error;
  const int64_t apart = list[count - 1].ahead_ns - list[0].ahead_ns + 2 * error;
  char text[NT_DURATION_TEXT];
  if ((between < 0 ? -between : between) < apart)
    nt_lines_add(
        &inquiry->verdict->notes,
        "the clocks of the hosts may differ by %s, and the first two findings began within "
        "that: which of them came first is not certain",
        nt_duration_text(text, apart));
}

void nt_note_clocks(struct nt_inquiry *inquiry) {
  const struct nt_clocks *clocks = &inquiry->clocks;
  struct nt_clock *list = malloc((clocks->count + 1u) * sizeof *list);
  uint32_t count = 0, told = 0;
  for (uint32_t i = 0; list && i < clocks->count; i++)
    if (clocks->list[i].known)
      list[count++] = clocks->list[i];
  if (count > 1) {
    qsort(list, count, sizeof *list, by_ahead);
    const struct nt_clock *middle = &list[(count - 1) / 2];
    for (uint32_t i = 0; i < count && told < TOLD; i++) {
      const int64_t ahead = list[i].ahead_ns - middle->ahead_ns;
      if ((ahead < 0 ? -ahead : ahead) > APART_NS) {
        note_apart(inquiry, middle, &list[i]);
        told++;
      }
    }
    note_order(inquiry, list, count);
  }
  free(list);
}
