/* SPDX-License-Identifier: Apache-2.0 */
/* Queues of sends and receives: what meets what when one is left out, or is a collective. */
#include "model_builder.h"

static struct job j;

static uint32_t start(uint32_t ranks) {
  char members[16];
  job_start(&j, ranks);
  snprintf(members, sizeof members, "0-%u", ranks - 1);
  return job_comm(&j, "A", members);
}

/* Everybody passes `count` to the next; rank `but` does not send (or not receive). */
static void pass(uint32_t a, uint64_t count, int no_send, int no_recv) {
  for (uint32_t r = 0; r < j.ranks; r++) {
    if ((int)r != no_send)
      job_send(&j, r, a, (r + 1) % j.ranks, count);
    if ((int)r != no_recv)
      job_recv(&j, r, a, (r + j.ranks - 1) % j.ranks, count);
  }
}

static void a_send_left_out_among_others_is_found_where_it_is(void **state) {
  (void)state;
  uint32_t a = start(4);
  pass(a, 100, -1, -1);
  pass(a, 200, 1, -1);
  pass(a, 300, -1, -1);
  assert_verdict(&j, "p2p Recv 2 blame 1 waiting 2");
}

static void assert_summary(const char *wanted) {
  const struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->count, 1);
  assert_string_equal(v->findings[0].summary, wanted);
  job_free(&j);
}

static void a_lonely_message_names_both_ranks(void **state) {
  (void)state;
  uint32_t a = start(4);
  pass(a, 100, 1, -1);
  job_block(&j, 2);
  const struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->count, 1);
  assert_non_null(strstr(v->findings[0].summary, "rank 1 never sent what rank 2 waits for since "));
  assert_non_null(strstr(v->findings[0].summary, " (Recv #1 on A from rank 1)"));
  job_free(&j);
}

static void a_pair_of_two_sizes_names_both_ranks_and_sizes(void **state) {
  (void)state;
  uint32_t a = start(4);
  for (uint32_t r = 0; r < 4; r++) {
    job_send(&j, r, a, (r + 1) % 4, r == 1 ? 300 : 200);
    job_recv(&j, r, a, (r + 3) % 4, 200);
  }
  assert_summary("rank 1 sends 300 x f32 to rank 2, which expects 200 x f32 (Recv #1 on A); rank 1 "
                 "deviates from what other ranks exchange");
}

static void a_receive_left_out_among_others_is_found_where_it_is(void **state) {
  (void)state;
  uint32_t a = start(4);
  pass(a, 100, -1, -1);
  pass(a, 200, -1, 3);
  pass(a, 300, -1, -1);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->count, 1);
  assert_int_equal(v->findings[0].fn, NT_FN_Send);
  assert_int_equal(v->findings[0].seq, 2);
  assert_string_equal(set_text(&v->findings[0].blame), "3");
  job_free(&j);
}

static void of_two_sides_both_may_have_left_one_out(void **state) {
  (void)state;
  uint32_t a = start(2);
  for (uint64_t n = 1; n <= 3; n++) {
    if (n != 2)
      job_send(&j, 0, a, 1, 100 * n);
    job_recv(&j, 1, a, 0, 100 * n);
  }
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_P2P);
  assert_int_equal(v->findings[0].seq, 2);
  assert_int_not_equal(v->findings[0].confidence, NT_CERTAIN);
  job_free(&j);
}

static void another_size_says_who_sends_how_much_to_whom(void **state) {
  (void)state;
  uint32_t a = start(2);
  job_send(&j, 0, a, 1, 3);
  job_recv(&j, 1, a, 0, 5);
  struct nt_verdict *v = job_judge(&j);
  bool said = false;
  for (uint32_t i = 0; i < v->findings[0].evidence.count; i++)
    said |= strstr(v->findings[0].evidence.line[i], "0→1 sends 3, 1 expects 5 (f32)") != NULL;
  assert_true(said);
  job_free(&j);
}

static void a_send_meets_the_receive_inside_an_all_to_all(void **state) {
  (void)state;
  uint32_t a = start(3);
  job_all(&j, a, NT_FN_AlltoAll, 64);
  job_others(&j, 1, a, NT_FN_AlltoAll, 64);
  struct nt_model_call *send = job_send(&j, 1, a, 0, 64);
  send->seq = 2; /* the first all-to-all took one place of the queue */
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->count, 1); /* and rank 0 is not accused of a receive that it lacks */
  assert_int_equal(v->findings[0].class, NT_CLASS_MISSING);
  assert_int_equal(v->findings[0].fn, NT_FN_AlltoAll);
  assert_string_equal(set_text(&v->findings[0].blame), "1");
  job_free(&j);
}

static void a_send_behind_an_all_to_all_still_lacks_its_receive(void **state) {
  (void)state;
  uint32_t a = start(3);
  job_all(&j, a, NT_FN_AlltoAll, 64);
  struct nt_model_call *send = job_send(&j, 1, a, 0, 1 << 20);
  send->seq = 2;
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_P2P);
  assert_int_equal(v->findings[0].fn, NT_FN_Send);
  job_free(&j);
}

static void a_gap_in_front_does_not_place_an_all_to_all(void **state) {
  (void)state;
  uint32_t a = start(3);
  for (uint32_t r = 0; r < 3; r++)
    j.collectives[r][a] = 7;
  job_rank(&j, 0)->overwritten = 20; /* how many messages came before is not known */
  job_all(&j, a, NT_FN_AlltoAll, 64);
  struct nt_model_call *send = job_send(&j, 1, a, 0, 64);
  send->seq = 1;
  struct nt_verdict *v = job_judge(&j);
  for (uint32_t i = 0; i < v->count; i++)
    assert_false(nt_rank_set_has(&v->findings[i].blame, 0));
  job_free(&j);
}

/* As if its first `count` calls had been overwritten. */
static void overwrite(uint32_t rank, uint32_t count) {
  struct nt_model_rank *model = job_rank(&j, rank);
  model->overwritten = count;
  model->call_count -= count;
  memmove(model->calls, model->calls + count, model->call_count * sizeof *model->calls);
}

/* The queue has always carried 200; other pairs, which carry 100, tell nothing of it where that is overwritten. */
static void what_others_exchange_is_no_ground_where_the_queues_past_is_gone(void **state) {
  (void)state;
  for (uint32_t gone = 0; gone < 2; gone++) {
    uint32_t a = start(6);
    for (uint32_t i = 0; i < 6; i++)
      for (uint32_t r = 0; r < 6; r += 2) {
        job_send(&j, r, a, r + 1, r ? 100 : 200);
        job_recv(&j, r + 1, a, r, r || i == 5 ? 100 : 200);
      }
    for (uint32_t r = 0; gone && r < 2; r++)
      overwrite(r, job_rank(&j, r)->call_count - 1);
    struct nt_verdict *v = job_judge(&j);
    assert_int_equal(nt_verdict_class(v), NT_CLASS_P2P);
    assert_string_equal(set_text(&v->findings[0].blame), gone ? "0-1" : "1");
    job_free(&j);
  }
}

/* The sender was far ahead: what rank 1 receives first was sent before its oldest record, which is older. */
static void a_message_whose_other_side_is_overwritten_has_met(void **state) {
  (void)state;
  uint32_t a = start(2);
  for (int i = 0; i < 40; i++)
    job_send(&j, 0, a, 1, 8);
  for (int i = 0; i < 40; i++)
    job_recv(&j, 1, a, 0, 8);
  overwrite(0, 30);
  assert_verdict(&j, "consistent");
}

/* Its last send is known, though all that is left of it is later than what rank 1 called. */
static void a_message_behind_the_last_of_its_queue_lacks_its_other_side(void **state) {
  (void)state;
  uint32_t a = start(2);
  for (int i = 0; i < 40; i++)
    job_recv(&j, 1, a, 0, 8);
  job_block(&j, 1);
  for (int i = 0; i < 39; i++)
    job_send(&j, 0, a, 1, 8);
  overwrite(0, 30);
  assert_verdict(&j, "p2p Recv 40 blame 0 waiting 1");
}

static void a_partner_that_ended_is_not_accused_while_the_right_one_may_lack_a_trace(void **state) {
  (void)state;
  uint32_t a = start(4);
  for (int turn = 0; turn < 3; turn++)
    pass(a, 100, -1, -1);
  /* Rank 2 receives from 0, not from 1, in the last turn, and the others end. */
  for (uint32_t r = 0; r < 4; r++) {
    job_send(&j, r, a, (r + 1) % 4, 100);
    job_recv(&j, r, a, r == 2 ? 0 : (r + 3) % 4, 100);
  }
  job_end(&j, 0, NT_PROCESS_EXITED, 0);
  job_drop(&j, 1);
  struct nt_verdict *v = job_judge(&j);
  for (uint32_t i = 0; i < v->count; i++)
    assert_false(nt_rank_set_has(&v->findings[i].blame, 0));
  job_free(&j);
}

static void who_stands_in_front_of_a_new_queue_is_not_alone_to_blame(void **state) {
  (void)state;
  uint32_t a = start(4);
  for (int turn = 0; turn < 3; turn++) {
    job_send(&j, 1, a, 2, 4 << 20);
    job_recv(&j, 2, a, 1, 4 << 20);
  }
  job_send(&j, 1, a, 3, 4 << 20); /* 3 is in host code; next it would have sent to 2 */
  job_block(&j, 1);
  job_recv(&j, 2, a, 1, 4 << 20);
  struct nt_verdict *v = job_judge(&j);
  assert_string_equal(set_text(&v->findings[0].blame), "1,3");
  assert_int_equal(v->findings[0].confidence, NT_LIKELY);
  job_free(&j);
}

static void a_used_queue_is_owed_by_who_is_outside(void **state) {
  (void)state;
  uint32_t a = start(3);
  job_send(&j, 0, a, 1, 4 << 20);
  job_recv(&j, 1, a, 0, 4 << 20);
  job_recv(&j, 1, a, 0, 4 << 20); /* 0 is in host code before its second */
  job_block(&j, 1);
  job_send(&j, 2, a, 1, 4 << 20); /* and 1 has not come to this */
  job_block(&j, 2);
  struct nt_verdict *v = job_judge(&j);
  assert_string_equal(set_text(&v->findings[0].blame), "0");
  job_free(&j);
}

static void a_size_is_held_against_what_its_queue_carried(void **state) {
  (void)state;
  uint32_t a = start(5);
  for (int turn = 0; turn < 3; turn++)
    for (uint32_t r = 0; r < 4; r++) {
      job_send(&j, r, a, r + 1, r == 1 ? 200 : 100);
      job_recv(&j, r + 1, a, r, r == 1 && turn < 2 ? 200 : 100);
    }
  assert_verdict(&j, "p2p count Send 3 blame 2 waiting 2");
}

static void an_error_after_a_message_of_two_sizes_is_no_cause(void **state) {
  (void)state;
  uint32_t a = start(3);
  for (int turn = 0; turn < 3; turn++) {
    job_send(&j, 0, a, 1, turn < 2 ? 200 : 300);
    job_recv(&j, 1, a, 0, 200);
    if (turn < 2)
      job_send(&j, 1, a, 2, 4 << 20);
    job_recv(&j, 2, a, 1, 4 << 20);
  }
  job_block(&j, 2);
  job_record(&j, 1, a, NT_FN_CommGetAsyncError, ncclInvalidUsage, -1); /* message truncated */
  struct nt_verdict *v = job_judge(&j);
  assert_string_equal(set_text(&v->findings[0].blame), "0");
  for (uint32_t i = 0; i < v->count; i++)
    assert_int_not_equal(v->findings[i].class, NT_CLASS_ERROR);
  job_free(&j);
}

static void one_wrong_size_among_equal_ones_is_no_receive_left_out(void **state) {
  (void)state;
  uint32_t a = start(4);
  for (int turn = 0; turn < 3; turn++)
    for (uint32_t r = 0; r < 3; r++) {
      job_send(&j, r, a, r + 1, r == 1 && turn == 2 ? 400 : 300);
      job_recv(&j, r + 1, a, r, 300);
    }
  job_block(&j, 2);
  job_send(&j, 1, a, 2, 300); /* and goes on: leaving out the odd one, the next would agree */
  assert_verdict(&j, "p2p count Recv 3 blame 1 waiting 2");
}

/* A pipeline of four with a collective in each turn; rank 2 leaves out its receive in turn `without`. */
static void end_pipeline(int turns, int without) {
  uint32_t a = start(4), b = job_comm(&j, "B", "0-3");
  for (int turn = 1; turn <= turns; turn++) {
    for (uint32_t r = 0; r < 4; r++) {
      if (r && !(r == 2 && turn == without))
        job_recv(&j, r, a, r - 1, 300);
      if (r < 3)
        job_send(&j, r, a, r + 1, 300);
    }
    job_all(&j, b, NT_FN_AllReduce, 10);
  }
  for (uint32_t r = 0; r < 4; r++)
    job_end(&j, r, NT_PROCESS_EXITED, 0);
}

static void a_receive_left_out_is_told_of_a_job_that_has_ended(void **state) {
  (void)state;
  end_pipeline(6, 4);
  assert_verdict(&j, "p2p Send 4 blame 2 waiting ");
}

static void a_pipeline_that_has_ended_with_all_messages_taken_is_consistent(void **state) {
  (void)state;
  end_pipeline(6, 0);
  const struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_CONSISTENT);
  job_free(&j);
}

static void a_message_of_whom_no_record_is_whole_is_not_missed(void **state) {
  (void)state;
  end_pipeline(6, 4);
  job_rank(&j, 2)->lost = 1;
  const struct nt_verdict *v = job_judge(&j);
  for (uint32_t i = 0; i < v->count; i++)
    assert_int_equal(nt_rank_set_count(&v->findings[i].blame), 0);
  job_free(&j);
}

#define TEST(name) cmocka_unit_test(name)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_send_left_out_among_others_is_found_where_it_is),
      TEST(a_lonely_message_names_both_ranks),
      TEST(a_pair_of_two_sizes_names_both_ranks_and_sizes),
      TEST(a_receive_left_out_among_others_is_found_where_it_is),
      TEST(of_two_sides_both_may_have_left_one_out),
      TEST(another_size_says_who_sends_how_much_to_whom),
      TEST(a_send_meets_the_receive_inside_an_all_to_all),
      TEST(a_send_behind_an_all_to_all_still_lacks_its_receive),
      TEST(what_others_exchange_is_no_ground_where_the_queues_past_is_gone),
      TEST(a_message_whose_other_side_is_overwritten_has_met),
      TEST(a_message_behind_the_last_of_its_queue_lacks_its_other_side),
      TEST(a_partner_that_ended_is_not_accused_while_the_right_one_may_lack_a_trace),
      TEST(who_stands_in_front_of_a_new_queue_is_not_alone_to_blame),
      TEST(a_used_queue_is_owed_by_who_is_outside),
      TEST(a_size_is_held_against_what_its_queue_carried),
      TEST(an_error_after_a_message_of_two_sizes_is_no_cause),
      TEST(a_gap_in_front_does_not_place_an_all_to_all),
      TEST(one_wrong_size_among_equal_ones_is_no_receive_left_out),
      TEST(a_receive_left_out_is_told_of_a_job_that_has_ended),
      TEST(a_pipeline_that_has_ended_with_all_messages_taken_is_consistent),
      TEST(a_message_of_whom_no_record_is_whole_is_not_missed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
