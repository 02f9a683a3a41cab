/* SPDX-License-Identifier: Apache-2.0 */
/* Chains of waits through creations, messages, groups and ends of communicators, and where they stop. */
#include "model_builder.h"

static struct job j;

static uint32_t start(uint32_t ranks, const char *members) {
  job_start(&j, ranks);
  return job_comm(&j, "W", members);
}

/* The rank's last call: where its device is with it. */
static struct nt_model_call *at(uint32_t rank, uint32_t stream, uint32_t launch,
                                enum nt_progress progress) {
  struct nt_model_rank *model = job_rank(&j, rank);
  struct nt_model_call *call = &model->calls[model->call_count - 1];
  call->stream = stream;
  call->launch = launch;
  call->progress = (uint8_t)progress;
  return call;
}

/* The rank begins to create communicator number `comm` and does not return. */
static void create(uint32_t rank, uint32_t comm, const char *name, int32_t size, int32_t own) {
  struct nt_model_view *view = nt_model_add_view(job_rank(&j, rank));
  memset(view->id, (int)comm, sizeof view->id);
  memset(view->uid_hash, (int)comm, sizeof view->uid_hash);
  view->number = job_rank(&j, rank)->view_count;
  view->rank = own;
  view->nranks = size;
  view->ordinal = 1;
  view->origin = NT_COMM_INIT;
  view->state = NT_COMM_CREATING;
  view->created_ns = j.clock;
  snprintf(view->name, sizeof view->name, "%s", name);
  struct nt_model_call *call =
      job_record(&j, rank, NT_NONE, NT_FN_CommInitRank, (uint64_t)size, own);
  call->view = job_rank(&j, rank)->view_count - 1;
  call->exit_ns = 0;
  call->seq = 1;
}

/* One finding of class init; whom it blames. */
static void assert_init(const char *blame, const char *members, enum nt_confidence confidence) {
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_INIT);
  assert_string_equal(set_text(&v->findings[0].blame), blame);
  assert_string_equal(set_text(&v->job.joints[v->findings[0].joint].worlds), members);
  assert_int_equal(v->findings[0].confidence, confidence);
  job_free(&j);
}

/* Pairs in a grid; on NCCL a gather and a scatter of two ranks meet and finish. Rank 5 leaves one gather out, and rank 4
 * finds out in the last step. */
static void who_waits_behind_a_wrong_pair_is_no_end_of_a_chain(void **state) {
  (void)state;
  enum { STEPS = 4 };
  job_start(&j, 6);
  const uint32_t tp[3] = {job_comm(&j, "TP", "0-1"), job_comm(&j, "TP", "2-3"),
                          job_comm(&j, "TP", "4-5")};
  const uint32_t dp[2] = {job_comm(&j, "DP", "0,2,4"), job_comm(&j, "DP", "1,3,5")};
  for (uint32_t step = 1; step <= STEPS; step++)
    for (uint32_t line = 1; line <= 3; line++)
      for (uint32_t r = 0; r < 6; r++) {
        const bool waits = r % 2 == 0 && step == STEPS;
        if ((r == 5 && step == 2 && line == 1) || (r == 4 && waits && line == 3))
          continue;
        j.line = line;
        struct nt_model_call *call = line == 1 ? job_call(&j, r, tp[r / 2], NT_FN_AllGather, 512)
                                     : line == 2
                                         ? job_call(&j, r, tp[r / 2], NT_FN_ReduceScatter, 512)
                                         : job_call(&j, r, dp[r % 2], NT_FN_AllReduce, 64);
        call->progress =
            waits && line == (r == 4 ? 2 : 3) ? NT_PROGRESS_REACHED : NT_PROGRESS_FINISHED;
      }
  for (uint32_t r = 1; r < 6; r += 2)
    job_end(&j, r, NT_PROCESS_EXITED, 0);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_MISSING);
  assert_string_equal(set_text(&v->findings[0].blame), "5");
  assert_int_equal(v->findings[0].seq, 3);
  for (uint32_t i = 0; i < v->count; i++)
    assert_false(nt_rank_set_has(&v->findings[i].blame, 4));
  job_free(&j);
}

static void pairs_created_around_a_circle_wait_for_each_other(void **state) {
  (void)state;
  start(3, "0-2");
  create(0, 11, "", 2, 0);
  create(1, 12, "", 2, 0);
  create(2, 13, "", 2, 1);
  assert_init("0-2", "0-1", NT_LIKELY);
}

static void creations_that_lack_one_end_at_who_creates_nothing(void **state) {
  (void)state;
  start(3, "0-2");
  create(0, 11, "p01", 2, 0);
  create(2, 12, "p12", 2, 1);
  assert_init("1", "0-1", NT_LIKELY);
}

static void creations_that_may_lack_several_ranks_blame_nobody(void **state) {
  (void)state;
  start(6, "0-5");
  create(0, 11, "a", 2, 0);
  create(3, 12, "b", 2, 0);
  assert_init("", "0", NT_UNDECIDED);
}

static void a_creation_that_waits_for_nobody_known_is_not_the_cause(void **state) {
  (void)state;
  start(4, "0-3");
  uint32_t a = job_comm(&j, "A", "0-1");
  create(2, 11, "", 3, 1);
  create(3, 11, "", 3, 2);
  job_call(&j, 1, a, NT_FN_AllReduce, 64);
  job_block(&j, 1);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(v->count, 2);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_MISSING);
  assert_string_equal(set_text(&v->findings[0].blame), "0");
  assert_int_equal(v->findings[1].class, NT_CLASS_INIT);
  assert_string_equal(set_text(&v->findings[1].blame), "");
  job_free(&j);
}

static void creations_without_names_may_be_one_with_two_ids(void **state) {
  (void)state;
  start(3, "0-2");
  create(0, 11, "", 2, 0);
  create(2, 12, "", 2, 1);
  assert_init("", "0,2", NT_UNDECIDED);
}

static void who_waits_in_another_creation_is_no_end(void **state) {
  (void)state;
  start(6, "0-5");
  create(3, 11, "", 3, 0);
  create(4, 11, "", 3, 1);
  create(1, 12, "", 3, 0);
  create(2, 12, "", 3, 1);
  create(0, 13, "", 2, 0);
  assert_init("5", "3-5", NT_LIKELY);
}

/* Creation of a non-blocking communicator: the call has returned, NCCL goes on by itself. */
static void create_in_background(uint32_t rank) {
  create(rank, 11, "N", 3, (int32_t)rank);
  struct nt_model_rank *model = job_rank(&j, rank);
  struct nt_model_call *call = &model->calls[model->call_count - 1];
  call->exit_ns = call->enter_ns + MS;
  call->flags |= NT_CALL_IN_PROGRESS;
  call->result = ncclInProgress;
}

static void a_creation_in_progress_is_under_way(void **state) {
  (void)state;
  start(3, "0-2");
  create_in_background(0);
  create_in_background(2);
  assert_init("1", "0-2", NT_LIKELY);
}

static void all_are_in_a_creation(int64_t ms) {
  job_start(&j, 3);
  for (uint32_t r = 0; r < 3; r++)
    create(r, 11, "A", 3, (int32_t)r);
  job_pass(&j, ms);
}

static void a_creation_that_all_called_and_none_leaves_is_stalled(void **state) {
  (void)state;
  all_are_in_a_creation(12000);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_STALLED);
  assert_int_equal(v->findings[0].confidence, NT_LIKELY);
  assert_string_equal(set_text(&v->findings[0].blame), "");
  assert_string_equal(set_text(&v->findings[0].waiting), "0-2");
  job_free(&j);
}

static void for_some_seconds_it_may_just_be_connecting(void **state) {
  (void)state;
  all_are_in_a_creation(6000);
  assert_verdict(&j, "consistent");
}

static void an_exit_after_polling_a_creation_is_a_consequence(void **state) {
  (void)state;
  start(3, "0-2");
  create_in_background(0);
  create_in_background(2);
  job_pass(&j, 3000);
  for (uint32_t r = 0; r < 3; r++)
    job_end(&j, r, NT_PROCESS_EXITED, 1);
  assert_init("1", "0-2", NT_LIKELY);
}

static void an_exit_inside_finalize_is_a_consequence(void **state) {
  (void)state;
  uint32_t a = start(2, "0-1"), b = job_comm(&j, "B", "0-1");
  job_record(&j, 0, a, NT_FN_CommFinalize, 0, -1)->seq = 1;
  job_block(&j, 0);
  job_record(&j, 1, b, NT_FN_CommFinalize, 0, -1)->seq = 1;
  job_block(&j, 1);
  job_pass(&j, 3000);
  for (uint32_t r = 0; r < 2; r++)
    job_end(&j, r, NT_PROCESS_EXITED, 1);
  assert_verdict(&j, "teardown CommFinalize 1 blame 0-1 waiting 0");
}

static void a_communicator_in_use_has_been_made(void **state) {
  (void)state;
  start(3, "0-2");
  for (uint32_t r = 0; r < 3; r++)
    create_in_background(r);
  struct nt_model_rank *model = job_rank(&j, 0);
  job_record(&j, 0, 0, NT_FN_AllReduce, 64, -1)->view = model->view_count - 1;
  model->calls[model->call_count - 1].seq = 1;
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_MISSING);
  assert_string_equal(set_text(&v->findings[0].blame), "1-2");
  job_free(&j);
}

static void a_communicator_to_be_made_has_all_its_members(void **state) {
  (void)state;
  start(4, "0-3");
  for (uint32_t r = 0; r < 4; r++)
    if (r != 2)
      create(r, 11, "L", 4, (int32_t)r);
  struct nt_verdict *v = job_judge(&j);
  const struct nt_joint *joint = &v->job.joints[v->findings[0].joint];
  assert_string_equal(set_text(&joint->worlds), "0-3");
  assert_int_equal(joint->ordinal, 2);
  job_free(&j);
}

static void who_ends_a_communicator_does_not_wait_for_those_that_wait_for_it(void **state) {
  (void)state;
  uint32_t w = start(3, "0-2"), p = job_comm(&j, "P", "0,2");
  job_all(&j, w, NT_FN_AllReduce, 16);
  for (uint32_t i = 0; i < 3; i++) {
    job_send(&j, 0, p, 1, 1000000);
    job_recv(&j, 2, p, 0, 1000000);
  }
  for (uint32_t r = 0; r < 2; r++) {
    job_record(&j, r, w, NT_FN_CommFinalize, 0, -1)->seq = 1;
    job_block(&j, r);
  }
  job_recv(&j, 2, p, 0, 1000000);
  job_block(&j, 2);
  assert_verdict(&j, "p2p Recv 4 blame 0 waiting 2");
}

static void to_have_left_one_communicator_comes_before_a_lack_in_another(void **state) {
  (void)state;
  uint32_t a = start(3, "0-2"), b = job_comm(&j, "B", "0-2");
  for (uint32_t i = 0; i < 3; i++) {
    job_all(&j, a, NT_FN_AllReduce, 64);
    job_all(&j, b, NT_FN_AllReduce, 64);
  }
  job_record(&j, 2, b, NT_FN_CommFinalize, 0, -1)->seq = 1;
  job_block(&j, 2);
  job_others(&j, 2, a, NT_FN_AllReduce, 64);
  job_others(&j, 2, b, NT_FN_AllReduce, 64);
  assert_verdict(&j, "left AllReduce 4 blame 2 waiting 0-1");
}

/* A device is held up in front of an all-reduce, and all destroy the communicator. */
static void destroyed_behind_a_kernel(void) {
  uint32_t w = start(3, "0-2");
  for (uint32_t r = 0; r < 3; r++) {
    job_call(&j, r, w, NT_FN_AllReduce, 64);
    at(r, 1, 1, r == 1 ? NT_PROGRESS_ENQUEUED : NT_PROGRESS_REACHED);
  }
  for (uint32_t r = 0; r < 3; r++) {
    job_record(&j, r, w, NT_FN_CommDestroy, 0, -1)->seq = 1;
  }
}

static void a_destroy_waits_for_what_its_device_does(void **state) {
  (void)state;
  destroyed_behind_a_kernel();
  for (uint32_t r = 0; r < 3; r++)
    job_block(&j, r);
  assert_verdict(&j, "gpu AllReduce 1 blame 1 waiting 0-2");
}

static void a_host_waits_for_what_it_left_on_its_device(void **state) {
  (void)state;
  destroyed_behind_a_kernel();
  for (uint32_t r = 0; r < 3; r++) {
    job_record(&j, r, NT_NONE, NT_FN_cudaDeviceSynchronize, 0, -1);
    job_block(&j, r);
  }
  assert_verdict(&j, "gpu AllReduce 1 blame 1 waiting 0-2");
}

static void a_finalize_and_a_creation_that_wait_for_each_other_are_init(void **state) {
  (void)state;
  uint32_t w = start(2, "0-1");
  job_all(&j, w, NT_FN_AllReduce, 16);
  job_record(&j, 0, w, NT_FN_CommFinalize, 0, -1)->seq = 1;
  job_block(&j, 0);
  create(1, 11, "B", 2, 1);
  assert_init("0-1", "0-1", NT_CERTAIN);
}

/* Turns of a broadcast in T and a message in P; then rank 0 stands still. */
static uint32_t turns_of_a_pipeline(void) {
  uint32_t t = start(3, "0-1"), p = job_comm(&j, "P", "0,2");
  for (uint32_t i = 0; i < 3; i++) {
    job_all(&j, t, NT_FN_Broadcast, 64);
    job_send(&j, 0, p, 1, 4096);
    job_recv(&j, 2, p, 0, 4096);
  }
  job_recv(&j, 2, p, 0, 4096);
  job_block(&j, 2);
  return t;
}

static void of_a_message_and_a_collective_the_one_that_was_next_is_named(void **state) {
  (void)state;
  job_call(&j, 1, turns_of_a_pipeline(), NT_FN_Broadcast, 64);
  job_block(&j, 1);
  assert_verdict(&j, "missing Broadcast 4 blame 0 waiting 1");
}

static void a_message_that_was_next_is_named_before_a_collective(void **state) {
  (void)state;
  uint32_t t = turns_of_a_pipeline();
  job_all(&j, t, NT_FN_Broadcast, 64);
  job_call(&j, 1, t, NT_FN_Broadcast, 64);
  job_block(&j, 1);
  assert_verdict(&j, "p2p Recv 4 blame 0 waiting 2");
}

static void a_message_in_front_of_a_collective_is_an_order_too(void **state) {
  (void)state;
  uint32_t w = start(3, "0-2"), p = job_comm(&j, "P", "0-1");
  job_send(&j, 0, p, 1, 10000000);
  at(0, 1, 1, NT_PROGRESS_REACHED);
  for (uint32_t r = 0; r < 3; r++) {
    job_call(&j, r, w, NT_FN_AllReduce, 64);
    at(r, 1, r ? 1 : 2, r ? NT_PROGRESS_REACHED : NT_PROGRESS_ENQUEUED);
  }
  job_recv(&j, 1, p, 0, 10000000);
  at(1, 1, 2, NT_PROGRESS_ENQUEUED);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_CYCLE);
  assert_string_equal(set_text(&v->findings[0].blame), "0-1");
  job_free(&j);
}

static void a_wait_of_a_stream_before_its_first_launch_ties_it(void **state) {
  (void)state;
  job_start(&j, 2);
  uint32_t comm[2] = {job_comm(&j, "A", "0-1"), job_comm(&j, "B", "0-1")};
  for (uint32_t r = 0; r < 2; r++) {
    struct nt_model_call *call;
    job_call(&j, r, comm[r], NT_FN_AllReduce, 64);
    at(r, 1, 1, NT_PROGRESS_REACHED);
    call = job_record(&j, r, NT_NONE, NT_FN_cudaEventRecord, 0, -1);
    call->launch = 1;
    call->event = 77;
    call = job_record(&j, r, NT_NONE, NT_FN_cudaStreamWaitEvent, 0, -1);
    call->stream = 0;
    call->event = 77;
    job_call(&j, r, comm[!r], NT_FN_AllReduce, 64);
    at(r, 2, 1, NT_PROGRESS_ENQUEUED);
  }
  assert_verdict(&j, "cycle AllReduce 1 blame 0-1 waiting 0-1");
}

/* Rank 0 sends to 1 and 2, rank 2 receives from 0 and 1, each in one group that does not end. */
static void groups_of_two_messages(uint32_t w, bool rank_1_sends) {
  j.group = 5;
  for (uint32_t to = 1; to < 3; to++)
    job_send(&j, 0, w, to, 100000);
  job_record(&j, 0, NT_NONE, NT_FN_GroupEnd, 2, -1);
  job_block(&j, 0);
  for (uint32_t from = 0; from < 2; from++)
    job_recv(&j, 2, w, from, 100000);
  job_record(&j, 2, NT_NONE, NT_FN_GroupEnd, 2, -1);
  job_block(&j, 2);
  j.group = 0;
  job_recv(&j, 1, w, 0, 100000);
  at(1, 1, 1, NT_PROGRESS_REACHED);
  if (!rank_1_sends)
    return;
  job_send(&j, 1, w, 2, 100000);
  job_block(&j, 1);
}

static void a_group_that_does_not_end_holds_all_its_messages(void **state) {
  (void)state;
  groups_of_two_messages(start(3, "0-2"), false);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_P2P);
  assert_string_equal(set_text(&v->findings[0].blame), "0-2");
  job_free(&j);
}

static void groups_in_which_nothing_is_missing_are_stalled(void **state) {
  (void)state;
  groups_of_two_messages(start(3, "0-2"), true);
  struct nt_verdict *v = job_judge(&j);
  assert_int_equal(nt_verdict_class(v), NT_CLASS_STALLED);
  assert_string_equal(set_text(&v->findings[0].blame), "");
  job_free(&j);
}

#define TEST(name) cmocka_unit_test(name)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(who_waits_behind_a_wrong_pair_is_no_end_of_a_chain),
      TEST(pairs_created_around_a_circle_wait_for_each_other),
      TEST(creations_that_lack_one_end_at_who_creates_nothing),
      TEST(creations_that_may_lack_several_ranks_blame_nobody),
      TEST(a_creation_that_waits_for_nobody_known_is_not_the_cause),
      TEST(creations_without_names_may_be_one_with_two_ids),
      TEST(who_waits_in_another_creation_is_no_end),
      TEST(a_creation_in_progress_is_under_way),
      TEST(a_creation_that_all_called_and_none_leaves_is_stalled),
      TEST(for_some_seconds_it_may_just_be_connecting),
      TEST(an_exit_after_polling_a_creation_is_a_consequence),
      TEST(an_exit_inside_finalize_is_a_consequence),
      TEST(a_communicator_in_use_has_been_made),
      TEST(a_communicator_to_be_made_has_all_its_members),
      TEST(who_ends_a_communicator_does_not_wait_for_those_that_wait_for_it),
      TEST(to_have_left_one_communicator_comes_before_a_lack_in_another),
      TEST(a_destroy_waits_for_what_its_device_does),
      TEST(a_host_waits_for_what_it_left_on_its_device),
      TEST(a_finalize_and_a_creation_that_wait_for_each_other_are_init),
      TEST(of_a_message_and_a_collective_the_one_that_was_next_is_named),
      TEST(a_message_that_was_next_is_named_before_a_collective),
      TEST(a_message_in_front_of_a_collective_is_an_order_too),
      TEST(a_wait_of_a_stream_before_its_first_launch_ties_it),
      TEST(a_group_that_does_not_end_holds_all_its_messages),
      TEST(groups_in_which_nothing_is_missing_are_stalled),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
