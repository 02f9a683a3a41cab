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

static void what_a_queue_carried_before_the_digest_tells_who_owes_the_next(void **state) {
  (void)state;
  job_start(&j, 3);
  const uint32_t comm = job_comm(&j, "A", "0-2");
  for (uint32_t i = 0; i < 4; i++) {
    job_send(&j, 0, comm, 1, 8);
    job_recv(&j, 1, comm, 0, 8);
  }
  job_send(&j, 0, comm, 2, 8);
  job_recv(&j, 2, comm, 0, 8);
  job_recv(&j, 1, comm, 0, 8);
  job_block(&j, 1);
  leave_out(0, 4);
  leave_out(1, 4);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_P2P);
  assert_int_equal(v->findings[0].confidence, NT_UNDECIDED);
  assert_string_equal(set_text(&v->findings[0].blame), "0");
  job_free(&j);
}

static void that_nothing_is_unfinished_is_not_said_of_a_short_digest(void **state) {
  (void)state;
  job_start(&j, 3);
  const uint32_t comm = job_comm(&j, "A", "0-2");
  for (uint32_t i = 0; i < 9; i++)
    job_all(&j, comm, NT_FN_AllReduce, 8);
  for (uint32_t r = 0; r < 3; r++) {
    job_settle(&j);
    for (uint32_t i = 0; i < job_rank(&j, r)->call_count; i++)
      job_rank(&j, r)->calls[i].progress = NT_PROGRESS_FINISHED;
    leave_out(r, 5);
  }
  job_pass(&j, 60000);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_OUTSIDE);
  assert_int_equal(v->findings[0].confidence, NT_UNDECIDED);
  assert_true(says(&v->findings[0].evidence, "the digests of ranks 0-2 have too few calls"));
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

/* 400 all-reduces on one stream, which stops in front of the 101st on rank 2; without the first `count` of each rank. */
static void stop_device(uint32_t count) {
  job_start(&j, 4);
  const uint32_t comm = job_comm(&j, "A", "0-3");
  for (uint32_t i = 0; i < 400; i++)
    job_all(&j, comm, NT_FN_AllReduce, 8);
  for (uint32_t r = 0; r < 4; r++) {
    uint32_t launch = 0;
    for (uint32_t i = 0; i < job_rank(&j, r)->call_count; i++) {
      struct nt_model_call *call = &job_rank(&j, r)->calls[i];
      if (call->fn != NT_FN_AllReduce)
        continue;
      call->stream = 1;
      call->launch = ++launch;
      call->progress = launch <= 100            ? NT_PROGRESS_FINISHED
                       : launch > 101 || r == 2 ? NT_PROGRESS_ENQUEUED
                                                : NT_PROGRESS_REACHED;
    }
    leave_out(r, job_rank(&j, r)->call_count - (400 - count));
  }
}

static void a_device_is_to_blame_where_what_is_in_front_of_it_is_there(void **state) {
  (void)state;
  stop_device(99);
  assert_verdict(&j, "gpu AllReduce 101 blame 2 waiting 0-3");
}

/* All stand behind what was left out, and rank 2 no more than the others. */
static void who_may_wait_for_what_was_left_out_is_not_to_blame(void **state) {
  (void)state;
  stop_device(101);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_STALLED);
  assert_int_equal(v->findings[0].confidence, NT_UNDECIDED);
  assert_string_equal(set_text(&v->findings[0].blame), "");
  assert_true(says(&v->findings[0].evidence, "right in front of it is not in the digest"));
  assert_true(strstr(v->findings[0].next.line[0], "collect the traces themselves"));
  job_free(&j);
}

/* Stream 1 waits for an event that was recorded on stream 2: without the first calls, but for `kept` and what follows. */
static void wait_for_event(uint32_t kept) {
  static const struct {
    uint8_t fn;
    uint32_t stream, launch;
  } calls[] = {
      {NT_FN_AllReduce, 2, 1},
      {NT_FN_cudaEventRecord, 2, 1},
      {NT_FN_AllReduce, 1, 1},
      {NT_FN_cudaStreamWaitEvent, 1, 1},
  };
  enum { CALLS = sizeof calls / sizeof *calls };
  job_start(&j, 2);
  const uint32_t a = job_comm(&j, "A", "0-1"), b = job_comm(&j, "B", "0-1");
  for (uint32_t r = 0; r < 2; r++) {
    for (uint32_t i = 0; i < CALLS; i++) {
      const bool operation = calls[i].fn == NT_FN_AllReduce;
      struct nt_model_call *call =
          job_record(&j, r, operation ? a : NT_NONE, calls[i].fn, operation ? 8 : 77, -1);
      call->stream = calls[i].stream;
      call->launch = calls[i].launch;
      call->progress = operation ? NT_PROGRESS_FINISHED : NT_PROGRESS_UNKNOWN;
    }
    if (kept < CALLS)
      leave_out(r, job_rank(&j, r)->call_count - kept);
    for (uint32_t i = 0; i < 300; i++) {
      struct nt_model_call *call = job_call(&j, r, b, NT_FN_AllReduce, 8);
      call->stream = 1;
      call->launch = i + 2;
      call->progress = r || i ? NT_PROGRESS_ENQUEUED : NT_PROGRESS_REACHED;
    }
  }
}

static void nor_who_may_wait_for_it_by_an_event(void **state) {
  (void)state;
  wait_for_event(4);
  assert_verdict(&j, "gpu AllReduce 1 blame 1 waiting 0-1");
  wait_for_event(3);
  assert_verdict(&j, "stalled AllReduce 1 blame  waiting 0-1");
  wait_for_event(2);
  assert_verdict(&j, "stalled AllReduce 1 blame  waiting 0-1");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_long_digest_decides_as_the_trace_does),
      cmocka_unit_test(a_short_digest_decides_nothing),
      cmocka_unit_test(a_short_trace_of_which_nothing_is_left_out_decides),
      cmocka_unit_test(graphs_that_were_captured_before_the_digest_begins_decide_nothing),
      cmocka_unit_test(what_a_queue_carried_before_the_digest_tells_who_owes_the_next),
      cmocka_unit_test(that_nothing_is_unfinished_is_not_said_of_a_short_digest),
      cmocka_unit_test(sums_that_were_left_out_are_no_difference),
      cmocka_unit_test(a_device_is_to_blame_where_what_is_in_front_of_it_is_there),
      cmocka_unit_test(who_may_wait_for_what_was_left_out_is_not_to_blame),
      cmocka_unit_test(nor_who_may_wait_for_it_by_an_event),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
