/* SPDX-License-Identifier: Apache-2.0 */
/* Damerau's alignment with free ends; the table is on the stack (2 bytes a cell). */
#include "analysis/edit.h"

#include <stdlib.h>
#include <string.h>

enum { MATCH = 3, EDIT = -2, SWAP = 2 * MATCH + EDIT };
enum { PERMUTED_MAX = 32 };
enum step { STEP_NONE, STEP_MATCH, STEP_CHANGE, STEP_SKIP, STEP_EXTRA, STEP_SWAP };

struct table {
  int16_t score[NT_EDIT_WINDOW + 1][NT_EDIT_WINDOW + 1];
  uint8_t step[NT_EDIT_WINDOW + 1][NT_EDIT_WINDOW + 1];
};

static void offer(struct table *t, uint32_t i, uint32_t j, int score, enum step step) {
  if (t->step[i][j] && score <= t->score[i][j])
    return;
  t->score[i][j] = (int16_t)score;
  t->step[i][j] = (uint8_t)step;
}

static void fill(struct table *t, const uint64_t *a, uint32_t n, const uint64_t *b, uint32_t m) {
  memset(t->step, 0, sizeof t->step);
  t->score[0][0] = 0;
  for (uint32_t i = 0; i <= n; i++)
    for (uint32_t j = 0; j <= m; j++) {
      if (i && j) {
        bool same = a[i - 1] == b[j - 1];
        offer(t, i, j, t->score[i - 1][j - 1] + (same ? MATCH : EDIT),
              same ? STEP_MATCH : STEP_CHANGE);
      }
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && a[i - 1] != a[i - 2])
        offer(t, i, j, t->score[i - 2][j - 2] + SWAP, STEP_SWAP);
      if (i)
        offer(t, i, j, t->score[i - 1][j] + EDIT, STEP_SKIP);
      if (j)
        offer(t, i, j, t->score[i][j - 1] + EDIT, STEP_EXTRA);
    }
}

/* The best end: all of one sequence used up; of equals the one that uses most. */
static void find_end(const struct table *t, uint32_t n, uint32_t m, uint32_t *end_i,
                     uint32_t *end_j) {
  int best = INT16_MIN;
  *end_i = n;
  *end_j = m;
  for (uint32_t i = 0; i <= n; i++)
    for (uint32_t j = i == n ? 0 : m; j <= m; j++)
      if (t->score[i][j] > best || (t->score[i][j] == best && i + j > *end_i + *end_j)) {
        best = t->score[i][j];
        *end_i = i;
        *end_j = j;
      }
}

static bool contains(const uint64_t *list, uint32_t count, uint64_t value) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == value)
      return true;
  return false;
}

static int by_value(const void *a, const void *b) {
  const uint64_t *x = a, *y = b;
  return *x < *y ? -1 : *x > *y;
}

/* Length of the shortest beginning of both with the same calls in another order, if everything behind it
 * agrees; 0 if there is none. */
static uint32_t permuted(const uint64_t *a, uint32_t n, const uint64_t *b, uint32_t m) {
  uint64_t x[PERMUTED_MAX], y[PERMUTED_MAX];
  uint32_t common = n < m ? n : m;
  for (uint32_t k = 2; k <= common && k <= PERMUTED_MAX; k++) {
    memcpy(x, a, k * sizeof *x);
    memcpy(y, b, k * sizeof *y);
    qsort(x, k, sizeof *x, by_value);
    qsort(y, k, sizeof *y, by_value);
    if (!memcmp(x, y, k * sizeof *x))
      return memcmp(a + k, b + k, (common - k) * sizeof *a) ? 0 : k;
  }
  return 0;
}

struct nt_edit nt_edit_compare(const uint64_t *reference, uint32_t reference_count,
                               const uint64_t *other, uint32_t other_count) {
  struct table t;
  uint64_t skipped[NT_EDIT_WINDOW], extra[NT_EDIT_WINDOW];
  uint8_t steps[2 * NT_EDIT_WINDOW];
  uint32_t skips = 0, extras = 0, count = 0, i, j;
  struct nt_edit edit = {.how = NT_EDIT_CHANGED};
  fill(&t, reference, reference_count, other, other_count);
  find_end(&t, reference_count, other_count, &i, &j);
  while (i || j) {
    enum step step = t.step[i][j];
    steps[count++] = (uint8_t)step;
    if (step == STEP_SKIP)
      skipped[skips++] = reference[i - 1];
    if (step == STEP_EXTRA)
      extra[extras++] = other[j - 1];
    edit.matched += step == STEP_MATCH;
    i -= step == STEP_EXTRA ? 0 : step == STEP_SWAP ? 2 : 1;
    j -= step == STEP_SKIP ? 0 : step == STEP_SWAP ? 2 : 1;
  }
  if (!count)
    return edit;
  enum step first = steps[count - 1];
  while (edit.run < count && steps[count - 1 - edit.run] == first)
    edit.run++;
  edit.shift = (int32_t)skips - (int32_t)extras;
  uint32_t block = permuted(reference, reference_count, other, other_count);
  if (first == STEP_SWAP || block > edit.matched)
    edit.how = NT_EDIT_ORDER;
  else if (first == STEP_SKIP)
    edit.how = contains(extra, extras, skipped[skips - 1]) ? NT_EDIT_ORDER : NT_EDIT_SKIPPED;
  else if (first == STEP_EXTRA)
    edit.how = contains(skipped, skips, extra[extras - 1]) ? NT_EDIT_ORDER : NT_EDIT_EXTRA;
  return edit;
}
