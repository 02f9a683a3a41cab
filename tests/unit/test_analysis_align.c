/* SPDX-License-Identifier: Apache-2.0 */
/* Where the members of one communicator first differ, how, and who stands for most. */
#include "model_builder.h"

#include "analysis/align.h"
#include "analysis/sequence.h"

static struct job j;
static struct nt_job job;
static struct nt_divergence divergence;

static uint32_t start(uint32_t ranks) {
  char members[16];
  job_start(&j, ranks);
  snprintf(members, sizeof members, "0-%u", ranks - 1);
  return job_comm(&j, "A", members);
}

static void align(void) {
  job_settle(&j);
  assert_int_equal(nt_identify(&j.model, &job), 0);
  assert_int_equal(nt_sequences_build(&job), 0);
  assert_int_equal(nt_align_joint(&job, &job.joints[0], &divergence), 0);
}

static void done(void) {
  nt_divergence_free(&divergence);
  nt_job_free(&job);
  job_free(&j);
}

static void one_that_is_behind_does_not_differ(void **state) {
  (void)state;
  uint32_t a = start(3);
  job_all(&j, a, NT_FN_AllReduce, 8);
  job_others(&j, 1, a, NT_FN_AllReduce, 8);
  align();
  assert_int_equal(divergence.position, 0);
  done();
}

static void the_first_difference_is_found_behind_equal_calls(void **state) {
  (void)state;
  uint32_t a = start(4);
  for (unsigned i = 0; i < 100; i++)
    for (uint32_t r = 0; r < 4; r++)
      job_call(&j, r, a, NT_FN_AllReduce, i == 60 && r == 2 ? 9 : 8);
  align();
  assert_int_equal(divergence.position, 61);
  assert_int_equal(divergence.voters, 4);
  assert_int_equal(divergence.agreeing, 3);
  assert_true(divergence.decided);
  assert_int_equal(divergence.deviation_count, 1);
  assert_int_equal(divergence.deviations[0].member, 2);
  assert_int_equal(divergence.deviations[0].edit.how, NT_EDIT_CHANGED);
  done();
}

static void a_difference_that_devices_went_past_is_set_aside(void **state) {
  (void)state;
  struct nt_divergence past = {0};
  uint32_t a = start(4);
  for (unsigned i = 0; i < 60; i++)
    for (uint32_t r = 0; r < 4; r++) {
      if (i == 50 && r == 1)
        continue; /* skips */
      const bool other = (i == 10 || i == 20) && r == 2;
      job_call(&j, r, a, NT_FN_AllReduce,
               other    ? 9
               : i < 50 ? 8
                        : 10 + i)
          ->progress = i < 50 ? NT_PROGRESS_FINISHED : NT_PROGRESS_REACHED;
    }
  align();
  assert_int_equal(divergence.position, 11);
  assert_int_equal(nt_align_go_past(&job, &job.joints[0], &past, &divergence), 0);
  assert_int_equal(past.position, 11);
  assert_int_equal(past.later, 39);
  assert_int_equal(past.deviations[0].member, 2);
  assert_int_equal(divergence.position, 51);
  assert_int_equal(divergence.deviations[0].member, 1);
  assert_int_equal(divergence.deviations[0].edit.how, NT_EDIT_SKIPPED);
  nt_divergence_free(&past);
  done();
}

static void a_difference_that_hosts_alone_went_past_stays(void **state) {
  (void)state;
  struct nt_divergence past = {0};
  uint32_t a = start(4);
  for (unsigned i = 0; i < 60; i++)
    for (uint32_t r = 0; r < 4; r++)
      job_call(&j, r, a, NT_FN_AllReduce, i == 10 && r == 2 ? 9 : 8)->progress =
          i < 12 ? NT_PROGRESS_FINISHED : NT_PROGRESS_REACHED;
  align();
  assert_int_equal(nt_align_go_past(&job, &job.joints[0], &past, &divergence), 0);
  assert_int_equal(past.position, 0);
  assert_int_equal(divergence.position, 11);
  done();
}

static void each_member_that_deviates_has_its_own_story(void **state) {
  (void)state;
  uint32_t a = start(5);
  for (unsigned i = 0; i < 6; i++)
    for (uint32_t r = 0; r < 5; r++) {
      if (r == 1 && i == 2)
        continue; /* skips */
      if (r == 3 && i == 2)
        job_call(&j, r, a, NT_FN_AllGather, 1); /* one too many */
      job_call(&j, r, a, NT_FN_AllReduce, 10 + i);
    }
  align();
  assert_int_equal(divergence.position, 3);
  assert_int_equal(divergence.deviation_count, 2);
  assert_int_equal(divergence.deviations[0].edit.how, NT_EDIT_SKIPPED);
  assert_int_equal(divergence.deviations[1].edit.how, NT_EDIT_EXTRA);
  done();
}

static void a_half_against_a_half_is_not_decided(void **state) {
  (void)state;
  uint32_t a = start(4);
  for (uint32_t r = 0; r < 4; r++)
    job_call(&j, r, a, NT_FN_AllReduce, r % 2 ? 8 : 9);
  align();
  assert_false(divergence.decided);
  done();
}

static void groups_are_brought_into_one_order(void **state) {
  (void)state;
  uint32_t a = start(2);
  for (uint32_t r = 0; r < 2; r++) {
    j.group = 1;
    for (unsigned i = 0; i < 3; i++)
      job_call(&j, r, a, NT_FN_AllReduce, r ? 3 - i : 1 + i);
    j.group = 0;
    job_call(&j, r, a, NT_FN_AllReduce, r ? 5 : 4);
  }
  align();
  assert_int_equal(divergence.position, 4);
  for (uint32_t p = 1; p <= 3; p++)
    assert_int_equal(nt_member_call(&job, &job.joints[0].members[0], p)->count,
                     nt_member_call(&job, &job.joints[0].members[1], p)->count);
  done();
}

static void fields_are_voted_on_one_by_one(void **state) {
  (void)state;
  struct nt_vote vote;
  uint32_t a = start(5);
  job_all(&j, a, NT_FN_AllReduce, 8);
  job_rank(&j, 0)->calls[0].dtype = ncclFloat16;
  job_rank(&j, 4)->calls[0].op = ncclMax;
  align();
  assert_int_equal(nt_align_vote(&job, &job.joints[0], &divergence, NT_FIELD_NONE, &vote), 0);
  assert_int_equal(vote.field, NT_FIELD_DTYPE);
  assert_true(vote.decided && vote.minority_count == 1 && vote.minority[0] == 0);
  free(vote.minority);
  assert_int_equal(nt_align_vote(&job, &job.joints[0], &divergence, NT_FIELD_DTYPE, &vote), 0);
  assert_int_equal(vote.field, NT_FIELD_OP);
  assert_true(vote.decided && vote.minority_count == 1 && vote.minority[0] == 4);
  free(vote.minority);
  done();
}

static void two_of_six_alike_decide_no_vote(void **state) {
  (void)state;
  struct nt_vote vote;
  uint32_t a = start(6);
  for (uint32_t r = 0; r < 6; r++)
    job_call(&j, r, a, NT_FN_AllReduce, r < 2 ? 100 : 100 + r);
  align();
  assert_int_equal(nt_align_vote(&job, &job.joints[0], &divergence, NT_FIELD_NONE, &vote), 0);
  assert_int_equal(vote.field, NT_FIELD_COUNT);
  assert_false(vote.decided);
  free(vote.minority);
  done();
}

static void what_only_some_still_have_is_compared_where_all_have_it(void **state) {
  (void)state;
  uint32_t a = start(3);
  for (unsigned i = 0; i < 40; i++)
    for (uint32_t r = 0; r < 3; r++) {
      if (r == 1 && i < 20) {
        j.collectives[r][a]++; /* overwritten */
        continue;
      }
      job_call(&j, r, a, NT_FN_AllReduce, i == 30 && r == 0 ? 9 : 8);
    }
  job_rank(&j, 1)->overwritten = 20;
  align();
  assert_int_equal(divergence.position, 31);
  assert_int_equal(divergence.deviations[0].member, 0);
  done();
}

#define TEST(name) cmocka_unit_test(name)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(one_that_is_behind_does_not_differ),
      TEST(the_first_difference_is_found_behind_equal_calls),
      TEST(a_difference_that_devices_went_past_is_set_aside),
      TEST(a_difference_that_hosts_alone_went_past_stays),
      TEST(each_member_that_deviates_has_its_own_story),
      TEST(a_half_against_a_half_is_not_decided),
      TEST(groups_are_brought_into_one_order),
      TEST(fields_are_voted_on_one_by_one),
      TEST(two_of_six_alike_decide_no_vote),
      TEST(what_only_some_still_have_is_compared_where_all_have_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
