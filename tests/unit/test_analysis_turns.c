/* SPDX-License-Identifier: Apache-2.0 */
/* Knots that the turns of the ranks around them explain, and those that they do not. */
#include "model_builder.h"

static struct job j;
static uint32_t a, e, f;

/* A of all four ranks, E of ranks 2-3, F of ranks 0-1. */
static void start(void) {
  job_start(&j, 4);
  a = job_comm(&j, "A", "0-3");
  e = job_comm(&j, "E", "2-3");
  f = job_comm(&j, "F", "0-1");
}

static void call(uint32_t rank, uint32_t comm, uint32_t line) {
  j.line = line;
  job_call(&j, rank, comm, NT_FN_AllReduce, 64);
}

static void pair_call(uint32_t rank) {
  call(rank, rank < 2 ? f : e, 10);
}

static void turn(uint32_t rank) {
  pair_call(rank);
  call(rank, a, 11);
  pair_call(rank);
}

/* Rank `odd` calls A at once in the turn to come and waits there, and its partner in their pair. */
static void turn_without(uint32_t odd, uint32_t partner) {
  for (uint32_t r = 0; r < 4; r++) {
    if (r != odd)
      pair_call(r);
    if (r != partner)
      call(r, a, 11);
    job_block(&j, r);
  }
}

static void turns(uint32_t count) {
  for (uint32_t t = 0; t < count; t++)
    for (uint32_t r = 0; r < 4; r++)
      turn(r);
}

static void a_call_left_out_of_the_third_turn_is_missing(void **state) {
  (void)state;
  start();
  turns(2);
  turn_without(2, 3);
  assert_verdict(&j, "missing AllReduce 5 blame 2 waiting 3");
}

/* To rank 2 one turn tells nothing; but ranks 0 and 1, in their pair, were there too. */
static void one_turn_before_tells_what_was_left_out_with_what_others_do(void **state) {
  (void)state;
  start();
  turns(1);
  turn_without(2, 3);
  assert_verdict(&j, "missing AllReduce 3 blame 2 waiting 3");
}

static void one_turn_before_does_not_tell_what_was_left_out(void **state) {
  (void)state;
  start();
  turns(1);
  pair_call(3);
  job_block(&j, 3);
  call(2, a, 11);
  job_block(&j, 2);
  job_drop(&j, 0);
  job_drop(&j, 1);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_CYCLE);
  assert_string_equal(set_text(&v->findings[0].blame), "");
  job_free(&j);
}

/* A line of its own: the turns may have ended. */
static void a_call_from_a_new_line_is_no_proof_of_one_left_out(void **state) {
  (void)state;
  start();
  turns(2);
  for (uint32_t r = 0; r < 4; r++) {
    if (r != 2)
      pair_call(r);
    if (r != 3)
      call(r, a, r == 2 ? 40 : 11);
    job_block(&j, r);
  }
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_CYCLE);
  assert_string_equal(set_text(&v->findings[0].blame), "2-3");
  job_free(&j);
}

/* Ranks 0, 1 and 3 do the same: a branch of the program, which rank 2 did not take. */
static void what_all_others_leave_out_is_extra(void **state) {
  (void)state;
  start();
  turns(4);
  for (uint32_t r = 0; r < 4; r++) {
    if (r == 2)
      pair_call(r);
    else
      call(r, a, 11);
    job_block(&j, r);
  }
  assert_verdict(&j, "extra AllReduce 9 blame 2 waiting 2");
}

/* The same while one of those has no trace: neither is accused. */
static void what_one_other_leaves_out_too_is_held_against_nobody(void **state) {
  (void)state;
  start();
  turns(4);
  for (uint32_t r = 0; r < 4; r++) {
    if (r == 2)
      pair_call(r);
    else
      call(r, a, 11);
    job_block(&j, r);
  }
  job_drop(&j, 0);
  struct nt_verdict *v = job_judge(&j);
  for (uint32_t i = 0; i < v->count; i++)
    assert_string_equal(set_text(&v->findings[i].blame), "");
  job_free(&j);
}

/* Without the traces of those that did the same, it may still be so. */
static void ranks_without_a_trace_may_have_left_it_out_too(void **state) {
  (void)state;
  start();
  turns(2);
  turn_without(2, 3);
  job_drop(&j, 0);
  job_drop(&j, 1);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_CYCLE);
  assert_string_equal(set_text(&v->findings[0].blame), "");
  job_free(&j);
}

/* Rank 3 has called what it never did before: no story of one step explains all. */
static void a_rank_without_turns_leaves_the_knot_untold(void **state) {
  (void)state;
  start();
  uint32_t g = job_comm(&j, "G", "3");
  turns(2);
  call(3, g, 50);
  turn_without(2, 3);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_CYCLE);
  assert_string_equal(set_text(&v->findings[0].blame), "2-3");
  job_free(&j);
}

/* All meet in B; then each of `in` sends to the next and receives from the one before in A, and all go on with B. */
static void ring_in_the_first_turn(bool (*in)(uint32_t rank)) {
  job_start(&j, 4);
  uint32_t ring = job_comm(&j, "A", "0-3"), b = job_comm(&j, "B", "0-3");
  job_all(&j, b, NT_FN_AllReduce, 16);
  for (uint32_t r = 0; r < 4; r++) {
    if (in(r)) {
      job_send(&j, r, ring, (r + 1) % 4, 1000);
      job_recv(&j, r, ring, (r + 3) % 4, 1000);
    }
    if (!in(r) || in((r + 3) % 4))
      job_call(&j, r, b, NT_FN_AllReduce, 16);
    job_block(&j, r);
  }
}

static bool all_but_one(uint32_t rank) {
  return rank != 1;
}

static bool even(uint32_t rank) {
  return rank % 2 == 0;
}

static void who_alone_left_a_ring_out_is_in_the_minority(void **state) {
  (void)state;
  ring_in_the_first_turn(all_but_one);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_CYCLE);
  assert_string_equal(set_text(&v->findings[0].blame), "1");
  job_free(&j);
}

static void two_against_two_in_a_ring_are_a_tie(void **state) {
  (void)state;
  ring_in_the_first_turn(even);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_CYCLE);
  assert_string_equal(set_text(&v->findings[0].blame), "0-3");
  job_free(&j);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_call_from_a_new_line_is_no_proof_of_one_left_out),
      cmocka_unit_test(a_call_left_out_of_the_third_turn_is_missing),
      cmocka_unit_test(a_rank_without_turns_leaves_the_knot_untold),
      cmocka_unit_test(one_turn_before_does_not_tell_what_was_left_out),
      cmocka_unit_test(one_turn_before_tells_what_was_left_out_with_what_others_do),
      cmocka_unit_test(ranks_without_a_trace_may_have_left_it_out_too),
      cmocka_unit_test(two_against_two_in_a_ring_are_a_tie),
      cmocka_unit_test(what_all_others_leave_out_is_extra),
      cmocka_unit_test(what_one_other_leaves_out_too_is_held_against_nobody),
      cmocka_unit_test(who_alone_left_a_ring_out_is_in_the_minority),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
