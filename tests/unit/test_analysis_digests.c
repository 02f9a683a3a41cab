/* SPDX-License-Identifier: Apache-2.0 */
/* Findings from digests: what was left out decides nothing, and what to collect is said. */
#include "model_builder.h"

static struct job j;

/* Rank 2 stops after `calls` all-reduces, the others wait in the next. */
static void hang(uint32_t calls) {
  job_start(&j, 4);
  const uint32_t comm = job_comm(&j, "A", "0-3");
  for (uint32_t i = 0; i < calls; i++)
    job_all(&j, comm, NT_FN_AllReduce, 8);
  job_others(&j, 2, comm, NT_FN_AllReduce, 8);
  for (uint32_t r = 0; r < 4; r++)
    if (r != 2)
      job_block(&j, r);
}

/* As if it was read from a digest without its first `count` calls. */
static void leave_out(uint32_t rank, uint32_t count) {
  struct nt_model_rank *model = job_rank(&j, rank);
  model->digest_ns = j.clock;
  model->left_out = model->overwritten = count;
  model->call_count -= count;
  memmove(model->calls, model->calls + count, model->call_count * sizeof *model->calls);
}

static bool says(const struct nt_lines *lines, const char *text) {
  for (uint32_t i = 0; i < lines->count; i++)
    if (strstr(lines->line[i], text))
      return true;
  return false;
}

static void a_long_digest_decides_as_the_trace_does(void **state) {
  (void)state;
  hang(600);
  for (uint32_t r = 0; r < 4; r++)
    leave_out(r, 200);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_MISSING);
  assert_int_equal(v->findings[0].confidence, NT_CERTAIN);
  assert_int_equal(v->findings[0].seq, 601);
  assert_string_equal(set_text(&v->findings[0].blame), "2");
  assert_true(says(&v->notes, "800 earlier calls are not in the digests"));
  job_free(&j);
}

static void a_short_digest_decides_nothing(void **state) {
  (void)state;
  hang(600);
  leave_out(1, 590);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->findings[0].confidence, NT_UNDECIDED);
  assert_true(says(&v->findings[0].evidence, "the digest of rank 1 has too few calls"));
  assert_true(says(&v->findings[0].evidence, "the digest of rank 1 reaches back to #"));
  assert_true(strstr(v->findings[0].next.line[0], "collect the trace itself of rank 1"));
  job_free(&j);
}

static void a_short_trace_of_which_nothing_is_left_out_decides(void **state) {
  (void)state;
  hang(5);
  for (uint32_t r = 0; r < 4; r++)
    job_rank(&j, r)->digest_ns = j.clock;
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->findings[0].confidence, NT_CERTAIN);
  job_free(&j);
}

static void graphs_that_were_captured_before_the_digest_begins_decide_nothing(void **state) {
  (void)state;
  hang(600);
  struct nt_model_rank *model = job_rank(&j, 3);
  model->calls[300].fn = NT_FN_cudaGraphLaunch;
  model->calls[300].view = NT_NONE;
  leave_out(3, 100);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->findings[0].confidence, NT_UNDECIDED);
  assert_true(says(&v->findings[0].evidence, "not what the graphs hold that are launched"));
  job_free(&j);
}

/* A digest with no room for running sums has zeros in their place. */
static void sums_that_were_left_out_are_no_difference(void **state) {
  (void)state;
  hang(600);
  for (uint32_t r = 0; r < 4; r++) {
    struct nt_model_view *view = &job_rank(&j, r)->views[0];
    view->collectives = r == 2 ? 600 : 601;
    view->sums = calloc(NT_SUM_LEVELS, sizeof *view->sums);
    assert_non_null(view->sums);
    for (int level = 0; r != 1 && level < NT_SUM_LEVELS; level++)
      for (uint32_t k = 0; k < NT_SUM_KEPT; k++)
        view->sums[level][k] = 1 + (uint64_t)level * NT_SUM_KEPT + k;
    leave_out(r, 200);
  }
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_MISSING);
  assert_int_equal(v->findings[0].confidence, NT_CERTAIN);
  job_free(&j);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_long_digest_decides_as_the_trace_does),
      cmocka_unit_test(a_short_digest_decides_nothing),
      cmocka_unit_test(a_short_trace_of_which_nothing_is_left_out_decides),
      cmocka_unit_test(graphs_that_were_captured_before_the_digest_begins_decide_nothing),
      cmocka_unit_test(sums_that_were_left_out_are_no_difference),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
