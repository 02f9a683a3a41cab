/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts on one communicator: who called what, and who did not. */
#include "model_builder.h"

static struct job j;

static uint32_t start(uint32_t ranks, const char *members) {
  job_start(&j, ranks);
  return job_comm(&j, "A", members);
}

static void equal_calls_are_consistent(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  for (int i = 0; i < 5; i++)
    job_all(&j, a, NT_FN_AllReduce, 1024);
  assert_verdict(&j, "consistent");
}

/* Settings of one call are the rank's own; an application may give them on some ranks only. */
static void a_call_with_settings_pairs_up_with_one_without(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  for (int i = 0; i < 4; i++)
    for (uint32_t r = 0; r < 4; r++)
      job_call(&j, r, a, r == 1 ? NT_FN_AllReduceConfig : NT_FN_AllReduce, 1024);
  assert_verdict(&j, "consistent");
  a = start(4, "0-3");
  job_call(&j, 0, a, NT_FN_AllGatherConfig, 1024);
  for (uint32_t r = 1; r < 4; r++)
    job_call(&j, r, a, NT_FN_AllReduceConfig, 1024);
  assert_verdict(&j, "mismatch call AllReduceConfig 1 blame 0 waiting 1-3");
}

/* A type that this build does not know is compared as a number. */
static void types_of_a_newer_nccl_are_compared(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  j.dtype = 14;
  j.op = nt_op_newer(7);
  job_all(&j, a, NT_FN_AllReduce, 1024);
  job_others(&j, 3, a, NT_FN_AllReduce, 1024);
  j.dtype = 15;
  job_call(&j, 3, a, NT_FN_AllReduce, 1024);
  struct nt_verdict *v = job_judge(&j);
  const struct nt_finding *f = v->findings;
  bool told = false;
  assert_int_equal(v->count, 1);
  assert_string_equal(f->field, "dtype");
  assert_string_equal(set_text(&f->blame), "3");
  for (uint32_t i = 0; i < f->evidence.count; i++)
    told |= strstr(f->evidence.line[i], "dtype 14 op 7") != NULL;
  assert_true(told);
  job_free(&j);
}

static void the_one_behind_is_missing(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  job_all(&j, a, NT_FN_AllReduce, 1024);
  job_others(&j, 2, a, NT_FN_AllReduce, 1024);
  assert_verdict(&j, "missing AllReduce 2 blame 2 waiting 0-1,3");
}

static void missing_is_no_vote(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  job_all(&j, a, NT_FN_AllReduce, 1024);
  job_call(&j, 0, a, NT_FN_AllReduce, 1024);
  job_call(&j, 0, a, NT_FN_AllReduce, 1024);
  assert_verdict(&j, "missing AllReduce 2 blame 1-3 waiting 0");
}

static void a_skip_among_growing_sizes_is_found_where_it_is(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  for (unsigned i = 0; i < 10; i++)
    job_others(&j, i == 6 ? 2 : -1, a, NT_FN_AllReduce, 1000 + i * i);
  assert_verdict(&j, "missing AllReduce 7 blame 2 waiting 0-1,3");
}

static void a_skip_shows_before_the_others_get_further(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  for (unsigned i = 0; i < 6; i++)
    job_all(&j, a, NT_FN_AllReduce, 1000 + i);
  job_others(&j, 2, a, NT_FN_AllReduce, 1006);
  job_call(&j, 2, a, NT_FN_AllReduce, 1007);
  assert_verdict(&j, "missing AllReduce 7 blame 2 waiting 0-1,3");
}

static void a_skip_in_a_turn_is_foretold_by_earlier_turns(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  for (int i = 0; i < 3; i++) {
    job_all(&j, a, NT_FN_AllGather, 64);
    job_all(&j, a, NT_FN_ReduceScatter, 64);
    job_all(&j, a, NT_FN_AllReduce, 2);
  }
  job_all(&j, a, NT_FN_AllGather, 64);
  job_others(&j, 1, a, NT_FN_ReduceScatter, 64);
  job_call(&j, 1, a, NT_FN_AllReduce, 2);
  assert_verdict(&j, "missing ReduceScatter 11 blame 1 waiting 0,2-3");
}

/* Gather, scatter, all-reduce at lines 1 to 3; `but` (ranks from it on) leaves the last out. Line 1 is next. */
static void a_turn(uint32_t a, uint32_t but) {
  j.line = 1;
  job_all(&j, a, NT_FN_AllGather, 64);
  j.line = 2;
  job_all(&j, a, NT_FN_ReduceScatter, 64);
  j.line = 3;
  for (uint32_t r = 0; r < but; r++)
    job_call(&j, r, a, NT_FN_AllReduce, 2);
  j.line = 1;
}

static void a_majority_that_leaves_its_turn_has_skipped(void **state) {
  (void)state;
  uint32_t a = start(5, "0-4");
  a_turn(a, 5);
  a_turn(a, 5);
  a_turn(a, 2);
  for (uint32_t r = 2; r < 5; r++)
    job_call(&j, r, a, NT_FN_AllGather, 64);
  assert_verdict(&j, "missing AllReduce 9 blame 2-4 waiting 0-1");
}

static void a_majority_whose_loop_may_have_ended_is_not_accused(void **state) {
  (void)state;
  uint32_t a = start(5, "0-4");
  a_turn(a, 5);
  a_turn(a, 5);
  a_turn(a, 2);
  j.line = 9;
  for (uint32_t r = 2; r < 5; r++)
    job_call(&j, r, a, NT_FN_AllGather, 64);
  struct nt_verdict *v = job_judge(&j);
  for (uint32_t i = 0; i < v->count; i++)
    assert_int_equal(nt_rank_set_count(&v->findings[i].blame), 0);
  job_free(&j);
}

static void one_earlier_turn_is_no_habit(void **state) {
  (void)state;
  uint32_t a = start(5, "0-4");
  a_turn(a, 5);
  a_turn(a, 2);
  for (uint32_t r = 2; r < 5; r++)
    job_call(&j, r, a, NT_FN_AllGather, 64);
  struct nt_verdict *v = job_judge(&j);
  for (uint32_t r = 2; r < 5; r++)
    assert_false(nt_rank_set_has(&v->findings[0].blame, r));
  job_free(&j);
}

static void of_two_the_one_that_leaves_its_turn_has_skipped(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  a_turn(a, 2);
  a_turn(a, 2);
  a_turn(a, 1);
  job_call(&j, 1, a, NT_FN_AllGather, 64);
  assert_verdict(&j, "missing AllReduce 9 blame 1 waiting 0");
}

static void a_swap_in_a_turn_by_half_blames_nobody(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  a_turn(a, 4);
  a_turn(a, 4);
  for (uint32_t r = 0; r < 4; r++) {
    job_call(&j, r, a, r < 2 ? NT_FN_AllGather : NT_FN_ReduceScatter, 64);
    job_call(&j, r, a, r < 2 ? NT_FN_ReduceScatter : NT_FN_AllGather, 64);
  }
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_ORDER);
  assert_int_equal(nt_rank_set_count(&v->findings[0].blame), 0);
  job_free(&j);
}

static void equal_calls_are_told_apart_by_their_buffers(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  for (unsigned i = 0; i < 6; i++)
    for (j.buffer = 1; j.buffer <= 3; j.buffer++)
      job_others(&j, i == 3 && j.buffer == 2 ? 1 : -1, a, NT_FN_AllReduce, 1024);
  assert_verdict(&j, "missing AllReduce 11 blame 1 waiting 0,2");
}

static void a_call_of_one_rank_alone_is_extra(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_AllReduce, 1024);
  job_call(&j, 1, a, NT_FN_AllGather, 16);
  job_all(&j, a, NT_FN_AllReduce, 4096);
  assert_verdict(&j, "extra AllGather 2 blame 1 waiting 1");
}

static void swapped_calls_are_order(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_others(&j, 0, a, NT_FN_AllGather, 16);
  job_others(&j, 0, a, NT_FN_AllReduce, 1024);
  job_call(&j, 0, a, NT_FN_AllReduce, 1024);
  job_call(&j, 0, a, NT_FN_AllGather, 16);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_ORDER);
  assert_string_equal(set_text(&v->findings[0].blame), "0");
  job_free(&j);
}

static void another_size_is_a_mismatch_of_the_count(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  job_others(&j, 1, a, NT_FN_AllReduce, 1024);
  job_call(&j, 1, a, NT_FN_AllReduce, 2048);
  assert_verdict(&j, "mismatch count AllReduce 1 blame 1 waiting 0-3");
}

static void another_call_is_a_mismatch_of_the_call(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  job_others(&j, 3, a, NT_FN_AllReduce, 1024);
  job_call(&j, 3, a, NT_FN_AllGather, 256);
  assert_verdict(&j, "mismatch call AllReduce 1 blame 3 waiting 0-2");
}

static void types_and_operators_are_compared(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_others(&j, 0, a, NT_FN_AllReduce, 8);
  j.dtype = ncclFloat16;
  job_call(&j, 0, a, NT_FN_AllReduce, 8);
  assert_verdict(&j, "mismatch dtype AllReduce 1 blame 0 waiting 0-2");
  a = start(3, "0-2");
  job_others(&j, 2, a, NT_FN_AllReduce, 8);
  j.op = ncclMax;
  job_call(&j, 2, a, NT_FN_AllReduce, 8);
  assert_verdict(&j, "mismatch op AllReduce 1 blame 2 waiting 0-2");
}

static void roots_are_compared(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  j.root = 0;
  job_others(&j, 2, a, NT_FN_Broadcast, 8);
  j.root = 1;
  job_call(&j, 2, a, NT_FN_Bcast, 8);
  assert_verdict(&j, "mismatch root Broadcast 1 blame 2 waiting 0-2");
}

static void data_movement_is_compared_in_bytes(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_others(&j, 2, a, NT_FN_AllGather, 8);
  j.dtype = ncclFloat16;
  job_call(&j, 2, a, NT_FN_AllGather, 16);
  assert_verdict(&j, "consistent");
}

static void each_field_has_its_own_vote(void **state) {
  (void)state;
  uint32_t a = start(5, "0-4");
  job_others(&j, -1, a, NT_FN_AllReduce, 8);
  job_rank(&j, 1)->calls[0].count = 9;
  job_rank(&j, 3)->calls[0].op = ncclMax;
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->count, 2);
  for (int i = 0; i < 2; i++) {
    bool count = !strcmp(v->findings[i].field, "count");
    assert_string_equal(set_text(&v->findings[i].blame), count ? "1" : "3");
  }
  job_free(&j);
}

static void an_even_split_blames_nobody(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  for (uint32_t r = 0; r < 4; r++)
    job_call(&j, r, a, NT_FN_AllReduce, r < 2 ? 64 : 65);
  assert_verdict(&j, "mismatch count AllReduce 1 blame  waiting 0-3");
  a = start(2, "0-1");
  job_call(&j, 0, a, NT_FN_AllGather, 16);
  job_all(&j, a, NT_FN_AllReduce, 64);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_EXTRA);
  assert_int_equal(nt_rank_set_count(&v->findings[0].blame), 0);
  assert_int_equal(v->findings[0].confidence, NT_UNDECIDED);
  job_free(&j);
}

static void order_inside_a_group_means_nothing(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  j.group = 1;
  for (uint32_t r = 0; r < 3; r++) {
    job_call(&j, r, a, NT_FN_AllReduce, r == 1 ? 32 : 16);
    job_call(&j, r, a, NT_FN_AllReduce, r == 1 ? 16 : 32);
    job_record(&j, r, NT_NONE, NT_FN_GroupEnd, 2, -1);
  }
  assert_verdict(&j, "consistent");
}

static void a_group_without_end_has_called_nothing(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_others(&j, 1, a, NT_FN_AllReduce, 16);
  j.group = 1;
  job_call(&j, 1, a, NT_FN_AllReduce, 16); /* starts of groups are not recorded */
  assert_verdict(&j, "missing AllReduce 1 blame 1 waiting 0,2");
}

static void refused_calls_do_not_count(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  struct nt_model_call *call = job_call(&j, 0, a, NT_FN_AllReduce, 3);
  call->flags = NT_CALL_VOID;
  call->result = ncclInvalidArgument;
  j.collectives[0][a] = 0;
  job_all(&j, a, NT_FN_AllReduce, 16);
  assert_verdict(&j, "consistent");
}

static void an_absent_rank_does_not_hide_the_culprit(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_others(&j, 1, a, NT_FN_AllReduce, 16);
  job_drop(&j, 3);
  assert_verdict(&j, "missing AllReduce 2 blame 1 waiting 0,2");
}

static void an_absent_rank_may_make_it_even(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  job_others(&j, 1, a, NT_FN_AllReduce, 16);
  job_call(&j, 1, a, NT_FN_AllReduce, 17);
  job_drop(&j, 3);
  assert_verdict(&j, "mismatch count AllReduce 1 blame  waiting 0-2");
  a = start(6, "0-5");
  job_others(&j, 1, a, NT_FN_AllReduce, 16);
  job_call(&j, 1, a, NT_FN_AllReduce, 17);
  job_drop(&j, 3);
  assert_verdict(&j, "mismatch count AllReduce 1 blame 1 waiting 0-2,4-5");
}

static void only_an_absent_rank_can_be_missing(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_others(&j, 2, a, NT_FN_AllReduce, 16);
  job_drop(&j, 2);
  assert_verdict(&j, "undecided AllReduce 2 blame  waiting 0-1,3");
}

static void a_job_that_moves_is_consistent(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_others(&j, 1, a, NT_FN_AllReduce, 16);
  job_rank(&j, 1)->moved = true;
  assert_verdict(&j, "consistent");
}

static void the_verdict_does_not_depend_on_the_order_of_ranks(void **state) {
  (void)state;
  for (uint32_t turn = 0; turn < 4; turn++) {
    uint32_t a = start(4, "0-3");
    job_others(&j, 3, a, NT_FN_AllReduce, 16);
    job_call(&j, 3, a, NT_FN_AllReduce, 17);
    for (uint32_t i = 0; i < turn; i++) {
      struct nt_model_rank first = j.model.ranks[0];
      memmove(&j.model.ranks[0], &j.model.ranks[1], 3 * sizeof first);
      j.model.ranks[3] = first;
    }
    assert_verdict(&j, "mismatch count AllReduce 1 blame 3 waiting 0-3");
  }
}

/* NCCL has not begun the operation, and has aborted the communicator. */
static void an_abort_needs_no_end_of_its_group(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  j.group = 1;
  job_call(&j, 1, a, NT_FN_AllReduce, 16);
  job_record(&j, 1, a, NT_FN_CommAbort, 0, -1);
  job_judge(&j);
  const struct nt_model_rank *rank = job_rank(&j, 1);
  const struct nt_model_call *last = &rank->calls[rank->call_count - 1];
  assert_int_equal(last->fn, NT_FN_CommAbort);
  assert_false(last->pending);
  assert_true(last[-1].pending);
  job_free(&j);
}

/* The last four of a hundred calls are there; from #41 on `odd` has other sums. */
static void only_sums_are_left(uint32_t a, uint32_t ranks, uint32_t odd) {
  for (uint32_t r = 0; r < ranks; r++) {
    struct nt_model_view *view = &job_rank(&j, r)->views[0];
    view->sums = calloc(NT_SUM_LEVELS, sizeof *view->sums);
    view->collectives = 100;
    for (int level = 0; level < NT_SUM_LEVELS; level++)
      for (uint32_t k = 0; k < NT_SUM_KEPT; k++) {
        uint32_t multiple = (100u >> level) - k;
        if (multiple <= 100u >> level)
          view->sums[level][multiple % NT_SUM_KEPT] =
              (multiple << level) + (r == odd && multiple << level > 40 ? 7u : 0u);
      }
    job_rank(&j, r)->overwritten = 96;
    j.collectives[r][a] = 96;
    for (int i = 0; i < 4; i++)
      job_call(&j, r, a, NT_FN_AllReduce, 16);
  }
}

static void overwritten_calls_leave_it_undecided(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  only_sums_are_left(a, 2, 1);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_UNDECIDED);
  assert_non_null(strstr(v->findings[0].summary, "no longer in the traces"));
  job_free(&j);
}

static void sums_tell_between_which_calls_and_who_differs_but_accuse_nobody(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  only_sums_are_left(a, 4, 2);
  struct nt_verdict *v = job_judge(&j);
  char evidence[512] = "";
  assert_int_equal(v->count, 1);
  assert_int_equal(nt_rank_set_count(&v->findings[0].blame), 0);
  for (uint32_t i = 0; i < v->findings[0].evidence.count; i++)
    strncat(evidence, v->findings[0].evidence.line[i], sizeof evidence - strlen(evidence) - 1);
  assert_non_null(strstr(evidence, "agree up to #32 and differ at #48"));
  assert_non_null(strstr(evidence, "ranks 0-1,3 agree with each other, those of rank 2 differ"));
  job_free(&j);
}

#define TEST(name) cmocka_unit_test(name)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(equal_calls_are_consistent),
      TEST(a_call_with_settings_pairs_up_with_one_without),
      TEST(types_of_a_newer_nccl_are_compared),
      TEST(the_one_behind_is_missing),
      TEST(missing_is_no_vote),
      TEST(a_skip_among_growing_sizes_is_found_where_it_is),
      TEST(a_skip_shows_before_the_others_get_further),
      TEST(a_skip_in_a_turn_is_foretold_by_earlier_turns),
      TEST(a_majority_that_leaves_its_turn_has_skipped),
      TEST(a_majority_whose_loop_may_have_ended_is_not_accused),
      TEST(one_earlier_turn_is_no_habit),
      TEST(of_two_the_one_that_leaves_its_turn_has_skipped),
      TEST(a_swap_in_a_turn_by_half_blames_nobody),
      TEST(equal_calls_are_told_apart_by_their_buffers),
      TEST(a_call_of_one_rank_alone_is_extra),
      TEST(swapped_calls_are_order),
      TEST(another_size_is_a_mismatch_of_the_count),
      TEST(another_call_is_a_mismatch_of_the_call),
      TEST(types_and_operators_are_compared),
      TEST(roots_are_compared),
      TEST(data_movement_is_compared_in_bytes),
      TEST(each_field_has_its_own_vote),
      TEST(an_even_split_blames_nobody),
      TEST(order_inside_a_group_means_nothing),
      TEST(a_group_without_end_has_called_nothing),
      TEST(refused_calls_do_not_count),
      TEST(an_absent_rank_does_not_hide_the_culprit),
      TEST(an_absent_rank_may_make_it_even),
      TEST(only_an_absent_rank_can_be_missing),
      TEST(a_job_that_moves_is_consistent),
      TEST(the_verdict_does_not_depend_on_the_order_of_ranks),
      TEST(an_abort_needs_no_end_of_its_group),
      TEST(overwritten_calls_leave_it_undecided),
      TEST(sums_tell_between_which_calls_and_who_differs_but_accuse_nobody),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
