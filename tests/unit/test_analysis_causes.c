/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts on who is gone, who waits for whom, and what was first. */
#include "model_builder.h"

static struct job j;

static uint32_t start(uint32_t ranks, const char *members) {
  job_start(&j, ranks);
  return job_comm(&j, "A", members);
}

static void a_killed_rank_is_dead(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_end(&j, 2, NT_PROCESS_VANISHED, 0);
  job_others(&j, 2, a, NT_FN_AllReduce, 16);
  assert_verdict(&j, "dead AllReduce 2 blame 2 waiting 0-1,3");
}

static void a_failed_exit_is_dead(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_end(&j, 1, NT_PROCESS_EXITED, 1);
  job_others(&j, 1, a, NT_FN_AllReduce, 16);
  assert_verdict(&j, "dead AllReduce 2 blame 1 waiting 0,2");
}

static void one_killed_before_the_rest_is_dead(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_end(&j, 1, NT_PROCESS_VANISHED, 0);
  job_others(&j, 1, a, NT_FN_AllReduce, 16);
  job_pass(&j, 3000);
  job_end(&j, 0, NT_PROCESS_VANISHED, 0);
  job_end(&j, 2, NT_PROCESS_VANISHED, 0);
  assert_verdict(&j, "dead AllReduce 2 blame 1 waiting 0,2");
}

static void of_ranks_killed_together_none_is_dead(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_others(&j, 1, a, NT_FN_AllReduce, 16);
  job_pass(&j, 3000);
  job_end(&j, 1, NT_PROCESS_VANISHED, 0);
  job_pass(&j, 200);
  job_end(&j, 0, NT_PROCESS_VANISHED, 0);
  job_end(&j, 2, NT_PROCESS_VANISHED, 0);
  assert_verdict(&j, "missing AllReduce 2 blame 1 waiting 0,2");
}

static void an_exit_after_waiting_is_a_consequence(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_others(&j, 1, a, NT_FN_AllReduce, 16);
  job_pass(&j, 5000);
  job_end(&j, 0, NT_PROCESS_EXITED, 1);
  job_end(&j, 2, NT_PROCESS_EXITED, 1);
  assert_verdict(&j, "missing AllReduce 2 blame 1 waiting 0,2");
}

static void an_abort_after_waiting_is_a_consequence(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_others(&j, 1, a, NT_FN_AllReduce, 16);
  job_pass(&j, 5000);
  job_record(&j, 0, a, NT_FN_CommAbort, 0, -1);
  job_record(&j, 2, a, NT_FN_CommAbort, 0, -1);
  job_end(&j, 0, NT_PROCESS_EXITED, 0);
  assert_verdict(&j, "missing AllReduce 2 blame 1 waiting 0,2");
}

static void all_exit_at_once_after_waiting(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_others(&j, 1, a, NT_FN_AllReduce, 16);
  job_pass(&j, 5000);
  for (uint32_t r = 1; r <= 3; r++)
    job_end(&j, r % 3, NT_PROCESS_EXITED, 1);
  assert_verdict(&j, "missing AllReduce 2 blame 1 waiting 0,2");
}

static void a_normal_exit_is_left(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_end(&j, 0, NT_PROCESS_EXITED, 0);
  job_others(&j, 0, a, NT_FN_AllReduce, 16);
  assert_verdict(&j, "left AllReduce 2 blame 0 waiting 1-2");
}

static void leaving_the_communicator_is_left(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    uint32_t a = start(3, "0-2");
    job_all(&j, a, NT_FN_AllReduce, 16);
    job_record(&j, 1, a, i ? NT_FN_CommAbort : NT_FN_CommDestroy, 0, -1);
    job_others(&j, 1, a, NT_FN_AllReduce, 16);
    assert_verdict(&j, "left AllReduce 2 blame 1 waiting 0,2");
  }
}

static void a_finished_job_is_consistent(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_AllReduce, 16);
  for (uint32_t r = 0; r < 3; r++) {
    job_record(&j, r, a, NT_FN_CommDestroy, 0, -1);
    job_pass(&j, 700);
    job_end(&j, r, NT_PROCESS_EXITED, 0);
  }
  assert_verdict(&j, "consistent");
}

static void dead_in_the_middle_of_an_operation(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_end(&j, 2, NT_PROCESS_VANISHED, 0);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_DEAD);
  assert_string_equal(set_text(&v->findings[0].blame), "2");
  assert_int_equal(v->findings[0].confidence, NT_LIKELY);
  job_free(&j);
}

static void a_chain_ends_at_its_sink(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3"), b = job_comm(&j, "B", "1,3");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_call(&j, 1, b, NT_FN_Broadcast, 16);
  job_call(&j, 0, a, NT_FN_AllReduce, 16);
  job_call(&j, 2, a, NT_FN_AllReduce, 16);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->count, 1);
  assert_string_equal(set_text(&v->findings[0].blame), "3");
  job_free(&j);
}

static void a_stopped_chain_over_an_absent_rank_blames_nobody(void **state) {
  (void)state;
  job_start(&j, 4);
  uint32_t t = job_comm(&j, "T", "2-3"), d = job_comm(&j, "D", "0,2");
  job_all(&j, t, NT_FN_AllReduce, 16);
  job_call(&j, 2, t, NT_FN_AllReduce, 16);
  job_call(&j, 0, d, NT_FN_AllReduce, 16);
  job_drop(&j, 3);
  assert_verdict(&j, "undecided AllReduce 2 blame  waiting 2");
}

static void the_call_that_was_next_is_named(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2"), b = job_comm(&j, "B", "0-2");
  for (int i = 0; i < 3; i++) {
    job_all(&j, a, NT_FN_AllGather, 16);
    job_all(&j, b, NT_FN_AllReduce, 16);
  }
  job_others(&j, 1, b, NT_FN_AllReduce, 16); /* asynchronous: both are enqueued, B first */
  job_others(&j, 1, a, NT_FN_AllGather, 16);
  assert_verdict(&j, "missing AllGather 4 blame 1 waiting 0,2");
}

static void a_skip_that_waits_elsewhere_is_missing(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3"), b = job_comm(&j, "B", "0-3");
  for (int i = 0; i < 2; i++) {
    job_all(&j, a, NT_FN_AllGather, 16);
    job_all(&j, b, NT_FN_AllReduce, 16);
  }
  job_others(&j, 1, a, NT_FN_AllGather, 16);
  job_call(&j, 1, b, NT_FN_AllReduce, 16);
  assert_verdict(&j, "missing AllGather 3 blame 1 waiting 0,2-3");
}

static void opposite_orders_are_a_cycle(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1"), b = job_comm(&j, "B", "0-1");
  job_call(&j, 0, a, NT_FN_AllReduce, 16);
  job_block(&j, 0);
  job_call(&j, 1, b, NT_FN_AllReduce, 16);
  job_block(&j, 1);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_CYCLE);
  assert_string_equal(set_text(&v->findings[0].blame), "0-1");
  job_free(&j);
}

/* One against one, and the third's trace is missing: it may have made either of them the odd one out. */
static void a_tied_cycle_that_lacks_a_voter_blames_nobody(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2"), b = job_comm(&j, "B", "0-2");
  job_call(&j, 0, a, NT_FN_AllReduce, 16);
  job_block(&j, 0);
  job_call(&j, 1, b, NT_FN_AllReduce, 16);
  job_block(&j, 1);
  job_call(&j, 2, a, NT_FN_AllReduce, 16);
  job_drop(&j, 2);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_CYCLE);
  assert_int_equal(v->findings[0].confidence, NT_UNDECIDED);
  assert_string_equal(set_text(&v->findings[0].blame), "");
  assert_non_null(strstr(v->findings[0].next.line[0], "collect the traces that are missing"));
  job_free(&j);
}

/* Turns of A and B; then rank `odd` calls B at once and waits in it. */
static void turns_then_a_skip(uint32_t ranks, uint32_t turns, uint32_t odd) {
  uint32_t a = start(ranks, ranks == 2 ? "0-1" : "0-2");
  uint32_t b = job_comm(&j, "B", ranks == 2 ? "0-1" : "0-2");
  j.line = 5; /* of the turn: in a new place it may have ended */
  for (uint32_t i = 0; i < turns; i++) {
    job_all(&j, a, NT_FN_AllGather, 16);
    job_all(&j, b, NT_FN_AllReduce, 16);
  }
  for (uint32_t r = 0; r < ranks; r++) {
    bool skips = (odd >> r) & 1;
    job_call(&j, r, skips ? b : a, skips ? NT_FN_AllReduce : NT_FN_AllGather, 16);
    job_block(&j, r);
  }
}

static void of_two_ranks_the_one_that_left_its_order_has_skipped(void **state) {
  (void)state;
  turns_then_a_skip(2, 3, 2);
  assert_verdict(&j, "missing AllGather 4 blame 1 waiting 0");
}

static void one_turn_is_no_order_between_two_ranks(void **state) {
  (void)state;
  turns_then_a_skip(2, 1, 2);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_CYCLE);
  assert_string_equal(set_text(&v->findings[0].blame), "0-1");
  job_free(&j);
}

static void a_majority_that_left_its_order_has_skipped(void **state) {
  (void)state;
  turns_then_a_skip(3, 3, 5);
  assert_verdict(&j, "missing AllGather 4 blame 0,2 waiting 1");
}

/* A pipeline of three and an all-reduce, in three turns. */
static uint32_t pipeline_turns(uint32_t *a) {
  *a = start(3, "0-2");
  uint32_t p = job_comm(&j, "P", "0-2");
  j.line = 5;
  for (uint32_t i = 0; i < 3; i++) {
    for (uint32_t r = 0; r < 3; r++) {
      if (r)
        job_recv(&j, r, p, r - 1, 100);
      if (r < 2)
        job_send(&j, r, p, r + 1, 100);
    }
    job_all(&j, *a, NT_FN_AllReduce, 16);
  }
  return p;
}

static void a_message_left_out_before_a_collective_is_its_senders(void **state) {
  (void)state;
  uint32_t a, p = pipeline_turns(&a);
  job_send(&j, 0, p, 1, 100);
  job_recv(&j, 1, p, 0, 100);
  for (uint32_t r = 0; r < 2; r++) {
    job_call(&j, r, a, NT_FN_AllReduce, 16);
    job_block(&j, r);
  }
  job_recv(&j, 2, p, 1, 100);
  job_block(&j, 2);
  assert_verdict(&j, "p2p Recv 4 blame 1 waiting 2");
}

static void a_collective_left_out_before_a_message_is_missing(void **state) {
  (void)state;
  uint32_t a, p = pipeline_turns(&a);
  for (uint32_t r = 0; r < 3; r++) {
    if (r)
      job_recv(&j, r, p, r - 1, 100);
    if (r < 2)
      job_send(&j, r, p, r + 1, 100);
    if (r != 2)
      job_call(&j, r, a, NT_FN_AllReduce, 16);
    else
      job_recv(&j, r, p, r - 1, 100);
    job_block(&j, r);
  }
  assert_verdict(&j, "missing AllReduce 4 blame 2 waiting 0-1");
}

static struct nt_model_call *make(uint32_t rank, uint32_t comm, int32_t size, int32_t own) {
  struct nt_model_view *view = nt_model_add_view(job_rank(&j, rank));
  memset(view->id, (int)comm * 16 + size, sizeof view->id);
  memset(view->uid_hash, (int)comm, sizeof view->uid_hash);
  view->number = job_rank(&j, rank)->view_count;
  view->rank = own;
  view->nranks = size;
  view->ordinal = 1;
  view->origin = NT_COMM_INIT;
  view->state = NT_COMM_CREATING;
  view->created_ns = j.clock;
  struct nt_model_call *call =
      job_record(&j, rank, NT_NONE, NT_FN_CommInitRank, (uint64_t)size, own);
  call->view = job_rank(&j, rank)->view_count - 1;
  call->exit_ns = 0;
  call->seq = 1;
  return call;
}

static void a_rank_that_never_inits_is_named(void **state) {
  (void)state;
  start(4, "0-3");
  for (uint32_t r = 0; r < 4; r++)
    if (r != 2)
      make(r, 7, 4, (int32_t)r);
  assert_verdict(&j, "init CommInitRank 1 blame 2 waiting 0-1,3");
}

static void another_size_in_init_is_a_minority(void **state) {
  (void)state;
  start(4, "0-3");
  for (uint32_t r = 0; r < 4; r++)
    make(r, 7, r == 1 ? 3 : 4, (int32_t)r);
  assert_verdict(&j, "init CommInitRank 1 blame 1 waiting 0-3");
}

static void another_id_in_init_is_a_minority(void **state) {
  (void)state;
  start(4, "0-3");
  for (uint32_t r = 0; r < 4; r++)
    make(r, r == 3 ? 8 : 7, 4, (int32_t)r);
  assert_verdict(&j, "init CommInitRank 1 blame 3 waiting 0-3");
}

static void a_doubled_rank_in_init_is_found(void **state) {
  (void)state;
  start(4, "0-3");
  for (uint32_t r = 0; r < 4; r++)
    make(r, 7, 4, r == 3 ? 2 : (int32_t)r);
  assert_verdict(&j, "init CommInitRank 1 blame 3 waiting 0-3");
}

/* Where communicator ranks do not follow world ranks, order tells nothing: it is one of the two. */
static void a_doubled_rank_among_unordered_ones_is_undecided(void **state) {
  (void)state;
  start(4, "0-3");
  for (uint32_t r = 0; r < 4; r++)
    make(r, 7, 4, r == 0 ? 2 : 3 - (int32_t)r);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_INIT);
  assert_int_equal(v->findings[0].confidence, NT_UNDECIDED);
  assert_string_equal(set_text(&v->findings[0].blame), "0-1");
  job_free(&j);
}

static void opposite_creations_are_an_init_cycle(void **state) {
  (void)state;
  start(4, "0-3");
  make(0, 7, 3, 0);
  make(2, 7, 3, 1);
  make(1, 8, 3, 0);
  make(3, 8, 3, 2);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_INIT);
  assert_string_equal(set_text(&v->findings[0].blame), "2-3");
  job_free(&j);
}

static void an_init_waits_for_one_that_waits_elsewhere(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  for (uint32_t r = 0; r < 4; r++)
    if (r != 2)
      make(r, 7, 4, (int32_t)r);
  job_call(&j, 2, a, NT_FN_AllReduce, 16);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_INIT);
  assert_string_equal(set_text(&v->findings[0].blame), "2");
  job_free(&j);
}

static void a_ring(uint32_t a, uint32_t ranks, int skip_send) {
  for (uint32_t r = 0; r < ranks; r++) {
    if ((int)r != skip_send)
      job_send(&j, r, a, (r + 1) % ranks, 1000);
    job_recv(&j, r, a, (r + ranks - 1) % ranks, 1000);
  }
}

static void a_lost_send_blames_the_sender(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  a_ring(a, 4, -1);
  a_ring(a, 4, 2);
  assert_verdict(&j, "p2p Recv 2 blame 2 waiting 3");
}

static void a_wrong_peer_is_the_deviating_side(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  a_ring(a, 4, -1);
  a_ring(a, 4, 1);
  job_send(&j, 1, a, 3, 1000);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->count, 1);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_P2P);
  assert_string_equal(set_text(&v->findings[0].blame), "1");
  assert_string_equal(v->findings[0].field, "peer");
  job_free(&j);
}

static void different_sizes_blame_the_deviating_side(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  a_ring(a, 4, -1);
  a_ring(a, 4, 2);
  job_send(&j, 2, a, 3, 500);
  assert_verdict(&j, "p2p count Recv 2 blame 2 waiting 3");
  a = start(2, "0-1");
  job_send(&j, 0, a, 1, 5);
  job_recv(&j, 1, a, 0, 3);
  assert_verdict(&j, "p2p count Recv 1 blame 0-1 waiting 1");
}

static void sends_that_wait_for_each_other_are_a_cycle(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  for (uint32_t r = 0; r < 3; r++) {
    job_send(&j, r, a, (r + 1) % 3, 4 << 20);
    job_block(&j, r);
  }
  assert_verdict(&j, "p2p Send 1 blame 0-2 waiting 0-2");
}

static void large_sends_before_receives_are_a_cycle(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  a_ring(a, 3, -1);
  for (uint32_t r = 0; r < 3; r++) {
    job_send(&j, r, a, (r + 1) % 3, 4 << 20);
    job_recv(&j, r, a, (r + 2) % 3, 4 << 20);
  }
  assert_verdict(&j, "p2p Send 2 blame 0-2 waiting 0-2");
}

static void small_sends_are_buffered(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  a_ring(a, 3, -1);
  assert_verdict(&j, "consistent");
}

static void a_pipeline_waits_for_its_head(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3");
  for (uint32_t r = 0; r < 3; r++) {
    job_send(&j, r, a, r + 1, 100);
    job_recv(&j, r + 1, a, r, 100);
  }
  for (uint32_t r = 1; r < 4; r++)
    job_recv(&j, r, a, r - 1, 100);
  assert_verdict(&j, "p2p Recv 2 blame 0 waiting 1");
}

/* All but rank 2 split, and NCCL cannot reach a peer; they fail. */
static void refused_by_the_network(uint32_t a) {
  for (uint32_t r = 0; r < 2; r++) {
    struct nt_model_call *call = job_record(&j, r, a, NT_FN_CommSplit, 0, -1);
    call->flags = NT_CALL_VOID;
    call->result = ncclRemoteError;
  }
  for (uint32_t r = 0; r < 2; r++)
    job_end(&j, r, NT_PROCESS_EXITED, 1);
}

static void what_a_dead_peer_made_nccl_refuse_is_the_death(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_Broadcast, 16);
  job_end(&j, 2, NT_PROCESS_VANISHED, 0);
  refused_by_the_network(a);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_DEAD);
  assert_string_equal(set_text(&v->findings[0].blame), "2");
  assert_string_equal(set_text(&v->findings[0].waiting), "0-1");
  job_free(&j);
}

static void a_remote_error_without_a_death_accuses_nobody(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_Broadcast, 16);
  refused_by_the_network(a);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_ERROR);
  assert_string_equal(set_text(&v->findings[0].blame), "");
  assert_non_null(strstr(v->findings[0].next.line[0], "ended first"));
  job_free(&j);
}

static void a_refused_call_is_the_cause_of_its_end(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  job_all(&j, a, NT_FN_Broadcast, 16);
  struct nt_model_call *call = job_call(&j, 1, a, NT_FN_Broadcast, 16);
  call->flags = NT_CALL_VOID;
  call->result = ncclInvalidArgument;
  job_end(&j, 1, NT_PROCESS_EXITED, 1);
  job_others(&j, 1, a, NT_FN_Broadcast, 16);
  assert_verdict(&j, "error Broadcast 2 blame 1 waiting 0,2");
}

static void of_messages_and_collectives_the_next_in_turn_is_named(void **state) {
  (void)state;
  for (int message_first = 0; message_first < 2; message_first++) {
    uint32_t a = start(3, "0-1"), p = job_comm(&j, "P", "0-2");
    for (int i = 0; i < 3; i++)
      for (uint32_t r = 0; r < 3; r++) {
        if (r == 0 && i == 2)
          continue;
        if (r == 0 && message_first)
          job_send(&j, r, p, 2, 100);
        if (r < 2)
          job_call(&j, r, a, NT_FN_Broadcast, 16);
        if (r == 0 && !message_first)
          job_send(&j, r, p, 2, 100);
        if (r == 2)
          job_recv(&j, r, p, 0, 100);
      }
    struct nt_verdict *v = job_judge(&j);
    assert_int_equal(nt_verdict_class(v), message_first ? NT_CLASS_P2P : NT_CLASS_MISSING);
    assert_string_equal(set_text(&v->findings[0].blame), "0");
    job_free(&j);
  }
}

static void an_error_after_a_mismatch_is_its_echo(void **state) {
  (void)state;
  uint32_t a = start(4, "0-3"), b = job_comm(&j, "B", "0-3");
  job_all(&j, a, NT_FN_AlltoAll, 16);
  job_others(&j, 3, a, NT_FN_AlltoAll, 16);
  job_call(&j, 3, a, NT_FN_AlltoAll, 32);
  struct nt_model_call *call = job_call(&j, 0, a, NT_FN_AlltoAll, 16);
  call->flags = NT_CALL_VOID;
  call->result = ncclInvalidUsage;
  job_end(&j, 0, NT_PROCESS_EXITED, 1);
  job_others(&j, 0, b, NT_FN_ReduceScatter, 16);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->count, 1);
  assert_int_equal(v->findings[0].class, NT_CLASS_MISMATCH);
  assert_string_equal(set_text(&v->findings[0].blame), "3");
  job_free(&j);
}

static void only_the_newest_attempt_is_judged(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  job_all(&j, a, NT_FN_AllReduce, 16);
  struct nt_model_rank *old = nt_model_add_rank(&j.model);
  old->world = 0;
  old->world_size = 2;
  old->started_ns = j.clock - 60000 * MS;
  old->last_beat_ns = j.clock - 50000 * MS;
  old->state = NT_PROCESS_VANISHED;
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_CONSISTENT);
  assert_int_equal(v->notes.count, 1);
  job_free(&j);
}

static void lost_communicators_forbid_consistent(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_rank(&j, 1)->comms_lost = 3;
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_UNDECIDED);
  assert_non_null(strstr(v->findings[0].summary, "3 communicators of rank 1 found no room"));
  job_free(&j);
}

static void a_call_that_was_left_by_a_jump_is_not_open(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1"), b = job_comm(&j, "B", "0");
  job_all(&j, a, NT_FN_AllReduce, 16);
  job_rank(&j, 0)->views[j.view[0][b] - 1].nranks = 2;
  job_record(&j, 0, b, NT_FN_CommInitRank, 2, 0)->exit_ns = 0;
  job_pass(&j, 2000);
  for (int i = 0; i < 5; i++)
    job_all(&j, a, NT_FN_AllReduce, 16);
  job_end(&j, 0, NT_PROCESS_EXITED, 0);
  job_end(&j, 1, NT_PROCESS_EXITED, 0);
  assert_verdict(&j, "consistent");
}

/* Rank 2 has made so many collectives, and its trace lacks those behind the fifth. Ranks 0-1 wait in the sixth. */
static void cut_short(uint32_t made) {
  uint32_t a = start(3, "0-2");
  for (int i = 0; i < 5; i++)
    job_all(&j, a, NT_FN_AllReduce, 16);
  job_call(&j, 0, a, NT_FN_AllReduce, 16);
  job_call(&j, 1, a, NT_FN_AllReduce, 16);
  job_block(&j, 0);
  job_block(&j, 1);
  job_rank(&j, 2)->cut = 40;
  job_rank(&j, 2)->total_calls = 45;
  job_rank(&j, 2)->views[0].collectives = made;
}

static void of_a_trace_cut_short_it_counts_how_many_collectives_were_made(void **state) {
  (void)state;
  cut_short(6);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_rank_set_count(&v->missing), 0);
  for (uint32_t i = 0; i < v->count; i++)
    assert_string_equal(set_text(&v->findings[i].blame), "");
  assert_non_null(strstr(v->notes.line[0], "only how many collectives it made is known"));
  job_free(&j);
}

static void what_a_rank_without_its_last_calls_waited_in_is_not_known(void **state) {
  (void)state;
  cut_short(5);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_MISSING);
  assert_int_equal(v->findings[0].confidence, NT_UNDECIDED);
  assert_string_equal(set_text(&v->findings[0].blame), "2");
  job_free(&j);
}

static void a_trace_without_its_last_state_counts_as_missing(void **state) {
  (void)state;
  cut_short(5);
  job_rank(&j, 2)->aged = true;
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_UNDECIDED);
  assert_string_equal(set_text(&v->missing), "2");
  job_free(&j);
}

/* It may have waited itself when it was killed: then others gave it up as they give up the rest. */
static void who_dies_where_its_last_calls_are_gone_may_have_waited(void **state) {
  (void)state;
  cut_short(6);
  job_pass(&j, 3000);
  struct nt_model_rank *rank = job_rank(&j, 1);
  rank->views[0].collectives = --rank->call_count; /* it never called the sixth */
  job_end(&j, 2, NT_PROCESS_VANISHED, 0);
  job_pass(&j, 3000);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_MISSING);
  assert_string_equal(set_text(&v->findings[0].blame), "1");
  job_free(&j);
}

static void a_trace_cut_short_whose_counts_do_not_fit_counts_as_missing(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2");
  for (int i = 0; i < 5; i++)
    job_all(&j, a, NT_FN_AllReduce, 16);
  job_call(&j, 0, a, NT_FN_AllReduce, 16);
  job_call(&j, 1, a, NT_FN_AllReduce, 16);
  job_block(&j, 0);
  job_block(&j, 1);
  job_rank(&j, 2)->cut = 40;
  job_rank(&j, 2)->total_calls = 45;
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_UNDECIDED);
  assert_string_equal(set_text(&v->missing), "2");
  assert_non_null(strstr(v->notes.line[0], "40 of 45 calls of rank 2 are lost"));
  job_free(&j);
}

#define TEST(name) cmocka_unit_test(name)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_killed_rank_is_dead),
      TEST(a_failed_exit_is_dead),
      TEST(one_killed_before_the_rest_is_dead),
      TEST(of_ranks_killed_together_none_is_dead),
      TEST(an_exit_after_waiting_is_a_consequence),
      TEST(an_abort_after_waiting_is_a_consequence),
      TEST(all_exit_at_once_after_waiting),
      TEST(a_normal_exit_is_left),
      TEST(leaving_the_communicator_is_left),
      TEST(a_finished_job_is_consistent),
      TEST(dead_in_the_middle_of_an_operation),
      TEST(a_chain_ends_at_its_sink),
      TEST(a_stopped_chain_over_an_absent_rank_blames_nobody),
      TEST(a_tied_cycle_that_lacks_a_voter_blames_nobody),
      TEST(a_doubled_rank_among_unordered_ones_is_undecided),
      TEST(the_call_that_was_next_is_named),
      TEST(a_skip_that_waits_elsewhere_is_missing),
      TEST(opposite_orders_are_a_cycle),
      TEST(of_two_ranks_the_one_that_left_its_order_has_skipped),
      TEST(one_turn_is_no_order_between_two_ranks),
      TEST(a_majority_that_left_its_order_has_skipped),
      TEST(a_message_left_out_before_a_collective_is_its_senders),
      TEST(a_collective_left_out_before_a_message_is_missing),
      TEST(a_rank_that_never_inits_is_named),
      TEST(another_size_in_init_is_a_minority),
      TEST(another_id_in_init_is_a_minority),
      TEST(a_doubled_rank_in_init_is_found),
      TEST(opposite_creations_are_an_init_cycle),
      TEST(an_init_waits_for_one_that_waits_elsewhere),
      TEST(a_lost_send_blames_the_sender),
      TEST(a_wrong_peer_is_the_deviating_side),
      TEST(different_sizes_blame_the_deviating_side),
      TEST(sends_that_wait_for_each_other_are_a_cycle),
      TEST(large_sends_before_receives_are_a_cycle),
      TEST(small_sends_are_buffered),
      TEST(a_pipeline_waits_for_its_head),
      TEST(what_a_dead_peer_made_nccl_refuse_is_the_death),
      TEST(a_remote_error_without_a_death_accuses_nobody),
      TEST(a_refused_call_is_the_cause_of_its_end),
      TEST(an_error_after_a_mismatch_is_its_echo),
      TEST(of_messages_and_collectives_the_next_in_turn_is_named),
      TEST(only_the_newest_attempt_is_judged),
      TEST(lost_communicators_forbid_consistent),
      TEST(a_call_that_was_left_by_a_jump_is_not_open),
      TEST(of_a_trace_cut_short_it_counts_how_many_collectives_were_made),
      TEST(what_a_rank_without_its_last_calls_waited_in_is_not_known),
      TEST(a_trace_without_its_last_state_counts_as_missing),
      TEST(who_dies_where_its_last_calls_are_gone_may_have_waited),
      TEST(a_trace_cut_short_whose_counts_do_not_fit_counts_as_missing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
