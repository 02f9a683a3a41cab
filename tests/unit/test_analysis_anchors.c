/* SPDX-License-Identifier: Apache-2.0 */
/* Skips and extra calls among calls of equal arguments, told by what stands around them. */
#include "model_builder.h"

static struct job j;

static uint32_t start(uint32_t ranks) {
  char members[16];
  job_start(&j, ranks);
  snprintf(members, sizeof members, "0-%u", ranks - 1);
  return job_comm(&j, "A", members);
}

/* A step of three equal all-reduces at lines 11, 12, 13; rank `but` leaves the one at `line` out. */
static void step(uint32_t a, int but, uint32_t line) {
  for (j.line = 11; j.line <= 13; j.line++)
    job_others(&j, j.line == line ? but : -1, a, NT_FN_AllReduce, 1024);
  j.line = 0;
}

static void sync_host(uint32_t ranks) {
  j.line = 20;
  for (uint32_t r = 0; r < ranks; r++)
    job_record(&j, r, NT_NONE, NT_FN_cudaStreamSynchronize, 0, -1);
}

static void a_skip_among_equal_calls_is_found_by_its_line(void **state) {
  (void)state;
  uint32_t a = start(4);
  for (unsigned i = 0; i < 6; i++)
    step(a, i == 2 ? 1 : -1, 12);
  assert_verdict(&j, "missing AllReduce 8 blame 1 waiting 0,2-3");
}

static void a_skip_is_found_by_calls_on_another_communicator(void **state) {
  (void)state;
  uint32_t a = start(3), b = job_comm(&j, "B", "0-2");
  for (unsigned i = 0; i < 6; i++) {
    for (int k = 0; k < 3; k++)
      job_others(&j, i == 3 && k == 1 ? 2 : -1, a, NT_FN_AllReduce, 64);
    job_all(&j, b, NT_FN_AllGather, 8);
  }
  /* Of the three in a turn, the last is the first that can be told to lack. */
  assert_verdict(&j, "missing AllReduce 12 blame 2 waiting 0-1");
}

static void a_skip_is_found_by_host_waits(void **state) {
  (void)state;
  uint32_t a = start(3);
  for (unsigned i = 0; i < 6; i++) {
    for (int k = 0; k < 3; k++)
      job_others(&j, i == 1 ? 0 : -1, a, NT_FN_AllReduce, 64);
    sync_host(3);
  }
  assert_verdict(&j, "missing AllReduce 4 blame 0 waiting 1-2");
}

static void a_rank_with_lines_of_its_own_has_skipped_nothing_by_them(void **state) {
  (void)state;
  uint32_t a = start(3);
  for (unsigned i = 0; i < 6; i++) {
    j.line = 11;
    job_others(&j, 0, a, NT_FN_AllReduce, 64);
    j.line = 30; /* rank 0 logs as well */
    job_call(&j, 0, a, NT_FN_AllReduce, 64);
  }
  j.line = 11;
  job_others(&j, 0, a, NT_FN_AllReduce, 64);
  assert_verdict(&j, "missing AllReduce 7 blame 0 waiting 1-2");
}

static void lines_contradict_what_counts_of_waits_suggest(void **state) {
  (void)state;
  uint32_t a = start(3);
  for (j.line = 1; j.line <= 4; j.line++) {
    if (j.line == 3) /* one wait more, with good reason */
      job_record(&j, 1, NT_NONE, NT_FN_cudaStreamSynchronize, 0, -1);
    job_all(&j, a, NT_FN_AllReduce, 64);
  }
  for (uint32_t r = 0; r < 3; r += 2)
    job_record(&j, r, NT_NONE, NT_FN_cudaStreamSynchronize, 0, -1);
  job_others(&j, 1, a, NT_FN_AllReduce, 64);
  assert_verdict(&j, "missing AllReduce 5 blame 1 waiting 0,2");
}

static void one_call_too_many_is_extra_though_later_calls_paired_up(void **state) {
  (void)state;
  uint32_t a = start(4);
  step(a, -1, 0);
  j.line = 40;
  job_call(&j, 2, a, NT_FN_AllReduce, 1024);
  step(a, -1, 0);
  step(a, -1, 0);
  assert_verdict(&j, "extra AllReduce 4 blame 2 waiting 2");
}

static void a_call_too_many_accuses_nobody_while_the_absent_may_have_made_it(void **state) {
  (void)state;
  uint32_t a = start(4);
  step(a, -1, 0);
  j.line = 40;
  job_call(&j, 2, a, NT_FN_AllReduce, 1024);
  step(a, -1, 0);
  job_drop(&j, 3);
  assert_verdict(&j, "extra AllReduce 4 blame  waiting 2");
  a = start(5);
  step(a, -1, 0);
  j.line = 40;
  job_call(&j, 2, a, NT_FN_AllReduce, 1024);
  step(a, -1, 0);
  job_drop(&j, 3);
  assert_verdict(&j, "extra AllReduce 4 blame 2 waiting 2");
}

static void of_two_ranks_none_is_accused_of_a_call_too_many(void **state) {
  (void)state;
  uint32_t a = start(2);
  step(a, -1, 0);
  j.line = 40;
  job_call(&j, 0, a, NT_FN_AllReduce, 1024);
  step(a, -1, 0);
  assert_verdict(&j, "missing AllReduce 4 blame 1 waiting 0");
}

static void a_last_call_of_one_rank_is_missing_on_the_others(void **state) {
  (void)state;
  uint32_t a = start(3);
  step(a, -1, 0);
  j.line = 40;
  job_call(&j, 0, a, NT_FN_AllReduce, 1024);
  assert_verdict(&j, "missing AllReduce 4 blame 1-2 waiting 0");
}

static void a_branch_at_one_line_is_no_call_too_many(void **state) {
  (void)state;
  uint32_t a = start(3);
  for (unsigned i = 0; i < 4; i++) {
    j.line = 11;
    job_all(&j, a, NT_FN_AllReduce, 64);
    j.line = i == 2 ? 13 : 12; /* one of two that everybody has */
    job_call(&j, 0, a, NT_FN_AllReduce, 64);
    j.line = i == 3 ? 13 : 12;
    job_others(&j, 0, a, NT_FN_AllReduce, 64);
  }
  j.line = 11;
  job_call(&j, 0, a, NT_FN_AllReduce, 64);
  assert_verdict(&j, "missing AllReduce 9 blame 1-2 waiting 0");
}

/* Six calls at one line, and one of rank 1's between them at `line`. Then all but it end. */
static enum nt_confidence confidence_where_all_but_one_end(uint32_t line) {
  uint32_t a = start(4);
  for (int turn = 0; turn < 6; turn++) {
    j.line = line;
    if (turn == 3)
      job_call(&j, 1, a, NT_FN_AllReduce, 1024);
    j.line = 11;
    job_all(&j, a, NT_FN_AllReduce, 1024);
  }
  for (uint32_t r = 0; r < 4; r++)
    if (r != 1)
      job_end(&j, r, NT_PROCESS_EXITED, 0);
  struct nt_verdict *v = job_judge(&j);
  assert_true(v->count > 0);
  assert_int_equal(v->findings[0].class, NT_CLASS_LEFT);
  const enum nt_confidence confidence = v->findings[0].confidence;
  job_free(&j);
  return confidence;
}

static void
who_ended_early_is_not_accused_where_another_may_have_called_once_too_often(void **state) {
  (void)state;
  assert_int_equal(confidence_where_all_but_one_end(40), NT_UNDECIDED);
  assert_int_equal(confidence_where_all_but_one_end(11), NT_CERTAIN);
}

static void a_skip_is_first_though_sizes_differ_later(void **state) {
  (void)state;
  uint32_t a = start(4);
  for (unsigned i = 0; i < 4; i++)
    step(a, i == 2 ? 3 : -1, 12);
  j.line = 20;
  job_all(&j, a, NT_FN_AllReduce, 1);
  assert_verdict(&j, "missing AllReduce 8 blame 3 waiting 0-2");
}

static void an_extra_call_is_first_though_sizes_differ_later(void **state) {
  (void)state;
  uint32_t a = start(4);
  step(a, -1, 0);
  j.line = 40;
  job_call(&j, 1, a, NT_FN_AllReduce, 1024);
  step(a, -1, 0);
  j.line = 20;
  job_all(&j, a, NT_FN_AllReduce, 1);
  job_all(&j, a, NT_FN_AllReduce, 1);
  assert_verdict(&j, "extra AllReduce 4 blame 1 waiting 1");
}

static void two_that_skipped_are_told_at_the_first_skip_in_any_order(void **state) {
  (void)state;
  for (int turn = 0; turn < 2; turn++) {
    uint32_t a = start(5);
    for (unsigned i = 0; i < 6; i++)
      for (j.line = 11; j.line <= 13; j.line++)
        for (uint32_t r = 0; r < 5; r++)
          if (!(r == (turn ? 3 : 1) && i == 1 && j.line == 12) &&
              !(r == (turn ? 1 : 3) && i == 4 && j.line == 11))
            job_call(&j, r, a, NT_FN_AllReduce, 1024);
    assert_verdict(&j, "missing AllReduce 5 blame 1,3 waiting 0,2,4");
  }
}

#define TEST(name) cmocka_unit_test(name)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_skip_among_equal_calls_is_found_by_its_line),
      TEST(a_skip_is_found_by_calls_on_another_communicator),
      TEST(a_skip_is_found_by_host_waits),
      TEST(a_rank_with_lines_of_its_own_has_skipped_nothing_by_them),
      TEST(lines_contradict_what_counts_of_waits_suggest),
      TEST(one_call_too_many_is_extra_though_later_calls_paired_up),
      TEST(a_call_too_many_accuses_nobody_while_the_absent_may_have_made_it),
      TEST(of_two_ranks_none_is_accused_of_a_call_too_many),
      TEST(a_last_call_of_one_rank_is_missing_on_the_others),
      TEST(a_branch_at_one_line_is_no_call_too_many),
      TEST(who_ended_early_is_not_accused_where_another_may_have_called_once_too_often),
      TEST(a_skip_is_first_though_sizes_differ_later),
      TEST(an_extra_call_is_first_though_sizes_differ_later),
      TEST(two_that_skipped_are_told_at_the_first_skip_in_any_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
