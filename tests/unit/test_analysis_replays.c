/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts on captured graphs and their launches, on threads, and on processes that hold several ranks. */
#include "model_builder.h"

static struct job j;
static uint32_t launches[JOB_RANKS];

static uint32_t start(uint32_t ranks, const char *members) {
  memset(launches, 0, sizeof launches);
  job_start(&j, ranks);
  return job_comm(&j, "A", members);
}

/* One collective captured into a graph, which has a number of its own in each process. */
static void capture(uint32_t rank, uint32_t comm, uint64_t count, uint32_t graph) {
  struct nt_model_call *call = job_call(&j, rank, comm, NT_FN_AllReduce, count);
  call->flags |= NT_CALL_CAPTURED;
  call->graph = graph;
  call->progress = NT_PROGRESS_FINISHED;
}

static void capture_all(uint32_t comm, uint64_t count, uint32_t graph) {
  for (uint32_t r = 0; r < j.ranks; r++)
    if (j.view[r][comm])
      capture(r, comm, count, graph);
}

static struct nt_model_call *launch(uint32_t rank, uint32_t graph, enum nt_progress progress) {
  struct nt_model_call *call = job_record(&j, rank, NT_NONE, NT_FN_cudaGraphLaunch, graph, -1);
  call->graph = graph;
  call->launch = ++launches[rank];
  call->progress = (uint8_t)progress;
  return call;
}

static void launch_all(uint32_t graph, enum nt_progress progress) {
  for (uint32_t r = 0; r < j.ranks; r++)
    launch(r, graph, progress);
}

static void captured_calls_hold_nobody(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  capture_all(a, 64, 1);
  assert_verdict(&j, "consistent");
}

static void a_launch_that_a_rank_lacks_is_missing(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  capture_all(a, 64, 1);
  launch_all(1, NT_PROGRESS_FINISHED);
  launch(0, 1, NT_PROGRESS_REACHED);
  launch(2, 1, NT_PROGRESS_REACHED);
  assert_verdict(&j, "missing cudaGraphLaunch 2 blame 1 waiting 0,2");
}

static void numbers_of_graphs_need_not_agree(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  capture(0, a, 64, 1);
  capture(1, a, 64, 7);
  launch(0, 1, NT_PROGRESS_FINISHED);
  launch(1, 7, NT_PROGRESS_FINISHED);
  launch(0, 1, NT_PROGRESS_REACHED);
  assert_verdict(&j, "missing cudaGraphLaunch 2 blame 1 waiting 0");
}

static void two_ranks_with_different_graphs_accuse_nobody(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  capture_all(a, 1024, 1);
  capture_all(a, 512, 2);
  launch_all(1, NT_PROGRESS_FINISHED);
  launch(0, 1, NT_PROGRESS_REACHED);
  launch(1, 2, NT_PROGRESS_REACHED);
  assert_verdict(&j, "mismatch count cudaGraphLaunch 2 blame  waiting 0-1");
}

static void one_of_three_with_another_graph_is_to_blame(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  capture_all(a, 1024, 1);
  capture_all(a, 512, 2);
  launch(0, 1, NT_PROGRESS_REACHED);
  launch(1, 2, NT_PROGRESS_REACHED);
  launch(2, 1, NT_PROGRESS_REACHED);
  assert_verdict(&j, "mismatch count cudaGraphLaunch 1 blame 1 waiting 0-2");
}

static void a_skipped_launch_is_told_from_another_graph(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  capture_all(a, 1024, 1);
  capture_all(a, 512, 2);
  capture_all(a, 256, 3);
  for (uint32_t r = 0; r < 3; r++) {
    if (r != 1)
      launch(r, 1, NT_PROGRESS_REACHED);
    launch(r, 2, NT_PROGRESS_ENQUEUED);
    launch(r, 3, NT_PROGRESS_ENQUEUED);
  }
  assert_verdict(&j, "missing cudaGraphLaunch 1 blame 1 waiting 0-2");
}

static void a_launch_that_finishes_nowhere_is_stalled(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  capture_all(a, 64, 1);
  launch_all(1, NT_PROGRESS_FINISHED);
  launch_all(1, NT_PROGRESS_REACHED);
  assert_verdict(&j, "stalled cudaGraphLaunch 2 blame  waiting 0-1");
}

static void a_launch_behind_other_work_blames_the_device(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  capture_all(a, 64, 1);
  launch(0, 1, NT_PROGRESS_REACHED);
  launch(1, 1, NT_PROGRESS_ENQUEUED);
  assert_verdict(&j, "gpu cudaGraphLaunch 1 blame 1 waiting 0-1");
}

static void a_graph_and_an_eager_call_in_opposite_order_are_a_cycle(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1"), b = job_comm(&j, "B", "0-1");
  capture_all(a, 64, 1);
  launch(0, 1, NT_PROGRESS_REACHED);
  struct nt_model_call *call = job_call(&j, 0, b, NT_FN_AllReduce, 64);
  call->launch = ++launches[0];
  call->progress = NT_PROGRESS_ENQUEUED;
  call = job_call(&j, 1, b, NT_FN_AllReduce, 64);
  call->launch = ++launches[1];
  call->progress = NT_PROGRESS_REACHED;
  launch(1, 1, NT_PROGRESS_ENQUEUED);
  assert_verdict(&j, "cycle cudaGraphLaunch 1 blame 0-1 waiting 0-1");
}

static void called_behind_launches(uint32_t times, const char *wanted) {
  uint32_t a = start(4, "0-3");
  capture_all(a, 64, 1);
  for (uint32_t i = 0; i < times; i++)
    launch_all(1, NT_PROGRESS_FINISHED);
  for (uint32_t r = 0; r < 3; r++) {
    struct nt_model_call *call = job_call(&j, r, a, NT_FN_AllReduce, 16);
    call->launch = ++launches[r];
    call->progress = NT_PROGRESS_REACHED;
  }
  launch(3, 1, NT_PROGRESS_REACHED);
  assert_verdict(&j, wanted);
}

static void a_launch_more_than_the_others_made_is_extra(void **state) {
  (void)state;
  called_behind_launches(4, "extra cudaGraphLaunch 5 blame 3 waiting 3");
}

static void a_launch_in_place_of_a_call_is_order_where_it_was_not_repeated(void **state) {
  (void)state;
  called_behind_launches(1, "order AllReduce 2 blame 3 waiting 0-2");
}

static void launches_are_not_counted_where_calls_are_lost(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  capture_all(a, 64, 1);
  launch_all(1, NT_PROGRESS_FINISHED);
  launch(0, 1, NT_PROGRESS_REACHED);
  job_rank(&j, 1)->overwritten = 1;
  job_pass(&j, 3000);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->count, 1);
  assert_int_equal(v->findings[0].class, NT_CLASS_UNDECIDED);
  assert_string_equal(set_text(&v->findings[0].blame), "");
  job_free(&j);
}

static void a_rank_that_captured_nothing_is_not_said_to_lack_a_launch(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  capture(0, a, 64, 1);
  job_call(&j, 1, a, NT_FN_AllReduce, 64)->progress = NT_PROGRESS_REACHED;
  launch(0, 1, NT_PROGRESS_REACHED);
  struct nt_verdict *v = job_judge(&j);
  assert_true(v->count > 0);
  for (uint32_t i = 0; i < v->count; i++)
    assert_string_equal(set_text(&v->findings[i].blame), "");
  job_free(&j);
}

/* ---- threads ---- */

static void a_full_queue_holds_a_send_behind_a_collective(void **state) {
  (void)state;
  uint32_t p = start(2, "0-1"), q = job_comm(&j, "Q", "0-1");
  struct nt_model_call *call = job_call(&j, 0, p, NT_FN_AllReduce, 64);
  call->launch = 1;
  call->progress = NT_PROGRESS_REACHED;
  call = job_send(&j, 0, q, 1, 64); /* by another thread, and the launch has no room */
  call->thread = 1;
  call->launch = 2;
  call->progress = NT_PROGRESS_ENQUEUED;
  call->exit_ns = 0;
  call = job_recv(&j, 1, q, 0, 64);
  call->launch = 1;
  call->progress = NT_PROGRESS_REACHED;
  call = job_call(&j, 1, p, NT_FN_AllReduce, 64);
  call->launch = 2;
  call->progress = NT_PROGRESS_ENQUEUED;
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->findings[0].class, NT_CLASS_CYCLE);
  assert_string_equal(set_text(&v->findings[0].blame), "0-1");
  job_free(&j);
}

/* ---- one process, several ranks of a communicator ---- */

/* Communicator rank 1 of A and of B, beside the builder's rank 0; used by threads 1 and 2. */
static void two_ranks_in_one_process(uint32_t comms) {
  job_start(&j, 1);
  for (uint32_t c = 0; c < comms; c++) {
    job_comm(&j, c ? "B" : "A", "0");
    struct nt_model_view copy = job_rank(&j, 0)->views[2 * c], *view;
    job_rank(&j, 0)->views[2 * c].nranks = 2;
    view = nt_model_add_view(job_rank(&j, 0));
    *view = copy;
    view->number += 10;
    view->rank = 1;
    view->nranks = 2;
  }
}

/* The first call of the communicator rank on the communicator. */
static struct nt_model_call *first_of(uint32_t comm, uint32_t rank, enum nt_progress progress) {
  struct nt_model_call *call = job_record(&j, 0, comm, NT_FN_AllReduce, 64, -1);
  call->view = 2 * comm + rank;
  call->thread = rank + 1;
  call->seq = 1;
  call->progress = (uint8_t)progress;
  return call;
}

static void a_process_that_waits_for_its_own_thread_is_missing_a_call(void **state) {
  (void)state;
  two_ranks_in_one_process(1);
  struct nt_model_call *init = job_record(&j, 0, 0, NT_FN_CommInitRank, 2, 1);
  init->view = 1;
  init->thread = 2;
  init->seq = 1;
  first_of(0, 0, NT_PROGRESS_REACHED);
  assert_verdict(&j, "missing AllReduce 1 blame 0 waiting 0");
}

static void a_process_that_finalizes_for_one_of_its_ranks_lacks_the_other(void **state) {
  (void)state;
  two_ranks_in_one_process(1);
  first_of(0, 0, NT_PROGRESS_FINISHED);
  first_of(0, 1, NT_PROGRESS_FINISHED);
  struct nt_model_call *end = job_record(&j, 0, 0, NT_FN_CommFinalize, 0, -1);
  end->view = 0;
  end->thread = 1;
  end->seq = 1;
  job_block(&j, 0);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_MISSING);
  assert_non_null(strstr(v->findings[0].summary, "communicator rank 1 "));
  job_free(&j);
}

static void a_process_that_aborts_for_one_of_its_ranks_has_left_by_that(void **state) {
  (void)state;
  two_ranks_in_one_process(1);
  struct nt_model_call *end = job_record(&j, 0, 0, NT_FN_CommAbort, 0, -1);
  end->view = 1;
  end->thread = 2;
  first_of(0, 0, NT_PROGRESS_REACHED);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_LEFT);
  assert_non_null(strstr(v->findings[0].summary, "communicator rank 1 "));
  job_free(&j);
}

/* Puts what one graph holds behind what another held, under a new number. */
static void nest(uint32_t rank, uint32_t part, uint32_t held, uint32_t graph) {
  struct nt_model_call *call =
      job_record(&j, rank, NT_NONE, NT_FN_cudaGraphAddChildGraphNode, part, -1);
  call->count = (uint64_t)held << 32 | part;
  call->graph = graph;
  call->flags |= NT_CALL_CAPTURED;
  call->progress = NT_PROGRESS_FINISHED;
}

static void a_graph_replays_what_was_put_into_it(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  capture_all(a, 64, 1);
  capture_all(a, 32, 2);
  nest(0, 1, 0, 8);
  nest(0, 2, 8, 9);
  nest(1, 2, 0, 8);
  nest(1, 1, 8, 9);
  launch(0, 9, NT_PROGRESS_REACHED);
  launch(1, 9, NT_PROGRESS_REACHED);
  assert_verdict(&j, "mismatch count cudaGraphLaunch 1 blame  waiting 0-1");
}

static void graphs_in_a_circle_end(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  capture_all(a, 64, 1);
  for (uint32_t r = 0; r < 2; r++) {
    nest(r, 9, 1, 8);
    nest(r, 8, 8, 9);
  }
  launch_all(9, NT_PROGRESS_FINISHED);
  assert_verdict(&j, "consistent");
}

static void capture_message(struct nt_model_call *call, uint32_t graph) {
  call->flags |= NT_CALL_CAPTURED | NT_CALL_VOID;
  call->graph = graph;
  call->seq = 0;
  call->result = 0;
  call->progress = NT_PROGRESS_FINISHED;
}

/* Rank 0 sends by a graph, rank 1 receives by calls: as often as `received` says. */
static void send_by_graph(uint32_t launched, uint32_t received) {
  uint32_t a = start(2, "0-1");
  capture_message(job_send(&j, 0, a, 1, 64), 1);
  for (uint32_t i = 0; i < launched; i++)
    launch(0, 1, NT_PROGRESS_FINISHED);
  for (uint32_t i = 0; i < received; i++) {
    struct nt_model_call *call = job_recv(&j, 1, a, 0, 64);
    call->seq = i + 1;
    call->progress = i < launched ? NT_PROGRESS_FINISHED : NT_PROGRESS_REACHED;
  }
}

static void replayed_messages_meet_called_ones(void **state) {
  (void)state;
  send_by_graph(3, 3);
  assert_verdict(&j, "consistent");
}

static void a_message_that_no_replay_sends_is_missed(void **state) {
  (void)state;
  send_by_graph(3, 4);
  assert_verdict(&j, "p2p Recv 4 blame 0 waiting 1");
}

static void messages_are_not_replayed_where_calls_are_lost(void **state) {
  (void)state;
  send_by_graph(3, 0);
  job_rank(&j, 0)->lost = 1;
  job_settle(&j);
  uint32_t messages = 0;
  for (uint32_t i = 0; i < job_rank(&j, 0)->call_count; i++)
    messages += job_rank(&j, 0)->calls[i].fn == NT_FN_Send;
  assert_int_equal(messages, 1);
  job_free(&j);
}

static struct nt_model_call *signal_call(uint32_t rank, uint32_t comm, uint8_t fn, uint32_t peer,
                                         uint32_t number, uint64_t count,
                                         enum nt_progress progress) {
  struct nt_model_call *call = job_record(&j, rank, comm, fn, count, (int32_t)peer);
  call->buffer = number + 1;
  call->progress = (uint8_t)progress;
  return call;
}

static void a_wait_is_for_all_signals_up_to_its_last(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  for (int i = 0; i < 5; i++)
    signal_call(0, a, NT_FN_Signal, 1, 0, 0, NT_PROGRESS_FINISHED);
  signal_call(1, a, NT_FN_WaitSignal, 0, 0, 2, NT_PROGRESS_FINISHED);
  signal_call(1, a, NT_FN_WaitSignal, 0, 0, 3, NT_PROGRESS_FINISHED);
  signal_call(1, a, NT_FN_WaitSignal, 0, 0, 1, NT_PROGRESS_REACHED);
  assert_verdict(&j, "p2p WaitSignal 6 blame 0 waiting 1");
}

static void a_signal_that_nobody_waits_for_is_none_of_anybodys_business(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  for (int i = 0; i < 5; i++)
    signal_call(0, a, NT_FN_PutSignal, 1, 3, 1 << 20, NT_PROGRESS_FINISHED);
  assert_verdict(&j, "consistent");
}

static void signals_and_messages_do_not_meet(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  job_send(&j, 0, a, 1, 64)->progress = NT_PROGRESS_FINISHED;
  signal_call(0, a, NT_FN_Signal, 1, 0, 0, NT_PROGRESS_FINISHED);
  signal_call(1, a, NT_FN_WaitSignal, 0, 0, 1, NT_PROGRESS_FINISHED);
  job_recv(&j, 1, a, 0, 64)->progress = NT_PROGRESS_FINISHED;
  assert_verdict(&j, "consistent");
}

static void a_rank_that_makes_no_window_is_missing(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  for (uint32_t r = 0; r < 3; r++)
    job_record(&j, r, a, NT_FN_CommWindowRegister, 4096, -1);
  job_record(&j, 0, a, NT_FN_CommWindowRegister, 4096, -1);
  job_block(&j, 0);
  job_record(&j, 2, a, NT_FN_CommWindowRegister, 4096, -1);
  job_block(&j, 2);
  assert_verdict(&j, "missing CommWindowRegister 2 blame 1 waiting 0,2");
}

/* Where NCCL cannot make one it answers at once, and the others need not call. */
static void a_window_that_returned_holds_nobody(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  job_record(&j, 0, a, NT_FN_CommWindowRegister, 4096, -1);
  assert_verdict(&j, "consistent");
}

/* Members that launch one more than the others, all of which finished, in front of what all call. */
static void launch_unevenly(uint32_t ranks, const char *members, const char *more,
                            enum nt_progress progress) {
  const uint32_t a = start(ranks, members);
  capture_all(a, 64, 1);
  launch_all(1, NT_PROGRESS_FINISHED);
  for (uint32_t r = 0; r < ranks; r++)
    if (strchr(more, (char)('0' + r)))
      launch(r, 1, NT_PROGRESS_FINISHED);
  for (uint32_t r = 0; r < ranks; r++)
    job_call(&j, r, a, NT_FN_AllReduce, 1024)->progress = (uint8_t)progress;
}

static void a_launch_that_paired_up_with_another_call_is_extra(void **state) {
  (void)state;
  launch_unevenly(4, "0-3", "3", NT_PROGRESS_REACHED);
  assert_verdict(&j, "extra cudaGraphLaunch 2 blame 3 waiting 0-3");
}

static void a_launch_whose_peers_paired_up_with_another_call_is_missing(void **state) {
  (void)state;
  launch_unevenly(4, "0-3", "012", NT_PROGRESS_REACHED);
  assert_verdict(&j, "missing cudaGraphLaunch 2 blame 3 waiting 0-3");
}

static void two_against_two_launches_accuse_nobody(void **state) {
  (void)state;
  launch_unevenly(4, "0-3", "01", NT_PROGRESS_REACHED);
  assert_verdict(&j, "extra cudaGraphLaunch 2 blame  waiting 0-3");
}

static void a_launch_that_changed_places_with_a_call_and_paired_up_is_order(void **state) {
  (void)state;
  launch_unevenly(3, "0-2", "2", NT_PROGRESS_REACHED);
  launch(0, 1, NT_PROGRESS_UNKNOWN);
  launch(1, 1, NT_PROGRESS_UNKNOWN);
  assert_verdict(&j, "order AllReduce 2 blame 2 waiting 0-2");
}

static void a_launch_that_paired_up_is_extra_also_where_nobody_waits(void **state) {
  (void)state;
  launch_unevenly(3, "0-2", "2", NT_PROGRESS_FINISHED);
  assert_verdict(&j, "extra cudaGraphLaunch 2 blame 2 waiting ");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(captured_calls_hold_nobody),
      cmocka_unit_test(a_launch_that_a_rank_lacks_is_missing),
      cmocka_unit_test(numbers_of_graphs_need_not_agree),
      cmocka_unit_test(two_ranks_with_different_graphs_accuse_nobody),
      cmocka_unit_test(one_of_three_with_another_graph_is_to_blame),
      cmocka_unit_test(a_skipped_launch_is_told_from_another_graph),
      cmocka_unit_test(a_launch_that_finishes_nowhere_is_stalled),
      cmocka_unit_test(a_launch_behind_other_work_blames_the_device),
      cmocka_unit_test(a_graph_and_an_eager_call_in_opposite_order_are_a_cycle),
      cmocka_unit_test(a_launch_in_place_of_a_call_is_order_where_it_was_not_repeated),
      cmocka_unit_test(a_launch_more_than_the_others_made_is_extra),
      cmocka_unit_test(a_launch_that_paired_up_with_another_call_is_extra),
      cmocka_unit_test(a_launch_whose_peers_paired_up_with_another_call_is_missing),
      cmocka_unit_test(two_against_two_launches_accuse_nobody),
      cmocka_unit_test(a_launch_that_changed_places_with_a_call_and_paired_up_is_order),
      cmocka_unit_test(a_launch_that_paired_up_is_extra_also_where_nobody_waits),
      cmocka_unit_test(launches_are_not_counted_where_calls_are_lost),
      cmocka_unit_test(a_rank_that_captured_nothing_is_not_said_to_lack_a_launch),
      cmocka_unit_test(a_graph_replays_what_was_put_into_it),
      cmocka_unit_test(graphs_in_a_circle_end),
      cmocka_unit_test(replayed_messages_meet_called_ones),
      cmocka_unit_test(a_message_that_no_replay_sends_is_missed),
      cmocka_unit_test(messages_are_not_replayed_where_calls_are_lost),
      cmocka_unit_test(a_wait_is_for_all_signals_up_to_its_last),
      cmocka_unit_test(a_signal_that_nobody_waits_for_is_none_of_anybodys_business),
      cmocka_unit_test(signals_and_messages_do_not_meet),
      cmocka_unit_test(a_rank_that_makes_no_window_is_missing),
      cmocka_unit_test(a_window_that_returned_holds_nobody),
      cmocka_unit_test(a_full_queue_holds_a_send_behind_a_collective),
      cmocka_unit_test(a_process_that_waits_for_its_own_thread_is_missing_a_call),
      cmocka_unit_test(a_process_that_finalizes_for_one_of_its_ranks_lacks_the_other),
      cmocka_unit_test(a_process_that_aborts_for_one_of_its_ranks_has_left_by_that),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
