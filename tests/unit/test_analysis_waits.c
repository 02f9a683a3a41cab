/* SPDX-License-Identifier: Apache-2.0 */
/* Who waits for whom: the stuck operations, and the knots in which chains of them end. */
#include "model_builder.h"

#include "analysis/inquiry.h"
#include "analysis/knots.h"
#include "analysis/sequence.h"

static struct job j;
static struct nt_verdict verdict;
static struct nt_inquiry inquiry;

/* The steps of a verdict up to the waits; nothing has ended. */
static const struct nt_waits *find_waits(void) {
  memset(&verdict, 0, sizeof verdict);
  memset(&inquiry, 0, sizeof inquiry);
  inquiry =
      (struct nt_inquiry){.verdict = &verdict, .job = &verdict.job, .freeze = &verdict.freeze};
  verdict.freeze = (struct nt_freeze){.ns = INT64_MAX, .rank = NT_NONE};
  job_settle(&j);
  assert_int_equal(nt_identify(&j.model, inquiry.job), 0);
  assert_int_equal(nt_sequences_build(inquiry.job), 0);
  uint32_t joints = inquiry.job->joint_count, *positions = calloc(joints + 1, sizeof *positions);
  inquiry.divergences = calloc(joints + 1, sizeof *inquiry.divergences);
  for (uint32_t i = 0; i < joints; i++) {
    assert_int_equal(nt_align_joint(inquiry.job, &inquiry.job->joints[i], &inquiry.divergences[i]),
                     0);
    positions[i] = inquiry.divergences[i].position;
  }
  assert_int_equal(nt_p2p_match(inquiry.job, &inquiry.p2p), 0);
  assert_int_equal(nt_freeze_find(inquiry.job, &inquiry.p2p, positions, inquiry.freeze), 0);
  free(positions);
  assert_int_equal(nt_creations_find(inquiry.job, &inquiry.creations), 0);
  assert_int_equal(nt_waits_find(inquiry.job, inquiry.freeze, &inquiry.p2p, &inquiry.creations,
                                 inquiry.divergences, &inquiry.waits),
                   0);
  return &inquiry.waits;
}

static void done(void) {
  for (uint32_t i = 0; i < inquiry.job->joint_count; i++)
    nt_divergence_free(&inquiry.divergences[i]);
  free(inquiry.divergences);
  nt_p2p_free(&inquiry.p2p);
  nt_creations_free(&inquiry.creations);
  nt_waits_free(&inquiry.waits);
  nt_verdict_free(&verdict);
  nt_model_free(&j.model);
}

static const struct nt_stuck *stuck_on(const char *name) {
  for (uint32_t i = 0; i < inquiry.waits.count; i++)
    if (!strcmp(inquiry.job->joints[inquiry.waits.list[i].joint].name, name))
      return &inquiry.waits.list[i];
  return NULL;
}

static void who_called_waits_for_who_did_not(void **state) {
  (void)state;
  job_start(&j, 4);
  uint32_t a = job_comm(&j, "A", "0-3");
  job_all(&j, a, NT_FN_AllReduce, 8);
  job_others(&j, 2, a, NT_FN_AllReduce, 8);
  const struct nt_waits *waits = find_waits();
  assert_int_equal(waits->count, 1);
  assert_int_equal(waits->list[0].kind, NT_STUCK_COLLECTIVE);
  assert_int_equal(waits->list[0].seq, 2);
  assert_int_equal(waits->list[0].waiter_count, 3);
  assert_int_equal(waits->list[0].laggard_count, 1);
  assert_int_equal(waits->list[0].laggards[0], 2);
  assert_true(waits->knot_sink[waits->rank_knot[2]]);
  assert_false(waits->knot_sink[waits->rank_knot[0]]);
  done();
}

/* Tensor-parallel pairs and pipeline neighbours: 3 waits for 2, 1 for 0, 2 for 0 by a message. */
static void chains_over_overlapping_groups_end_at_one_rank(void **state) {
  (void)state;
  job_start(&j, 4);
  uint32_t tp0 = job_comm(&j, "tp0", "0-1"), tp1 = job_comm(&j, "tp1", "2-3");
  uint32_t pp = job_comm(&j, "pp", "0,2");
  job_all(&j, tp0, NT_FN_AllReduce, 8);
  job_all(&j, tp1, NT_FN_AllReduce, 8);
  job_call(&j, 1, tp0, NT_FN_AllReduce, 8);
  job_call(&j, 3, tp1, NT_FN_AllReduce, 8);
  struct nt_model_call *recv = job_recv(&j, 2, pp, 0, 8);
  recv->peer = 0;
  const struct nt_waits *waits = find_waits();
  for (uint32_t r = 0; r < 4; r++)
    assert_int_equal(waits->knot_sink[waits->rank_knot[r]], r == 0);
  done();
}

static void ranks_that_wait_for_each_other_are_one_knot(void **state) {
  (void)state;
  job_start(&j, 3);
  uint32_t x = job_comm(&j, "X", "0-1"), y = job_comm(&j, "Y", "1-2"), z = job_comm(&j, "Z", "0,2");
  job_call(&j, 0, x, NT_FN_AllReduce, 8);
  job_call(&j, 1, y, NT_FN_AllReduce, 8);
  job_call(&j, 2, z, NT_FN_AllReduce, 8);
  const struct nt_waits *waits = find_waits();
  uint32_t knot = waits->rank_knot[0];
  assert_int_equal(waits->rank_knot[1], knot);
  assert_int_equal(waits->rank_knot[2], knot);
  assert_int_equal(waits->knot_ranks[knot], 3);
  assert_int_equal(waits->knot_stuck[knot], 3);
  assert_true(waits->knot_sink[knot]);
  done();
}

static void calls_that_differ_wait_for_nobody(void **state) {
  (void)state;
  job_start(&j, 3);
  uint32_t a = job_comm(&j, "A", "0-2");
  job_others(&j, 1, a, NT_FN_AllReduce, 8);
  job_call(&j, 1, a, NT_FN_AllGather, 8);
  const struct nt_waits *waits = find_waits();
  assert_int_equal(stuck_on("A")->kind, NT_STUCK_DIVERGED);
  assert_int_equal(stuck_on("A")->laggard_count, 0);
  assert_true(waits->knot_sink[stuck_on("A")->knot]);
  done();
}

static void a_small_send_holds_nobody(void **state) {
  (void)state;
  job_start(&j, 2);
  uint32_t a = job_comm(&j, "A", "0-1");
  job_send(&j, 0, a, 1, 8);
  find_waits();
  assert_null(stuck_on("A")); /* buffered, and it may still be taken */
  done();
  job_start(&j, 2);
  a = job_comm(&j, "A", "0-1");
  job_send(&j, 0, a, 1, 8);
  job_end(&j, 1, NT_PROCESS_EXITED, 0);
  find_waits();
  assert_int_equal(stuck_on("A")->kind, NT_STUCK_SEND);
  assert_true(stuck_on("A")->soft);
  done();
  job_start(&j, 2);
  a = job_comm(&j, "A", "0-1");
  job_send(&j, 0, a, 1, 8 << 20);
  find_waits();
  assert_false(stuck_on("A")->soft);
  done();
}

static void who_moves_is_not_waited_for(void **state) {
  (void)state;
  job_start(&j, 3);
  uint32_t a = job_comm(&j, "A", "0-2");
  job_all(&j, a, NT_FN_AllReduce, 8);
  job_others(&j, 1, a, NT_FN_AllReduce, 8);
  job_rank(&j, 1)->moved = true;
  find_waits();
  assert_true(stuck_on("A")->moving && stuck_on("A")->excused);
  done();
}

static void nobody_is_behind_a_call_too_many(void **state) {
  (void)state;
  job_start(&j, 3);
  uint32_t a = job_comm(&j, "A", "0-2");
  for (j.line = 1; j.line <= 5; j.line++)
    job_others(&j, j.line == 2 ? 3 : -1, a, NT_FN_AllReduce, 8);
  j.line = 9;
  job_call(&j, 0, a, NT_FN_AllReduce, 8);
  for (j.line = 11; j.line <= 14; j.line++)
    job_all(&j, a, NT_FN_AllReduce, 8);
  find_waits();
  assert_int_equal(stuck_on("A")->kind, NT_STUCK_DIVERGED);
  assert_int_equal(stuck_on("A")->extra.position, 6);
  assert_int_equal(stuck_on("A")->laggard_count, 0);
  done();
}

static struct nt_model_call *split(uint32_t rank, uint32_t comm) {
  struct nt_model_call *call = job_record(&j, rank, comm, NT_FN_CommSplit, 0, -1);
  call->seq = 1;
  return call;
}

static void a_split_whose_record_is_gone_is_not_missing(void **state) {
  (void)state;
  for (int gone = 0; gone < 2; gone++) {
    job_start(&j, 3);
    uint32_t a = job_comm(&j, "A", "0-2");
    split(0, a);
    split(1, a);
    if (gone)
      job_rank(&j, 2)->overwritten = 1000;
    job_all(&j, a, NT_FN_AllReduce, 8);
    find_waits();
    assert_int_equal(inquiry.waits.count, !gone);
    if (!gone)
      assert_int_equal(inquiry.waits.list[0].laggards[0], 2);
    done();
  }
}

/* Rank 1's abort never returns; finalize in its place waits for who did not call it. */
static void an_abort_waits_for_no_member(void **state) {
  (void)state;
  for (int aborts = 0; aborts < 2; aborts++) {
    job_start(&j, 3);
    uint32_t a = job_comm(&j, "A", "0-2");
    for (uint32_t r = 0; r < 3; r++)
      job_call(&j, r, a, NT_FN_AllReduce, 8)->progress = NT_PROGRESS_FINISHED;
    job_record(&j, 1, a, aborts ? NT_FN_CommAbort : NT_FN_CommFinalize, 0, -1);
    job_block(&j, 1);
    find_waits();
    assert_non_null(stuck_on("A"));
    assert_int_equal(stuck_on("A")->kind, NT_STUCK_TEARDOWN);
    assert_int_equal(stuck_on("A")->waiters[0], 1);
    assert_int_equal(stuck_on("A")->laggard_count, aborts ? 0 : 2);
    done();
  }
}

#define TEST(name) cmocka_unit_test(name)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(who_called_waits_for_who_did_not),
      TEST(chains_over_overlapping_groups_end_at_one_rank),
      TEST(ranks_that_wait_for_each_other_are_one_knot),
      TEST(calls_that_differ_wait_for_nobody),
      TEST(a_small_send_holds_nobody),
      TEST(who_moves_is_not_waited_for),
      TEST(a_split_whose_record_is_gone_is_not_missing),
      TEST(nobody_is_behind_a_call_too_many),
      TEST(an_abort_waits_for_no_member),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
