/* SPDX-License-Identifier: Apache-2.0 */
/* When the verdict from the last calls stands, and what is a reason to read all of them. */
#include "analysis/queues.h"
#include "analysis/sequence.h"
#include "analysis/window_enough.h"
#include "model_builder.h"
#include "nccl/signature.h"

static struct job j;

enum { RANKS = 5, REFERENCE = 0, ACCUSED = 2 }; /* the two are read as a whole */

/* As if only calls from the `count`-th on were read; sums and counts are those of all. */
static void read_last(uint32_t rank, uint32_t count) {
  struct nt_model_rank *model = job_rank(&j, rank);
  struct nt_queues queues = {0};
  for (uint32_t i = 0; i < model->call_count; i++) {
    const struct nt_model_call *call = &model->calls[i];
    struct nt_model_view *view = &model->views[call->view];
    if (nt_fn_is_collective(call->fn)) {
      view->collectives++;
      view->sum += nt_signature_mix(nt_call_signature(call), call->seq);
    } else {
      *(call->fn == NT_FN_Send ? &view->sends : &view->recvs) += 1;
      const struct nt_model_queue message = {.view = call->view,
                                             .peer = call->peer,
                                             .sends = call->fn == NT_FN_Send,
                                             .bytes = nt_call_bytes(call)};
      assert_int_equal(nt_queues_add(&queues, &message), 0);
    }
  }
  model->queues = queues.list; /* as the loader does, for those that were not read */
  model->queue_count = queues.count;
  model->gpu_ns = j.clock;
  model->unread = count;
  model->overwritten += count;
  model->call_count -= count;
  memmove(model->calls, model->calls + count, model->call_count * sizeof *model->calls);
}

/* What was made so far is finished. */
static void finish(void) {
  for (uint32_t r = 0; r < j.ranks; r++)
    for (uint32_t i = 0; i < job_rank(&j, r)->call_count; i++)
      job_rank(&j, r)->calls[i].progress = NT_PROGRESS_FINISHED;
}

static void start(void) {
  job_start(&j, RANKS);
  j.line = 7;
}

/* Rank 2 stops after 600 all-reduces, the others wait in the next. */
static void hang(uint32_t comm) {
  finish();
  job_others(&j, 2, comm, NT_FN_AllReduce, 8);
  for (uint32_t r = 0; r < RANKS; r++)
    if (r != 2)
      job_block(&j, r);
}

static void train(uint32_t comm, uint32_t calls) {
  for (uint32_t i = 0; i < calls; i++)
    job_all(&j, comm, NT_FN_AllReduce, 8);
}

static void start_hang(void) {
  start();
  const uint32_t comm = job_comm(&j, "A", "0-4");
  train(comm, 600);
  hang(comm);
}

static bool is_compared(uint32_t rank) {
  return rank == REFERENCE || rank == ACCUSED;
}

static void read_last_of_all(void) {
  for (uint32_t r = 0; r < RANKS; r++)
    read_last(r, is_compared(r) ? 0 : 500);
}

static void assert_stands(void) {
  const struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->count, 1);
  assert_string_equal(set_text(&v->findings[0].blame), "2");
  assert_null(v->lacks);
  assert_non_null(strstr(v->notes.line[v->notes.count - 1], " earlier calls were not read: "));
  job_free(&j);
}

static void assert_lacks(const char *why) {
  const struct nt_verdict *v = job_judge(&j);
  assert_non_null(v->lacks);
  assert_string_equal(v->lacks, why);
  assert_non_null(strstr(v->notes.line[v->notes.count - 1], why));
  job_free(&j);
}

static void a_plain_hang_stands(void **state) {
  (void)state;
  start_hang();
  read_last_of_all();
  assert_stands();
}

static void losses_ask_for_all_calls_before_anything_is_judged(void **state) {
  (void)state;
  start_hang();
  job_rank(&j, 1)->lost = 1;
  assert_true(nt_window_may_suffice(&j.model)); /* there are no more calls */
  job_rank(&j, 1)->lost = 0;
  read_last_of_all();
  assert_true(nt_window_may_suffice(&j.model));
  job_rank(&j, 1)->lost = 1;
  assert_false(nt_window_may_suffice(&j.model));
  j.model.bounded = true; /* nor can they be read */
  assert_true(nt_window_may_suffice(&j.model));
  job_free(&j);
}

static void nothing_is_said_where_all_was_read(void **state) {
  (void)state;
  start_hang();
  const struct nt_verdict *v = job_judge(&j);
  assert_null(v->lacks);
  assert_int_equal(v->notes.count, 0);
  job_free(&j);
}

static void what_was_overwritten_long_ago_is_no_reason(void **state) {
  (void)state;
  start_hang();
  read_last_of_all();
  for (uint32_t r = 0; r < RANKS; r++)
    job_rank(&j, r)->overwritten += 5000;
  assert_stands();
}

static void collectives_that_differ_earlier_are_a_reason(void **state) {
  (void)state;
  start_hang();
  job_rank(&j, 1)->calls[40].count = 16;
  read_last_of_all();
  assert_lacks("earlier collectives differ");
}

static void a_rank_that_is_far_behind_is_a_reason(void **state) {
  (void)state;
  start();
  const uint32_t comm = job_comm(&j, "A", "0-4");
  train(comm, 600);
  finish();
  for (int i = 0; i < 20; i++)
    job_others(&j, 2, comm, NT_FN_AllReduce, 8);
  for (uint32_t r = 0; r < RANKS; r++)
    if (r != 2)
      job_block(&j, r);
  for (uint32_t r = 0; r < RANKS; r++)
    read_last(r, is_compared(r) ? 0 : 610);
  const struct nt_verdict *v = job_judge(&j);
  assert_non_null(v->lacks);
  job_free(&j);
}

static uint32_t size = 8; /* of the messages to come */

/* Each to the next; the first `lost` times rank 1 does not receive. */
static void pass(uint32_t comm, uint32_t times, uint32_t lost) {
  for (uint32_t i = 0; i < times; i++)
    for (uint32_t r = 0; r < RANKS; r++) {
      job_send(&j, r, comm, (r + 1) % RANKS, size);
      if (i >= lost || r != 1)
        job_recv(&j, r, comm, (r + RANKS - 1) % RANKS, size);
    }
}

static void messages_that_met_earlier_are_no_reason(void **state) {
  (void)state;
  start();
  const uint32_t comm = job_comm(&j, "A", "0-4");
  pass(comm, 100, 0);
  train(comm, 100);
  pass(comm, 20, 0);
  hang(comm);
  for (uint32_t r = 0; r < RANKS; r++)
    read_last(r, is_compared(r) ? 0 : 290 + r); /* the sides of a message need not both be there */
  assert_stands();
}

static void a_message_that_never_met_is_a_reason(void **state) {
  (void)state;
  start();
  const uint32_t comm = job_comm(&j, "A", "0-4");
  pass(comm, 10, 1);
  train(comm, 100);
  hang(comm);
  for (uint32_t r = 0; r < RANKS; r++)
    read_last(r, is_compared(r) ? 0 : 60);
  assert_lacks("earlier messages may not have met");
}

/* A rank has sent once more, a message that is buffered or is not. */
static void send_once_more(uint32_t from, uint32_t to, bool buffered) {
  start();
  const uint32_t comm = job_comm(&j, "A", "0-4");
  size = buffered ? 8 : 1 << 20;
  pass(comm, 60, 0);
  train(comm, 100);
  pass(comm, 10, 0);
  finish();
  job_send(&j, from, comm, to, size)->progress =
      buffered ? NT_PROGRESS_FINISHED : NT_PROGRESS_REACHED;
  size = 8;
  job_others(&j, 2, comm, NT_FN_AllReduce, 8);
  for (uint32_t r = 0; r < RANKS; r++)
    if (r != 2)
      job_block(&j, r);
  for (uint32_t r = 0; r < RANKS; r++)
    read_last(r, is_compared(r) ? 0 : 150);
}

static void a_message_that_waits_for_the_accused_is_no_reason(void **state) {
  (void)state;
  send_once_more(1, 2, false);
  assert_stands();
}

static void a_message_of_which_one_side_was_read_is_a_reason(void **state) {
  (void)state;
  send_once_more(1, 0, false); /* the first between the two */
  assert_lacks("the other side of a message is older");
}

/* Whether the other side has left it out, or has not come to it, is told by what that did before. */
static void a_small_message_to_one_of_whom_little_was_read_is_a_reason(void **state) {
  (void)state;
  send_once_more(0, 1, true);
  assert_lacks("the other side of a message is older");
}

/* The `index`-th message of the queue from 3 to 4, of which the last alone are read, has another size on one side or both. */
static void pass_one_of_another_size(uint32_t index, bool sent, bool received) {
  start();
  const uint32_t comm = job_comm(&j, "A", "0-4");
  for (uint32_t i = 0; i < 100; i++) {
    pass(comm, 1, 0);
    for (uint32_t r = 3; r < RANKS && i == index; r++)
      for (uint32_t k = 1; k <= 2; k++) {
        struct nt_model_call *call = &job_rank(&j, r)->calls[job_rank(&j, r)->call_count - k];
        if (r == 3 ? sent && call->fn == NT_FN_Send : received && call->fn == NT_FN_Recv)
          call->count = 9;
      }
  }
  train(comm, 100);
  hang(comm);
  for (uint32_t r = 0; r < RANKS; r++)
    read_last(r, is_compared(r) ? 0 : 210);
}

static void earlier_messages_of_two_sizes_are_a_reason(void **state) {
  (void)state;
  pass_one_of_another_size(20, true, false);
  assert_lacks("earlier messages are not all of one size");
  pass_one_of_another_size(20, false, true);
  assert_lacks("earlier messages are not all of one size");
  pass_one_of_another_size(20, true, true); /* it is not known that they met */
  assert_lacks("earlier messages are not all of one size");
  pass_one_of_another_size(20, false, false);
  assert_stands();
}

static void a_trace_that_does_not_tell_the_sizes_of_its_messages_is_a_reason(void **state) {
  (void)state;
  pass_one_of_another_size(20, false, false);
  job_rank(&j, 3)->queues_lack = true;
  assert_lacks("the sizes of earlier messages are not known");
}

static void messages_are_a_reason_where_no_device_was_followed(void **state) {
  (void)state;
  start();
  const uint32_t comm = job_comm(&j, "A", "0-4");
  pass(comm, 10, 0);
  train(comm, 100);
  hang(comm);
  for (uint32_t r = 0; r < RANKS; r++)
    read_last(r, is_compared(r) ? 0 : 60);
  job_rank(&j, 3)->gpu_ns = 0;
  assert_lacks("which earlier messages met is not known");
}

static void an_accused_of_whom_little_was_read_is_a_reason(void **state) {
  (void)state;
  start_hang();
  for (uint32_t r = 0; r < RANKS; r++)
    read_last(r, 500);
  assert_lacks("the accused is not known well enough");
}

static void
one_that_is_compared_with_the_accused_and_of_whom_little_was_read_is_a_reason(void **state) {
  (void)state;
  start_hang();
  for (uint32_t r = 0; r < RANKS; r++)
    read_last(r, r == ACCUSED ? 0 : 500);
  assert_lacks("the accused is not known well enough");
}

static void a_turn_left_out_long_ago_is_a_reason(void **state) {
  (void)state;
  start();
  const uint32_t a = job_comm(&j, "A", "0-4"), m = job_comm(&j, "M", "0-4");
  for (uint32_t turn = 0; turn < 3; turn++)
    for (uint32_t r = 0; r < RANKS; r++)
      if (turn != 1 || r != ACCUSED)
        job_call(&j, r, a, NT_FN_AllReduce, 8);
  job_all(&j, m, NT_FN_AllReduce, 1);
  train(a, 600);
  finish();
  for (uint32_t r = 0; r < RANKS; r++)
    if (r != ACCUSED)
      job_block(&j, r);
  for (uint32_t r = 0; r < RANKS; r++)
    read_last(r, is_compared(r) ? 0 : 400);
  assert_lacks("equal calls may have paired up wrongly");
}

static void an_accused_that_is_in_a_call_is_a_reason(void **state) {
  (void)state;
  start_hang();
  job_record(&j, 2, NT_NONE, NT_FN_cudaStreamSynchronize, 0, -1);
  job_block(&j, 2);
  job_rank(&j, 2)->calls[600].stream = 9;
  for (uint32_t r = 0; r < RANKS; r++)
    if (!is_compared(r))
      read_last(r, 500);
  struct nt_model_view *view = &job_rank(&j, 2)->views[0];
  view->sum = job_rank(&j, 0)->views[0].sum; /* it is looked at later */
  assert_lacks("the accused is in a call itself");
}

static void one_that_is_ahead_of_all_is_a_reason(void **state) {
  (void)state;
  start();
  const uint32_t comm = job_comm(&j, "A", "0-4");
  train(comm, 600);
  finish();
  job_call(&j, 2, comm, NT_FN_AllReduce, 8);
  job_block(&j, 2);
  read_last(2, 500);
  for (uint32_t r = 0; r < RANKS; r++)
    if (r != 2)
      read_last(r, 0);
  assert_lacks("most are accused");
}

static void calls_at_other_lines_are_a_reason(void **state) {
  (void)state;
  start();
  const uint32_t comm = job_comm(&j, "A", "0-4");
  train(comm, 599);
  for (uint32_t r = 0; r < RANKS; r++) {
    j.line = r == 2 ? 9 : 7;
    job_call(&j, r, comm, NT_FN_AllReduce, 8);
  }
  hang(comm);
  read_last_of_all();
  assert_lacks("equal calls may have paired up wrongly");
}

static void an_accused_that_made_more_calls_is_a_reason(void **state) {
  (void)state;
  start();
  const uint32_t a = job_comm(&j, "A", "0-4");
  job_record(&j, 2, NT_NONE, NT_FN_cudaStreamSynchronize, 0, -1);
  train(a, 600);
  hang(a);
  for (uint32_t r = 0; r < RANKS; r++)
    if (!is_compared(r))
      read_last(r, 500);
  assert_lacks("equal calls may have paired up wrongly");
}

static void graphs_and_losses_are_reasons(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) {
    start_hang();
    read_last_of_all();
    struct nt_model_rank *rank = job_rank(&j, 3);
    if (i == 0)
      rank->calls[50].flags |= NT_CALL_CAPTURED;
    else if (i == 1)
      rank->lost = 1;
    else if (i == 2)
      rank->views[0].async_error = ncclSystemError;
    else
      rank->views[0].number = 2; /* what was 1 is not known any more */
    const struct nt_verdict *v = job_judge(&j);
    assert_non_null(v->lacks);
    job_free(&j);
  }
}

static void a_job_without_findings_is_read_as_a_whole(void **state) {
  (void)state;
  start();
  const uint32_t comm = job_comm(&j, "A", "0-4");
  train(comm, 600);
  finish();
  for (uint32_t r = 0; r < RANKS; r++)
    read_last(r, 500);
  assert_lacks("nothing is found in the last calls");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_plain_hang_stands),
      cmocka_unit_test(nothing_is_said_where_all_was_read),
      cmocka_unit_test(what_was_overwritten_long_ago_is_no_reason),
      cmocka_unit_test(collectives_that_differ_earlier_are_a_reason),
      cmocka_unit_test(a_rank_that_is_far_behind_is_a_reason),
      cmocka_unit_test(messages_that_met_earlier_are_no_reason),
      cmocka_unit_test(a_message_that_never_met_is_a_reason),
      cmocka_unit_test(a_message_that_waits_for_the_accused_is_no_reason),
      cmocka_unit_test(a_message_of_which_one_side_was_read_is_a_reason),
      cmocka_unit_test(a_small_message_to_one_of_whom_little_was_read_is_a_reason),
      cmocka_unit_test(earlier_messages_of_two_sizes_are_a_reason),
      cmocka_unit_test(a_trace_that_does_not_tell_the_sizes_of_its_messages_is_a_reason),
      cmocka_unit_test(messages_are_a_reason_where_no_device_was_followed),
      cmocka_unit_test(an_accused_of_whom_little_was_read_is_a_reason),
      cmocka_unit_test(
          one_that_is_compared_with_the_accused_and_of_whom_little_was_read_is_a_reason),
      cmocka_unit_test(a_turn_left_out_long_ago_is_a_reason),
      cmocka_unit_test(an_accused_that_is_in_a_call_is_a_reason),
      cmocka_unit_test(one_that_is_ahead_of_all_is_a_reason),
      cmocka_unit_test(calls_at_other_lines_are_a_reason),
      cmocka_unit_test(an_accused_that_made_more_calls_is_a_reason),
      cmocka_unit_test(graphs_and_losses_are_reasons),
      cmocka_unit_test(losses_ask_for_all_calls_before_anything_is_judged),
      cmocka_unit_test(a_job_without_findings_is_read_as_a_whole),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
